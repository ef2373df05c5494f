"""Grids: the same table whoever computes it, nothing lost, and one row where one job fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzer.cli import main
from analyzer.errors import AnalyzerError, OptionError
from analyzer.planning.grid import COLUMNS, jobs, load, row_of, run
from analyzer.spec import TensorSpec
from tests.paths import MODELS, PYTHONPATH
from tests.untrusted.bad_onnx import EVIL

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
FILES = f"""
targets: [{MODELS / "cnn.onnx"}, {MODELS / "resnet50.onnx"}]
batches: [1, 4]
devices: [h200, 24GiB]
"""
MANY = f"""
targets: [{MODELS / "resnet50.onnx"}]
batches: [{", ".join(map(str, range(1, 17)))}]
devices: [h200]
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
        ({"targets": ["a.py"], "batches": [4, 0]}, "batch"),
        ({"targets": ["a.py"], "devices": ["h200", "rtx4091"]}, "rtx4091"),
    ],
)
def test_bad_grids(content: object, words: str) -> None:
    with pytest.raises(AnalyzerError, match=words):
        jobs(content)


def test_one_and_two_processes_give_the_same_table(grid: Path, tmp_path: Path) -> None:
    """Of files, so that no worker imports torch: what a program gives in a worker is asked below."""
    grid.write_text(FILES)
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


def test_a_journal_of_a_target_that_was_changed_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "cnn.onnx"
    model.write_bytes((MODELS / "cnn.onnx").read_bytes())
    todo = jobs({"targets": [str(model)], "batches": [1]})
    run(todo, tmp_path / "journal.jsonl")
    os.utime(model, ns=(1, 1))
    with pytest.raises(OptionError, match="or a target was changed"):
        run(todo, tmp_path / "journal.jsonl")


def test_what_fails_is_a_row(tmp_path: Path) -> None:
    """A missing file, a target that ends its process: all others are analysed."""
    (tmp_path / "dies.py").write_text(DIES)
    cnn = str(MODELS / "cnn.onnx")
    targets = [cnn, *(str(tmp_path / name) for name in ("none.py", "dies.py")), cnn, cnn]
    todo = jobs({"targets": targets, "batches": [2]})
    rows = run(todo, tmp_path / "journal.jsonl", workers=2)
    assert "no such file" in rows[1]["error"]
    assert rows[2]["error"] == "the process that analysed it died"
    assert [rows[place]["error"] for place in (0, 3, 4)] == [""] * 3
    assert all(rows[place]["peak_allocated"] for place in (0, 3, 4))
    assert run(todo, tmp_path / "journal.jsonl") == rows


def test_a_target_that_ends_the_program_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\ndef make_model():\n    sys.exit(3)\n")
    (row,) = run(jobs({"targets": str(tmp_path / "leaves.py"), "batches": [2]}))
    assert "ended the program (exit code 3)" in row["error"]


def test_a_worker_begins_with_plannings_environment_and_prints_beside_the_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a target set in this process since is none of the worker's."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    target = tmp_path / "talks.py"
    target.write_text(
        "import multiprocessing, os, torch\n"
        "print('hello')\n"
        "def make_model():\n"
        "    assert multiprocessing.parent_process() is not None\n"
        "    assert 'CUBLAS_WORKSPACE_CONFIG' not in os.environ\n"
        "    print('hello')\n"
        "    return torch.nn.Linear(4, 4)\n"
        "def make_batch(batch):\n    return (torch.randn(batch, 4),), ()\n"
    )
    (tmp_path / "grid.yaml").write_text(f"targets: [{target}]\nbatches: [1]\ndevices: [h200]\n")
    assert main(["grid", str(tmp_path / "grid.yaml"), "--workers", "1"]) == 0
    out, err = capfd.readouterr()
    table, row = out.splitlines()
    assert table == ",".join(COLUMNS) and row.split(",")[COLUMNS.index("error")] == ""
    assert "hello" not in out and "hello" in err


def test_names_of_a_grid_move_no_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The table goes to one, unless -o names a file."""
    named = {
        "targets": [f"missing{EVIL}.onnx"],
        "batches": [1],
        "strategies": {EVIL: {}},
        "devices": ["h200"],
    }
    (tmp_path / "grid.yaml").write_text(json.dumps(named))
    assert main(["grid", str(tmp_path / "grid.yaml"), "--workers", "1", "-q"]) == 1
    out, err = capfd.readouterr()
    assert "missing" in out and not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err
    )


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`analyze grid` with sixteen jobs and two workers, in a process group of its own, when three jobs are finished."""
    (folder / "grid.yaml").write_text(MANY)
    command = [sys.executable, "-m", "analyzer", "grid", "grid.yaml", "--workers", "2", *words]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    journal = folder / "table.csv.journal"
    until(lambda: journal.exists() and journal.read_text().count("\n") >= 3)
    return process


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_a_killed_run_leaves_no_process_and_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL; the same command goes on: no finished job is done again, and the table is that of a run nobody killed."""
    process = started(tmp_path, "-o", "table.csv")
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    finished = (tmp_path / "table.csv.journal").read_text().rpartition("\n")[0].splitlines()
    assert 3 <= len(finished) < 16 and not (tmp_path / "table.csv").exists()
    until(lambda: not any(alive(int(worker)) for worker in workers), 30.0)
    rows = run(load(tmp_path / "grid.yaml"), tmp_path / "table.csv.journal")
    lines = [line for line in (tmp_path / "table.csv.journal").read_text().splitlines() if line.endswith("}")]
    assert lines[: len(finished)] == finished and len(lines) == 16
    assert rows == run(load(tmp_path / "grid.yaml"))


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a terminal sends it, to the whole group: one sentence, no traceback; the same command ends the work."""
    process = started(tmp_path, "-o", "table.csv")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 16 jobs were finished" in said and "goes on from there" in said and "Traceback" not in said
    before = (tmp_path / "table.csv.journal").read_text().count("\n")
    assert 3 <= before < 16
    monkeypatch.chdir(tmp_path)
    assert main(["grid", "grid.yaml", "--workers", "1", "-o", "table.csv"]) == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 17
    assert not (tmp_path / "table.csv.journal").exists()


def test_parquet_is_the_same_table(grid: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    grid.write_text(GRID.replace(f", {MODELS / 'linear.py'}", ""))
    file = tmp_path / "table.parquet"
    assert main(["grid", str(grid), "--workers", "1", "--format", "parquet", "-o", str(file)]) == 0
    assert parquet.read_table(file).to_pylist() == list(run(load(grid)))


def test_inputs_are_described_as_on_the_command_line() -> None:
    """`input: [NAME=SHAPE]` sizes an ONNX file's free dimension; a text that describes none is one error."""
    import analyzer

    target = str(MODELS / "resnet50.onnx")
    described = {"image": TensorSpec((3, 64, 64))}
    for given in ("image=3x64x64", ["image=3x64x64"]):
        (job,) = jobs({"targets": [target], "batches": [2], "options": {"input": given}})
        row = row_of(job)
        assert row["error"] == ""
        assert row["peak_allocated"] == analyzer.analyze(target, described, batch=2).peak_allocated
    with pytest.raises(OptionError, match="is no input"):
        jobs({"targets": [target], "options": {"input": ["height"]}})
