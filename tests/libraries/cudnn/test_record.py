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
