"""Unix sockets by path lie in the overlay; without a network no kind of socket leads to another machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.sandbox.folders import HERE, state
from tests.paths import PYTHONPATH

Start = Callable[..., "subprocess.Popen[str]"]
LANDLOCK = (sys.executable, str(HERE / "refused.py"))

# A server of each kind, and who connects: this process, one that is not followed, by a relative path, without waiting.
SOCKETS = """
import asyncio, os, socket, subprocess, sys
def made(path):
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen(); return server
def spoken(server, client):
    accepted, _ = server.accept(); accepted.send(b'1'); return client.recv(1)
server, client = made(os.path.abspath('own')), socket.socket(socket.AF_UNIX)
client.connect('own')
assert spoken(server, client) == b'1' and 'own' in os.listdir('.')
waiting = socket.socket(socket.AF_UNIX)
waiting.setblocking(False)
assert waiting.connect_ex('own') == 0 and not waiting.getblocking()
assert socket.socket(socket.AF_UNIX).connect_ex('nowhere') == 2
try: made('own')
except OSError as error: assert error.errno == 98, error
else: raise AssertionError('bound twice')
child = "import socket; c = socket.socket(socket.AF_UNIX); c.connect('own'); c.send(b'q')"
process = subprocess.Popen([sys.executable, '-I', '-S', '-c', child], env={})
server.accept()  # of the one that does not wait
assert server.accept()[0].recv(1) == b'q' and process.wait() == 0
os.unlink('own')
assert not os.path.lexists('own')
long = os.path.join(os.getcwd(), 'd' * 120)
os.mkdir(long); os.chdir(long)
server, client = made('short'), socket.socket(socket.AF_UNIX)
client.connect('short')
assert spoken(server, client) == b'1'
os.chdir('..')
"""


def test_a_socket_is_made_in_the_overlay_and_found_there(start: Start, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SOCKETS)
    before = state(folder)
    ran = start(str(program))
    _, err = ran.communicate(timeout=120)
    assert ran.returncode == 3 and state(folder) == before, err


def test_who_listens_outside_does_nothing_for_the_program(start: Start, folder: Path, tmp_path: Path) -> None:
    """As in a mount namespace, where no socket's path leads out of an overlay."""
    path = folder / "daemon"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen()
        listening.settimeout(0.1)
        program = tmp_path / "program.py"
        program.write_text(
            "import ctypes, socket, subprocess, sys\nopen('own.txt', 'w').close()\n"
            "print('connected', socket.socket(socket.AF_UNIX).connect_ex('daemon'))\n"
            "code = \"import socket; print('connected', socket.socket(socket.AF_UNIX).connect_ex('daemon'))\"\n"
            "print(subprocess.run([sys.executable, '-I', '-S', '-c', code], env={}, capture_output=True, text=True).stdout)\n"
        )
        out, err = start(str(program)).communicate(timeout=120)
        assert out.count("connected 111") == 2, (out, err)
        with pytest.raises(TimeoutError):
            listening.accept()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's protections")
@pytest.mark.parametrize("before", [(), LANDLOCK])
def test_without_a_network_no_socket_sends_without_an_address(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    """AF_PACKET, AF_VSOCK and SCTP, which root, or everybody, may open; and a resolver of names on this machine."""
    program = tmp_path / "program.py"
    program.write_text(
        "import errno, socket\n"
        "def tried(*kind):\n    try:\n        socket.socket(*kind)\n    except OSError as error:\n"
        "        return errno.errorcode[error.errno]\n    return 'made'\n"
        "print('packet', tried(17, socket.SOCK_RAW, 8))\nprint('vsock', tried(40, socket.SOCK_STREAM))\n"
        "print('sctp', tried(socket.AF_INET, socket.SOCK_STREAM, 132))\n"
        "print('known', *(tried(family, socket.SOCK_DGRAM) for family in (1, 2, 10, 16)))\n"
        "for port in (53, 853, 9):\n    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:\n"
        "        print(port, asking.connect_ex(('127.0.0.53', port)))\n"
    )
    ran = subprocess.run(
        [*before, sys.executable, str(HERE / "inside.py"), "--no-network", str(program)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 3, ran.stderr
    for line in (
        "packet EAFNOSUPPORT", "vsock EAFNOSUPPORT", "sctp EPROTONOSUPPORT", "known made made made made", "53 101", "853 101", "9 0",
    ):  # fmt: skip
        assert line in ran.stdout, ran.stdout
