"""The profiles of GPUs nobody here has measured: public figures, and what follows from them.

Run: `python -m benchmarks gpu_profiles table`. Writes `analyzer/devices/profiles/NAME.json` for every line of `_GPUS`; the H200's, which was measured, is not
touched. Rules:

1. Memory, multiprocessors and compute capability are NVIDIA's own figures; memory is what nvidia-smi lists. Looked up in public material
   in November 2026, all of them as written here: the memory and NVML's name in logs of nvidia-smi of eighteen of these GPUs (`_SEEN`;
   a profile's source says whether); multiprocessors of 33 in FanBB2333/FakeGPU's catalogue (at 7d5cf83, which cites NVIDIA's pages,
   and measured 84 on an RTX 3090 Ti and 110 on an RTX PRO 5000), of a GH200 in a log of deviceQuery (132). That catalogue has 160 for
   B200 and B300, where NVIDIA's data sheet has 148.
2. **The context** of a process, its first kernels' modules with it, grows with the threads the GPU can have resident (multiprocessors x
   threads each): 16 MiB and 2.28 KiB a thread. Of that 1 KiB is each thread's stack (`cudaLimitStackSize`, 1,024 bytes by default); the
   rest follows the same count (registers are saved when work is preempted, and one architecture's kernels are much like another's).
   Published, of processes with lazily loaded kernels that had computed (bytes in use less bytes reserved by PyTorch, MiB, beside what the
   rule says of context, kernels and one handle of cuBLAS). Messages of out-of-memory errors round to 10 MiB. Ones without an issue are
   from public files, found by the memory of the GPU they name:

       RTX A500 laptop   69            83   Robbyant/lingbot-map#73
       RTX 4060         115           110   ESRSchao/EdgeRegNet#2
       T4        115 to 164           119   seven messages; Zheng-Chong/CatVTON#133 (135), AlphaGPU/leetgpu-challenges#52 (123)
       RTX A4000        210           192   DengKaiCQ/VGGT-Long#6
       L4               251           226   two messages
       RTX 3080         257           261   bcmi/libcom#54
       RTX 3090  307 to 353           308   three messages
       RTX A6000        358           315   a message
       V100      379 to 399           393   four messages, 16 and 32 GB
       RTX PRO 5000     421           420   FakeGPU's validation (442,049,024 bytes), torch 2.9, CUDA 12.8; less bytes allocated, so at most
       RTX 4090  440 to 495           466   pytorch/torchchat#1341 (495), pinokiofactory/flux-webui#11 (473), four messages
       L40, L40S 495 to 514           514   QwenLM/Qwen3-VL#2097 (507), two messages
       A100      489 to 522           521   TianheWu/CoSeR#10 (501), pico-lm/pico-train#50 (498), Kwai-Keye/Keye#11 (512), four messages
       H100 PCIe 599, 601             604   two messages
       RTX 5090  619, 654             625   TrajectoryCrafter/TrajectoryCrafter#20 (619), a message of vLLM's
       H200             678           687   measured here, torch 2.11, CUDA 13.0

   Processes that had loaded a model and computed nothing held less (A100 409, 414, RTX 4090 379, RTX 3090 255, 259, RTX 6000 Ada 426, 429:
   about 80 % of a context; H200 518 of 610): such a program's range begins there (`analyzer/runtimes/ranges.py`).
3. The context's range is 10 % less and 12 % and 10 MiB more: all but one of these lie in it (a T4's 164). Architectures from 10.0 have
   been seen on two GPUs of 12.0 alone: 25 % for the others.
4. **A handle of cuBLAS**, of which each thread has one, holds twice the workspace its manual recommends for the architecture, as the
   H200's does (64 MiB where the manual says 32): 8 MiB below compute capability 9, 64 MiB on 9 and 10, 24 MiB on 12. Eight trainings on a
   V100 held no more than 16 MiB above a loaded model (transformers v4.21), trainings on an A10G 11 MiB (optimum-benchmark).

Contexts of older releases, which hold every kernel, are `analyzer/devices/contexts.py`'s.
Source of 4's manual: NVIDIA, cuBLAS, cublasSetWorkspace(), recommended sizes by architecture (Hopper and Blackwell 10.x 32 MiB, 12.x 12 MiB,
others 4 MiB).
Not modelled: CUDA_MODULE_LOADING=EAGER; Windows.
"""

from __future__ import annotations

import json
from typing import Any

import click

from analyzer.devices.contexts import BASE_BYTES, THREAD_BYTES
from analyzer.devices.loader import DEFAULT, PROFILES

_MIB = 1 << 20
_THREADS = {
    "7.0": 2048,
    "7.5": 1024,
    "8.0": 2048,
    "8.6": 1536,
    "8.9": 1536,
    "9.0": 2048,
    "10.0": 2048,
    "10.3": 2048,
    "12.0": 1536,
}
_SEEN_SO = "published: processes on sixteen GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
_UNSEEN = "assumed from GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
# Compute capabilities nobody published a context of.
_NOT_SEEN = ("10.0", "10.3")
_RECORDED = ("7.5", "8.0", "8.6", "8.9", "9.0", "12.0")
_TURING = "NVIDIA Turing GPU Architecture whitepaper"
_AMPERE, _GA102 = (
    "NVIDIA A100 Tensor Core GPU Architecture whitepaper",
    "NVIDIA Ampere GA102 GPU Architecture whitepaper",
)
_ADA, _HOPPER = (
    "NVIDIA Ada GPU Architecture whitepaper",
    "NVIDIA H100 Tensor Core GPU Architecture whitepaper",
)
_ADA_SUPER = "NVIDIA GeForce RTX 40 SUPER series, specifications: CUDA cores at 128 per SM"
_RTX_BLACKWELL, _BLACKWELL = (
    "NVIDIA RTX Blackwell GPU Architecture whitepaper",
    "NVIDIA Blackwell data sheet: 148 SMs in two dies",
)
_V100 = "NVIDIA Tesla V100 GPU Architecture whitepaper"


# Whose memory and name were looked up in logs of nvidia-smi.
_SEEN = frozenset((
    "rtx5090", "b200", "b300", "l4", "rtx-pro-6000", "rtx-pro-5000", "rtx5080", "rtx5070ti", "rtx5070", "rtx5060ti-16gb", "rtx4070ti", "rtx4070",
    "h100-nvl", "gh200", "l40s", "a40", "v100", "a10g",
))  # fmt: skip


def _geforce(name: str) -> str:
    return f"NVIDIA GeForce {name}|GeForce {name}"


# Name, MiB, compute capability, multiprocessors, where the last is from, NVML's names.
_GPUS = (
    ("t4", 15360, "7.5", 40, f"{_TURING}, T4: 2,560 CUDA cores at 64 per SM", "Tesla T4|NVIDIA T4"),
    ("titan-rtx", 24576, "7.5", 72, _TURING, "NVIDIA TITAN RTX|TITAN RTX"),
    ("rtx2080ti", 11264, "7.5", 68, _TURING, _geforce("RTX 2080 Ti")),
    ("v100", 16160, "7.0", 80, f"{_V100}, 16 GB", "Tesla V100-SXM2-16GB|Tesla V100-PCIE-16GB"),
    ("v100-32gb", 32768, "7.0", 80, _V100, "Tesla V100-SXM2-32GB|Tesla V100-PCIE-32GB|Tesla V100-SXM3-32GB"),
    ("a10", 23028, "8.6", 72, "NVIDIA A10 data sheet: 9,216 CUDA cores at 128 per SM", "NVIDIA A10"),
    ("a10g", 23028, "8.6", 80, "cudaGetDeviceProperties as published for AWS g5 instances", "NVIDIA A10G"),
    ("a30", 24576, "8.0", 56, "NVIDIA A30 data sheet: 3,584 CUDA cores at 64 per SM", "NVIDIA A30"),
    ("a40", 46068, "8.6", 84, _GA102, "NVIDIA A40"),
    ("a4000", 16376, "8.6", 48, "NVIDIA RTX A4000 data sheet: 6,144 CUDA cores at 128 per SM", "NVIDIA RTX A4000|RTX A4000"),
    ("a5000", 24564, "8.6", 64, "NVIDIA RTX A5000 data sheet: 8,192 CUDA cores at 128 per SM", "NVIDIA RTX A5000|RTX A5000"),
    ("a6000", 49140, "8.6", 84, _GA102, "NVIDIA RTX A6000|RTX A6000"),
    ("a100-40gb", 40960, "8.0", 108, _AMPERE, "NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB|A100-SXM4-40GB|A100-PCIE-40GB"),
    ("a100-80gb", 81920, "8.0", 108, _AMPERE, "NVIDIA A100-SXM4-80GB|NVIDIA A100 80GB PCIe|A100-SXM4-80GB"),
    ("rtx3060", 12288, "8.6", 28, _GA102, _geforce("RTX 3060")),
    ("rtx3060ti", 8192, "8.6", 38, _GA102, _geforce("RTX 3060 Ti")),
    ("rtx3070", 8192, "8.6", 46, _GA102, _geforce("RTX 3070")),
    ("rtx3070ti", 8192, "8.6", 48, _GA102, _geforce("RTX 3070 Ti")),
    ("rtx3080", 10240, "8.6", 68, _GA102, _geforce("RTX 3080")),
    ("rtx3080ti", 12288, "8.6", 80, _GA102, _geforce("RTX 3080 Ti")),
    ("rtx3090", 24576, "8.6", 82, _GA102, _geforce("RTX 3090")),
    ("rtx3090ti", 24564, "8.6", 84, _GA102, _geforce("RTX 3090 Ti")),
    ("l4", 23034, "8.9", 58, "NVIDIA L4 data sheet: 7,424 CUDA cores at 128 per SM", "NVIDIA L4"),
    ("l40", 46068, "8.9", 142, _ADA, "NVIDIA L40"),
    ("l40s", 46068, "8.9", 142, "NVIDIA L40S data sheet: 18,176 CUDA cores at 128 per SM", "NVIDIA L40S"),
    ("rtx4060", 8188, "8.9", 24, _ADA, "NVIDIA GeForce RTX 4060"),
    ("rtx4060ti-8gb", 8188, "8.9", 34, _ADA, ""),
    ("rtx4060ti-16gb", 16380, "8.9", 34, _ADA, ""),
    ("rtx4070", 12282, "8.9", 46, _ADA, "NVIDIA GeForce RTX 4070"),
    ("rtx4070super", 12282, "8.9", 56, _ADA_SUPER, "NVIDIA GeForce RTX 4070 SUPER"),
    ("rtx4070ti", 12282, "8.9", 60, _ADA, "NVIDIA GeForce RTX 4070 Ti"),
    ("rtx4070tisuper", 16376, "8.9", 66, _ADA_SUPER, "NVIDIA GeForce RTX 4070 Ti SUPER"),
    ("rtx4080", 16376, "8.9", 76, _ADA, "NVIDIA GeForce RTX 4080"),
    ("rtx4080super", 16376, "8.9", 80, _ADA_SUPER, "NVIDIA GeForce RTX 4080 SUPER"),
    ("rtx4090", 24564, "8.9", 128, _ADA, "NVIDIA GeForce RTX 4090"),
    ("rtx6000-ada", 49140, "8.9", 142, _ADA, "NVIDIA RTX 6000 Ada Generation"),
    ("h100", 81559, "9.0", 132, f"{_HOPPER}, SXM5", "NVIDIA H100 80GB HBM3"),
    ("h100-pcie", 81559, "9.0", 114, f"{_HOPPER}, PCIe", "NVIDIA H100 PCIe"),
    ("h100-nvl", 95830, "9.0", 132, "NVIDIA H100 NVL product brief: 16,896 CUDA cores at 128 per SM", "NVIDIA H100 NVL"),
    ("gh200", 97871, "9.0", 132, "NVIDIA GH200 Grace Hopper Superchip data sheet, 96 GB", "NVIDIA GH200 480GB|NVIDIA GH200 120GB"),
    ("b200", 183359, "10.0", 148, _BLACKWELL, "NVIDIA B200"),
    ("b300", 275040, "10.3", 148, "cudaGetDeviceProperties as published for B300", "NVIDIA B300 SXM6 AC"),
    ("rtx5060ti-16gb", 16311, "12.0", 36, _RTX_BLACKWELL, ""),
    ("rtx5070", 12227, "12.0", 48, _RTX_BLACKWELL, "NVIDIA GeForce RTX 5070"),
    ("rtx5070ti", 16303, "12.0", 70, _RTX_BLACKWELL, "NVIDIA GeForce RTX 5070 Ti"),
    ("rtx5080", 16303, "12.0", 84, _RTX_BLACKWELL, "NVIDIA GeForce RTX 5080"),
    ("rtx5090", 32607, "12.0", 170, _RTX_BLACKWELL, "NVIDIA GeForce RTX 5090"),
    ("rtx-pro-5000", 48935, "12.0", 110, _RTX_BLACKWELL, "NVIDIA RTX PRO 5000 Blackwell"),
    ("rtx-pro-6000", 97887, "12.0", 188, _RTX_BLACKWELL,
     "NVIDIA RTX PRO 6000 Blackwell Workstation Edition|NVIDIA RTX PRO 6000 Blackwell Server Edition"),
)  # fmt: skip


def profiles() -> dict[str, dict[str, Any]]:
    """Name -> the profile's content."""
    measured = json.loads((PROFILES / f"{DEFAULT}.json").read_text(encoding="utf-8"))
    return {gpu[0]: _profile(measured, *gpu) for gpu in _GPUS}


def _profile(
    measured: dict[str, Any], name: str, mib: int, capability: str, sms: int, source: str, nvml: str
) -> dict[str, Any]:
    threads, seen = _THREADS[capability], capability not in _NOT_SEEN
    context = BASE_BYTES + sms * threads * THREAD_BYTES
    least, most = (
        (context * 9 // 10, context * 112 // 100 + 10 * _MIB)
        if seen
        else (context * 3 // 4, context * 5 // 4)
    )
    hopper = float(capability) >= 9
    handle_mib = 24 if float(capability) >= 12 else 64 if hopper else 8
    cublas = "32 MiB on compute capability 9.x, 10.x, 12.x"
    if not hopper:
        cublas = "4096 KiB x 2 + 16 KiB x 8 = 8,519,680 B below compute capability 9"
    code = "assumed from h200, measured there; no public figure"
    choices = "assumed: cuDNN's choices are those of the nearest compute capability"
    if capability in _RECORDED:
        choices = f"recorded: cuDNN 9.19's choices for compute capability {capability} (analyzer/libraries/cudnn/table.py)"
    families = {
        key: value for key, value in measured["modules_bytes"].items() if not key.startswith("local_memory")
    } | {"cublas": handle_mib * _MIB}
    return {
        "name": name,
        "nvml_names": [part for part in nvml.split("|") if part],
        "capacity_bytes": mib * _MIB,
        "compute_capability": [int(part) for part in capability.split(".")],
        "sm_count": sms,
        "max_threads_per_sm": threads,
        "context_bytes": context,
        "context_range_bytes": [least, most],
        "modules_bytes": families,
        "per_thread_modules": measured["per_thread_modules"],
        "cublas_workspace_bytes": measured["cublas_workspace_bytes"] if hopper else 8_519_680,
        "cublaslt_workspace_bytes": measured["cublaslt_workspace_bytes"],
        "measured": False,
        "sources": {
            "capacity_bytes": f"specified: total memory as nvidia-smi lists it for this model ({mib:,} MiB)"
            + (", seen in public logs of it" if name in _SEEN else ""),
            "compute_capability": "specified: NVIDIA, CUDA GPU Compute Capability (developer.nvidia.com/cuda-gpus)",
            "sm_count": f"specified: {source}",
            "max_threads_per_sm": "specified: CUDA C++ Programming Guide, technical specifications per compute capability",
            "context_bytes": _SEEN_SO if seen else _UNSEEN,
            "context_range_bytes": "assumed: " + ("10 % less, 12 % and 10 MiB more" if seen else "25 % more or less") + " (benchmarks/gpu_profiles.py, rule 3)",
            "modules_bytes": f"{code}; cuBLAS's handle: twice its manual's workspace, as there (benchmarks/gpu_profiles.py, rule 4)",
            "per_thread_modules": code,
            "cublas_workspace_bytes": f"specified: aten/src/ATen/cuda/CublasHandlePool: {cublas}",
            "cublaslt_workspace_bytes": "specified: aten/src/ATen/cuda/CublasHandlePool.cpp (parseCUDABlasLtWorkspaceSize), the same on every GPU; which releases of torch take it: analyze explain cublaslt-workspace",
            "data": choices,
        },
    }  # fmt: skip


@click.command("table")
def main() -> None:
    """Write them all."""
    for name, content in profiles().items():
        (PROFILES / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"{len(_GPUS)} profiles")
