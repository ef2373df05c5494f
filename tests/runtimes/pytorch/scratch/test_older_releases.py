"""What other releases than 2.11 ask for otherwise: expected are requests of their own binaries under the emulated runtime, call by call.

torch 2.6.0+cu124, 2.8.0+cu128, 2.10.0+cu128, 2.12.1+cu130, 2.13.0+cu130 and 2.15.0+cu132, on the GPUs named.
"""

from __future__ import annotations

import dataclasses

import pytest

from analyzer.devices import DeviceProfile, load
from analyzer.releases import Release
from analyzer.runtimes.pytorch.scratch.cub import (
    changes_bytes,
    distinct_bytes,
    runs_bytes,
    scan_by_key_bytes,
    scan_bytes,
    select_bytes,
    thrust_unique_bytes,
    unique_bytes,
)
from tests.runtimes.pytorch.scratch.handwritten import call, tensor, words

MILLION = 1_000_000


def under(release: Release, device: str = "h200") -> DeviceProfile:
    profile = load(device)
    return dataclasses.replace(profile, releases={**profile.releases, "torch": release})


@pytest.mark.parametrize(
    ("release", "device", "nbytes"),
    [
        ((2, 6), "h200", 2303), ((2, 8), "h200", 4351), ((2, 10), "h200", 4351), ((2, 12), "h200", 4607),
        ((2, 6), "l4", 25599), ((2, 8), "l4", 50943), ((2, 10), "l4", 50943), ((2, 12), "l4", 51199),
        ((2, 6), "a100-80gb", 5119), ((2, 10), "a100-80gb", 9727), ((2, 6), "t4", 25599), ((2, 10), "t4", 50943),
        ((2, 13), "h200", 4351), ((2, 13), "l4", 51199), ((2, 15), "a100-80gb", 13055),
        ((2, 15), "b200", 4351), ((2, 15), "t4", 51199),
    ],
)  # fmt: skip
def test_unique_by_key(release: Release, device: str, nbytes: int) -> None:
    assert unique_bytes(under(release, device), MILLION) == nbytes


@pytest.mark.parametrize("release", [(2, 6), (2, 8), (2, 10), (2, 12)])
def test_the_control_word_of_cuda_13(release: Release) -> None:
    more = 256 * (release >= (2, 11))
    h200, l4 = under(release), under(release, "l4")
    assert scan_bytes(h200, MILLION, "float32") == 4863 + more
    assert scan_bytes(h200, MILLION) == 18687 + more
    assert select_bytes(h200, MILLION) == 2559 + more
    assert select_bytes(l4, MILLION) == 13055 + more
    assert distinct_bytes(h200, MILLION, 4) == 1791 + more
    assert distinct_bytes(l4, MILLION, 4) == 6911 + more
    assert changes_bytes(h200, MILLION) == 3327 + more
    assert changes_bytes(l4, MILLION) == 4863 + more
    assert thrust_unique_bytes(h200, 50) == 1279 + more


def test_what_has_a_part_more_in_every_release() -> None:
    assert runs_bytes(MILLION) == 21759
    assert scan_by_key_bytes(load("h200"), 128) == 1279


@pytest.mark.parametrize(
    ("device", "count", "parts"),  # of 256 bytes, as PyTorch 2.11 asks for under the emulated runtime
    [
        ("h200", 102_400, 5), ("h200", 400_000, 11), ("a100-80gb", 250_000, 9), ("rtx3090", 102_400, 6),
        ("rtx4090", 600_000, 24), ("t4", 600_000, 24), ("rtx5090", 600_000, 14),
    ],
)  # fmt: skip
def test_a_scan_by_key_on_each_architecture(device: str, count: int, parts: int) -> None:
    assert scan_by_key_bytes(load(device), count) == parts * 256 + 255


@pytest.mark.parametrize(
    ("release", "dtype", "held"),
    [
        ((2, 6), "float32", (16, 16, 16, 16, 65536, 512, 512)),
        ((2, 8), "float32", (16, 16, 32, 32, 65536, 512, 512)),
        ((2, 10), "float32", (16, 32, 32, 65536, 4096, 512, 512)),
        ((2, 6), "float64", (32, 16, 16, 32, 65536, 512, 512)),
        ((2, 8), "float64", (32, 16, 32, 64, 65536, 512, 512)),
        ((2, 10), "float64", (32, 32, 64, 65536, 4096, 512, 512)),
        ((2, 10), "float16", (8, 32, 32, 65536, 4096, 512, 512)),
        ((2, 8), "int8", (4, 16, 32, 32, 65536, 512, 512)),
    ],
)
def test_topk_of_four_rows(release: Release, dtype: str, held: tuple[int, ...]) -> None:
    results = (tensor(4, 50, dtype=dtype), tensor(4, 50, dtype="int64"))
    allocations = words(call("aten::topk", (tensor(4, 32000, dtype=dtype), 50), results), under(release))
    assert [int(word[1:]) for word in allocations.split() if word[0] == "+" and "?" not in word] == list(held)
    assert allocations.count("+1279?") == 2


@pytest.mark.parametrize(("release", "last"), [((2, 6), 1_408_000), ((2, 10), 1_408_000), ((2, 12), 44_000)])
def test_few_rows_of_an_embedding_are_added_atomically_since_2_11(release: Release, last: int) -> None:
    """The last request for 50,000 indices of 500 rows of 64, on an H200."""
    arguments = (tensor(50_000, 64), tensor(50_000, dtype="int64"), 500)
    allocations = words(
        call("aten::embedding_dense_backward", arguments, (tensor(500, 64),)), under(release)
    ).split()
    assert [int(word[1:]) for word in allocations if word[0] == "+"][-1] == last


@pytest.mark.parametrize(
    ("release", "taken"), [((2, 12), [8, 984, 4, 8, 984, 4]), ((2, 13), [8, 8, 1968, 4])]
)
def test_both_extremes_at_once_since_2_13(release: Release, taken: list[int]) -> None:
    """What comes before a million counts, and before a million indices are sorted; these are read back as a byte each."""
    device, many = under(release), tensor(MILLION, dtype="int64")
    counts = words(call("aten::bincount", (many,), (tensor(1, dtype="int64"),)), device)
    assert [int(word[1:]) for word in counts.split() if word[0] == "+"] == taken
    arguments = (tensor(500, 64), (many,), tensor(MILLION, 64), True)
    put = words(call("aten::index_put_", arguments, (tensor(500, 64),)), device)
    found = [int(word[1:]) for word in put.split() if word[0] == "+"]
    flagged = [8, 984, 4, 1, 8, 984, 4, 1] if release < (2, 13) else [8, 8, 1968, 4, 1, 1]
    assert found[: len(flagged)] == flagged
