"""Gathering, scattering and embeddings.

Source: `aten/src/ATen/native/Embedding.cpp`, `cuda/Embedding.cu`, `cuda/EmbeddingBackwardKernel.cu`,
`cuda/Indexing.cu` (`makeLinearIndex`, `index_put_with_sort_kernel`), `TensorAdvancedIndexing.cpp`
(`AdvancedIndex`), `cuda/TensorTransformations.cu` (`roll_cuda`), `cuda/ScanKernels.cpp`,
`cuda/ScanUtils.cuh`. Order and sizes of embedding's backward pass and of accumulating index_put are those of
recorded requests (encoder and Swin, H200, torch 2.11).

Not modelled: deterministic mode.
"""

from __future__ import annotations

import math

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, Phase, TensorMeta, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.cub import (
    bits_for,
    distinct_bytes,
    radix_sort_bytes,
    scan_bytes,
    unique_bytes,
)
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    broadcast_shape,
    bytes_of,
    contiguous_copy_bytes,
    expanded,
    is_contiguous,
    is_dense,
    is_one_row,
)
from analyzer.runtimes.pytorch.scratch.reduction import BOTH_AT_ONCE, both_extremes, converted, extreme
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, present, rule
from analyzer.runtimes.pytorch.scratch.selection import looked_through, selected
from analyzer.runtimes.pytorch.scratch.sorting import sort_rows

_INDEX_BYTES = 8
_DIRECT_INDICES, _ROWS_PER_SEGMENT, _ATOMIC_BLOCKS_PER_SM = 3072, 10, 4
# The releases of torch that sort an embedding's indices by the bits its number of rows has, not by all of
# theirs (seen in the binaries of 2.6 to 2.15: `tests/data/releases`).
_SORTS_FEWER_BITS = Span(since=(2, 13))
# Those that add few segments up atomically, by their binaries likewise (500 rows, 50,000 indices on an H200).
_ADDS_ATOMICALLY = Span(since=(2, 11))
_MAXIMUM = 2  # of the modes of embedding bags


@rule("aten::embedding")
def embedding(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Looking up rows: an index of several dimensions that cannot be flattened in place (an expanded one) is
    copied."""
    indices = operator.tensor("indices")
    if indices is not None and len(indices.shape) != 1 and not is_one_row(indices.shape, indices.stride):
        script.temporary(bytes_of(indices))
    script.outputs()


@rule("aten::embedding_dense_backward")
def embedding_grad(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Index and gradient are copied if they are not contiguous. Up to 3,072 indices the rows are added
    straight into the result; above, the indices are sorted, and equal ones summed in segments of at most 10,
    in float32: arrays of the index's length, CUB's temporaries (from torch 2.13 on for as many bits as the
    number of rows has), and one row a segment (or atomic sums, where segments would not fill the GPU).
    """
    grad, indices = present(operator, "grad_output"), present(operator, "indices")
    script.copies(indices, grad)
    count, weights = indices.element_count, operator.integer("num_weights")
    by_frequency = bool(operator.integer("scale_grad_by_freq"))
    if count == 0 or (count <= _DIRECT_INDICES and not by_frequency):
        script.outputs()
        return
    _sorted_gradient(script, device, grad, indices, weights, by_frequency)


@rule("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward", name="embedding-bag-grad")
def embedding_bag_grad(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The gradient is copied if it is not contiguous. Sums and means: as the gradient of an embedding with
    many indices, however few there are. The maximum's gradient is added straight into the result.
    """
    grad, indices = present(operator, "grad"), present(operator, "indices")
    maximum = operator.integer("mode") == _MAXIMUM
    script.copies(grad)
    if indices.element_count == 0 or maximum:
        script.outputs()
        return
    weights = operator.integer("num_weights")
    by_frequency = bool(operator.integer("scale_grad_by_freq"))
    _sorted_gradient(script, device, grad, indices, weights, by_frequency, bags=True)


def _sorted_gradient(
    script: Script,
    device: DeviceProfile,
    grad: TensorMeta,
    indices: TensorMeta,
    weights: int,
    by_frequency: bool,
    *,
    bags: bool = False,
) -> None:
    """Rows of a gradient added up by sorting their indices (`embedding_backward_cuda_kernel`); of bags never
    by atomic additions."""
    count = indices.element_count
    width = dtype_bytes(indices.dtype)
    array = count * width
    script.temporary(array)  # sorted indices
    script.temporary(array)  # their positions
    positions = script.temporary(array)
    bits = bits_for(weights) if script.torch_release in _SORTS_FEWER_BITS else 8 * width
    script.release(script.temporary(radix_sort_bytes(device, count, bits, width, width)))
    script.release(positions)
    if by_frequency:
        script.temporary(array)
    script.outputs()
    script.temporary(array)  # segment offsets
    script.temporary(_INDEX_BYTES)
    unique = script.temporary(array)
    script.release(script.temporary(unique_bytes(device, count)))
    script.release(unique)
    segments = min(count, weights)
    script.temporaries(segments * width, segments * width)
    script.release(script.temporary(scan_bytes(device, segments)))
    script.temporary(_INDEX_BYTES)
    partial = count // _ROWS_PER_SEGMENT + segments
    script.temporary(partial * width)
    columns = grad.shape[-1]
    lanes = -(-columns // 32) * 32
    blocks = -(-segments * lanes // min(lanes, 1024))
    atomic = script.torch_release in _ADDS_ATOMICALLY and not bags
    if atomic and blocks < device.sm_count * _ATOMIC_BLOCKS_PER_SM and partial > 4 * blocks:
        script.temporary(partial * width)
        if accumulator_bytes(grad.dtype) != dtype_bytes(grad.dtype):
            script.temporary(weights * columns * accumulator_bytes(grad.dtype))
        return
    script.temporary(partial * columns * accumulator_bytes(grad.dtype))


def _index_tensors(operator: Operator) -> tuple[TensorMeta | None, ...]:
    indices = operator.argument("indices")
    if not isinstance(indices, tuple):
        return ()
    return tuple(index if isinstance(index, TensorMeta) else None for index in indices)


def _match_strides(script: Script, indices: tuple[TensorMeta | None, ...]) -> None:
    """Make several indices of different strides contiguous (`AdvancedIndex`)."""
    tensors = tuple(index for index in indices if index is not None)
    if len(tensors) < 2:
        return
    shape = broadcast_shape(tensors)
    alike = [expanded(index, shape) for index in tensors]
    if len({index.stride for index in alike}) > 1:
        for index in alike:
            script.copies(index)


@rule("aten::index.Tensor", "aten::_unsafe_index.Tensor", name="index")
def index(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Masks are looked through; several index tensors of unlike strides are copied to one layout first."""
    source, result, indices = operator.tensor("self"), operator.outputs[0], _index_tensors(operator)
    if source is not None and result is not None:
        indices, _ = looked_through(script, device, indices, selected(source, indices, result))
    _match_strides(script, indices)
    script.outputs()


@rule(
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
    sure=(Basis.EXACT, Basis.BOUNDED),
)
def index_put(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Masks are looked through first. With accumulation, the indices become one linear index, the values are
    made contiguous, and so is what is written to, which indices that are not side by side turn round; the
    linear index is sorted with its positions: arrays of 8 bytes an index and CUB's temporary. Without,
    several indices of unlike strides are copied to one layout.
    """
    target, values = present(operator, "self"), present(operator, "values")
    script.outputs()
    indices = _index_tensors(operator)
    tensors = tuple(index for index in indices if index is not None)
    if not tensors:
        return
    unsafe = operator.integer("unsafe")  # `_unsafe_index_put` is not: it calls `index_put`
    accumulates = operator.integer("accumulate")
    autograd = unsafe or (operator.phase is Phase.BACKWARD and accumulates)
    count = selected(target, indices, values, written=not autograd)  # autograd's are as many as were taken
    if accumulates:
        script.copies(operator.outputs[0] or target)
    indices, held = looked_through(script, device, indices, count)
    tensors = tuple(index for index in indices if index is not None)
    if not accumulates:
        _match_strides(script, indices)
        return
    shape = broadcast_shape(tensors)
    count = math.prod(shape)
    if not count:
        return
    row = target.element_count
    indexed = 1
    for dim, entry in enumerate(indices):
        if entry is not None and dim < len(target.shape):
            indexed *= target.shape[dim]
    row //= max(indexed, 1)
    array = count * _INDEX_BYTES
    own = operator.phase is Phase.BACKWARD and operator.name != "aten::_unsafe_index_put"
    checked = not unsafe and not own
    linear = None
    for entry in tensors:
        if checked:
            _check_bounds(script, device, expanded(entry, shape))
        wrapped = script.temporary(array)
        scaled = script.temporary(array)
        script.release(wrapped)
        if linear is None:
            linear = scaled
        else:
            script.release(scaled)
    script.release(*held)
    copies = []
    if not (is_contiguous(values) and values.element_count == count * row):
        copies.append(script.temporary(count * row * dtype_bytes(values.dtype)))
    places = [place for place, index in enumerate(indices) if index is not None]
    if places[-1] - places[0] >= len(places):  # not side by side: what they index is turned to the front
        copies.append(script.temporary(bytes_of(target)))
    # The linear index lies as the indices do, and its flat copy lives as long (`linearIndex.reshape(-1)`).
    turned = all(is_dense(entry) and not is_contiguous(entry) for entry in tensors)
    if turned and linear is not None:
        script.temporary(array)
        script.release(linear)
    copies += [script.temporary(array), script.temporary(array)]  # sorted, and their positions
    script.temporary(array)
    script.release(script.temporary(radix_sort_bytes(device, count, bits_for(indexed))))


def _check_bounds(script: Script, device: DeviceProfile, entry: TensorMeta) -> None:
    """Read back the largest and smallest index (`wrapIndexOnce`); autograd's calls do not."""
    if script.torch_release in BOTH_AT_ONCE:
        extremes = both_extremes(script, device, entry)
        for _ in extremes:
            script.release(script.temporary(1))
        script.release(*extremes)
        return
    for _ in range(2):
        bound = extreme(script, device, entry)
        script.release(script.temporary(1), bound)


@rule("aten::index_reduce", "aten::index_reduce_", name="index-reduce")
def index_reduce(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Means count what is added: a tensor of counts like the result, ones like the source, and a mask of the
    counts that are zero.

    Source: `aten/src/ATen/native/cuda/Indexing.cu` (`index_reduce_func_cuda_impl`).
    """
    script.outputs()
    target, source = present(operator, "self"), present(operator, "source")
    if operator.argument("reduce") != "mean":
        return
    script.temporary(bytes_of(target))
    script.release(script.temporary(bytes_of(source)))
    script.release(script.temporary(target.element_count))


@rule("aten::embedding_renorm_", name="embedding-renorm")
def embedding_renorm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Which rows there are: the indices are sorted, and of each run of equal ones the first is kept."""
    indices = filled(operator, "indices")
    values, places = (script.temporary(bytes_of(indices)) for _ in range(2))
    sort_rows(script, device, indices, len(indices.shape) - 1)
    copied = is_dense(indices) and not is_contiguous(indices)  # sorted, they lie as before
    script.temporary(bytes_of(indices) if copied else 0)
    script.release(places)
    if copied:
        script.release(values)
    script.temporary(bytes_of(indices))
    script.temporary(_INDEX_BYTES)
    script.release(script.temporary(distinct_bytes(device, indices.element_count, _INDEX_BYTES)))


@rule("aten::roll")
def roll(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Rolling over several dimensions rolls one after the other: all results but the last are temporaries. A
    source that is not contiguous is copied first.
    """
    source = present(operator, "self")
    dims = operator.integers("dims") or ()
    copy = script.temporary(contiguous_copy_bytes(source))
    for _ in range(len(dims) - 1):
        script.temporary(bytes_of(source))
        script.release(copy)
    script.outputs()


@rule("aten::cumsum", "aten::cumprod", "aten::cumsum_", "aten::cumprod_", "aten::logcumsumexp")
def cumulative(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Running sums and products convert the input to the result's type and copy what is not contiguous; over
    a whole 1-D tensor CUB's scan takes its temporary.
    """
    source, result = present(operator, "self"), present(operator, 0)
    script.outputs()
    source, _ = converted(script, source, result.dtype)
    script.copies(source)
    dim = operator.integer("dim")
    if source.shape and source.element_count and source.shape[dim] == source.element_count:
        script.temporary(scan_bytes(device, source.element_count, source.dtype))


@rule("aten::unfold_backward", name="unfold-grad")
def unfold_gradient(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The positions in the result along the dimension that was unfolded, up to the end of the last piece;
    pieces that do not overlap are copied to their places.

    Source: `native/UnfoldBackward.h` (`_make_unfold_backward_iter_over_grad_in`).
    """
    script.outputs()
    result = present(operator, 0)
    if not result.shape:
        return
    step, size = operator.integer("step", default=1), operator.integer("size", default=1)
    pieces = operator.tensor("grad_in")
    if step < size and pieces is not None:
        dimension = operator.integer("dim") % len(result.shape)
        last = (pieces.shape[dimension] - 1) * step + size
        script.temporary(min(result.shape[dimension], last) * _INDEX_BYTES)


@rule("aten::scatter_reduce", "aten::scatter_reduce_", name="scatter-mean")
def scatter_mean(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A mean: ones of the source's size are counted where they go, in a tensor of the result's size, and of
    none a mask is made. Any other reduction takes nothing."""
    script.outputs()
    source, values = present(operator, "self"), present(operator, "src")
    if operator.argument("reduce") != "mean":
        return
    script.temporaries(math.prod(values.shape) * dtype_bytes(values.dtype), bytes_of(source))
    script.temporary(source.element_count)
