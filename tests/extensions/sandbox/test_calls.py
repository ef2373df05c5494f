"""Processes that are not Python's, and libraries in C, change a folder in the overlay and read back what they did: under each
protection that this machine has."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.sandbox.folders import state

Start = Callable[..., "subprocess.Popen[str]"]

# What a shell says is what it says without a sandbox.
SHELL = {
    "written": "echo one > new.txt; echo two >> log.txt; cat new.txt log.txt; stat -c '%s %a' new.txt; test -f new.txt && echo there",
    "listed": "mkdir -p runs/1; echo 1 > runs/1/a; touch runs/b; ls runs runs/1; ls -l runs | wc -l; find . -name 'old*' | sort",
    "removed": "rm -r tree old.txt; test -e tree || echo gone; ls | sort; cat old.txt || echo no file",
    "renamed": "mv first new; mv folder other; ls other; cat new; cat first || echo no file; mv -T other/inner old.txt; cat old.txt",
    "copied": "cp -rp tree copy; find copy | sort; cp best.pt copy/leaf; cat copy/leaf; sed -i s/before/after/ log.txt; cat log.txt",
    "linked": "ln -s best.pt to; readlink to; cat to; echo zeros > to; cat best.pt; ln best.pt hard; echo 1 > link/in; ls linked",
    "sizes": "truncate -s 3 data.bin; cat data.bin; dd if=/dev/zero of=data.bin bs=1 count=2 conv=notrunc 2>/dev/null; wc -c < data.bin",
    "modes": "umask 077; mkdir private; echo 1 > private/a; stat -c '%a %n' private private/a; chmod 640 best.pt; stat -c %a best.pt",
    "piped": "mkfifo pipe; (echo through > pipe &); cat pipe; echo said > /dev/stdout; (cd runs && echo 1 > a && ls && cat ../runs/a)",
    "from_folder": "tar cf a.tar -C . tree && tar tf a.tar | sort; touch new; find . -name leaf -exec cat {} +; rm -rf tree; find . | wc -l",
    "archived": "tar cf a.tar tree; mkdir into; tar xf a.tar -C into; find into | sort",
}  # fmt: skip


def followed(start: Start, folder: Path, program: Path) -> str:
    """What a program prints that ends well, and leaves the folder as it was."""
    before = state(folder)
    ran = start(str(program))
    out, err = ran.communicate(timeout=120)
    assert ran.returncode == 3 and state(folder) == before, err
    return out


@pytest.mark.parametrize("kind", SHELL)
def test_a_shell_reads_back_what_it_did(start: Start, folder: Path, tmp_path: Path, kind: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import subprocess\nran = subprocess.run({SHELL[kind]!r}, shell=True, capture_output=True, text=True)\n"
        "print('SAID', repr(ran.stdout))\n"
    )
    out = followed(start, folder, program)
    alone = subprocess.run(SHELL[kind], shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert out.splitlines()[0] == f"SAID {alone.stdout!r}", (kind, alone.stdout)


def test_python_and_c_see_the_same(start: Start, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, os, subprocess, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "opened = libc.open(b'best.pt', os.O_WRONLY | os.O_TRUNC)\nassert opened >= 0, ctypes.get_errno()\n"
        "os.write(opened, b'by C')\nos.close(opened)\n"
        "assert open('best.pt').read() == 'by C'\n"
        "opened = libc.open(b'best.pt', os.O_RDONLY)\nassert os.read(opened, 9) == b'by C'\nos.close(opened)\n"
        "open('new.txt', 'w').write('by Python')\n"
        "assert subprocess.run(['cat', 'new.txt'], capture_output=True).stdout == b'by Python'\n"
        "assert libc.rename(b'new.txt', b'log.txt') == 0 and open('log.txt').read() == 'by Python'\n"
        "assert libc.unlink(b'new.txt') == -1 and ctypes.get_errno() == 2\n"
        "assert libc.mkdir(b'runs', 0o700) == -1 and ctypes.get_errno() == 17\n"
        "lonely = \"open('lonely', 'w').write('1'); import os; assert os.listdir('runs') == []\"\n"
        "subprocess.run([sys.executable, '-I', '-S', '-c', lonely], env={}, check=True)\n"
        "assert open('lonely').read() == '1' and 'lonely' in os.listdir()\n"
    )
    followed(start, folder, program)


def test_a_link_that_moves_leads_nothing_outside(start: Start, folder: Path, tmp_path: Path) -> None:
    """One process exchanges a folder for a link to a folder outside while another writes below its name."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, os\n"
        "subprocess.run('mkdir real; for i in $(seq 60); do mv real aside; ln -s \"$OUTSIDE\" real; rm real; mv aside real; done &"
        " for i in $(seq 200); do echo $i > real/escaped; done 2>/dev/null; wait', shell=True)\n"
    )  # fmt: skip
    before = state(folder)
    ran = start(str(program), OUTSIDE=str(outside))
    _, err = ran.communicate(timeout=180)
    assert ran.returncode == 3, err
    assert list(outside.iterdir()) == [] and state(folder) == before


def test_a_file_without_a_name_is_made(start: Start, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nopened = libc.open(b'.', os.O_TMPFILE | os.O_RDWR, 0o600)\n"
        "assert opened >= 0, ctypes.get_errno()\nassert os.write(opened, b'1') == 1\n"
    )
    followed(start, folder, program)


def test_sizes_of_what_the_kernel_writes() -> None:
    """struct stat of this machine's C library is as large as the one that is written."""
    import os

    from analyzer_sandbox.calls import _STAT_BYTES

    known = ctypes.create_string_buffer(b"\xff" * 256, 256)
    assert ctypes.CDLL(None).stat(b"/", known) == 0
    assert len(known.raw.rstrip(b"\xff")) <= _STAT_BYTES[os.uname().machine]


def test_processes_that_write_one_file_at_once(start: Start, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os\n\n\ndef work(number):\n    for i in range(20):\n        open(f'tree/sub/{i}', 'a').write('1')\n"
        "        with open('log.txt', 'a') as log:\n            log.write('x')\n\n\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(4) as pool:\n"
        "        pool.map(work, range(8), chunksize=1)\n"
        "    assert open('log.txt').read() == 'before ' + 160 * 'x'\n    assert open('tree/sub/7').read() == 8 * '1'\n"
    )
    followed(start, folder, program)


def test_shared_memory_is_given_back_after_the_end(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from multiprocessing import shared_memory\nmemory = shared_memory.SharedMemory(create=True, size=100)\nprint(memory.name)\n"
        "open('best.pt', 'w').write('zeros')\n"
    )
    ran = start(str(program))
    out, err = ran.communicate(timeout=120)
    assert ran.returncode == 3, err
    assert not Path("/dev/shm", out.splitlines()[0]).exists()
