"""CUB's storage and the operators that sort, on sizes worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from analyzer.devices import load
from analyzer.runtimes.pytorch.scratch.cub import (
    aliased_bytes,
    bits_for,
    distinct_bytes,
    radix_sort_bytes,
    scan_by_key_bytes,
    scan_bytes,
    unique_bytes,
)
from tests.runtimes.pytorch.scratch.handwritten import H200, call, spread, tensor, words


def up(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


def test_parts_lie_at_multiples_of_256() -> None:
    assert aliased_bytes() == 255
    assert aliased_bytes(256, 1, 0) == 256 + 256 + 255


@pytest.mark.parametrize(
    ("count", "bits", "key", "value", "tile"),
    [
        (2305, 64, 8, 8, 4608),
        (4608, 64, 8, 8, 4608),
        (4609, 64, 8, 8, 4608),
        (5376, 32, 4, 8, 5376),
        (5377, 32, 4, 8, 5376),
        (5760, 16, 8, 0, 5760),
        (5761, 16, 8, 0, 5760),
        (5633, 9, 2, 8, 5632),
    ],
)
def test_radix_sort(count: int, bits: int, key: int, value: int, tile: int) -> None:
    """Per pass 256 counts of 8 bytes and a counter of 4; a table of 256 words a tile; second buffers."""
    passes, tiles = -(-bits // 8), -(-count // tile)
    nbytes = up(passes * 2048) + up(tiles * 1024) + up(count * key) + up(count * value) + up(passes * 4)
    assert radix_sort_bytes(H200, count, bits, key, value) == nbytes + 255


def test_radix_sort_of_one_pass_or_one_block() -> None:
    assert radix_sort_bytes(H200, 2304) == 1
    assert radix_sort_bytes(H200, 2305, 8) == 2048 + 1024 + 256 + 255
    assert radix_sort_bytes(H200, 2305, 9) == 4096 + 1024 + 2 * up(2305 * 8) + 256 + 255


def test_scan_and_unique() -> None:
    """A look-back entry a tile (896 elements of 8 bytes, 1,920 of 4) and 32 more, and a control word."""
    assert scan_bytes(H200, 128 * 7 * 32) == up(64 * 16) + 256 + 255
    assert scan_bytes(H200, 128 * 7 * 32 + 1) == up(65 * 16) + 256 + 255
    assert scan_bytes(H200, 128 * 15 * 33, "float32") == up(65 * 8) + 256 + 255
    assert scan_bytes(H200, 3840 * 33, "int8") == up(65 * 4) + 256 + 255
    assert scan_bytes(H200, 3840 * 96, "int16") == up(128 * 4) + 256 + 255
    # As PyTorch 2.11 asks for `torch.cumsum` of so many elements (`analyze emulate`).
    for dtype, count, nbytes in (
        ("float16", 320, 1279), ("bfloat16", 1_000_000, 3327), ("float16", 10_000_000, 22_015),
        ("complex64", 1_000_000, 23_551), ("complex128", 3_000_000, 283_391), ("int8", 10_000_000, 11_263),
    ):  # fmt: skip
        assert scan_bytes(H200, count, dtype) == nbytes
    # Of `torch.unique_consecutive` of so many numbers: 5,020 tiles of 384 times 17.
    assert distinct_bytes(H200, 320**3, 4) == 40_959
    assert unique_bytes(H200, 2304 * 32) == 512 + 256 + 256 + 255
    assert unique_bytes(H200, 2304 * 32 + 1) == 768 + 256 + 256 + 255


def test_bits() -> None:
    assert [bits_for(value) for value in (0, 1, 2, 255, 256)] == [1, 1, 2, 8, 9]


def closed(*sizes: int | str) -> str:
    """Results first, then these taken and, last first, given back."""
    return " ".join(["=0 =1", *(f"+{size}" for size in sizes), *(f"-{size}" for size in reversed(sizes))])


def test_sort_in_one_block() -> None:
    """A row of indices, whatever the rows; the dimension by position, or for `.stable` one later."""
    results = (tensor(3, 4096), tensor(3, 4096, dtype="int64"))
    assert words(call("aten::sort", (tensor(3, 4096),), results)) == closed(4096 * 8)
    assert words(call("aten::sort", (tensor(3, 4096), 0), results)) == closed(3 * 8)
    assert words(call("aten::sort.stable", (tensor(3, 4096), True, 0), results)) == closed(3 * 8)
    assert words(call("aten::sort.stable", (tensor(3, 4096),), results, dim=0)) == closed(3 * 8)
    assert words(call("aten::sort", (tensor(),), results)) == closed(8)
    for nothing in (None, tensor(0, 5000)):
        assert words(call("aten::sort", (nothing,), results)) == "=0 =1"


def test_sort_of_long_rows() -> None:
    count = 5000
    one = closed(count * 8, radix_sort_bytes(H200, count, 32, 4, 8))
    results = (tensor(count), tensor(count, dtype="int64"))
    assert words(call("aten::sort", (tensor(count),), results)) == one
    strided = call("aten::sort", (spread(tensor(count)),), results)
    rest = (count * 8, radix_sort_bytes(H200, count, 32, 4, 8))
    assert words(strided) == closed(count * 4, count * 4, count * 8, *rest)
    whole = 3 * count
    keys, pairs = whole * 4, radix_sort_bytes(H200, whole, 32, 4, 8)
    segments = radix_sort_bytes(H200, whole, 8, 8, 0)
    allocations = words(call("aten::sort", (tensor(3, count),), results))
    taken = f"=0 =1 +{whole * 8} +{whole * 8} +{keys} +{pairs} -{pairs} -{keys} +{segments}"
    assert allocations == f"{taken} -{segments} -{whole * 8} -{whole * 8}"


def test_topk_of_few_or_short_rows() -> None:
    results = (tensor(2, 5), tensor(2, 5, dtype="int64"))
    assert words(call("aten::topk", (tensor(20, 19999), 5), results)) == "=0 =1"
    turned = tensor(20, 30, stride=(1, 20))
    assert words(call("aten::topk", (turned, 5), results)) == closed(2400)
    assert words(call("aten::topk", (turned, 5, 0), results)) == closed(2400)
    # What is contiguous is not copied, whichever dimension: so torch 2.11 itself, emulated.
    assert words(call("aten::topk", (tensor(20, 30), 5, 0), results)) == "=0 =1"
    assert words(call("aten::topk", (tensor(), 1), results)) == "=0 =1"
    for nothing in (None, tensor(0, 5)):
        assert words(call("aten::topk", (nothing, 5), results)) == "=0 =1"


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        (20, 20000), (21, 10000), (40, 10000), (41, 8000), (80, 8000), (81, 5000), (199, 5000), (200, 3000),
        (799, 3000), (800, 800), (4000, 800), (4001, 400),
    ],
)  # fmt: skip
def test_topk_shares_few_long_rows(rows: int, size: int) -> None:
    results = (tensor(rows, 5), tensor(rows, 5, dtype="int64"))
    assert words(call("aten::topk", (tensor(rows, size - 1), 5), results)) == "=0 =1"
    assert words(call("aten::topk", (tensor(rows, size), 5), results)) != "=0 =1"


def test_topk_sorts_many_values_as_sort_does() -> None:
    """40,000 x 8 elements, 5,000 of each column: what torch 2.11 itself asks for, emulated as an H100 (`topk(y, 5000, dim=0)`)."""
    results = (tensor(5000, 8), tensor(5000, 8, dtype="int64"))
    asked = words(call("aten::topk", (tensor(40000, 8), 5000, 0), results), load("h100")).replace("?", "")
    assert asked == (
        "=0 =1 +32 +64 +64 +163840 +8192 +1280 +1280 +1279 -1279 +1279 -1279 -1280 -1280 -8192 -163840 -64 -64 -32 "
        "+320000 +160000 +160000 +160000 +320000 +320000 +320000 +160000 +496895 -496895 -160000 +9727 -9727 "
        "-320000 -320000 -320000 -160000 -160000 +320000 -320000 -160000 -320000"
    )
    unsorted = words(call("aten::topk", (tensor(40000, 8), 5000, 0, True, False), results), load("h100"))
    assert unsorted.replace("?", "") == asked.partition(" +320000")[0]


@pytest.mark.parametrize(
    ("rows", "size", "items"),
    [
        (20, 20000, 4),  # 400,000 elements for 132 x 6 blocks of 256 threads: 2 a thread, but at least 4
        (1, 792 * 256 * 10, 10),
        (1, 792 * 256 * 10 + 1, 11),
        (1, 792 * 256 * 70, 64),  # and at most 64
    ],
)
def test_topk_counts_and_histograms(rows: int, size: int, items: int) -> None:
    blocks = rows * -(-size // (256 * items))
    held = (rows * 4, rows * 8, rows * 8, blocks * 512, rows * 1024, blocks * 4, blocks * 4)
    bytes_of_scan = scan_by_key_bytes(load("h200"), blocks)
    scan = f"+{bytes_of_scan}? -{bytes_of_scan}?"
    taken, given = (f"+{nbytes}" for nbytes in held), (f"-{nbytes}" for nbytes in reversed(held))
    allocations = words(
        call("aten::topk", (tensor(rows, size), 5), (tensor(rows, 5), tensor(rows, 5, dtype="int64")))
    )
    assert allocations == " ".join(["=0 =1", *taken, scan, scan, *given])


def test_topk_on_a_smaller_gpu_gives_a_thread_more() -> None:
    device = dataclasses.replace(H200, sm_count=20)
    results = (tensor(1, 5), tensor(1, 5, dtype="int64"))
    operator = call("aten::topk", (tensor(1, 20 * 6 * 256 * 7), 5), results)
    assert f"+{20 * 6 * 512} " in words(operator, device)


@pytest.mark.parametrize(
    ("count", "bits"),
    [(1, 1), (100, 16), (30_000, 32), (30_100, 33), (1_000_000, 43)],
)
def test_randperm(count: int, bits: int) -> None:
    """Enough bits b that keys repeat rarely: 2^b above n + (6 n^2 + 1) / (12 ln(10/9)), rounded up."""
    width = 4 if bits <= 32 else 8
    sort = radix_sort_bytes(H200, count, bits, width, 8)
    held = (count * 8, count * width, count * width, sort)
    taken, given = (f"+{nbytes}" for nbytes in held), (f"-{nbytes}" for nbytes in reversed(held))
    allocations = words(call("aten::randperm", (count,), (tensor(count, dtype="int64"),)))
    assert allocations == " ".join(["=0 +8 -8", *taken, *given])


# 99,991 elements, asked of PyTorch 2.11's own binary under the emulated runtime: keys of (bytes), values of (bytes).
@pytest.mark.parametrize(
    ("device", "sizes"),
    [
        ("h200", {(1, 0): 13823, (2, 0): 216063, (4, 0): 423167, (8, 0): 835327, (4, 8): 1228287, (8, 8): 1639423}),
        ("rtx5090", {(1, 0): 13823, (2, 0): 219135, (4, 0): 423167, (8, 0): 835327, (4, 8): 1228287}),
        ("a100-80gb", {(1, 0): 421887, (2, 0): 798463, (4, 0): 422143, (8, 0): 844543, (1, 8): 1360127, (4, 8): 1242623}),
        ("rtx3090", {(1, 0): 355327, (2, 0): 665343, (4, 0): 422143, (2, 8): 1465343, (8, 8): 1644543}),
        ("l4", {(1, 0): 293887, (2, 0): 542463, (1, 8): 1168127, (2, 8): 1342463, (8, 0): 844543}),
        ("t4", {(1, 0): 299007, (2, 0): 450303, (4, 0): 426239, (8, 0): 853759, (1, 8): 1047807, (8, 8): 1653759}),
    ],
)  # fmt: skip
def test_sorts_by_the_code_that_a_device_runs(device: str, sizes: dict[tuple[int, int], int]) -> None:
    profile = load(device)
    found = {(key, value): radix_sort_bytes(profile, 99_991, 8 * key, key, value) for key, value in sizes}
    assert found == sizes


# Look-back entries of 16 bytes for the tiles and 32 more, and keys of 4: 64 entries are four times
# 256 bytes, 64 keys fill 256.
@pytest.mark.parametrize(
    ("device", "tile"),
    [("h200", 4096), ("rtx5090", 4608), ("a100-80gb", 3840), ("rtx3090", 2304), ("l4", 2304), ("t4", 2304)],
)
def test_scans_by_key_in_the_tiles_of_a_device(device: str, tile: int) -> None:
    sizes = [scan_by_key_bytes(load(device), count) for count in (1, 32 * tile, 32 * tile + 1, 64 * tile + 1)]
    assert sizes == [768 + 256 + 255, 1024 + 256 + 255, 1280 + 256 + 255, 1792 + 512 + 255]


def test_a_median_of_few_is_sorted_without_storage() -> None:
    """`sort` of at most 4,096 elements asks CUB for nothing (`aten/src/ATen/native/cuda/Sort.cpp`)."""
    few, more = (words(call("aten::median", (tensor(count),), (tensor(),))) for count in (4096, 4097))
    assert few == "+16384 +32768 +32768 -32768 -32768 +1 =0 -1 -16384"
    storage = radix_sort_bytes(H200, 4097, 32, 4, 8)
    assert more == f"+16388 +32776 +32776 +{storage} -{storage} -32776 -32776 +1 =0 -1 -16388"
