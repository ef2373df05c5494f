"""What a process held of a GPU with an older torch: its context before kernels were loaded as they are needed, and cuDNN 8's code.

1. Since torch 1.13, on CUDA 11.7 or newer, kernels are loaded when they are first used (`CUDA_MODULE_LOADING=LAZY`, pytorch/pytorch#86509:
   287,047,680 bytes with a first tensor, 666,632,192 without it). Before, the context held every kernel of PyTorch's for the GPU, by the
   builds of the time. A GPU's context is its threads' stacks (`benchmarks/gpu_profiles.py`) and these (MiB):

       torch          least   taken   most   published, of the whole less stacks
       up to 1.7        560     720    850   RTX 2080 Ti 877 less 68 (pytorch/pytorch#49877), TITAN V 1,005 less 160 (#28394): CUDA 10.1;
                                             TITAN RTX some 735 with libraries less 72
       1.8 to 1.12    1,100   1,370  1,650   V100 1,343 less 160 (transformers v4.21, CUDA 11.2), RTX 3090 1,687 less 123 (#55277, CUDA 11.1)
       1.13 to 2.0      205     430    650   RTX 4090 800 less 192 (WSShiro/vramexp, CUDA 11.8); #86509's 274 on a GPU that is not said

2. cuDNN 8 as torch 1.8 to 2.0 have it loads its code at once: 600 MiB once it is used. Published: 683 to 717 MiB more than the context in five
   trainings on an RTX 4090 (vramexp), 0.7 GB for a convolution (pytorch/pytorch#86783).
3. With torch 2.1 (CUDA 12.1) and later the profile's own figures hold.

A GPU that was measured keeps its figures: what was measured there is of one release.
Not modelled: the architectures a build has kernels for; drivers; Windows.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices.profile import DeviceProfile
from analyzer.releases import Span

_MIB = 1 << 20
_STACK_BYTES = 1024
# Releases -> least, taken and most of a context beside stacks; cuDNN's code. MiB.
_OLD = (
    (Span(until=(1, 7)), (560, 720, 850), 0),
    (Span((1, 8), (1, 12)), (1100, 1370, 1650), 600),
    (Span((1, 13), (2, 0)), (205, 430, 650), 600),
)


def of_release(profile: DeviceProfile) -> DeviceProfile:
    """The profile with the context and library code of the torch it is to predict (`DeviceProfile.releases`)."""
    release = profile.releases["torch"]
    for span, beside, cudnn in _OLD:
        if release in span and not profile.measured:
            stacks = profile.sm_count * profile.max_threads_per_sm * _STACK_BYTES
            least, taken, most = (stacks + part * _MIB for part in beside)
            return replace(
                profile,
                context_bytes=taken,
                context_range_bytes=(least, most),
                modules_bytes={**profile.modules_bytes, "cudnn code": cudnn * _MIB},
                sources={
                    **profile.sources,
                    "context_bytes": f"published: processes with torch {span} (analyzer/devices/contexts.py)",
                },
            )
    return profile
