"""`unique` and its kin: requests as PyTorch 2.11's own host code makes them under the emulated runtime, in their order."""

from __future__ import annotations

from analyzer.devices import load
from tests.runtimes.pytorch.scratch.handwritten import call, tensor, words

TRUE, MANY, NONE = tensor(1_000_000, dtype="bool"), tensor(1_000_000, dtype="int64"), tensor(0, dtype="int64")
BOTH, COUNTS = tensor(2, dtype="bool"), tensor(2, dtype="int64")
FEW = tensor(3000, dtype="int64")


def test_truth_values_are_counted_and_not_sorted() -> None:
    """The sum takes 4 bytes for each thread block, and both values have room: `UniqueCub<bool>`."""
    wanted = (TRUE, True, True, True)
    assert words(call("aten::_unique2", wanted, (BOTH, MANY, COUNTS)), load("h100")) == (
        "+4 +21503 -21503 =0:2 =2:16 =1 -4"
    )
    alone = words(call("aten::_unique2", (TRUE, True, False, False), (BOTH, NONE, NONE)), load("t4"))
    assert alone.startswith("+4 +3583 -3583 =0:2 +16")


def test_positions_are_numbered_before_they_are_sorted() -> None:
    """The first of both is given back: which of two equal blocks is free decides what follows."""
    said = words(call("aten::_unique2", (FEW, True, True, False), (FEW, FEW, NONE)), load("h100"))
    assert said.startswith("+24000 +24000 +24000 +66047 -66047 -24000 =1 +24000 +1023 -1023 -24000 =0:24000")


def test_where_consecutive_values_change_is_said_in_integers() -> None:
    said = words(call("aten::unique_consecutive", (FEW, True, False, None), (FEW, FEW, NONE)), load("h100"))
    assert said.startswith("=1 +12000 +1023 -1023 -12000 =0:24000 +8")


def test_changes_of_rows_are_taken_before_their_places() -> None:
    rows, places = tensor(10_000, 4, dtype="int64"), tensor(10_000, dtype="int64")
    said = words(call("aten::unique_dim", (rows, 0, True, True, False), (rows, places, NONE)), load("h100"))
    assert said.startswith(
        "+80000 +80639 -80639 +80000 =1 +255 -255 +1279 -1279 -80000 +1535 -1535 =0 -80000"
    )
