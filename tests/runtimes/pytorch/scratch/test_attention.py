"""Attention's kernels on sizes worked out by hand: which tile, how many splits, what is padded."""

from __future__ import annotations

import dataclasses

import pytest

from analyzer.graph import TensorMeta
from analyzer.runtimes.pytorch.scratch import Take, kernel_allocations
from analyzer.runtimes.pytorch.scratch.attention import _efficient_workspace, _flash_splits
from tests.runtimes.pytorch.scratch.handwritten import H200, call, tensor, words

FLASH = "aten::_scaled_dot_product_flash_attention"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
CUDNN = "aten::_scaled_dot_product_cudnn_attention"
SEED = tensor(2, dtype="int64")


@pytest.mark.parametrize(
    ("blocks", "slots", "key_blocks", "splits"),
    [
        (8, 10, 16, 1),  # eight tenths of the GPU are enough
        (2, 264, 16, 16),  # far too few blocks: one split a block of keys
        (7, 10, 16, 4),  # 4 splits: 2.8 of 3 waves; 1 to 3 splits: 0.7
        (1, 1000, 256, 128),  # never more than 128
        (1, 1000, 129, 65),  # 65 splits of two blocks of keys do as well as 128 would; 129 are too many
        (1, 4, 100, 4),  # never more than the GPU has room for
        (1, 4, 1, 1),
        (1, 100, 0, 1),
    ],
)
def test_flash_splits(blocks: int, slots: int, key_blocks: int, splits: int) -> None:
    """The fewest splits with 85 % of the best occupancy, among those that change the blocks of keys a split has."""
    assert _flash_splits(blocks, slots, key_blocks) == splits


def flash(
    heads: int, queries: int, keys: int, size: int, dropout: float | None = None
) -> tuple[str, tuple[TensorMeta, ...]]:
    query, key = (tensor(1, heads, length, size, dtype="float16") for length in (queries, keys))
    results = (query, tensor(1, heads, queries), SEED, tensor(dtype="int64"))
    arguments = (query, key, key) if dropout is None else (query, key, key, dropout, False)
    return words(call(FLASH, arguments, results)), results


@pytest.mark.parametrize(
    ("size", "keys", "padded", "splits"),
    [
        (64, 4096, 64, 16),  # blocks of 256 keys up to head size 64
        (40, 4096, 64, 16),
        (72, 2048, 96, 16),  # of 128 up to 128
        (128, 2048, 128, 16),
        (129, 1024, 192, 16),  # of 64 above; head sizes in steps of 64
        (160, 1024, 192, 16),
        (256, 1024, 256, 16),
    ],
)
def test_flash_forward_splits_the_keys(size: int, keys: int, padded: int, splits: int) -> None:
    """Two heads of 65 queries are 4 blocks for 264 places; sums and results per split, float32, held for the state."""
    allocations, _ = flash(2, 65, keys, size)
    sums, results = splits * 2 * 65 * 4, splits * 2 * 65 * padded * 4
    assert allocations == f"=0 =1 +{sums} +{results} =2 =3 -{sums} -{results}"


def test_flash_forward_without_splits() -> None:
    """With dropout never; a pair of seeds of rule 1 then comes first and goes once there is another. Nor where the blocks fill the GPU: 212 of 264."""
    assert flash(2, 65, 4096, 64, 0.1)[0] == "=0 =1 +16 =3 =2 -16"
    assert "+" in flash(2, 65, 4096, 64, 0.0)[0].partition("=1")[2]
    assert flash(212, 64, 4096, 64)[0] == "=0 =1 =2 =3"
    assert flash(211, 64, 4096, 64)[0] != "=0 =1 =2 =3"
    assert flash(106, 65, 4096, 64)[0] == "=0 =1 =2 =3"


def test_flash_forward_of_what_is_no_tensor() -> None:
    assert words(call(FLASH, (None, None, None), (tensor(1), SEED))) == "=0 =1"


@pytest.mark.parametrize(
    ("size", "queries", "accumulators"),
    [
        (64, 128, (2 * 4 * 128 * 4, 2 * 4 * 128 * 64 * 4)),
        (72, 129, (2 * 4 * 256 * 4, 2 * 4 * 256 * 96 * 4)),
        (128, 1, (2 * 4 * 128 * 4, 2 * 4 * 128 * 128 * 4)),
        (136, 1, (2 * 4 * 128 * 4, 2 * 4 * 128 * 192 * 4)),
    ],
)
def test_flash_backward(size: int, queries: int, accumulators: tuple[int, int]) -> None:
    query, key = (tensor(2, 4, length, size, dtype="float16") for length in (queries, 50))
    swapped = tensor(2, 4, queries, size, stride=(4 * queries * size, size, 4 * size, 1), dtype="float16")
    first, second = accumulators
    allocations = f"=0 =1 =2 +{first} +{second}"
    ends = f"-{second} -{first}"
    operator = call(f"{FLASH}_backward", (swapped, query, key, key, swapped), (query, key, key))
    assert words(operator) == f"{allocations} {ends}"
    if queries > 1:  # a gradient that is not contiguous as (batch, sequence, heads, size)
        copy = 2 * 4 * queries * size * 2
        operator = dataclasses.replace(operator, arguments=(query, query, key, key, swapped))
        assert words(operator) == f"+{copy} {allocations} {ends} -{copy}"
    grouped = tensor(2, 2, 50, size, dtype="float16")
    given = (swapped, query, grouped, grouped, swapped)
    operator = call(f"{FLASH}_backward", given, (query, grouped, grouped))
    whole = 2 * 4 * 50 * size * 2
    assert words(operator) == f"{allocations} +{whole} +{whole} -{whole} -{whole} {ends}"


def test_flash_backward_of_what_is_no_tensor() -> None:
    operator = call(f"{FLASH}_backward", (None, tensor(1, 1, 1, 8), None, None), (tensor(1),))
    assert words(operator) == "=0"


@pytest.mark.parametrize(
    ("capability", "dtype", "size", "value_size", "elements"),
    [
        # Two tiles of 64 queries, one of 64 columns: 64 x 64 and 4 words of locks.
        ((9, 0), "float16", 64, 64, 2 * 1 * (64 * 64 + 4)),
        ((9, 0), "float16", 65, 65, 1 * 1 * (128 * 128 + 4)),
        ((9, 0), "float16", 128, 128, 1 * 1 * (128 * 128 + 4)),
        ((9, 0), "float16", 64, 128, 1 * 1 * (128 * 128 + 4)),
        # Above 128 gradients leave the registers: 300 keys are 320, 160 columns 256, 96 columns 128.
        ((9, 0), "float16", 160, 96, 1 * 3 * (128 * 64 + 4) + 320 * (256 + 128)),
        ((9, 0), "float32", 96, 96, 1 * 2 * (128 * 64 + 4)),
        ((8, 0), "float32", 96, 96, 1 * 2 * (128 * 64 + 4)),
        ((10, 0), "bfloat16", 96, 96, 1 * 1 * (128 * 128 + 4)),
        # Little shared memory: tiles of 64 x 64, and gradients of 96 columns do not fit the registers.
        ((8, 6), "float16", 96, 96, 2 * 2 * (64 * 64 + 4) + 320 * (128 + 128)),
        ((7, 0), "float16", 96, 96, 1 * 2 * (128 * 64 + 4)),
        ((7, 5), "float32", 96, 96, 2 * 2 * (64 * 64 + 4)),
        ((9, 0), "float16", 32, 32, 2 * 1 * (64 * 64 + 4)),
        # Before tensor cores keys are not split: accumulators of one block of 64 keys.
        ((6, 0), "float16", 96, 96, 2 * 2 * (64 * 64 + 4) + 64 * (128 + 128)),
    ],
)
def test_efficient_workspace(
    capability: tuple[int, int], dtype: str, size: int, value_size: int, elements: int
) -> None:
    device = dataclasses.replace(H200, compute_capability=capability)
    query, value = (
        tensor(2, 3, length, width, dtype=dtype) for length, width in ((100, size), (300, value_size))
    )
    assert _efficient_workspace(query, value, (2, 100, 300), device) == 2 * 3 * elements * 4


@pytest.mark.parametrize(
    ("heads", "keys", "most", "parts"),
    # 1,024 keys are 16 blocks; 200 parts at most are shared by all heads; 256 heads do without, for few keys.
    [
        (8, 1024, None, 16),
        (64, 1024, None, 3),
        (300, 128, None, 1),
        (300, 1024, None, 1),
        (8, 1024, 2, 2),
        (64, 1024, 5, 5),
    ],
)
def test_parts_of_keys(heads: int, keys: int, most: int | None, parts: int) -> None:
    """As torch 2.11 takes them under the emulated runtime: 4 x 16 heads of size 256 and 1,024 keys take 193,232,896 bytes at most."""
    query = tensor(1, heads, 64, 256, dtype="float16")
    elements = 4 * (128 * 64 + 4) + parts * 64 * (256 + 256)
    assert _efficient_workspace(query, query, (1, 64, keys), H200, most) == heads * elements * 4


@pytest.mark.parametrize(
    ("dtype", "size", "taken"),
    [("float16", 128, False), ("float16", 129, True), ("bfloat16", 256, True), ("float32", 256, False)],
)
def test_efficient_forward(dtype: str, size: int, taken: bool) -> None:
    """Above 128 in half precision a float32 accumulator beside the output; random state stays on the host."""
    query = tensor(1, 2, 10, size, dtype=dtype)
    operator = call(
        EFFICIENT, (query, query, query, None, True), (query, tensor(1, 2, 32), tensor(dtype="int64"), SEED)
    )
    extra = 2 * 10 * size * 4
    assert words(operator) == "=0 =1" + (f" +{extra} -{extra}" if taken else "")


def test_efficient_backward_in_half_precision() -> None:
    """Gradient copied, three results, delta of 2 x 3 x 100 floats, workspace; a fourth result where the bias wants one."""
    query, key = tensor(2, 3, 100, 64, dtype="float16"), tensor(2, 3, 300, 64, dtype="float16")
    rest = (query, key, key, None, query, tensor(2, 3, 128), SEED, SEED, 0.0)
    workspace = 2 * 3 * 2 * (64 * 64 + 4) * 4
    copy, delta = 2 * 3 * 100 * 64 * 2, 2 * 3 * 100 * 4
    took = f"+{delta} +{workspace} -{delta} -{workspace}"
    name = f"{EFFICIENT}_backward"
    without = call(name, (query, *rest, (True, True, True, False)), (query, key, key, None))
    assert words(without) == f"+{copy} =0 =1 =2 {took[: took.index('-')]}-{delta} =3 -{workspace} -{copy}"
    bias = call(name, (query, *rest, (True, True, True, True)), (query, key, key, tensor(1)))
    assert words(bias) == f"+{copy} =0 =1 =2 =3 {took} -{copy}"
    dense = tensor(2, 3, 100, 64, stride=(19200, 64, 192, 1), dtype="float16")
    assert words(call(name, (dense, *rest), (query, key, key, tensor(1)))) == f"=0 =1 =2 =3 {took}"
    assert words(call(name, (dense, query, key, None), (query,))) == "=0"


def test_efficient_backward_in_float32_multiplies_and_sums() -> None:
    """Delta is a sum of a product of the outputs' size, transposed where there is more than one head and query."""
    for heads, queries in ((3, 100), (1, 100), (3, 1)):
        query = tensor(2, heads, queries, 64)
        key = tensor(2, heads, 300, 64)
        rest = (query, key, key, None, query, None, SEED, SEED, 0.0, (True, True, True, False))
        operator = call(f"{EFFICIENT}_backward", (query, *rest), (query, key, key, None))
        product, delta = 2 * heads * queries * 64 * 4, 2 * heads * queries * 4
        workspace = 2 * heads * (-(-queries // 64)) * (64 * 64 + 4) * 4
        copy = f"+{product} " if heads > 1 and queries > 1 else ""
        again = f"+{delta} -{delta} " if heads > 1 and queries > 1 else ""
        start = f"{copy}=0 =1 =2 +{product} +{delta} {again}-{product} +{workspace} -{delta}"
        assert words(operator).startswith(start)


def test_efficient_backward_splits_no_keys_before_volta() -> None:
    """As torch 2.7's own host code asks, emulated as a P100: in float32 there is no workspace, in float16 as ever."""
    for dtype, workspace in (("float32", []), ("float16", [2 * 3 * 2 * (64 * 64 + 4) * 4])):
        query = tensor(2, 3, 100, 64, dtype=dtype)
        rest = (query, query, query, None, query, None, SEED, SEED, 0.0, (True, True, True, False))
        operator = call(f"{EFFICIENT}_backward", (query, *rest), (query, query, query, None))
        steps = kernel_allocations(operator, dataclasses.replace(H200, compute_capability=(6, 0))).steps
        taken = [step.nbytes for step in steps if isinstance(step, Take)]
        delta = 2 * 3 * 100 * 4
        assert taken[taken.index(delta) :] == ([delta] if workspace else [delta, delta]) + workspace


def test_cudnn_forward_and_backward() -> None:
    """Random state on the device, first; a float32 query gradient with one more column, and 256 bytes. A gradient in another
    order than the result is taken as it is (latent attention on an H200), a copy is made of one whose last dimension has gaps."""
    query, key = tensor(2, 4, 100, 64, dtype="float16"), tensor(2, 4, 50, 64, dtype="float16")
    forward = call(CUDNN, (query, key, key), (query, tensor(2, 4, 100, 1), tensor(dtype="int64"), SEED))
    assert words(forward) == "=2 =3 =0 =1 +256? -256?"
    assert kernel_allocations(forward, H200).libraries == {"cudnn"}
    name, nbytes = f"{CUDNN}_backward", 2 * 4 * 100 * 65 * 4 + 256
    backward = call(name, (query, query, key, key, query), (query, key, key))
    assert words(backward) == f"=0 =1 =2 +{nbytes}? -{nbytes}?"
    assert kernel_allocations(backward, H200).libraries == {"cudnn"}
    assert words(dataclasses.replace(backward, arguments=(query, None, None, None, query))) == words(backward)
    assert words(call(name, (query,), (None, None, None))) == "=0 =1 =2"
    other = tensor(2, 4, 100, 64, stride=(25600, 64, 256, 1), dtype="float16")
    assert words(dataclasses.replace(backward, arguments=(other, query, key, key, query))) == words(backward)
    gaps = tensor(2, 4, 100, 64, stride=(25600, 6400, 1, 100), dtype="float16")
    copy = 2 * 4 * 100 * 64 * 2
    copied = dataclasses.replace(backward, arguments=(gaps, query, key, key, query))
    assert words(copied) == f"=0 =1 =2 +{copy} +{nbytes}? -{nbytes}? -{copy}"
    grouped = tensor(2, 2, 50, 64, dtype="float16")
    more = nbytes + 2 * (2 * 4 * 50 * 64 * 2)
    operator = call(name, (query, query, grouped, grouped, query), (query, grouped, grouped))
    assert words(operator) == f"=0 =1 =2 +{more}? -{more}?"


def test_cudnn_splits_the_keys_of_a_single_query() -> None:
    one, keys = tensor(1, 32, 1, 128, dtype="bfloat16"), tensor(1, 8, 4096, 128, dtype="bfloat16")
    results = (tensor(1, 32, 1, 128, dtype="bfloat16"),)
    assert words(call(CUDNN, (one, keys, keys, None, False, 0.0, False), results)) == "=0 +532608? -532608?"
    assert words(call(CUDNN, (one, keys, keys, None, False, 0.0, True), results)) == "=0"
    other = "aten::_cudnn_attention_forward"
    arguments = (one, keys, keys, None, None, None, 1, 4096, False, 0.0)
    assert words(call(other, (*arguments, False), results)) == "=0 +532608? -532608?"
    assert words(call(other, (*arguments, True), results)) == "=0"
