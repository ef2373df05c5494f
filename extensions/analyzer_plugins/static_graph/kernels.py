"""Kernels' own memory under PaddlePaddle and TensorFlow, as far as it is known.

1. Convolutions run in cuDNN, whose workspace comes from the framework's allocator and goes back when the
   kernel has run. Its size is known for PyTorch's calls (`runtimes/pytorch/scratch/convolution.py`); the
   same is assumed here, also for an ONNX node of the same geometry, at most the framework's own limit, with
   the basis it has there.
2. Loaded library families: cuDNN for convolutions, cuBLAS for matrix products.
3. PaddlePaddle's `add_grad` writes a gradient for each operand of a sum; counted at a bound.

Source: cuDNN's choices as measured for PyTorch (`libraries/cudnn/choices.py`), an assumption for other
frameworks; `paddle/phi/kernels/impl/elementwise_grad_kernel_impl.h` and `tests/data/paddle_cpu.json` for the
gradients of sums.

Not modelled: other kernels' scratch memory, which these frameworks' sources decide and no record has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Category, Graph, Operator, Phase
from analyzer.runtimes.pytorch.scratch import Give, Take, kernel_allocations
from analyzer_plugins.static_graph.executor import Workspace
from analyzer_plugins.static_graph.variables import PRODUCTS

_CONVOLUTIONS = frozenset({"aten::convolution.default", "aten::convolution_backward.default"})
_ONNX_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_ONNX_PRODUCTS = frozenset({"MatMul", "Gemm"})
_ARGUMENTS = "input weight bias stride padding dilation transposed output_padding groups"
_CONVOLUTION_ARGUMENTS = tuple(_ARGUMENTS.split())


def convolution_workspace(captured: Graph, profile: DeviceProfile, limit_bytes: int) -> Workspace:
    """Return a function from operator to workspace: what PyTorch's cuDNN call of that geometry takes, at most
    `limit_bytes`."""

    def workspace(operator: Operator, origin: int) -> tuple[int, str]:
        called = captured.operators[origin]
        if operator.name in _ONNX_CONVOLUTIONS:
            called = _as_pytorch_calls(called)
        elif operator.name not in _CONVOLUTIONS:
            return 0, "exact"
        held: dict[int, int] = {}
        most, basis = 0, "exact"
        for step in kernel_allocations(called, profile).steps:
            if isinstance(step, Take):
                held[step.token] = step.nbytes
                if sum(held.values()) > most:
                    most, basis = sum(held.values()), step.basis.value
            elif isinstance(step, Give):
                held.pop(step.token, None)
        return min(most, limit_bytes), basis

    return workspace


def _as_pytorch_calls(node: Operator) -> Operator:
    """Return an ONNX convolution as PyTorch's; uneven padding takes the larger side."""
    source, weight = node.inputs[:2]
    rank = len(source.shape) - 2

    def integers(name: str, default: int) -> tuple[int, ...]:
        given = node.keywords.get(name)
        return tuple(int(str(value)) for value in given) if isinstance(given, tuple) else (default,) * rank

    dilation = integers("dilations", 1)
    given = node.keywords.get("pads")
    if isinstance(given, tuple) and len(given) == 2 * rank:
        pads = [int(str(value)) for value in given]
        padding = tuple(map(max, pads[:rank], pads[rank:]))
    elif str(node.keywords.get("auto_pad", "")).startswith("SAME"):
        padding = tuple(step * (size - 1) // 2 for step, size in zip(dilation, weight.shape[2:], strict=True))
    else:
        padding = (0,) * rank
    group = node.keywords.get("group", 1)
    return replace(
        node,
        name="aten::convolution.default",
        domain="aten",
        arguments=(
            source,
            weight,
            None,
            integers("strides", 1),
            padding,
            dilation,
            node.name == "ConvTranspose",
            integers("output_padding", 0),
            group if isinstance(group, int) else 1,
        ),
        keywords={},
        names=_CONVOLUTION_ARGUMENTS,
    )


def libraries(graph: Graph) -> frozenset[str]:
    """Return the library families a program loads: cuDNN for convolutions, cuBLAS for matrix products."""
    names = {operator.name for operator in graph.operators}
    families = set()
    if names & (_CONVOLUTIONS | _ONNX_CONVOLUTIONS):
        families.add("cudnn")
    if names & (PRODUCTS | _ONNX_PRODUCTS):
        families.add("cublas")
    return frozenset(families)


def gradients_of_sums(graph: Graph, collected: bool) -> int:
    """Return the most bytes `add_grad` makes in a backward pass beyond the captured program.

    It writes a gradient for each operand of a sum, where autograd passes one tensor on. While garbage is
    `collected`, a sum has one such copy more at a time, and those of sums inside each other (a + b + c) can
    be alive together; otherwise every sum's two stay.
    """
    learned = _learned(graph)
    sums = {
        operator.outputs[0].storage: operator
        for operator in graph.operators
        if operator.name in ("aten::add.Tensor", "aten::add_.Tensor")
        and operator.phase in (Phase.FORWARD, Phase.LOSS)
        and operator.outputs[0] is not None
        and len(operator.inputs) == 2
        and learned.issuperset(meta.storage for meta in operator.inputs)
    }
    if not collected:
        by_step = Counter[int]()
        for storage, operator in sums.items():
            by_step[operator.step] += 2 * graph.storages[storage].nbytes
        return max(by_step.values(), default=0)
    readers = Counter(
        storage
        for operator in graph.operators
        if operator.phase in (Phase.FORWARD, Phase.LOSS)
        for storage in {meta.storage for meta in operator.inputs}
    )
    nested: dict[int, int] = {}
    for storage, operator in sums.items():  # in program order: operands come first
        inside = {meta.storage for meta in operator.inputs if readers[meta.storage] == 1}
        nested[storage] = graph.storages[storage].nbytes + sum(nested.get(operand, 0) for operand in inside)
    return max(nested.values(), default=0)


def _learned(graph: Graph) -> set[int]:
    """Return storages that may need a gradient: parameters, and what is computed from them."""
    if not any(operator.phase is Phase.BACKWARD for operator in graph.operators):
        return set()
    learned = {storage.index for storage in graph.storages if storage.category is Category.PARAMETER}
    for operator in graph.operators:
        if operator.phase in (Phase.FORWARD, Phase.LOSS) and any(
            meta.storage in learned for meta in operator.inputs
        ):
            learned.update(output.storage for output in operator.outputs if output is not None)
    return learned
