"""A table of four convolutions, written and read: what is known at which batch, who is near, and what is asked again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzer.libraries.cudnn import table
from analyzer.libraries.cudnn.convolutions import workspace
from analyzer.libraries.cudnn.table import (
    FIGURES,
    NOT_ASKED,
    Convolution,
    Measurements,
    call_of,
    grid_calls,
    table_of,
    write,
)
from tests.values import not_values

DENSE = Convolution("forward", "float32", False, (2, 8, 14, 16), (24, 8, 3, 5), (1, 2), (2, 3), (1, 1))
GROUPED = Convolution("forward", "float32", False, (2, 8, 14, 14), (16, 2, 3, 3), (1, 1), (1, 1), (1, 1))
VOLUME = Convolution(
    "data", "float16", True, (1, 4, 6, 8, 10), (4, 4, 1, 2, 3), (0, 1, 2), (1, 2, 3), (3, 2, 1)
)
LINE = Convolution("weight", "float32", False, (2, 8, 1, 14), (24, 8, 1, 3), (0, 1), (1, 1), (1, 1))


def test_what_a_convolution_is() -> None:
    assert (DENSE.groups, GROUPED.groups) == (1, 4)
    assert DENSE.y_shape == (2, 24, 7, 6)  # (14 + 2 - 2 - 1) // 2 + 1, (16 + 4 - 4 - 1) // 3 + 1
    assert VOLUME.y_shape == (
        1,
        4,
        6,
        4,
        4,
    )  # (6 - 1) + 1, (8 + 2 - 2 - 1) // 2 + 1, (10 + 4 - 2 - 1) // 3 + 1
    assert DENSE.family == (8, 0, 14, 16, 24, 8, 0, 3, 5, 0, 1, 2, 0, 2, 3, 0, 1, 1)
    assert VOLUME.family == (4, 6, 8, 10, 4, 4, 1, 2, 3, 0, 1, 2, 1, 2, 3, 3, 2, 1)


@pytest.mark.parametrize("call", [DENSE, GROUPED, VOLUME, LINE])
def test_a_family_gives_back_its_convolution(call: Convolution) -> None:
    found = table.convolution_of(np.array(call.family), call.x_shape[0], call)
    assert found == call
    assert table.convolution_of(np.array(call.family), 7, call).x_shape == (7, *call.x_shape[1:])


def files(folder: Path) -> Path:
    """DENSE at batches 1, 2 and 4, GROUPED at 2; -1 where cuDNN has no plan, -2 where nobody asked."""
    families = np.array([DENSE.family, GROUPED.family, VOLUME.family, LINE.family], np.int32)
    path = folder / "mine.npz"
    arrays = {
        "family": families,
        "float32.nchw.family": np.array([0, 0, 0, 1]),
        "float32.nchw.batch": np.array([1, 2, 4, 2]),
        "float32.nchw.forward": np.array([100, 0, -1, 300]),
        "float32.nchw.data": np.array([-2, 5000, 6000, 7000]),
        "float32.nchw.weight": np.array([1, 2, 3, 4]),
    }
    write(path, arrays, {"gpu": "mine"})
    return path


def test_reading_a_table(tmp_path: Path) -> None:
    found = Measurements(str(files(tmp_path)))
    assert (found.about, found.name) == ({"gpu": "mine"}, str(tmp_path / "mine.npz"))
    assert [found.family_row(call) for call in (DENSE, GROUPED, VOLUME, LINE)] == [0, 1, 2, 3]
    other = Convolution("forward", "float32", False, (2, 9, 14, 16), (24, 9, 3, 5), (1, 2), (2, 3), (1, 1))
    assert found.family_row(other) is None

    def at(call: Convolution, dtype: str = "float32") -> tuple[list[int], list[int]]:
        batches, sizes = found.batches(call, found.family_row(call) or 0, dtype)
        return batches.tolist(), sizes.tolist()

    assert at(DENSE) == ([1, 2], [100, 0])
    assert at(GROUPED) == ([2], [300])
    assert at(LINE) == ([], [])
    assert at(DENSE, "float16") == ([], [])
    assert at(Convolution("data", *DENSE.__getstate__()[1:])) == ([2, 4], [5000, 6000])  # type: ignore[index]
    assert at(Convolution("weight", *DENSE.__getstate__()[1:])) == ([1, 2, 4], [1, 2, 3])  # type: ignore[index]
    assert workspace(DENSE, str(tmp_path / "mine.npz")).nbytes == 0


def test_who_is_near(tmp_path: Path) -> None:
    """The same class: dimensions, filter, strides, dilation, groups; loosely, dimensions alone."""
    found = Measurements(str(files(tmp_path)))
    assert list(found.nearest(DENSE)) == [(0.0, 0)]
    assert list(found.nearest(VOLUME)) == [(0.0, 2)]
    loosely = list(found.nearest(DENSE, loosely=True))
    assert loosely[0][1] == 0 and {family for _, family in loosely} == {0, 1}
    assert list(found.nearest(LINE, loosely=True)) == [(0.0, 3)]  # a height of 1 is another kind of image
    wider = Convolution("forward", "float32", False, (2, 16, 14, 16), (24, 16, 3, 5), (1, 2), (2, 3), (1, 1))
    assert list(found.nearest(wider)) == [(1.0, 0)]  # twice the channels, as even as before
    odd = Convolution("forward", "float32", False, (2, 4, 14, 16), (24, 4, 3, 5), (1, 2), (2, 3), (1, 1))
    assert list(found.nearest(odd)) == [(1.0 + 0.5 + 1.0, 0)]  # half of them, no multiple of 8, fewer than 8
    taller = Convolution("forward", "float32", False, (2, 8, 28, 16), (24, 8, 3, 5), (2, 1), (2, 3), (1, 1))
    assert list(found.nearest(taller)) == [(1.0, 0)]
    single = Convolution("forward", "float32", False, (2, 1, 14, 16), (24, 1, 3, 5), (1, 2), (2, 3), (1, 1))
    assert list(found.nearest(single)) == [(3.0 + 0.5 + 0.5 + 1.0, 0)]  # one channel is not depthwise
    padded = Convolution("forward", "float32", False, (2, 8, 14, 16), (24, 8, 3, 5), (3, 2), (2, 3), (1, 1))
    assert list(found.nearest(padded)) == [(0.5, 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"w_shape": (24, 8, 3, 3)},
        {"stride": (2, 2)},
        {"dilation": (2, 1)},
        {"w_shape": (24, 4, 3, 5)},
        {"w_shape": (24, 1, 3, 5)},
    ],
)
def test_another_class_is_not_near(change: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    import dataclasses

    changed = dataclasses.replace(DENSE, **change)  # type: ignore[arg-type]
    assert list(Measurements(str(files(tmp_path))).nearest(changed)) == []


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """The table above in the place of the shipped one."""
    found = Measurements(str(files(tmp_path)))
    monkeypatch.setattr(table, "measurements", lambda device: found)
    monkeypatch.setattr(table, "_groups", table._groups.__wrapped__)
    return found


@pytest.mark.usefixtures("shipped")
def test_calls_are_asked_common_batches_first() -> None:
    assert table._groups() == ("float32.nchw",)
    everything = [(0, 0, 1, False), (0, 0, 4, False), (0, 0, 2, False), (0, 1, 2, False)]
    assert list(grid_calls(0, 1)) == everything
    assert list(grid_calls(0, 2)) == everything[::2]
    assert list(grid_calls(1, 2)) == everything[1::2]
    assert call_of(0, 0, 2, "forward") == DENSE
    assert call_of(0, 1, 2, "forward") == GROUPED


def test_which_batches_are_common(shipped: Measurements) -> None:
    """The sizes training and inference are run with most often, in this order; any other comes last."""
    batches = [1, 2, 3, 4, 8, 16, 32, 64, 128, 129]
    shipped._arrays["float32.nchw.family"] = np.zeros(len(batches), np.int64)
    shipped._arrays["float32.nchw.batch"] = np.array(batches)
    assert [batch for _, _, batch, _ in grid_calls(0, 1)] == [1, 32, 8, 64, 16, 4, 128, 2, 3, 129]


@pytest.mark.usefixtures("shipped")
def test_a_table_of_what_was_asked() -> None:
    """Rows (group, family, batch, operation, figures); what was not asked is unknown, or as in the shipped table."""
    rest = (NOT_ASKED,) * (len(FIGURES) - 1)
    rows = np.array([(0, 0, 4, 0, 77, *rest), (0, 1, 2, 1, 88, *rest), (0, 1, 2, 2, 99, *rest)])
    own = table_of(rows)
    assert {key: value.tolist() for key, value in own.items() if key != "family"} == {
        "float32.nchw.family": [0, 1],
        "float32.nchw.batch": [4, 2],
        "float32.nchw.forward": [77, -2],
        "float32.nchw.data": [-2, 88],
        "float32.nchw.weight": [-2, 99],
    }
    both = table_of(rows, on_shipped=True)
    assert both["float32.nchw.forward"].tolist() == [100, 0, 77, 300]
    assert both["float32.nchw.data"].tolist() == [-2, 5000, 6000, 88]
    assert both["float32.nchw.weight"].tolist() == [1, 2, 3, 99]
    assert set(table_of(np.empty((0, 4 + len(FIGURES)), np.int64))) == {"family"}
    nothing = table_of(np.empty((0, 4 + len(FIGURES)), np.int64), on_shipped=True)
    assert nothing["float32.nchw.weight"].tolist() == [1, 2, 3, 4]


def test_values_cannot_be_changed() -> None:
    assert not_values("analyzer.libraries.cudnn") == {"_Table"}  # caches a column
