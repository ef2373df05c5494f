"""Everything whose time is that of the bytes it moves.

1. **Elementwise** kernels of one shape move whole vectors ("vec"): all bytes read and written count. Where
   an operand is broadcast or strided, each element's place is computed ("strided"): elements count as well
   as bytes.
2. **Reductions**, **rows** (normalization, softmax, losses), **planes** (batch norm, pooling, resizing),
   **lookups** (embeddings, indexing), lists of tensors (**foreach**), sorting and recurrent layers have a
   category for each operator, and sizes of their own.
3. `base` is a fixed time and the bytes over three quarters of a bandwidth: the cache's where all of them fit
   it, the memory's where they are more than it holds. The table has the rest: how many bytes a kernel must
   move before it is fast.
4. Layer norm reads rows in vectors of four elements where their width allows; others are a category of their
   own (`aten/src/ATen/native/cuda/layer_norm_kernel.cu`, `can_vectorize`).
"""

from __future__ import annotations

from analyzer.tables import by_name
from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log, wide

HOST_COPY = "host_copy"
_BEGIN = 1.2e-6
_REACHED = 0.75

# Bytes of a part of the driver's buffer, and bytes a second at which the host copies there.
_STAGED, _STAGING = 2**20, 13e9


# Seconds of a position of a block's sums, and of a plane of a thread's place; operations of an element that
# lies between four places; threads that a multiprocessor holds. Slopes of the H100's times
# (`operators.json.gz`).
_POSITION, _PLANE, _BETWEEN, _THREADS = 0.95e-9, 0.12e-6, 600, 2048


def _longest(*seconds: float) -> float:
    """Return the longest time, or a little more where others are almost as long."""
    return float(sum(value**3 for value in seconds) ** (1 / 3))


def _base(nbytes: float, rates: Rates, kernels: float = 1) -> float:
    """A fixed time, and the bytes over three quarters of a bandwidth; between three quarters of the cache and
    all of it a part finds room."""
    share = min(max((1.0 - nbytes / rates.cache_bytes) * 4, 0.0), 1.0)
    each = share / rates.cache_bandwidth + (1 - share) / rates.bandwidth
    return _BEGIN * kernels + nbytes * each / _REACHED


def vectors(name: str, itemsize: int, nbytes: float, read: float, rates: Rates) -> Work:
    """nbytes: all that is read and written."""
    return Work(f"vec:{name}:{wide(itemsize)}", (log(nbytes),), _base(nbytes, rates), read)


def strided(
    name: str,
    itemsize: int,
    elements: float,
    nbytes: float,
    read: float,
    rates: Rates,
    sizes: tuple[float, ...] = (),
) -> Work:
    """Return the work of a strided kernel. elements: of the result; sizes: of its place besides."""
    place = (log(elements), *sizes)
    return Work(f"strided:{name}:{wide(itemsize)}", place, _base(nbytes, rates), read)


def reduced(name: str, itemsize: int, count: float, width: float, rates: Rates) -> Work:
    """Return a reduction's work. count: elements read; width: elements that become one."""
    nbytes = count * itemsize
    return Work(f"reduced:{name}:{wide(itemsize)}", (log(nbytes), log(width)), _base(nbytes, rates), nbytes)


def summed(itemsize: int, outer: float, kept: float, inner: float, rates: Rates) -> Work:
    """Return the work of a sum over what is around `kept` elements: each has `outer` pieces of `inner`."""
    nbytes = outer * kept * inner * itemsize
    place = (log(nbytes), log(kept), log(inner))
    return Work(f"reduced:sum_mid:{wide(itemsize)}", place, _base(nbytes, rates), nbytes)


# Tensors of the shape that are read and written.
_ROWS = by_name(
    {
        2: "native_layer_norm _softmax _log_softmax _fused_rms_norm",
        5: "native_layer_norm_backward _fused_rms_norm_backward",
        3: "_softmax_backward_data _log_softmax_backward_data",
        0: "nll_loss_forward",
        1: "nll_loss_backward",
    }
)


def rows(name: str, itemsize: int, count: float, width: float, rates: Rates) -> Work:
    """Return the work of a kernel over `count` rows of `width` elements."""
    nbytes = _ROWS[name] * count * width * itemsize
    kind = f"{name}-scalar" if "norm" in name and width % 4 else name
    return Work(f"rows:{kind}:{wide(itemsize)}", (log(count), log(width)), _base(nbytes, rates), 0.6 * nbytes)


_PLANES = by_name(
    {
        3: "batch_norm mixed_batch_norm native_group_norm",
        5: "batch_norm_backward mixed_batch_norm_backward native_group_norm_backward",
        2: "batch_norm_eval mixed_batch_norm_eval",
    }
)


def planes(name: str, itemsize: int, last: bool, sizes: tuple[float, float, float], rates: Rates) -> Work:
    """sizes: images, channels, positions of a plane. Planes that lie apart: a channel's sums are one block's
    work, position by position (`aten/src/ATen/native/cuda/Normalization.cuh`)."""
    n, c, p = sizes
    nbytes = itemsize * n * c * _PLANES[name] * p
    category = f"planes:{name}:{'last' if last else 'first'}:{wide(itemsize)}"
    base = _base(nbytes, rates)
    if not last and name.removeprefix("mixed_") in ("batch_norm", "batch_norm_backward"):
        passes = 2 if name.endswith("_backward") else 1
        base = _longest(base, _POSITION * n * p * passes * max(1, c / (2 * rates.multiprocessors)))
    return Work(category, (log(n * p), 1.5 * log(c), 0.7 * log(p)), base, 0.6 * nbytes)


def pooled(
    name: str, itemsize: int, last: bool, sizes: tuple[float, float, float], window: float, rates: Rates
) -> Work:
    """Return the work of pooling or resizing. sizes: planes, positions of the input's and of the result's;
    window: positions that become one. Between four places as many operations are done for each element; where
    planes lie apart, a thread does its place of one plane after the other
    (`aten/src/ATen/native/cuda/UpSampleBilinear2d.cu`)."""
    count, inside, outside = sizes
    nbytes = itemsize * count * (inside + outside)
    category = f"pool:{name}:{'last' if last else 'first'}:{wide(itemsize)}"
    place = (log(count), log(inside), log(outside), log(window))
    base = _base(nbytes, rates)
    if name.startswith("bilinear"):
        base = _longest(base, _BETWEEN * count * outside / rates.vector)
        if name == "bilinear" and not last:
            base = _longest(base, _PLANE * count * max(1, outside / (_THREADS * rates.multiprocessors)))
    return Work(category, place, base, 0.6 * nbytes)


def lookup(name: str, itemsize: int, sizes: tuple[float, float, float], rates: Rates) -> Work:
    """sizes: rows looked up or added, their width, rows of the table."""
    count, width, table = sizes
    nbytes = 2 * count * width * itemsize + (
        table * width * itemsize if name == "embedding_dense_backward" else 0
    )
    return Work(
        f"lookup:{name}:{wide(itemsize)}",
        (log(count), log(width), log(table)),
        _base(nbytes, rates),
        nbytes / 2,
    )


# Tensors a list reads and writes.
_LISTS = by_name(
    {
        3: "_foreach_add_ _foreach_lerp_ _foreach_add _foreach_maximum_",
        2: "_foreach_mul_ _foreach_sqrt _foreach_div_ _foreach_copy_",
        4: "_foreach_addcmul_ _foreach_addcdiv_",
        1: "_foreach_norm _foreach_zero_",
        7: "_fused_adamw_",
        5: "_fused_sgd_",
    }
)


def lists(name: str, itemsize: int, tensors: float, each: float, rates: Rates) -> Work:
    """tensors of each so many elements."""
    nbytes = _LISTS[name] * tensors * each * itemsize
    return Work(
        f"foreach:{name}:4", (log(tensors), log(each)), _base(nbytes, rates, 1 + tensors / 60), 0.6 * nbytes
    )


def sorting(name: str, count: float, width: float, rates: Rates) -> Work:
    """Return the work of sorting, counting or scanning rows."""
    return Work(
        f"sorted:{name}:4", (log(count), log(width)), _base(8 * count * width, rates, 4), 4 * count * width
    )


def recurrent(name: str, itemsize: int, part: str, sizes: tuple[int, int, int, int], rates: Rates) -> Work:
    """sizes: layers, steps, batch, width. cuDNN computes on two streams of its own at least, so that half of
    its kernels' time is the busier one's."""
    layers, steps, batch, width = sizes
    gates = 4 if name == "lstm" else 3
    operations = 2 * layers * steps * batch * 2 * width * width * gates * (1 if part == "forward" else 2)
    base = layers * steps * 6e-6 + operations / ((rates.half if itemsize == 2 else rates.tf32) * 0.3)
    return Work(
        f"recurrent:{name}:{itemsize}:{part}",
        (log(layers), log(steps), log(batch), log(width)),
        base,
        0.0,
        layers * steps,
    )


def from_host(nbytes: float, rates: Rates) -> Work:
    """A copy from pageable memory of the host, over PCIe. Before the device can begin, the host copies the
    first part to the driver's buffer, from where the device reads; then it copies the rest while the device
    reads. The part is 1 MiB: of as much the device's time is that of PCIe alone, of 4 MiB that of the host's
    copy (`tests/data/h100/timing/pageable.json.gz`)."""
    del rates
    staged = min(nbytes, _STAGED) / _STAGING
    return Work(HOST_COPY, (log(nbytes),), 3e-6 + nbytes / 12e9, staged=staged)
