"""Device memory outside the arena: context, modules, and what the libraries keep.

1. NVML's figure for the process minus the arena's driver pages, after the runs, on an H200 (driver 580,
   onnxruntime-gpu 1.30.0, CUDA 13): 669 MiB with matrix kernels; 679 MiB when EXHAUSTIVE search ran
   convolutions other than depthwise, 668 for HEURISTIC, 665 for DEFAULT. 50 of 56 runs lie within 2 MiB of
   this. With IO binding the caller's tensors come on top (`bound_bytes`), as many bytes as they have
   elements.
2. 72 MiB of it are the pair of cuBLAS's and cuDNN's handles that a run's own stream has: a session that
   captures a CUDA graph runs on the provider's, which has its pair (resnet34d, five processes: 614 MiB).
3. Relative to the profile's `context_bytes` the provider adds 59 MiB (its modules, cuBLAS, cuDNN handles);
   other devices are assumed to add the same.

Measured: NVML's figures of those 56 runs.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.options import SessionOptions

MIB = 2**20
_HANDLES_BYTES = 72 * MIB
_PROVIDER_BYTES = 59 * MIB
_CONVOLUTION_BYTES = {"EXHAUSTIVE": 10 * MIB, "HEURISTIC": -MIB, "DEFAULT": -4 * MIB}


def bound_bytes(graph: RuntimeGraph, options: SessionOptions) -> int:
    """Return the bytes of inputs and outputs that IO binding keeps in the caller's device memory."""
    if options.io_binding == "none":
        return 0
    names = [*graph.inputs, *(graph.outputs if options.io_binding == "caller" else ())]
    return sum(graph.values[name].nbytes for name in dict.fromkeys(names))


def bytes_outside(graph: RuntimeGraph, options: SessionOptions, device: DeviceProfile) -> int:
    """Return the bytes NVML counts besides the arena."""
    extra = 0
    if any(node.op in ("Conv", "ConvTranspose") and node.provider == "cuda" for node in graph.walk()):
        extra = _CONVOLUTION_BYTES[options.cudnn_conv_algo_search]
    if options.enable_cuda_graph:
        extra -= _HANDLES_BYTES
    return device.context_bytes + _PROVIDER_BYTES + extra


def outside_arena(graph: RuntimeGraph, options: SessionOptions, device: DeviceProfile) -> tuple[int, int]:
    """`bytes_outside` and `bound_bytes`, which the CUDA provider alone has."""
    if options.provider != "cuda":
        return 0, 0
    return bytes_outside(graph, options, device), bound_bytes(graph, options)
