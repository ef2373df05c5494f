"""A table in several files is one table: what a later file knows more of counts, in order of family and batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.shards import Joined, files, more
from analyzer.libraries.cudnn.table import Measurements, write

ABOUT = {"gpu": "none"}


def family(channels: int) -> list[int]:
    return [channels, 0, 8, 8, 16, channels, 1, 3, 3, 0, 1, 1, 1, 1, 1, 1, 1, 1]


def arrays(calls: list[tuple[int, int, int, int]], channels: list[int]) -> dict[str, Any]:
    """Calls as (row of the family, batch, forward, trial)."""
    columns = np.array(calls, np.int64).T
    names = (
        "float32.nchw.family",
        "float32.nchw.batch",
        "float32.nchw.forward",
        "float32.nchw.trial.forward",
    )
    return {
        "family": np.array([family(c) for c in channels], np.int32),
        **dict(zip(names, columns, strict=True)),
    }


def test_a_further_file_holds_what_is_new_and_the_two_are_the_whole(tmp_path: Path) -> None:
    before = arrays([(0, 1, 10, -2), (0, 4, 11, -2), (1, 2, 12, 90)], [3, 5])
    # Family 5 comes first here; the trial of a call that was known, a call between, and a family nobody had.
    after = arrays(
        [(0, 2, 12, 90), (1, 1, 10, -2), (1, 3, 13, -2), (1, 4, 11, 80), (2, 1, 14, 70)], [5, 3, 7]
    )
    write(tmp_path / "t.npz", before, ABOUT)
    base = Measurements(str(tmp_path / "t.npz"))
    added = more(after, base.joined, base.families)
    assert added["family"].tolist() == [family(3), family(7)]
    assert added["float32.nchw.batch"].tolist() == [3, 4, 1]
    write(tmp_path / "t.2.npz", added, ABOUT)

    both = Joined(files(tmp_path, "t"))
    assert both.families().tolist() == [family(3), family(5), family(7)] and both.rows[tuple(family(7))] == 2
    read = {
        name: both.array(f"float32.nchw.{name}").tolist()
        for name in ("family", "batch", "forward", "trial.forward")
    }
    assert read == {
        "family": [0, 0, 0, 1, 2], "batch": [1, 3, 4, 2, 1], "forward": [10, 13, 11, 12, 14],
        "trial.forward": [-2, -2, 80, 90, 70],
    }  # fmt: skip


def test_the_shipped_table_is_of_several_files() -> None:
    shipped = Measurements("h200")
    places = shipped.array("float32.nchw.family").astype(np.int64) * (1 << 32) + shipped.array(
        "float32.nchw.batch"
    )
    assert len(shipped.families) > 50_000 and (np.diff(places) > 0).all()
