"""Operators that compute each element of a result from elements of others, and copies: PyTorch's tensor
iterator.

1. Operands of one shape and one order in memory are read in whole vectors: all bytes count ("vec"). A scalar
   tensor counts nothing.
2. Where one is broadcast or lies otherwise, each element's place is computed ("strided"): by how the orders
   differ (`orders.py`). Operands of different types are converted on the way ("mixed").
3. A copy between two types reads one and writes the other; one between two orders in memory is strided.
4. An operator without an entry in the table counts as `add` of two operands, or as `relu` of one.

Source: `aten/src/ATen/native/cuda/CUDALoops.cuh` (`gpu_kernel_impl`: vectorized, or with offset calculators).
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph.dtype import dtype_bits
from analyzer.graph.model import Operator, TensorMeta
from analyzer.tables import by_name
from analyzer_timing.orders import order, pattern, repetition
from analyzer_timing.rates import Rates
from analyzer_timing.traffic import strided, vectors
from analyzer_timing.work import Work

# Name without namespace and overload -> its name in the table.
_NAMED = by_name(
    {
        "relu": "relu clamp_min clamp hardtanh hardsigmoid",
        "relu_": "relu_ clamp_min_ clamp_ hardtanh_",
        "threshold_backward": (
            "threshold_backward hardtanh_backward leaky_relu_backward hardsigmoid_backward"
        ),
        "gelu": "gelu erf softplus elu elu_ mish log_sigmoid_forward",
        "gelu_backward": "gelu_backward softplus_backward",
        "silu": "silu silu_ glu",
        "silu_backward": "silu_backward glu_backward",
        "sigmoid": "sigmoid sigmoid_",
        "mul": "sigmoid_backward tanh_backward",
        "tanh": "tanh tanh_",
        "exp": "exp log",
        "rsqrt": "rsqrt rsqrt_ sqrt reciprocal",
        "div": "div div_",
        "where": "where masked_fill_",
        "native_dropout": "native_dropout",
        "native_dropout_backward": "native_dropout_backward",
        "bernoulli_": "bernoulli_",
        "fill_": "fill_",
        "zero_": "zero_",
        "addcmul": "addcmul addcdiv addcmul_ addcdiv_",
        "lerp_": "lerp_",
        "hardswish": "hardswish hardswish_",
        "hardswish_backward": "hardswish_backward",
        "leaky_relu": "leaky_relu leaky_relu_",
        "normal_": "normal_ uniform_ randn rand exponential_ random_",
        "sin": "sin cos",
        "neg": "neg",
        "pow2": "pow pow_",
        "eq": "eq ne lt le gt ge logical_not",
        "sub": "sub rsub",
    }
)
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


def size_of(tensor: TensorMeta) -> int:
    """Bytes of one element, at least one."""
    return max(dtype_bits(tensor.dtype) // 8, 1)


def span(tensor: TensorMeta) -> int:
    """Elements of memory a tensor reads: repeated ones once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride, strict=True):
        count *= size if stride else 1
    return count


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
    kernel = _NAMED.get(name)
    if repeated is not None:
        is_whole = repeated.shape == result.shape and 0 not in _strides(repeated)
        kind, sizes = pattern(repeated, result) if is_whole else repetition(repeated, result)
        return [strided(kind, itemsize, count, read + written, read, rates, sizes)]
    if mixed and len(inputs) > 1:
        return [vectors("mixed", itemsize, read + written, read, rates)]
    if kernel is None:
        kernel = name if name in ("add", "add_", "mul", "mul_") else "add" if len(inputs) > 1 else "relu"
    if kernel in ("add", "add_", "mul", "mul_", "sub", "div") and len(inputs) < 2:
        kernel = "mul.Scalar"
    return [vectors(kernel, itemsize, read + written, read, rates)]


def unique(tensors: Sequence[TensorMeta]) -> list[TensorMeta]:
    """Return the tensors without those that are the same piece of memory."""
    return list({(t.storage, t.offset, t.shape, t.stride): t for t in tensors}.values())


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
    nbytes, count = read + written, target.element_count
    if source.shape != target.shape or 0 in _strides(source):
        kind = "bias_add" if source.shape != target.shape else "repeat_kv"
        sizes = repetition(source, target)[1] if kind == "bias_add" else ()
        return [strided(kind, size_of(target), count, nbytes, read, rates, sizes)]
    kind, sizes = pattern(source, target)
    if source.dtype != target.dtype and kind != "apart":
        kind = f"{kind}-cast"
    return [strided(kind, size_of(target), count, nbytes, read, rates, sizes)]


def _strides(tensor: TensorMeta) -> list[int]:
    """Return the strides of the dimensions of more than one element."""
    return [stride for stride, size in zip(tensor.stride, tensor.shape, strict=True) if size > 1]
