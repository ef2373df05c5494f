"""Recorded tables are read as they were written, signs in place of bytes included."""

from pathlib import Path

import numpy as np
import pytest

from analyzer.libraries.cudnn import recorded
from analyzer.libraries.cudnn.convolution import Convolution
from benchmarks.cudnn.record import arrays_of, write

GROUP = "float32.nchw"
FIGURES = {
    "data": [512, 0, 64],
    "trial.data": [2048, recorded.AS_FIRST, -1],
    "strict_trial.data": [2048, recorded.AS_FIRST, -1],
    "timed.data": [1024, recorded.NOT_ASKED, 128],
}


def test_a_table_reads_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Convolution("data", "float32", False, (1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1))
    rows = {
        (GROUP, call.family, 2**place): {
            f"{GROUP}.{figure}": sizes[place]
            for figure, sizes in FIGURES.items()
            if sizes[place] != recorded.NOT_ASKED
        }
        for place in range(3)
    }
    arrays = arrays_of(rows)
    assert arrays[f"{GROUP}.strict_trial.data"].tolist() == [
        recorded.AS_TRIAL,
        recorded.AS_FIRST,
        recorded.AS_TRIAL,
    ]
    (tmp_path / "recorded").mkdir()
    write(tmp_path / "recorded/h200.npz", arrays, {"gpu": "some"})
    with np.load(tmp_path / "recorded/h200.npz") as file:
        assert all(np.array_equal(file[name], array) for name, array in arrays.items())
    monkeypatch.setattr(recorded.resources, "files", lambda _: tmp_path)
    table = recorded.Record("h200")
    assert table.about == {"gpu": "some"}
    assert table.answers(call) == {1: 512, 2: 0, 4: 64}
    assert table.answers(call, "trial") == table.answers(call, "strict_trial") == {1: 2048, 2: 0}
    assert table.answers(call, "timed") == {1: 1024, 4: 128}


def test_a_further_table_has_what_the_first_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Convolution("data", "float32", False, (1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1))
    (tmp_path / "recorded").mkdir()
    for name, sizes in {"some": {1: 512}, "some.further": {1: 64, 2: 128}}.items():
        rows = {(GROUP, call.family, batch): {f"{GROUP}.data": nbytes} for batch, nbytes in sizes.items()}
        write(tmp_path / f"recorded/{name}.npz", arrays_of(rows), {"gpu": "some"})
    monkeypatch.setattr(recorded.resources, "files", lambda _: tmp_path)
    table = recorded.Record("some")
    assert table.answers(call) == {1: 512, 2: 128}
    assert table.answers(call, "trial") == {}


def test_a_held_out_network_has_its_h200s_answers() -> None:
    """FocalNet's projection to 387 channels, one product for cuBLAS, whose bytes nobody can be asked for."""
    shapes = (8, 192, 28, 28), (387, 192, 1, 1), (0, 0), (1, 1), (1, 1)
    table = recorded.Record("h200")
    assert table.answers(Convolution("forward", "float32", True, *shapes)) == {8: 1040}
