"""The profiles of GPUs nobody here has measured: public figures, and what follows from them.

Run: `python -m benchmarks gpu_profiles table`. Writes `analyzer/devices/profiles/NAME.json` for every record of `gpu_profiles.json`; the H100's and the
H200's, which were measured, are not touched: the first is what `analyze calibrate --ranks 2` wrote on two of them on 24 November 2026. Rules:

1. Memory, multiprocessors and compute capability are NVIDIA's own figures. Of the memory there are two: what nvidia-smi lists
   (`listed_bytes`), and what CUDA has to give (`total_memory`: `capacity_bytes`), which is 0.1 to 4 % less (`cuda_mib`). Looked up in public material
   in November 2026, all of them as written here: the memory and NVML's name in logs of nvidia-smi of eighteen of these GPUs (`in_logs`;
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
       H200             678           687   measured here, torch 2.11, CUDA 13.0; an H100's context is the same to the byte, and is taken as it is

   Processes that had loaded a model and computed nothing held less (A100 409, 414, RTX 4090 379, RTX 3090 255, 259, RTX 6000 Ada 426, 429:
   about 80 % of a context; H200 518 of 610): such a program's range begins there (`analyzer/runtimes/ranges.py`).
3. The context's range is 10 % less and 12 % and 10 MiB more: all but one of these lie in it (a T4's 164). Architectures from 10.0 have
   been seen on two GPUs of 12.0 alone: 25 % for the others.
4. **A handle of cuBLAS**, of which each thread has one, holds twice the workspace its manual recommends for the architecture, as the
   H200's does (64 MiB where the manual says 32): 8 MiB below compute capability 9, 64 MiB on 9 and 10, 24 MiB on 12. Eight trainings on a
   V100 held no more than 16 MiB above a loaded model (transformers v4.21), trainings on an A10G 11 MiB (optimum-benchmark).

5. **cuDNN's description** of a GPU (`cudnn_device`, in its own field names) is what it is asked by (`analyzer/libraries/cudnn/`). Limits of
   blocks and multiprocessors follow from the compute capability (CUDA C++ Programming Guide, technical specifications); L2 and clocks are those of
   NVIDIA's data sheets and white papers, written down as remembered: cuDNN's choices do not follow them
   (`tests/libraries/cudnn/test_asker.py` asks with each of them halved and doubled).

Contexts of older releases, which hold every kernel, are `analyzer/devices/contexts.py`'s.
Source of 4's manual: NVIDIA, cuBLAS, cublasSetWorkspace(), recommended sizes by architecture (Hopper and Blackwell 10.x 32 MiB, 12.x 12 MiB,
others 4 MiB).
Not modelled: CUDA_MODULE_LOADING=EAGER; Windows, where CUDA has what nvidia-smi lists.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from analyzer.devices.architectures import ARCHITECTURES, Architecture
from analyzer.devices.contexts import BASE_BYTES, THREAD_BYTES
from analyzer.devices.loader import DEFAULT, PROFILES

_MIB = 1 << 20
_SEEN_SO = "published: processes on sixteen GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
_UNSEEN = "assumed from GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
# Compute capabilities nobody published a context of.
_NOT_SEEN = ("6.0", "10.0", "10.3")
# A record for each GPU. listed_mib: what nvidia-smi lists; in_logs: whether that and NVML's names were looked up in logs of it; source: of the
# multiprocessors. cuda_mib: what CUDA has of it, the least and the most that public logs from Linux say, and between them the one with the newest
# driver (580, which CUDA 13 wants); cuda_seen: what they are. "N torch R" is the first line of Ultralytics' programs or `_CudaDeviceProperties`
# under that release, "G GiB" PyTorch's "total capacity of", "llama.cpp" what it lists. Drivers keep more for themselves from release to release,
# some 145 MiB between 550 and 580 (L4 130, A10G 136, RTX 4090 129, RTX 3060 126, RTX 3080 Ti 144) and 190 on compute capability 7.5 (T4 190,
# RTX 2080 Ti 187): "older" says that only such a driver was seen, and that the figure is so much less. l2_kib, sm_mhz, memory_mhz: L2, and clocks
# of multiprocessors and memory.
_GPUS: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _architecture(capability: str) -> Architecture:
    """What "8.9" has."""
    major, _, minor = capability.partition(".")
    return ARCHITECTURES[int(major), int(minor)]


def cudnn_device(gpu: dict[str, Any]) -> dict[str, Any]:
    """cuDNN's description of a GPU, in its own field names."""
    capability = gpu["capability"]
    architecture = _architecture(capability)
    return {
        "deviceName": next(iter(gpu["nvml"]), f"NVIDIA {gpu['name']}"),
        "deviceVer": int(float(capability) * 100 + 0.5),
        "multiProcessorCount": gpu["multiprocessors"],
        "totalGlobalMem": gpu["listed_mib"] * _MIB,
        "l2CacheSize": gpu["l2_kib"] << 10,
        "smClockRateKHz": 1000 * gpu["sm_mhz"],
        "memClockRateKHz": 1000 * gpu["memory_mhz"],
        "maxThreadsPerSM": architecture.threads_per_sm,
        "maxCtasPerSM": architecture.blocks_per_sm,
        "maxSharedMemoryPerBlockOptin": architecture.block_shared_bytes,
        "reservedSharedMemoryPerBlock": 1024 if float(capability) >= 8 else 0,
        "maxSharedMemoryPerBlock": 49152,
        "maxThreadsPerBlock": 1024,
        "maxBlockSize": [1024, 1024, 64],
        "maxGridSize": [2147483647, 65535, 65535],
        "regsPerBlock": 65536,
        "maxRegistersPerSM": 65536,
        "warpSize": 32,
        "supportCoopLaunch": 1,
        "isTccDriver": 0,
        "pciDeviceId": 6,
        "cudaDeviceId": 0,
        "driverVer": 13000,
    }


def profiles() -> dict[str, dict[str, Any]]:
    """Name -> the profile's content."""
    measured = json.loads((PROFILES / f"{DEFAULT}.json").read_text(encoding="utf-8"))
    return {gpu["name"]: _profile(measured, gpu) for gpu in _GPUS}


def _profile(measured: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any]:
    capability, sms = gpu["capability"], gpu["multiprocessors"]
    threads, seen = _architecture(capability).threads_per_sm, capability not in _NOT_SEEN
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
    families = measured["modules_bytes"] | {"cublas": handle_mib * _MIB}
    return {
        "name": gpu["name"],
        "nvml_names": gpu["nvml"],
        **_memory(gpu),
        "compute_capability": [int(part) for part in capability.split(".")],
        "sm_count": sms,
        "max_threads_per_sm": threads,
        "context_bytes": context,
        "context_range_bytes": [least, most],
        "driver_bytes": measured["driver_bytes"],
        "first_kernel_bytes": context * 18 // 100,
        "modules_bytes": families,
        "per_thread_modules": measured["per_thread_modules"],
        "cublas_workspace_bytes": measured["cublas_workspace_bytes"] if hopper else 8_519_680,
        "cublaslt_workspace_bytes": measured["cublaslt_workspace_bytes"],
        "measured": False,
        "cudnn_device": cudnn_device(gpu),
        "sources": {
            **_memory_sources(gpu),
            "compute_capability": "specified: NVIDIA, CUDA GPU Compute Capability (developer.nvidia.com/cuda-gpus)",
            "sm_count": f"specified: {gpu['source']}",
            "max_threads_per_sm": "specified: CUDA C++ Programming Guide, technical specifications per compute capability",
            "context_bytes": _SEEN_SO if seen else _UNSEEN,
            "context_range_bytes": "assumed: " + ("10 % less, 12 % and 10 MiB more" if seen else "25 % more or less") + " (benchmarks/gpu_profiles.py, rule 3)",
            "driver_bytes": "assumed from h100, measured there",
            "first_kernel_bytes": "assumed: 18 % of the context (benchmarks/gpu_profiles.py, rule 2)",
            "modules_bytes": f"{code}; cuBLAS's handle: twice its manual's workspace, as there (benchmarks/gpu_profiles.py, rule 4)",
            "per_thread_modules": code,
            "cublas_workspace_bytes": f"specified: aten/src/ATen/cuda/CublasHandlePool: {cublas}",
            "cublaslt_workspace_bytes": "specified: aten/src/ATen/cuda/CublasHandlePool.cpp (parseCUDABlasLtWorkspaceSize), the same on every GPU; which releases of torch take it: analyze explain cublaslt-workspace",
            "cudnn_device": "specified: NVIDIA's data sheets and white papers; CUDA C++ Programming Guide (benchmarks/gpu_profiles.py, cuDNN's description)",
        },
    }  # fmt: skip


def _memory(gpu: dict[str, Any]) -> dict[str, Any]:
    """The fields of a GPU's memory."""
    least, taken, most = gpu["cuda_mib"]
    found = {"capacity_bytes": taken * _MIB, "listed_bytes": gpu["listed_mib"] * _MIB}
    return found if least == most else {**found, "capacity_range_bytes": [least * _MIB, most * _MIB]}


def _memory_sources(gpu: dict[str, Any]) -> dict[str, str]:
    """Where each of these fields is from."""
    (least, _, most), seen = gpu["cuda_mib"], gpu["cuda_seen"]
    listed = f"specified: total memory as nvidia-smi lists it for this model ({gpu['listed_mib']:,} MiB)"
    kind = "assumed" if seen.startswith(("older", "none")) else "published"
    found = {
        "listed_bytes": listed + (", seen in public logs of it" if gpu["in_logs"] else ""),
        "capacity_bytes": f"{kind}: total_memory in public logs from Linux, MiB: {seen}",
    }
    if least < most:
        found["capacity_range_bytes"] = (
            f"{kind}: the least and the most of these (benchmarks/gpu_profiles.py, rule 1)"
        )
    return found


@click.command("table")
def main() -> None:
    """Write them all."""
    for name, content in profiles().items():
        (PROFILES / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"{len(_GPUS)} profiles")
