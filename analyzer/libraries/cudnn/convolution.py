"""One convolution as cuDNN is asked about it: what is computed, on what shapes, in what type and memory
format.

Standard library alone: the process that loads cuDNN (`answering.py`) imports no other library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

OPERATIONS = ("forward", "data", "weight")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
# The caller, and cuDNN's heuristics in the order it asks them (`cudnnBackendHeurMode_t`): PyTorch
# (`Conv_v8.cpp`, `get_generator_sources`), and ONNX Runtime's `cudnn_conv_algo_search`
# (`core/providers/cuda/nn/conv.cc`, `CreateCudnnFeExecutionPlan`).
_INSTANT, _MODE_B, _FALLBACK = 0, 1, 2
PYTORCH = "pytorch"
HEURISTICS = {
    PYTORCH: (_INSTANT, _FALLBACK),
    "EXHAUSTIVE": (_MODE_B,),
    "HEURISTIC": (_INSTANT,),
    "DEFAULT": (_FALLBACK,),
}


class Convolution(NamedTuple):
    """One cuDNN convolution: x * w -> y. "data" and "weight" name the same shapes and compute another one.

    operation: "forward", "data" (gradient of x) or "weight" (gradient of w).
    x_shape, w_shape: (N, C, *spatial), (K, C/groups, *filter); padding, stride, dilation per spatial
    dimension.
    channels_last: all three tensors lie in NHWC order.
    """

    operation: str
    dtype: str
    channels_last: bool
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def read(fields: Mapping[str, Any]) -> Convolution:
        """Return the convolution of its fields as JSON has them, with lists for tuples."""
        return Convolution(**dict(zip(fields, _tuples(fields.values()), strict=True)))

    @property
    def groups(self) -> int:
        """C divided by the filter's channels."""
        return self.x_shape[1] // self.w_shape[1]

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of y: (N, K, *spatial out)."""
        parts = (self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation)
        spatial = (
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, pad, stride, dilation in zip(*parts, strict=True)
        )
        return (self.x_shape[0], self.w_shape[0], *spatial)

    @property
    def family(self) -> tuple[int, ...]:
        """C, spatial, K, C/groups, filter, padding, stride, dilation: the call without batch and type.

        Always 18 numbers: two spatial dimensions are written as three, the first being 0.
        """
        parts = (self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation)
        spatial, kernel, padding, stride, dilation = ((0, 0, 0, *part)[-3:] for part in parts)
        return (self.x_shape[1], *spatial, *self.w_shape[:2], *kernel, *padding, *stride, *dilation)


class Question(NamedTuple):
    """One convolution as cuDNN is asked. y_shape: of the result, which ONNX may pad on one side; searcher: a
    key of `HEURISTICS`; whole: all plans are wanted, not only those tried while there is room; first: only
    the one tried first with PyTorch's default settings."""

    call: Convolution
    y_shape: tuple[int, ...]
    searcher: str = PYTORCH
    whole: bool = False
    first: bool = False

    @staticmethod
    def of(call: Convolution, *, whole: bool = False, first: bool = False) -> Question:
        """PyTorch's question about a convolution."""
        return Question(call, call.y_shape, PYTORCH, whole, first)

    @property
    def fields(self) -> tuple[Any, ...]:
        """The question as JSON has it."""
        return (self.searcher, *self.call[:5], self.y_shape, *self.call[5:], self.whole, self.first)

    @staticmethod
    def read(fields: Sequence[Any]) -> Question:
        """Return a question from its JSON fields."""
        parts = _tuples(fields)
        return Question(Convolution(*parts[1:6], *parts[7:10]), parts[6], parts[0], *parts[10:])


class Plan(NamedTuple):
    """A plan that can be built: its engine's global index, its workspace in bytes, what cuDNN notes of it,
    and the knobs of engines whose bytes depend on who is asked (`splits.py`) or whose kernels keep local
    memory (`local_memory.py`). share_first: of a plan that a list without a GPU lacks (on cuBLAS:
    `first_plan.py`), how likely it is to come before the listed ones; split: its workspace is an estimate, as
    it may add up parts; between: the least and most it may be where that is not certain."""

    engine: int
    workspace_bytes: int
    deterministic: bool = True
    tensor_core: bool = False
    knobs: tuple[tuple[int, int], ...] = ()
    share_first: float | None = None
    split: bool = False
    between: tuple[int, int] | None = None

    @staticmethod
    def read(fields: Sequence[Any]) -> Plan:
        """Return a plan from its JSON fields."""
        engine, nbytes, deterministic, tensor_core, knobs = fields[:5]
        return Plan(engine, nbytes, deterministic, tensor_core, tuple((knob, value) for knob, value in knobs))


def _tuples(fields: Iterable[Any]) -> list[Any]:
    """Return fields of JSON with tuples for lists."""
    return [tuple(field) if isinstance(field, list) else field for field in fields]


def up(number: int, unit: int) -> int:
    """Return the number rounded up to a multiple of the unit."""
    return -(-number // unit) * unit


def strides_of(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Strides of a packed tensor, in elements.

    >>> strides_of((2, 3, 4, 5), False), strides_of((2, 3, 4, 5), True)
    ((60, 20, 5, 1), (60, 1, 15, 3))
    """
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= shape[dimension]
    return tuple(strides)
