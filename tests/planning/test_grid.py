"""Grids: the same table whoever computes it, nothing lost, and one row where one job fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.cli import main
from analyzer.errors import OptionError
from analyzer.planning.grid import COLUMNS, jobs, load, row_of, run
from tests.paths import MODELS

GRID = f"""
targets: [{MODELS / "cnn.onnx"}, {MODELS / "linear.py"}]
batches: [1, 4]
devices: [h200, 24GiB]
"""
DIES = """import multiprocessing, os, torch
def make_model():
    if multiprocessing.parent_process() is not None:
        os._exit(9)
    return torch.nn.Linear(4, 4)
def make_batch(batch):
    return (torch.randn(batch, 4),), ()
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    file = tmp_path / "grid.yaml"
    file.write_text(GRID)
    return file


def test_jobs_are_the_product_in_order(grid: Path) -> None:
    todo = load(grid)
    assert [job.job for job in todo] == list(range(8))
    assert [(job.batch, job.device) for job in todo[:4]] == [
        (1, "h200"),
        (1, "24GiB"),
        (4, "h200"),
        (4, "24GiB"),
    ]
    assert {job.strategy for job in todo} == {"as it is"}


def test_strategies_are_options_on_top() -> None:
    todo = jobs(
        {
            "targets": "a.py",
            "options": {"mode": "train"},
            "strategies": {"plain": None, "mixed": {"amp": "bf16"}},
        }
    )
    assert [dict(job.options) for job in todo] == [{"mode": "train"}, {"mode": "train", "amp": "bf16"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1], "a grid is a mapping"),
        ({"target": "a.py"}, "unknown key 'target'"),
        ({"targets": []}, "names none"),
        ({"targets": ["a.py"], "batches": ["many"]}, "'batches' has 'many'"),
        ({"targets": ["a.py"], "options": {"ampp": "bf16"}}, "no option 'ampp'"),
        ({"targets": ["a.py"], "strategies": ["x"]}, "is no mapping"),
        ({"targets": ["a.py"], "strategies": {"x": {"amp": "fp8"}}}, "unknown autocast type"),
    ],
)
def test_bad_grids(content: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        jobs(content)


def test_one_and_two_processes_give_the_same_table(grid: Path, tmp_path: Path) -> None:
    tables = []
    for workers in ("1", "2"):
        table = tmp_path / f"{workers}.csv"
        assert main(["grid", str(grid), "--workers", workers, "-o", str(table)]) == 0
        tables.append(table.read_bytes())
    assert tables[0] == tables[1]
    lines = tables[0].decode().splitlines()
    assert lines[0] == ",".join(COLUMNS) and len(lines) == 9


def test_a_run_that_was_killed_goes_on(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs are done and the fourth half written: five are computed, the table is that of a whole run."""
    todo = load(grid)
    whole = run(todo)
    journal = tmp_path / "journal.jsonl"
    run(todo, journal)
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:3]) + "\n" + lines[3][:20])
    computed = []

    def counted(job: object) -> object:
        computed.append(job)
        return row_of(job)  # type: ignore[arg-type]

    monkeypatch.setattr("analyzer.planning.grid.row_of", counted)
    assert run(todo, journal) == whole
    assert len(computed) == 5
    assert run(todo, journal) == whole
    assert len(computed) == 5


def test_a_journal_of_another_grid_is_refused(grid: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(json.dumps({"of": "something else", "job": 0}) + "\n")
    with pytest.raises(OptionError, match="journal of another grid"):
        run(load(grid), journal)


def test_what_fails_is_a_row(tmp_path: Path) -> None:
    """A missing file, and a target that ends its process: the others are analysed."""
    dies = tmp_path / "dies.py"
    dies.write_text(DIES)
    content = {"targets": [str(tmp_path / "none.py"), str(dies), str(MODELS / "cnn.onnx")], "batches": [2]}
    rows = run(jobs(content), workers=2)
    assert "no such file" in rows[0]["error"]
    assert rows[1]["error"] == "the process that analysed it died"
    assert rows[2]["error"] == "" and rows[2]["peak_allocated"] > 0


def test_parquet_is_the_same_table(grid: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "table.parquet"
    assert main(["grid", str(grid), "--workers", "1", "--format", "parquet", "-o", str(file)]) == 0
    assert parquet.read_table(file).to_pylist() == list(run(load(grid)))


def test_workers_begin_with_the_environment_planning_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a target set in this process since is none of theirs."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    target = tmp_path / "asks.py"
    target.write_text(
        "import os, torch\n"
        "assert 'CUBLAS_WORKSPACE_CONFIG' not in os.environ\n"
        "def make_model():\n    return torch.nn.Linear(4, 4)\n"
        "def make_batch(batch):\n    return (torch.randn(batch, 4),), ()\n"
    )
    todo = jobs({"targets": [str(target)], "batches": [1, 2], "devices": ["h200"]})
    assert [row["error"] for row in run(todo, workers=2)] == ["", ""]
