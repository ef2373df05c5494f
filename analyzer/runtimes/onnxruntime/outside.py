"""Device memory outside the arena: context, modules, and what the libraries keep.

1. NVML's figure for the process minus the arena's driver pages, after the runs, on an H200 (driver 580,
   onnxruntime-gpu 1.30.0, CUDA 13): 669 MiB with matrix kernels; 679 MiB when EXHAUSTIVE search ran
   convolutions other than depthwise, 668 for HEURISTIC, 665 for DEFAULT. 50 of 56 runs lie within 2 MiB of
   this. With IO binding the caller's tensors come on top (`bound_bytes`), as many bytes as they have
   elements.
2. 144 MiB of it are two pairs of handles, of cuBLAS and cuDNN: the provider's own, and one of a run's stream
   (`core/providers/cuda/cuda_stream_handle.cc`). A session that captures a CUDA graph runs on the provider's
   stream (resnet34d, five processes: 614 MiB). A subgraph has streams of its own (`utils.cc`,
   `ExecuteSubgraph`), made when it first runs a kernel there: a Scan's body 72 MiB more, an If's branch 72,
   a Loop's body and a branch 144, four branches 292 (scan_ssm, ssdlite, loop_if, deberta, in five processes
   each).
3. Kernels' code is loaded when the first of a library's or a module's runs. Of 180 processes (36 files, five
   each) those of matrix kernels took 665 to 670 MiB; where convolutions are searched for,
   665 to 680 (`around`): patches of pixels (dinov2, clip) and a few short convolutions need none of cuDNN's.
4. Relative to the profile's `context_bytes` the provider adds 59 MiB (its modules, cuBLAS, cuDNN handles);
   other devices are assumed to add the same.

Measured: NVML's figures of those 56 runs.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.options import SessionOptions

MIB = 2**20
_HANDLES_BYTES = 72 * MIB  # of a pair, of which `_PROVIDER_BYTES` has two
_PROVIDER_BYTES = 59 * MIB
_LESS_CODE_BYTES, _MORE_CODE_BYTES = 4 * MIB, 2 * MIB
_CONVOLUTION_BYTES = {"EXHAUSTIVE": 10 * MIB, "HEURISTIC": -MIB, "DEFAULT": -4 * MIB}


def bound_bytes(graph: RuntimeGraph, options: SessionOptions) -> int:
    """Return the bytes of inputs and outputs that IO binding keeps in the caller's device memory."""
    if options.io_binding == "none":
        return 0
    names = [*graph.inputs, *(graph.outputs if options.io_binding == "caller" else ())]
    return sum(graph.values[name].nbytes for name in dict.fromkeys(names))


def _bodies_on_gpu(graph: RuntimeGraph) -> int:
    """Return how many subgraphs run kernels of the provider; of an If the branch that is counted."""
    bodies = [
        body
        for node in graph.nodes.values()
        for attribute, body in node.bodies.items()
        if node.op != "If" or attribute == node.counted
    ]
    return sum(
        any(node.provider == "cuda" for node in body.nodes.values()) + _bodies_on_gpu(body) for body in bodies
    )


def _convolution_bytes(graph: RuntimeGraph, options: SessionOptions) -> int:
    """Return the code of convolutions beside that of matrix kernels."""
    runs = any(node.op in ("Conv", "ConvTranspose") and node.provider == "cuda" for node in graph.walk())
    return _CONVOLUTION_BYTES[options.cudnn_conv_algo_search] if runs else 0


def bytes_outside(
    graph: RuntimeGraph, options: SessionOptions, device: DeviceProfile, bodies: int | None = None
) -> int:
    """Return the bytes NVML counts besides the arena. bodies: subgraphs that run kernels of the provider;
    None: those that the graph says."""
    extra = _convolution_bytes(graph, options)
    streams = -1 if options.enable_cuda_graph else _bodies_on_gpu(graph) if bodies is None else bodies
    return device.context_bytes + _PROVIDER_BYTES + extra + streams * _HANDLES_BYTES


def around(nbytes: int, graph: RuntimeGraph, options: SessionOptions) -> tuple[int, int] | None:
    """Return the least and most bytes NVML may count besides the arena, of so many; None where there are
    none."""
    if options.provider != "cuda":
        return None
    less = _LESS_CODE_BYTES + max(_convolution_bytes(graph, options), 0)
    return nbytes - less, nbytes + _MORE_CODE_BYTES


def outside_arena(
    graph: RuntimeGraph, options: SessionOptions, device: DeviceProfile, bodies: int | None = None
) -> tuple[int, int]:
    """`bytes_outside` and `bound_bytes`, which the CUDA provider alone has."""
    if options.provider != "cuda":
        return 0, 0
    return bytes_outside(graph, options, device, bodies), bound_bytes(graph, options)
