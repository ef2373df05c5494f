"""A program in the caller's own process, as `analyzer.run` follows one: Python's functions, and those of some libraries, go to an overlay."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import analyzer_sandbox as sandbox
from tests.extensions.sandbox.folders import HERE, state
from tests.paths import PYTHONPATH


def test_every_kind_of_writer_but_libraries_in_c_leaves_the_folder_as_it_was(folder: Path) -> None:
    code = (
        "import runpy, sys\nimport analyzer_sandbox as sandbox\nwith sandbox.apart() as box:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "    print(*box.notes())\n"
    )
    before = state(folder)
    words = [str(HERE / "writers.py"), "c_library", *(["shell"] if sys.platform == "linux" else [])]
    run = f"import sys; sys.argv = {words!r}\n{code}"
    ran = subprocess.run(
        [sys.executable, "-c", run], cwd=folder, env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stdout.startswith("all written"), ran.stderr
    assert state(folder) == before
    assert "other libraries in C are not held" in ran.stdout


def test_everything_is_as_before_afterwards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import tempfile

    monkeypatch.chdir(folder)
    there = (
        open,
        os.open,
        os.stat,
        os.rename,
        sqlite3.connect,
        socket.socket.connect,
        subprocess.Popen.__init__,
        tempfile.gettempdir(),
    )
    environment = dict(os.environ)
    with sandbox.apart() as box, sandbox.apart() as same:
        assert box is same
        assert open is not there[0]
    assert there == (
        open, os.open, os.stat, os.rename, sqlite3.connect, socket.socket.connect, subprocess.Popen.__init__, tempfile.gettempdir(),
    )  # fmt: skip
    assert dict(os.environ) == environment and sandbox.current() is None


def test_threads_that_were_there_before_write_outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    now, done = threading.Event(), threading.Event()

    def theirs() -> None:
        now.wait(10)
        Path("theirs.txt").write_text("real")
        done.set()

    thread = threading.Thread(target=theirs)
    thread.start()
    with sandbox.apart():
        now.set()
        done.wait(10)
        ours = threading.Thread(target=lambda: Path("ours.txt").write_text("not real"))
        ours.start()
        ours.join()
        assert Path("ours.txt").exists()
    thread.join()
    assert Path("theirs.txt").read_text() == "real" and not Path("ours.txt").exists()


def test_what_is_not_allowed_outside_is_not_allowed_in_the_overlay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with sandbox.apart():
        for broken, error in (
            (lambda: open("nowhere/file", "w"), FileNotFoundError),
            (lambda: os.mkdir("runs"), FileExistsError),
            (lambda: os.rmdir("tree"), OSError),
            (lambda: os.unlink("tree"), (IsADirectoryError, PermissionError)),
            (lambda: os.rmdir("first"), NotADirectoryError),
            (lambda: os.rename("nothing", "something"), FileNotFoundError),
            (lambda: os.rename("first", "tree"), IsADirectoryError),
            (lambda: os.replace("folder", "tree"), OSError),
            (lambda: os.listdir("first"), NotADirectoryError),
            (lambda: open("runs", "w"), IsADirectoryError),
            (lambda: os.symlink("first", "log.txt"), FileExistsError),
        ):
            open("touched", "w").close()  # no shortcut for what was never written to
            with pytest.raises(error):
                broken()


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write everywhere")
def test_files_that_cannot_be_written_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("first").chmod(0o444)
    Path("tree").chmod(0o555)
    with sandbox.apart():
        for broken in (
            lambda: open("first", "w"),
            lambda: open("tree/new", "w"),
            lambda: os.remove("tree/leaf"),
        ):
            with pytest.raises(PermissionError):
                broken()
    Path("tree").chmod(0o755)


def test_torch_and_safetensors_save_and_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    monkeypatch.chdir(folder)
    before = state(folder)
    tensor = torch.arange(4.0)
    with sandbox.apart():
        torch.save({"a": tensor}, "best.pt")
        assert torch.load("best.pt")["a"].tolist() == tensor.tolist()
        assert torch.load("best.pt", mmap=True)["a"].tolist() == tensor.tolist()
        safetensors.save_file({"a": tensor}, "model.safetensors")
        assert safetensors.load_file("model.safetensors")["a"].tolist() == tensor.tolist()
        exported = torch.export.export(torch.nn.Linear(4, 2), (torch.zeros(1, 4),))
        torch.export.save(exported, "program.pt2")
        assert torch.export.load("program.pt2").example_inputs is not None
    assert state(folder) == before


def test_h5py_and_tensorboard_write_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(folder)
    before = state(folder)
    with sandbox.apart():
        with h5py.File("data.h5", "w") as file:
            file["a"] = [1, 2]
        with h5py.File("data.h5") as file:
            assert list(file["a"]) == [1, 2]
    assert state(folder) == before


def test_kept_outputs_are_where_they_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with sandbox.apart(keep="kept") as box:
        Path("runs/last.pt").write_text("last")
        Path("best.pt").write_text("new")
        assert "kept in" in box.notes()[0]
    assert Path("best.pt").read_text() == "trained for a week" and not Path("runs/last.pt").exists()
    assert {str(path) for path in Path("kept").rglob("*.pt")} == {"kept/runs/last.pt", "kept/best.pt"}


def test_modes_by_descriptor_are_changed_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = state(folder)
    with sandbox.apart():
        opened, (reading, writing) = os.open("first", os.O_RDONLY), os.pipe()
        os.fchmod(opened, 0o611)
        os.fchown(opened, os.getuid(), os.getgid())
        os.utime(opened, (1, 1))
        os.fchmod(writing, 0o600)
        assert (os.stat("first").st_mode & 0o777, os.stat("first").st_mtime) == (0o611, 1)
        for number in (opened, reading, writing):
            os.close(number)
    assert state(folder) == before


def test_other_files_that_statements_of_sqlite_name_are_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = state(folder)
    with sandbox.apart():
        database = sqlite3.connect("new.db")
        database.execute("attach 'known.db' as known")
        database.execute("insert into known.runs values (9)")
        database.execute("ATTACH DATABASE ? AS second", ("it's.db",))
        database.execute("create table second.t (x)")
        database.execute("attach :name as third", {"name": "third.db"})
        database.execute("create table third.t (x)")
        database.executescript(
            "attach 'it''s too.db' as fourth; create table fourth.t (x); attach ':memory:' as m;"
        )
        database.commit()
        database.execute("vacuum into 'copy.db'")
        database.close()
        assert {"copy.db", "it's.db", "third.db", "it's too.db"} <= set(os.listdir())
        assert sqlite3.connect("known.db").execute("select id from runs").fetchall() == [(9,)]
    assert state(folder) == before


def test_torch_writes_there_by_its_own_code_in_c(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    (folder / "data.bin").write_bytes(bytes(16))
    before = state(folder)
    with sandbox.apart():
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "best.pt")
        torch.jit.script(torch.nn.Linear(2, 2)).save("linear.pt")
        assert torch.jit.load("best.pt").weight.shape == (2, 2) and os.path.exists("linear.pt")
        torch.from_file("data.bin", shared=True, size=16, dtype=torch.uint8).fill_(9)
        torch.UntypedStorage.from_file("data.bin", shared=True, nbytes=8).fill_(5)
        assert Path("data.bin").read_bytes() == bytes([5] * 8 + [9] * 8)
    assert state(folder) == before
