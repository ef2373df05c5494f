"""TensorFlow as a runtime: the captured program as a graph of its executor, on the BFC allocator.

1. A tensor's buffer goes back when its last reader has run; variables and the optimizer's slots stay
   (`static_graph/executor.py` with garbage collected at once).
2. An elementwise kernel writes its result into an operand nobody else needs
   (`forward_input_or_allocate_output`): any operand of the result's size and type, the first that is free.
   `AddN`, which sums gradients, does so too.
3. A reshape is another look at the same buffer; transposition and slicing are kernels.
4. Regions grow by doubling, or are one as large as the limit (`settings.py`, `allocators/tensorflow_bfc.py`).

Sources: `tensorflow/core/framework/op_kernel.cc`, `kernels/cwise_ops_common.h`, `relu_op.h`,
`aggregate_ops.cc`, `reshape_op.h`. That the model's operators are those of the captured graph is an
assumption, said in the notes. Not modelled: XLA, which fuses operators and plans its buffers in one arena;
grappler's rewriting of the graph (constant folding, layout, recomputation); tensors in flight between host
and device; NVML figures of TensorFlow's own modules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from analyzer.allocators import Allocator, create
from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.options import Options
from analyzer.runtimes.base import Capped, Prediction, Runtime, Source
from analyzer.runtimes.batches import Batches, OfGraph, ParametricCapture
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.rules import Rule, concept
from analyzer.runtimes.timeline import simulate
from analyzer_plugins.static_graph.executor import Collection, requests
from analyzer_plugins.static_graph.kernels import (
    convolution_workspace,
    libraries,
)
from analyzer_plugins.static_graph.rules import rules
from analyzer_plugins.static_graph.variables import Dialect, variables
from analyzer_plugins.tensorflow.settings import MIB, parse

# Kernels that forward an operand's buffer, and which operands they try, in order.
_UNARY, _BINARY = (0,), (0, 1)
_ATEN_UNARY = (
    "relu sigmoid tanh exp log sqrt rsqrt abs neg sin cos erf elu leaky_relu reciprocal square _softmax"
    " _log_softmax clamp"
)
# The last five look at the same buffer.
_ONNX_UNARY = (
    "Relu Sigmoid Tanh Exp Log Sqrt Abs Neg Sin Cos Erf Elu LeakyRelu Reciprocal Softmax LogSoftmax"
    " Reshape Flatten Squeeze Unsqueeze Identity"
)
_BACKWARD = ("threshold", "sigmoid", "tanh", "elu", "leaky_relu")
FORWARDING = {
    **{f"aten::{name}.default": _UNARY for name in _ATEN_UNARY.split()},
    **dict.fromkeys(_ONNX_UNARY.split(), _UNARY),
    **{f"aten::{name}.Tensor": _BINARY for name in ("add", "sub", "mul", "div")},
    **{f"aten::{name}_backward.default": _BINARY for name in _BACKWARD},
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum"), _BINARY),
}


class TensorFlow(Runtime):
    """Events of the executor, on BFC with or without growth."""

    name = "tensorflow"
    depends_on = ("tensorflow", "cuda", "cudnn")

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        del module
        parse(options.runtime_options, profile, profile.capacity_bytes)
        return profile

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        families = libraries(source.graph)
        beyond_bytes = device_used(0, families, profile)
        settings = parse(options.runtime_options, profile, profile.usable_bytes - profile.context_bytes)
        dialect = Dialect(reshape_shares=True, bias_apart=False, fan_in_apart=False)
        events = requests(
            variables(source.graph, dialect),
            collection=Collection(),
            in_place=forwarded,
            workspace=convolution_workspace(source.graph, profile, settings.workspace_limit_bytes),
        )

        def allocator(limit_bytes: int | None = settings.limit_bytes) -> Allocator:
            if limit_bytes is None:
                return create("tensorflow_bfc", allow_growth=True)
            return create(
                "tensorflow_bfc",
                allow_growth=settings.allow_growth,
                memory_limit_bytes=limit_bytes,
                fragmentation_fraction=settings.fragmentation_fraction,
            )

        notes = _notes(source, settings.workspace_limit_bytes)
        maker: Callable[[], Allocator] = allocator
        failure = simulate(events, allocator()).failure
        if failure is not None:
            notes = (
                f"TensorFlow runs out of memory: {failure.message}; figures are those of growth without a"
                " limit",
                *notes,
            )
            maker = functools.partial(allocator, None)

        capped = None
        if settings.limited:
            capped = Capped(
                beyond_bytes + settings.limit_bytes,
                f"TensorFlow may take {settings.limit_bytes // MIB:,} MiB by its memory_limit or fraction",
            )
        return Prediction(
            events=events,
            allocator=maker,
            device_used=lambda simulation: beyond_bytes + simulation.peak_reserved,
            libraries=families,
            notes=notes,
            capped=capped,
        )

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches:
        return OfGraph(self, parametric, profile, options)

    def rules(self) -> tuple[Rule, ...]:
        return (
            *rules(),
            concept("tensorflow", "analyzer_plugins.tensorflow.runtime"),
            concept("tensorflow-settings", "analyzer_plugins.tensorflow.settings"),
        )


def forwarded(operator: Operator) -> tuple[int, ...]:
    """Return the operands whose buffer the operator's first result may reuse."""
    return FORWARDING.get(operator.name, ())


def _notes(source: Source, workspace_limit_bytes: int) -> tuple[str, ...]:
    notes = [
        (
            "as a TensorFlow graph of the captured operators in their order; kernels' own scratch memory is"
            " not counted, but for convolutions; XLA would fuse operators and plan their buffers together,"
            " grappler may rewrite the graph"
        ),
        (
            "what nvidia-smi shows beside the allocator is measured for PyTorch's context and libraries, not"
            " TensorFlow's"
        ),
    ]
    limit = f"{workspace_limit_bytes // MIB:,} MiB (TF_CUDNN_WORKSPACE_LIMIT_IN_MB)"
    if "cudnn" in libraries(source.graph):
        notes.insert(
            1,
            "convolutions take the cuDNN workspace PyTorch's would; TensorFlow may choose others, of up to"
            f" {limit}",
        )
    return tuple(notes)
