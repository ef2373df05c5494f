"""Declarations of ONNX Runtime's kernels about memory: sharing with an input, and operands that live on the
host.

1. **Alias** (forced): the result is the input's buffer, whatever else reads it.
2. **May be in place**: the result may take the input's buffer if nobody reads the input afterwards.
3. **Host operands**: the CUDA kernels read (or write) these on the host; an initializer first read there
   stays on the host, and a node computing such a value may be moved to the CPU provider (`placement.py`).

The tables list the kernel registrations
(`KernelDefBuilder().Alias/MayInplace/InputMemoryType/OutputMemoryType`) of ONNX Runtime 1.30 under
`core/providers/{cpu,cuda}` and `contrib_ops/{cpu,cuda}`. Pairs are (input, output). Kernels go by their
operator, with its domain in front unless that is ONNX's own ("com.microsoft.Gelu").

Not modelled: registrations that differ by operator-set version where a newer one has replaced an older;
custom operators (they declare nothing here: own buffer, device operands).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import registered

Pairs = tuple[tuple[int, int], ...]

_SAME: Pairs = ((0, 0),)

ALIAS: Mapping[str, Mapping[str, Pairs]] = {
    "cuda": dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), _SAME),
    "cpu": dict.fromkeys(
        ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Optional", "OptionalGetElement"), _SAME
    ),
}

# Measured operator by operator: `tests/data/ort/sharing.json` (CUDA 1.30 on an H200, CPU 1.31).
_CUDA_IN_PLACE = """
    Relu LeakyRelu Elu Selu Sigmoid Tanh HardSigmoid HardSwish Softplus Softsign ThresholdedRelu Affine
    ParametricSoftplus ScaledTanh com.microsoft.QuickGelu Gelu Shrink ScatterND Trilu TensorScatter
    com.microsoft.Gelu
"""
_CPU_IN_PLACE = """
    Relu LeakyRelu Elu Selu Sigmoid Tanh HardSigmoid Softplus Softsign ThresholdedRelu Celu Softmax LogSoftmax
    Shrink Clip Cast Trilu ScatterElements Scatter
"""

IN_PLACE: Mapping[str, Mapping[str, Pairs]] = {
    "cuda": dict.fromkeys(_CUDA_IN_PLACE.split(), _SAME),
    "cpu": dict.fromkeys(_CPU_IN_PLACE.split(), _SAME),
}

# Inputs the CUDA kernels read on the host. None stands for all inputs.
HOST_INPUTS: Mapping[str, frozenset[int] | None] = {
    "Reshape": frozenset({1}),
    "Expand": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}),
    "Tile": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "Pad": frozenset({1, 2, 3}),
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
    "TopK": frozenset({1}),
    "Range": None,
    "ConstantOfShape": None,
    "OneHot": frozenset({1}),
    "CumSum": frozenset({1}),
    "Trilu": frozenset({1}),
    "Dropout": frozenset({1, 2}),
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "NonMaxSuppression": frozenset({2, 3, 4}),
    "com.microsoft.GroupQueryAttention": frozenset({6}),
    "MemcpyFromHost": frozenset({0}),
    **{
        f"Reduce{kind}": frozenset({1})
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
}

# Outputs the CUDA kernels write on the host.
HOST_OUTPUTS: Mapping[str, frozenset[int]] = {
    "Shape": frozenset({0}),
    "Size": frozenset({0}),
    "MemcpyToHost": frozenset({0}),
}


def alias(provider: str, kernel: str, inputs: int, outputs: int) -> Pairs:
    """Pairs of input and output that share a buffer whatever else reads the input."""
    if kernel in ("Loop", "If", "Scan"):
        return ()
    return tuple((i, o) for i, o in ALIAS[provider].get(kernel, ()) if i < inputs and o < outputs)


def in_place(provider: str, kernel: str) -> Pairs:
    """Pairs of input and output that may share a buffer if nobody reads the input afterwards."""
    return IN_PLACE[provider].get(kernel, ())


def input_on_host(provider: str, kernel: str, index: int) -> bool:
    """Return whether the kernel reads this input on the host."""
    if provider == "cpu":
        return True
    inputs = HOST_INPUTS.get(kernel, frozenset())
    return inputs is None or index in inputs


def output_on_host(provider: str, kernel: str, index: int) -> bool:
    """Return whether the kernel writes this output on the host."""
    return provider == "cpu" or index in HOST_OUTPUTS.get(kernel, ())


def has_kernel(
    provider: str, node: Node, graph: RuntimeGraph, instead: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Return whether the provider has a kernel for the node. instead: other types to ask for."""

    def dtype(name: str) -> str:
        """Return a tensor's element type, "" if unknown or no tensor."""
        value = graph.values[name] if name else None
        return "" if value is None or value.shape is None else instead.get(value.dtype, value.dtype)

    types = [[dtype(name) for name in names] for names in (node.inputs, node.outputs)]
    return registered.has_kernel(provider, node.domain, node.op, graph.opset, *types)


# Kernels whose results are device data even if all inputs are on the host.
STAYS_ON_GPU = frozenset({"Expand", "ConstantOfShape", "Range", "Tile"})
