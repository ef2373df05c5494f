"""Kernels that benchmark mode runs once and whose local memory the driver keeps: hundreds of MiB beside the
allocator.

A kernel that spills its registers needs local memory for every thread the GPU can hold at once, and the
driver does not give it
back: what NVML counts grows by it, once, when the kernel first runs. Benchmark mode runs kernels that cuDNN
would never choose. Rules, all of the weight gradient in float16, NCHW, stride 1 (engine 16):

1. Depthwise 5 x 5 over images up to 16 x 16 (EfficientNet and MobileNetV3 under autocast): 384 MiB, whatever
   batch and channels.
2. 7 x 7 into at most three channels (the last layer of CycleGAN's generator): 1,010 MiB.

What a device's profile does not say (`modules_bytes`) is not counted.
Source: NVML after each call of 88 networks and single convolutions in benchmark mode on an H200
(`tests/data/h200/convolution_plans.json.gz`, `benchmarks/cudnn/executed.py`): these are all that took more
than 12 MiB at once. Not modelled: that one kernel's local memory serves another's (a program with both has
1,010 MiB, not the sum); sizes between 16 and 28 in rule 1 were not run.
"""

from __future__ import annotations

from analyzer.libraries.cudnn.convolution import Convolution

FIVE, SEVEN = "local_memory_5x5", "local_memory_7x7"
_LARGEST_SIDE = 16
_FEW_CHANNELS = 3


def local_memory(call: Convolution) -> str | None:
    """The family of `DeviceProfile.modules_bytes` that stands for what the call's trials leave behind.

    >>> depthwise = Convolution("weight", "float16", False, (32, 672, 14, 14), (672, 1, 5, 5), (2, 2), (1, 1),
    (1, 1))
    >>> local_memory(depthwise)
    'local_memory_5x5'
    """
    if (call.operation, call.dtype, call.channels_last) != ("weight", "float16", False):
        return None
    if call.stride != (1, 1) or call.dilation != (1, 1):
        return None
    filter_shape, depthwise = call.w_shape[2:], call.groups == call.x_shape[1] > 1
    if filter_shape == (5, 5) and depthwise and max(call.x_shape[2:]) <= _LARGEST_SIDE:
        return FIVE
    if filter_shape == (7, 7) and call.groups == 1 and call.w_shape[0] <= _FEW_CHANNELS:
        return SEVEN
    return None
