"""It is said what keeps a program from writing before it starts; where nothing does, it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.sandbox.folders import HERE, run_leaving_as_it_was, state
from tests.paths import PYTHONPATH

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's protections")
REFUSED = [sys.executable, str(HERE / "refused.py")]
PROGRAM = (
    "import subprocess, sys\nprint('begun', file=sys.stderr)\nopen('best.pt', 'w').write('zeros')\n"
    "import torch\ntorch.ones(8, device='cuda')\n"
)


def _run(folder: Path, *words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "said"),
    [((), "a mount namespace"), ((*REFUSED,), "every other write but to /dev and /proc refused by Landlock")],
)
def test_the_protection_is_said_before_the_program_begins(
    folder: Path, before: tuple[str, ...], said: str
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    kept = state(folder)
    ran = _run(folder, "-m", "analyzer", "run", "--device", "24GiB", "program.py", before=before)
    assert ran.returncode == 0, ran.stderr
    first, *_, last = ran.stderr.strip().splitlines()
    assert first.startswith("analyze: protection: ") and said in first and last == "begun"
    assert said in " ".join(ran.stdout.split()) and state(folder) == kept


@pytest.mark.parametrize(
    "words",
    [
        ("run", "program.py"),
        ("emulate", "program.py"),
        ("program.py:make_model",),
        ("fit", "program.py:make_model"),
        ("grid", "grid.yaml"),
    ],
)
def test_without_any_protection_nothing_starts(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "grid.yaml").write_text("targets: [program.py:make_model]\nbatches: [1]\n")
    device = () if words[0] == "grid" else ("--device", "24GiB")
    ran = _run(folder, "-m", "analyzer", *words, *device, before=(*REFUSED, "neither"))
    assert ran.returncode == 2 and "begun" not in ran.stderr, ran.stderr
    assert "nothing here keeps a program from writing" in ran.stderr and "--unprotected" in ran.stderr


@pytest.mark.parametrize("before", [(), (*REFUSED,)])
def test_what_a_grid_names_changes_nothing_outside(folder: Path, before: tuple[str, ...]) -> None:
    """Neither by C nor by a process it starts, which read back what they did; the journal and the table are outside."""
    (folder / "model.py").write_text(
        "import ctypes, os, subprocess, torch\n"
        "def make_model():\n    libc = ctypes.CDLL(None)\n    assert libc.rename(b'first', b'renamed') == 0\n"
        "    subprocess.run('echo zeros > best.pt; grep zeros best.pt; mv renamed first', shell=True, check=True)\n"
        "    assert os.environ['COMET_AUTO_LOG_DISABLE'] == '1'\n"
        "    return torch.nn.Linear(4, 4)\n"
        "def make_batch(batch):\n    return (torch.ones(batch, 4),), ()\n"
    )
    (folder / "grid.yaml").write_text("targets: [model.py]\nbatches: [1, 2]\ndevices: [24GiB]\n")
    before_it = state(folder)
    table, journal = folder.parent / "table.csv", folder.parent / "journal"
    words = ("grid", "grid.yaml", "--workers", "1", "-o", str(table), "--journal", str(journal))
    ran = _run(folder, "-m", "analyzer", *words, before=before)
    assert ran.returncode == 0 and ("protection: " in ran.stderr) == bool(before), ran.stderr
    assert len(table.read_text().splitlines()) == 3 and len(journal.read_text().splitlines()) == 2
    assert state(folder) == before_it


def test_it_starts_where_that_is_asked_for(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    kept = state(folder)
    words = ("-m", "analyzer", "run", "--unprotected", "--device", "24GiB", "program.py")
    ran = _run(folder, *words, before=(*REFUSED, "neither"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith("analyze: protection: ") and "are not held" in ran.stderr.splitlines()[0]
    assert state(folder) == kept


@pytest.mark.parametrize("function", ["run", "emulate"])
def test_the_interface_of_python_refuses_so_too(folder: Path, function: str) -> None:
    (folder / "program.py").write_text(PROGRAM)
    code = (
        "import analyzer\nfrom analyzer.errors import OptionError\ntry:\n"
        f"    analyzer.{function}('program.py', device='24GiB')\n"
        "except OptionError as error:\n    print(error.message)\n"
    )
    ran = _run(folder, "-c", code, before=(*REFUSED, "neither"))
    assert ran.stdout.startswith("nothing here keeps a program from writing") and "begun" not in ran.stderr


def test_the_interface_of_python_starts_where_that_is_asked_for(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    ran = _run(folder, "-c", "import analyzer\nprint(analyzer.run('program.py', unprotected=True).notes)",
               before=(*REFUSED, "neither"))  # fmt: skip
    assert "are not held" in ran.stdout and "begun" in ran.stderr


def test_no_way_leads_outside_through_another_process(
    start: Callable[..., subprocess.Popen[str]], folder: Path, tmp_path: Path
) -> None:
    """/proc/PID/root of one that is outside, and its descriptors."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nopen('own.txt', 'w').close()\nfor process in (os.getppid(), 1):\n    for way in ('root' + os.getcwd(), 'cwd'):\n"
        "        try:\n            open(f'/proc/{process}/{way}/best.pt', 'w').write('zeros')\n            print('written')\n"
        "        except OSError:\n            pass\n"
    )
    before = state(folder)
    out, err = start(str(program)).communicate()
    assert "written" not in out and "the program wrote" in out, err
    assert state(folder) == before


def test_what_c_changes_of_modes_times_and_attributes_is_seen_inside_alone(
    start: Callable[..., subprocess.Popen[str]], folder: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, os, struct, subprocess\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "opened = os.open('log.txt', os.O_RDONLY)\n"
        "assert libc.chmod(b'best.pt', 0o600) == libc.fchmod(opened, 0o611) == 0\n"
        "assert libc.utimes(b'first', struct.pack('4q', 1, 0, 2, 0)) == 0\n"
        "assert libc.chmod(b'nowhere', 0o600) == -1 and ctypes.get_errno() == 2\n"
        "attributes = libc.setxattr(b'first2', b'user.kind', b'new', 3, 0) == 0\n"
        "subprocess.run(['touch', '-d', '@5', 'old.txt'], check=True)\n"
        "subprocess.run('chmod 700 tree; cp -p first $TMPDIR/copy; chmod 600 $TMPDIR/copy', shell=True, check=True)\n"
        "modes = [os.stat(name).st_mode & 0o777 for name in ('best.pt', 'log.txt', 'tree')]\n"
        "assert modes == [0o600, 0o611, 0o700], modes\n"
        "assert [os.stat(name).st_mtime for name in ('first', 'old.txt')] == [2, 5]\n"
        "assert not attributes or os.getxattr('first2', 'user.kind') == b'new'\n"
    )
    run_leaving_as_it_was(start, program, folder)
    assert all(not os.listxattr(path) for path in folder.iterdir() if path.is_file())


def test_small_descriptors_are_the_programs(
    start: Callable[..., subprocess.Popen[str]], folder: Path, tmp_path: Path
) -> None:
    """`sh -c 'echo >&9'`: a shell's redirections have one digit."""
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess\nfiles = [open('log.txt', 'a') for _ in range(7)]\n"
        "subprocess.run(['sh', '-c', f'echo more >&{files[-1].fileno()}'], pass_fds=[files[-1].fileno()], check=True)\n"
        "assert open('log.txt').read() == 'before more\\n'\n"
    )
    run_leaving_as_it_was(start, program, folder)


@pytest.mark.parametrize(
    ("asks", "said"), [(True, "system calls of libraries in C"), (False, "temporary files only")]
)
def test_landlock_says_what_it_cannot_keep(asks: bool, said: str, tmp_path: Path) -> None:
    from analyzer_sandbox import Sandbox
    from analyzer_sandbox.scratch import Scratch

    box = Sandbox(Scratch(str(tmp_path)), "landlock", None, True, asks=asks)
    assert said in box.protected_by() and "{" not in box.protected_by()


@pytest.mark.parametrize("before", [(), (*REFUSED,)])
def test_files_in_shared_memory_are_kept_apart_or_said(folder: Path, before: tuple[str, ...]) -> None:
    name = f"analyzer-test-{os.getpid()}"
    (folder / "program.py").write_text(
        "import ctypes, os, torch\nlibc = ctypes.CDLL(None)\n"
        f"assert libc.shm_open(b'/{name}', os.O_CREAT | os.O_RDWR, 0o600) >= 0\ntorch.ones(8, device='cuda')\n"
    )
    path = Path("/dev/shm", name)
    try:
        ran = _run(folder, "-m", "analyzer", "run", "--device", "24GiB", "program.py", before=before)
        assert ran.returncode == 0, ran.stderr
        assert path.exists() == (
            f"/dev/shm since the program began, which is not kept apart here: '{name}'" in ran.stderr
        )
        assert path.exists() == bool(before)
    finally:
        path.unlink(missing_ok=True)
