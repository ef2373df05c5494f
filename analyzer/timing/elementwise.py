"""Operators that compute each element of a result from elements of others, and copies: PyTorch's tensor
iterator.

1. Operands of one shape and one order in memory are read in whole vectors: all bytes count ("vec"). A scalar
   tensor counts nothing.
2. Where one is broadcast or lies otherwise, each element's place is computed ("strided"): by which dimension
   is repeated. So it is where operands have different types, which are converted on the way.
3. A copy between two types reads one and writes the other. One between two orders in memory is "transpose"
   where neither side's neighbours are the other's, and the result's rows are long.
4. What is not in the table by name counts as `add` of two operands, or as `relu` of one.

Source: `aten/src/ATen/native/cuda/CUDALoops.cuh` (`gpu_kernel_impl`: vectorized, or with offset calculators).
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph.dtype import dtype_bits
from analyzer.graph.model import Operator, TensorMeta
from analyzer.timing.rates import Rates
from analyzer.timing.traffic import strided, vectors
from analyzer.timing.work import Work

# Name without namespace and overload -> its name in the table.
_NAMED = {
    "relu": "relu", "relu_": "relu_", "clamp_min": "relu", "clamp_min_": "relu_", "clamp": "relu",
    "clamp_": "relu_", "hardtanh": "relu", "hardtanh_": "relu_", "threshold_backward": "threshold_backward",
    "hardtanh_backward": "threshold_backward", "gelu": "gelu", "gelu_backward": "gelu_backward",
    "silu": "silu", "silu_": "silu", "silu_backward": "silu_backward", "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid", "sigmoid_backward": "mul", "tanh": "tanh", "tanh_": "tanh",
    "tanh_backward": "mul", "exp": "exp", "log": "exp", "erf": "gelu", "rsqrt": "rsqrt", "rsqrt_": "rsqrt",
    "sqrt": "rsqrt", "reciprocal": "rsqrt", "div": "div", "div_": "div", "where": "where",
    "native_dropout": "native_dropout", "native_dropout_backward": "native_dropout_backward",
    "bernoulli_": "bernoulli_", "fill_": "fill_", "zero_": "zero_", "addcmul": "addcmul",
    "addcdiv": "addcmul", "addcmul_": "addcmul", "addcdiv_": "addcmul", "lerp_": "lerp_",
    "hardswish": "hardswish", "hardswish_": "hardswish", "hardswish_backward": "hardswish_backward",
    "leaky_relu": "leaky_relu", "leaky_relu_": "leaky_relu", "leaky_relu_backward": "threshold_backward",
    "hardsigmoid": "relu", "hardsigmoid_backward": "threshold_backward", "normal_": "normal_",
    "uniform_": "normal_", "randn": "normal_", "rand": "normal_", "sin": "sin", "cos": "sin",
    "softplus": "gelu", "elu": "gelu", "elu_": "gelu", "mish": "gelu", "log_sigmoid_forward": "gelu",
    "glu": "silu", "glu_backward": "silu_backward", "neg": "neg", "pow": "pow2", "pow_": "pow2", "eq": "eq",
    "ne": "eq", "lt": "eq", "le": "eq", "gt": "eq", "ge": "eq", "logical_not": "eq",
    "masked_fill_": "where", "sub": "sub", "rsub": "sub", "exponential_": "normal_", "random_": "normal_",
    "softplus_backward": "gelu_backward",
}  # fmt: skip
_FILLED = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "new_zeros",
        "new_ones",
        "new_full",
        "zeros_like",
        "ones_like",
        "full_like",
        "scalar_tensor",
        "arange",
        "fill",
    }
)
_RANDOM = frozenset({"rand", "randn", "rand_like", "randn_like", "randint", "randperm", "randint_like"})
# Neighbours of a result that a block of threads (128, four elements each) writes without reading what lies
# beside what it read.
_LONG = 128


def size_of(tensor: TensorMeta) -> int:
    """Bytes of one element, at least one."""
    return max(dtype_bits(tensor.dtype) // 8, 1)


def span(tensor: TensorMeta) -> int:
    """Elements of memory a tensor reads: repeated ones once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride, strict=True):
        count *= size if stride else 1
    return count


def order(tensor: TensorMeta) -> tuple[int, ...]:
    """Return the non-trivial dimensions by stride, largest first."""
    there = [d for d, size in enumerate(tensor.shape) if size > 1]
    return tuple(sorted(there, key=lambda d: (-tensor.stride[d], d)))


def dense(tensor: TensorMeta) -> bool:
    """Return whether the elements fill a piece of memory, in any order."""
    expected = 1
    for d in reversed(order(tensor)):
        if tensor.stride[d] != expected:
            return False
        expected *= tensor.shape[d]
    return True


def alike(one: TensorMeta, other: TensorMeta) -> bool:
    """Whether two tensors of one shape lie in one order, without holes."""
    return order(one) == order(other) and dense(one) and dense(other)


def elementwise(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Any operator of the iterator: its results' elements, its operands' bytes."""
    result = next((t for t in operator.outputs if t is not None), None)
    inputs = [t for t in operator.inputs if t.element_count > 1]
    if result is None:
        result = next((t for t in inputs if t.storage in operator.writes), None)
    if result is None or not result.element_count:
        return []
    if name in _FILLED or name in _RANDOM:
        kind = "normal_" if name in _RANDOM else "fill_"
        nbytes = result.element_count * size_of(result)
        return [vectors(kind, size_of(result), nbytes, 0, rates)]
    count = max(result.element_count, *(t.element_count for t in inputs)) if inputs else result.element_count
    written = sum(t.element_count * size_of(t) for t in operator.outputs if t is not None)
    written = written or result.element_count * size_of(result)
    read = sum(span(t) * size_of(t) for t in unique(inputs))
    if name in ("fill_", "zero_", "bernoulli_", "normal_", "uniform_"):
        read = 0
    repeated = next((t for t in inputs if t.element_count < count or not alike(t, result)), None)
    mixed = len({t.dtype for t in (*inputs, result) if t.dtype != "bool"}) > 1
    largest = max((t for t in (result, *inputs)), key=lambda t: t.element_count)
    itemsize = size_of(largest)
    known = _NAMED.get(name)
    if repeated is not None:
        return [strided(_broadcast(repeated, result), itemsize, count, read + written, read, rates)]
    if mixed and len(inputs) > 1:
        return [strided("bias_add", itemsize, count, read + written, read, rates)]
    if known is None:
        known = name if name in ("add", "add_", "mul", "mul_") else "add" if len(inputs) > 1 else "relu"
    if known in ("add", "add_", "mul", "mul_", "sub", "div") and len(inputs) < 2:
        known = "mul.Scalar"
    return [vectors(known, itemsize, read + written, read, rates)]


def unique(tensors: Sequence[TensorMeta]) -> list[TensorMeta]:
    """Return the tensors without those that are the same piece of memory."""
    return list({(t.storage, t.offset, t.shape, t.stride): t for t in tensors}.values())


def _broadcast(operand: TensorMeta, result: TensorMeta) -> str:
    """The category of a broadcast operand: by the dimensions it has elements in."""
    shape = (1,) * (len(result.shape) - len(operand.shape)) + operand.shape
    there = [d for d, size in enumerate(shape) if size > 1]
    if operand.element_count == result.element_count or not there:
        return "head_permute"
    if there[-1] == len(shape) - 1:
        return "bias_add"
    return "channel_mul" if there[0] > 0 else "row_mul"


def copied(source: TensorMeta, target: TensorMeta, rates: Rates) -> list[Work]:
    """The work of a copy: between types, or between orders in memory."""
    read, written = span(source) * size_of(source), target.element_count * size_of(target)
    if not target.element_count:
        return []
    if source.shape == target.shape and alike(source, target):
        if source.dtype == target.dtype:
            return [vectors("clone", size_of(source), read + written, read, rates)]
        kind = "to4" if size_of(target) >= 4 else "to2"
        return [vectors(kind, size_of(source), read + written, read, rates)]
    return [
        strided(
            _rearranged(source, target), size_of(target), target.element_count, read + written, read, rates
        )
    ]


def _rearranged(source: TensorMeta, target: TensorMeta) -> str:
    """The category of a copy between two orders in memory."""
    if source.shape != target.shape:
        return "bias_add"
    if 0 in (stride for stride, size in zip(source.stride, source.shape, strict=True) if size > 1):
        return "repeat_kv"
    last = order(target)[-1:]
    if not last or source.stride[last[0]] == 1:
        return "head_permute"
    return "transpose" if target.shape[last[0]] >= _LONG else "nchw_nhwc"
