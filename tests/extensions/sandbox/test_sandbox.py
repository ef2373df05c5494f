"""A program in a sandbox changes nothing: under each protection that this machine has."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.sandbox.folders import HERE, run_leaving_as_it_was, state

Start = Callable[..., subprocess.Popen[str]]
WRITERS = str(HERE / "writers.py")


def left(tmp: Path) -> list[str]:
    """Folders of overlays that were left there."""
    return [path.name for path in tmp.iterdir() if "analyze-overlay" in path.name]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A folder for temporary files that anybody may write."""
    made = tmp_path / "temporary"
    made.mkdir()
    made.chmod(0o1777)
    return made


def test_every_kind_of_writer_leaves_the_folder_as_it_was(start: Any, folder: Path, temporary: Path) -> None:
    before = state(folder)
    ran = start(WRITERS, *start.refused, TMPDIR=str(temporary))
    out, err = ran.communicate()
    assert ran.returncode == 3 and out.startswith("all written"), out + err
    assert state(folder) == before
    assert "the program wrote" in out and left(temporary) == []
    assert ("protection: a mount namespace" in out) == (start.protection != "landlock"), out


def test_what_landlock_refuses_changes_nothing_either(start: Any, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, os, subprocess\n"
        "print(ctypes.CDLL(None).unlink(b'best.pt'), subprocess.run('rm -rf * > c.txt; echo x > log.txt', shell=True).returncode)\n"
        "os.system('mv first third'); subprocess.run(['cp', 'log.txt', 'best.pt'])\n"
    )
    run_leaving_as_it_was(start, program, folder)


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_sigkill_leaves_the_folder_as_it_was(
    start: Any, folder: Path, tmp_path: Path, temporary: Path, which: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\nopen('best.pt', 'w').write('zeros'); os.remove('old.txt')\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    before = state(folder)
    ran = start(str(program), TMPDIR=str(temporary))
    assert ran.stdout is not None
    second = int(ran.stdout.readline())
    os.kill(ran.pid if which == "first" else second, signal.SIGKILL)
    _, err = ran.communicate()
    assert state(folder) == before
    if which == "second":
        assert ran.returncode == 2 and "ended by signal 9" in err and left(temporary) == []
        return
    end = time.monotonic() + 10
    while Path(f"/proc/{second}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{second}").exists()
    assert left(temporary)  # until the next one
    program.write_text("print('next')\n")
    start(str(program), TMPDIR=str(temporary)).communicate()
    assert left(temporary) == []


def test_what_was_written_is_kept_where_it_is_asked_for(start: Any, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib\nos.makedirs('runs/1')\nopen('runs/1/last.pt', 'w').write('1')\nos.remove('old.txt')\n"
        "pathlib.Path(os.environ['ELSEWHERE'], 'far.txt').write_text('far')\nkept = open('late.txt', 'w')\nkept.write('at the end')\n"
    )
    far = tmp_path / "far"
    far.mkdir()
    far.chmod(0o777)
    outputs = folder.parent / "outputs"
    outputs.mkdir()
    outputs.chmod(0o777)
    before = state(folder)
    ran = start("--keep", str(outputs), str(program), ELSEWHERE=str(far))
    out, err = ran.communicate()
    assert ran.returncode == 3, err
    assert state(folder) == before and list(far.iterdir()) == []
    kept = {str(path.relative_to(outputs)): path.read_text() for path in outputs.rglob("*") if path.is_file()}
    assert kept == {"runs/1/last.pt": "1", "late.txt": "at the end", f"elsewhere{far}/far.txt": "far"}
    assert f"kept in {outputs}" in out


def test_downloads_of_hubs_are_kept_and_nothing_of_theirs_is_changed(
    start: Any, folder: Path, tmp_path: Path
) -> None:
    home = folder / "hf"
    (home / "hub/models--a--b/refs").mkdir(parents=True)
    (home / "hub/models--a--b/refs/main").write_text("1")
    for path in (home, *home.rglob("*")):
        os.chown(path, folder.stat().st_uid, -1)
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib\nhub = pathlib.Path(os.environ['HF_HOME'], 'hub/models--a--b')\n(hub / 'blobs').mkdir()\n"
        "(hub / 'blobs/0').write_text('weights')\n(hub / 'blobs/1.incomplete').write_text('w')\n(hub / 'snapshots/2').mkdir(parents=True)\n"
        "(hub / 'snapshots/2/model').symlink_to('../../blobs/0')\n(hub / 'refs/main').write_text('2')\n"
        "(hub.parents[1] / 'datasets').mkdir()\n(hub.parents[1] / 'datasets/mapped.arrow').write_text('zeros')\n"
        "assert (hub / 'snapshots/2/model').read_text() == 'weights'\n"
    )
    ran = start(str(program), HF_HOME=str(home))
    _, err = ran.communicate()
    assert ran.returncode == 3, err
    there = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert there == {
        "hub/models--a--b/refs/main": "1", "hub/models--a--b/blobs/0": "weights", "hub/models--a--b/snapshots/2/model": "weights",
    }  # fmt: skip


def test_what_cudnn_answered_is_kept(start: Any, folder: Path, tmp_path: Path) -> None:
    answers = folder / "answers"
    (answers / "cudnn").mkdir(parents=True)
    (answers / "cudnn/a.sqlite").write_text("1")
    for path in (answers, *answers.rglob("*")):
        os.chown(path, folder.stat().st_uid, -1)
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib\nours = pathlib.Path(os.environ['ANALYZER_CACHE'])\n(ours / 'cudnn/a.sqlite').write_text('1 2')\n"
        "(ours / 'other').write_text('3')\n"
    )
    ran = start(str(program), ANALYZER_CACHE=str(answers))
    _, err = ran.communicate()
    assert ran.returncode == 3, err
    there = {
        str(path.relative_to(answers)): path.read_text() for path in answers.rglob("*") if path.is_file()
    }
    assert there == {"cudnn/a.sqlite": "1 2"}


def test_what_the_user_asked_for_is_written_outside(start: Any, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os; os.chdir('runs')\n")
    report = folder / "report.json"
    ran = start(str(program), REPORT=str(report))
    ran.communicate()
    assert report.read_bytes() == b"report"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import ctypes; ctypes.string_at(0)", "ended by signal 11"),
        ("import ctypes; ctypes.CDLL(None)._exit(0)", "before its end (exit code 0)"),
        ("import os; os.abort()", "ended by signal 6"),
    ],
)
def test_a_program_that_ends_its_process_is_said(start: Any, tmp_path: Path, code: str, said: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"open('best.pt', 'w')\n{code}\n")
    ran = start(str(program))
    _, err = ran.communicate()
    assert ran.returncode == 2 and said in err
    if "signal" in said:
        assert "program.py" in err and "line 2" in err  # where


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_handed_on(start: Any, tmp_path: Path, temporary: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nprint('here', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
    )
    ran = start(str(program), TMPDIR=str(temporary))
    assert ran.stdout is not None
    ran.stdout.readline()
    ran.send_signal(number)
    _, err = ran.communicate(timeout=20)
    assert ran.returncode == 128 + number and left(temporary) == []
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
