"""The profiles of GPUs nobody here has measured: public figures, and what follows from them.

Run: `python -m benchmarks gpu_profiles table`. Writes `analyzer/devices/profiles/NAME.json` for every line of `_GPUS`; the H100's and the
H200's, which were measured, are not touched: the first is what `analyze calibrate --ranks 2` wrote on two of them on 24 November 2026. Rules:

1. Memory, multiprocessors and compute capability are NVIDIA's own figures. Of the memory there are two: what nvidia-smi lists
   (`listed_bytes`), and what CUDA has to give (`total_memory`: `capacity_bytes`), which is 0.1 to 4 % less (`_CUDA`). Looked up in public material
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
from typing import Any

import click

from analyzer.devices.architectures import ARCHITECTURES, Architecture
from analyzer.devices.contexts import BASE_BYTES, THREAD_BYTES
from analyzer.devices.loader import DEFAULT, PROFILES

_MIB = 1 << 20
_SEEN_SO = "published: processes on sixteen GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
_UNSEEN = "assumed from GPUs of compute capability 7.0 to 12.0 (benchmarks/gpu_profiles.py, rule 2)"
# Compute capabilities nobody published a context of.
_NOT_SEEN = ("10.0", "10.3")
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


# What CUDA has of a GPU, MiB: least and most that public logs from Linux say, the one with the newest driver (580, which CUDA 13 wants) in
# between, and what they are. "N torch R" is the first line of Ultralytics' programs or `_CudaDeviceProperties` under that release, "G GiB"
# PyTorch's "total capacity of", "llama.cpp" what it lists. Drivers keep more for themselves from release to release, some 145 MiB between 550
# and 580 (L4 130, A10G 136, RTX 4090 129, RTX 3060 126, RTX 3080 Ti 144) and 190 on compute capability 7.5 (T4 190, RTX 2080 Ti 187):
# "older" says that only such a driver was seen, and that the figure is so much less.
_OLDER, _OLDER_TURING = 145, 190
_CUDA = {
    "t4": (14912, 14912, 15110, "14,912 llama.cpp and torch 2.2; 14.56 GiB; 15,095 torch 2.9; 15,102 torch 2.5"),
    "titan-rtx": (24212 - _OLDER_TURING, 24212 - _OLDER_TURING, 24212, "older: 24,212 torch 1.13"),
    "rtx2080ti": (10813, 10825, 11020, "10,825 torch 2.6; 10.56, 10.57 GiB; 11,012 torch 2.1; 11,020 torch 1.11"),
    "v100": (16130, 16144, 16160, "16,144 in a log of 2026; 16,160 torch 1.10; 16,130 torch 1.7"),
    "v100-32gb": (32494, 32494, 32501, "32,494 torch 2.6 and llama.cpp; 32,501 torch 2.6; 31.73 GiB"),
    "a10": (22595, 22600, 22731, "22.07 GiB; 22,731 llama.cpp; 22.18 GiB torch 2.3"),
    "a10g": (22587, 22587, 22723, "22,587 torch 2.15; 22,723 torch 1.x; 22.05 to 22.07 GiB"),
    "a30": (24164 - _OLDER, 24164 - _OLDER, 24164, "older: 24,164 torch 2.8"),
    "a40": (45416 - _OLDER, 45416 - _OLDER, 45416, "older: 45,416 torch 2.x; 48,688 without error correction"),
    "a4000": (16117 - _OLDER, 16117 - _OLDER, 16117, "older: 16,117 torch 1.10 and 1.12"),
    "a5000": (24114, 24114, 24248, "24,114 and 24,138 torch 2.x; 24,248 torch 2.1; 22,721 with error correction"),
    "a6000": (48676 - _OLDER, 48676 - _OLDER, 48676, "older: 48,676 torch 2.x"),
    "a100-40gb": (40326, 40441, 40654, "40,441 torch 2.11; 40,514 torch 2.5; 40,326 torch 1.9 (PCIe); 40,654 torch 2.12"),
    "a100-80gb": (81038, 81153, 81251, "79.25 GiB torch 2.14; 81,153 torch 2.7; 81,151 llama.cpp; 81,038 torch 2.3; 81,251 torch 1.13"),
    "rtx3060": (11910, 11910, 12045, "11,910 torch 2.10; 11,931 torch 2.4; 12,036 torch 2.1; 12,045 torch 1.13"),
    "rtx3060ti": (7833, 7833, 7833, "7,833 torch 2.11"),
    "rtx3070": (7753, 7842, 7974, "7,842 torch 2.10; 7,819 llama.cpp; 7,753 torch 2.6; 7,974 torch 1.8"),
    "rtx3070ti": (7840, 7840, 7840, "7,840 llama.cpp"),
    "rtx3080": (9851, 9871, 10009, "9.62 to 9.65 GiB; 10,002 torch 2.6; 10,009 torch 1.13"),
    "rtx3080ti": (11910, 11910, 12054, "11,910 in a log of 2026; 12,054 torch 1.12"),
    "rtx3090": (24123, 24124, 24268, "24,124 torch 2.13; 24,123 llama.cpp; 24,139 torch 2.5; 24,260 torch 2.3; 24,268 torch 1.13"),
    "rtx3090ti": (24110, 24110, 24214, "24,110 torch 2.9; 24,142 torch 2.2; 24,214 torch 2.1"),
    "l4": (22563, 22563, 22693, "22,563 torch 2.11; 22,693 torch 2.8"),
    "l40": (45455, 45467, 45589, "none; taken to be as an L40S, which has the same memory"),
    "l40s": (45455, 45467, 45589, "44.39 GiB torch 2.14; 45,467 llama.cpp; 45,495 torch 2.2; 45,589 torch 2.x"),
    "rtx4060": (7807, 7807, 7807, "7,807 torch 2.5, in a log of 2026"),
    "rtx4060ti-8gb": (7806, 7806, 7806, "7,806 torch 2.12"),
    "rtx4060ti-16gb": (15944, 15944, 15974, "15.57, 15.60 GiB"),
    "rtx4070": (11866, 11903, 12002, "11,903 and 11,866 llama.cpp; 12,002 torch 2.5; 11,994 torch 1.13"),
    "rtx4070super": (11853, 11858, 11863, "11.58 GiB"),
    "rtx4070ti": (12007 - _OLDER, 12007 - _OLDER, 12007, "older: 12,007 torch 2.1"),
    "rtx4070tisuper": (15934, 15934, 15974, "15,934 in a log of 2026; 15,974 driver 560"),
    "rtx4080": (15945, 15945, 15945, "15,945 in a log of 2026"),
    "rtx4080super": (15944, 15944, 15944, "15,944 torch 2.12"),
    "rtx4090": (24045, 24081, 24217, "24,081 torch 2.5, in a log of 2026; 23.52 GiB torch 2.14; 24,072 torch 2.11; 24,045 in a log of 2025; "
        "24,177 torch 2.5; 24,210 torch 2.1; 24,217 torch 2.1"),
    "rtx6000-ada": (48497, 48497, 48539, "48,497 torch 2.7; 48,539 torch 2.4"),
    "h100-pcie": (81008, 81008, 81008, "81,008 torch 2.0; an H100 SXM's changed by 11 MiB since"),
    "h100-nvl": (95319, 95324, 95340, "93.09, 93.10 GiB"),
    "gh200": (96763, 96768, 97280, "94.50 GiB; 97,280 deviceQuery"),
    "b200": (182630, 182631, 182642, "182,631 torch 2.10; 182,642 torch 2.7; 178.35, 178.36 GiB"),
    "b300": (274110, 274115, 274120, "267.69 GiB"),
    "rtx5060ti-16gb": (15825, 15848, 15850, "15,848 torch 2.12; 15,850 torch 2.10; 15,825 llama.cpp; 15,841 torch 2.x"),
    "rtx5070": (11755, 11755, 11771, "11,755 hashcat, CUDA 12.9; 11.49 GiB"),
    "rtx5070ti": (15808, 15808, 15842, "15,808 and 15,842 llama.cpp"),
    "rtx5080": (15840, 15840, 15880, "15,840 in a log of 2026; 15,880 llama.cpp"),
    "rtx5090": (32102, 32109, 32120, "32,102 torch 2.12; 31.36 GiB torch 2.14; 32,109 and 32,119 llama.cpp; 32,120 torch 2.6"),
    "rtx-pro-5000": (48358, 48364, 48404, "47.23 GiB torch 2.13; 47.26, 47.27 GiB"),
    "rtx-pro-6000": (97239, 97250, 97290, "97,250 torch 2.7; 97,247 llama.cpp; 94.96 to 95.01 GiB"),
}  # fmt: skip

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


# L2 (KiB), clocks of multiprocessors and memory (MHz).
_CLOCKS = {
    "t4": (4096, 1590, 5001), "titan-rtx": (6144, 1770, 7001), "rtx2080ti": (5632, 1545, 7000), "v100": (6144, 1530, 877),
    "v100-32gb": (6144, 1530, 877), "a10": (6144, 1695, 6251), "a10g": (6144, 1710, 6251), "a30": (24576, 1440, 1215),
    "a40": (6144, 1740, 7251), "a4000": (4096, 1560, 7001), "a5000": (6144, 1695, 8001), "a6000": (6144, 1800, 8001),
    "a100-40gb": (40960, 1410, 1215), "a100-80gb": (40960, 1410, 1593), "rtx3060": (3072, 1777, 7501), "rtx3060ti": (4096, 1665, 7001),
    "rtx3070": (4096, 1725, 7001), "rtx3070ti": (4096, 1770, 9501), "rtx3080": (5120, 1710, 9501), "rtx3080ti": (6144, 1665, 9501),
    "rtx3090": (6144, 1695, 9751), "rtx3090ti": (6144, 1860, 10501), "l4": (49152, 2040, 6251), "l40": (98304, 2490, 9001),
    "l40s": (98304, 2520, 9001), "rtx4060": (24576, 2460, 8501), "rtx4060ti-8gb": (32768, 2535, 9001),
    "rtx4060ti-16gb": (32768, 2535, 9001), "rtx4070": (36864, 2475, 10501), "rtx4070super": (49152, 2475, 10501),
    "rtx4070ti": (49152, 2610, 10501), "rtx4070tisuper": (49152, 2610, 10501), "rtx4080": (65536, 2505, 11201),
    "rtx4080super": (65536, 2550, 11501), "rtx4090": (73728, 2520, 10501), "rtx6000-ada": (98304, 2505, 10001),
    "h100-pcie": (51200, 1755, 1593), "h100-nvl": (61440, 1785, 2619), "gh200": (61440, 1980, 2619), "b200": (129024, 1965, 3996),
    "b300": (129024, 1920, 3996), "rtx5060ti-16gb": (32768, 2572, 14001), "rtx5070": (49152, 2512, 14001),
    "rtx5070ti": (49152, 2452, 14001), "rtx5080": (65536, 2617, 15001), "rtx5090": (98304, 2407, 14001),
    "rtx-pro-5000": (98304, 2617, 14001), "rtx-pro-6000": (131072, 2617, 14001),
}  # fmt: skip


def _architecture(capability: str) -> Architecture:
    """What "8.9" has."""
    major, _, minor = capability.partition(".")
    return ARCHITECTURES[int(major), int(minor)]


def cudnn_device(name: str, nvml: str, mib: int, capability: str, sms: int) -> dict[str, Any]:
    """cuDNN's description of a GPU, in its own field names."""
    architecture = _architecture(capability)
    l2_kib, sm_mhz, memory_mhz = _CLOCKS[name]
    return {
        "deviceName": nvml.split("|", maxsplit=1)[0] or f"NVIDIA {name}",
        "deviceVer": int(float(capability) * 100 + 0.5),
        "multiProcessorCount": sms,
        "totalGlobalMem": mib * _MIB,
        "l2CacheSize": l2_kib << 10,
        "smClockRateKHz": 1000 * sm_mhz,
        "memClockRateKHz": 1000 * memory_mhz,
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
    return {gpu[0]: _profile(measured, *gpu) for gpu in _GPUS}


def _profile(
    measured: dict[str, Any], name: str, mib: int, capability: str, sms: int, source: str, nvml: str
) -> dict[str, Any]:
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
    families = {
        key: value for key, value in measured["modules_bytes"].items() if not key.startswith("local_memory")
    } | {"cublas": handle_mib * _MIB}
    return {
        "name": name,
        "nvml_names": [part for part in nvml.split("|") if part],
        **_memory(name, mib),
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
        "cudnn_device": cudnn_device(name, nvml, mib, capability, sms),
        "sources": {
            **_memory_sources(name, mib),
            "compute_capability": "specified: NVIDIA, CUDA GPU Compute Capability (developer.nvidia.com/cuda-gpus)",
            "sm_count": f"specified: {source}",
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


def _memory(name: str, listed_mib: int) -> dict[str, Any]:
    """The fields of a GPU's memory."""
    least, taken, most, _ = _CUDA[name]
    found = {"capacity_bytes": taken * _MIB, "listed_bytes": listed_mib * _MIB}
    return found if least == most else {**found, "capacity_range_bytes": [least * _MIB, most * _MIB]}


def _memory_sources(name: str, listed_mib: int) -> dict[str, str]:
    """Where each of these fields is from."""
    found = {
        "listed_bytes": f"specified: total memory as nvidia-smi lists it for this model ({listed_mib:,} MiB)"
        + (", seen in public logs of it" if name in _SEEN else "")
    }
    least, _, most, seen = _CUDA[name]
    kind = "assumed" if seen.startswith(("older", "none")) else "published"
    found["capacity_bytes"] = f"{kind}: total_memory in public logs from Linux, MiB: {seen}"
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
