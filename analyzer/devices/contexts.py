"""Contexts of older torch releases: with all kernels, before these were loaded as they are needed, and with
cuDNN 8's code.

1. A context grows with the threads a GPU can have resident: `THREAD_BYTES` each
   (`benchmarks/gpu_profiles.py`, rule 2).
2. Since torch 1.13, on CUDA 11.7 or newer, kernels are loaded when they are first used
   (`CUDA_MODULE_LOADING=LAZY`, pytorch/pytorch#86509: 287,047,680 bytes with a first tensor, 666,632,192
   without it). Before, the context held every kernel of PyTorch's and cuBLAS's for the GPU, by the builds of
   the time: those for compute capability 8 have more (MiB, what is published less the context of rule 1):

       torch         for   least  used   most  published
       up to 1.4     all     560   610    660  TITAN RTX 590 to 635 in transformers' benchmarks (CUDA 10.1),
                                               TITAN V 620 (#28394)
       1.5 to 1.7    all     600   720    830  RTX 2080 Ti 706 (pytorch/pytorch#49877, CUDA 10.1), 816
                                               (mozilla/TTS#502)
       1.8 to 1.12   7.x     820   960  1,150  V100 960 (transformers v4.21, CUDA 11.2), 845 to 995 (three
                                               messages), T4 1,010 to 1,190 (four messages)
       1.8 to 1.12   8.x   1,060 1,290  1,560  RTX 3090 1,379 (#55277, CUDA 11.1), 1,340 (transformers,
                                               deepspeed.mdx), 1,080 (xiaoxiangAQ/GAS-Net#7), A100 1,130 to
                                               1,580 (three messages)
       1.13 to 2.0   all     300   400    440  RTX 4090 347 to 440 (WSShiro/vramexp at five commits, CUDA
                                               11.7)

3. cuDNN 8 loads its code at once: with torch 1.13 to 2.0 600 MiB once it is used, 60 more or less. Published:
   683 to 717 MiB more than the context in five trainings on an RTX 4090 (vramexp; with kernels and handles),
   0.7 GB for a convolution (pytorch/pytorch#86783). With torch 1.8 to 1.12 it is not as sure, 400 MiB, 300
   more or less: networks with convolutions held 1,140 and 1,320 MiB on a T4, 1,385 and 1,970 on an RTX 3090
   (four messages).
4. With torch 2.1 (CUDA 12.1) and later the profile's own figures hold.

A GPU that was measured keeps its figures: what was measured there is of one release. Messages are those of
out-of-memory errors: what is neither free nor reserved of the memory they name, of processes alone on their
GPU. Not modelled: torch 1.13 to 2.0 where lazy loading came in time (an RTX 4070 Ti, Kwai-Kolors/Kolors#11,
and a laptop's RTX 3060, JiehongLin/SAM-6D#13, held 100 MiB at most besides rule 1: the variable must be there
before anything asks the driver how many GPUs there are); the architectures a build has kernels for; drivers;
Windows.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices.profile import DeviceProfile
from analyzer.releases import Span

_MIB = 1 << 20
# 2.28 KiB of a context for every thread that may be resident, and what it holds besides.
THREAD_BYTES, BASE_BYTES = 2335, 16 * _MIB
# Releases, first compute capability and the one past the last -> least, used and most of the kernels' code;
# cuDNN's code and how far it may be off. MiB.
_OLD = (
    (Span(until=(1, 4)), (0, 99), (560, 610, 660), (0, 0)),
    (Span((1, 5), (1, 7)), (0, 99), (600, 720, 830), (0, 0)),
    (Span((1, 8), (1, 12)), (0, 8), (820, 960, 1150), (400, 300)),
    (Span((1, 8), (1, 12)), (8, 99), (1060, 1290, 1560), (400, 300)),
    (Span((1, 13), (2, 0)), (0, 99), (300, 400, 440), (600, 60)),
)


def of_release(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile with context and library code of its torch (`DeviceProfile.releases`)."""
    release, (major, _) = profile.releases["torch"], profile.compute_capability
    for span, (first, past), code, (cudnn, off) in _OLD:
        if release in span and first <= major < past and not profile.measured:
            own = (profile.context_range_bytes[0], profile.context_bytes, profile.context_range_bytes[1])
            least, used, most = (part + mib * _MIB for part, mib in zip(own, code, strict=True))
            return replace(
                profile,
                context_bytes=used,
                context_range_bytes=(least, most),
                modules_bytes={**profile.modules_bytes, "cudnn code": cudnn * _MIB},
                modules_off_bytes={"cudnn code": off * _MIB},
                sources={
                    **profile.sources,
                    "context_bytes": f"published: processes with torch {span} (analyzer/devices/contexts.py)",
                },
            )
    return profile
