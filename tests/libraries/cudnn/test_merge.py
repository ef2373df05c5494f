"""`benchmarks/cudnn/`: which calls are asked about, and answers merged into a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzer.libraries.cudnn.convolutions import workspace
from analyzer.libraries.cudnn.table import FIGURES, NOT_ASKED, Convolution, Measurements, write
from benchmarks.cudnn.calls import GROUPS, Calls, Families, list_of, select
from benchmarks.cudnn.merge import merged

CALL = Convolution("forward", "float32", False, (2, 8, 16, 16), (8, 8, 3, 3), (1, 1), (1, 1), (1, 1))


def table(folder: Path) -> str:
    path = folder / "mine.npz"
    arrays = {"family": np.array([CALL.family], np.int32), "float32.nchw.family": np.array([0])}
    write(
        path,
        arrays | {"float32.nchw.batch": np.array([2]), "float32.nchw.forward": np.array([100])},
        {"gpu": "mine"},
    )
    return str(path)


def answers(folder: Path, batch: int, first: int) -> Path:
    path = folder / "answers.npz"
    row = [0, 0, first, *[NOT_ASKED] * (len(FIGURES) - 1)]
    entries = np.array([(0, GROUPS.index("float32.nchw"), batch)])
    np.savez(
        path, allow_pickle=False, families=np.array([CALL.family]), entries=entries, rows=np.array([row])
    )
    return path


def asked(folder: Path, network: str, channels_last: bool) -> Calls:
    """What is asked about a network of `CALL` alone, beside what `table` has."""
    convolution = {
        "x": CALL.x_shape,
        "w": CALL.w_shape,
        "y": CALL.x_shape,
        "stride": CALL.stride,
        "padding": CALL.padding,
        "dilation": CALL.dilation,
        "transposed": False,
        "channels_last": channels_last,
    }
    shapes = folder / "shapes.jsonl"
    shapes.write_text(json.dumps({"name": network, "convolutions": [convolution]}) + "\n")
    families = Families()
    families.read(shapes)
    return list_of(select(families, Measurements(table(folder)), whole=False), 1000)


def test_a_network_that_runs_channels_last_by_itself_is_asked_so(tmp_path: Path) -> None:
    calls = asked(tmp_path, "mine", channels_last=True)
    assert {GROUPS[group].partition(".")[2] for _, group, _ in calls.entries.tolist()} == {"nhwc"}


def test_a_new_call_answers_for_itself_and_votes(tmp_path: Path) -> None:
    arrays, differ = merged(Measurements(table(tmp_path)), [answers(tmp_path, 4, 700)])
    assert differ == 0
    path = tmp_path / "new.npz"
    write(path, arrays, {"gpu": "mine"})
    at = {n: workspace(replace(CALL, x_shape=(n, *CALL.x_shape[1:])), str(path)) for n in (2, 4)}
    assert [(found.nbytes, found.source) for found in at.values()] == [(100, "measured"), (700, "measured")]
    unseen = replace(CALL, x_shape=(16, *CALL.x_shape[1:]))
    assert workspace(unseen, str(path)).nbytes == 700
    assert workspace(unseen, table(tmp_path)).nbytes == 100


@pytest.mark.parametrize(("first", "differs"), [(100, 0), (101, 1)])
def test_an_answer_that_contradicts_the_table_is_counted(tmp_path: Path, first: int, differs: int) -> None:
    assert merged(Measurements(table(tmp_path)), [answers(tmp_path, 2, first)])[1] == differs


def test_the_shipped_table_comes_out_as_it_went_in() -> None:
    shipped = Measurements("h200")
    arrays, differ = merged(shipped, [])
    assert differ == 0 and {*arrays, "about"} == set(shipped.members)
    assert all(np.array_equal(array, shipped.array(name)) for name, array in arrays.items())


def test_calls_the_table_has_are_not_wanted(tmp_path: Path) -> None:
    calls = asked(tmp_path, "resnet0", channels_last=False)
    assert calls.families.tolist() == [list(CALL.family)]
    wanted = {(group, batch) for _, group, batch in calls.entries.tolist()}
    assert (0, 2) not in wanted and {(0, 1), (0, 32), (2, 2)} <= wanted
