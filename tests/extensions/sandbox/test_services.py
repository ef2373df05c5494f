"""Other machines: trackers and hubs are told nothing; who else is spoken with is said, or refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analyzer_sandbox as sandbox
from tests.extensions.sandbox.folders import HERE
from tests.paths import PYTHONPATH


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages of the trackers' names, which say how they were called."""
    for name, code in {
        "wandb": "import os\ndef init(project=None, mode=None):\n    return mode, os.environ['WANDB_MODE']\n",
        "neptune": "def init_run(mode=None):\n    return mode\n",
        "neptune_scale": "class Run:\n    def __init__(self, mode=None):\n        self.mode = mode\n",
        "mlflow": "import os\nuri = os.environ['MLFLOW_TRACKING_URI']\ndef set_tracking_uri(new):\n    global uri\n    uri = new\n"
        "def start_run():\n    return uri\nclass MlflowClient:\n    def __init__(self, tracking_uri=None):\n        self.uri = tracking_uri or uri\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("wandb", "neptune", "neptune_scale", "mlflow"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("trackers")
def test_trackers_are_switched_off_whatever_the_program_says() -> None:
    with sandbox.apart() as box:
        import mlflow  # type: ignore[import-not-found]
        import neptune  # type: ignore[import-not-found]
        import neptune_scale  # type: ignore[import-not-found]
        import wandb  # type: ignore[import-not-found]

        assert wandb.init(project="real", mode="online") == ("disabled", "disabled")
        assert (
            neptune.init_run(mode="async") == "offline" and neptune_scale.Run(mode="async").mode == "offline"
        )
        mlflow.set_tracking_uri("https://mlflow.example.com")
        assert mlflow.start_run().startswith("file:") and mlflow.MlflowClient(
            "https://mlflow.example.com"
        ).uri.startswith("file:")
        assert (
            "switched off, so that no run of this program appears among real ones: wandb, neptune, mlflow"
            in box.notes()
        )
    assert "WANDB_MODE" not in os.environ and wandb.init.__module__ == "wandb"


def test_the_hub_is_told_nothing() -> None:
    hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub import create_repo

    with sandbox.apart() as box:
        assert hub.create_repo is not create_repo  # what this function had before it was opened is its own
        repository = hub.create_repo("me/model", private=True)
        assert repository.repo_id == "me/model"
        api = hub.HfApi()
        info = api.upload_folder(repo_id="me/model", folder_path=".", commit_message="weights")
        assert "huggingface.co/me/model" in info.commit_url
        assert (
            api.upload_file(
                path_or_fileobj=b"", path_in_repo="a", repo_id="me/model", run_as_future=True
            ).result()
            is not None
        )
        api.delete_repo("me/model")
        assert any("the Hugging Face hub" in note for note in box.notes())
        assert not any("connected" in note for note in box.notes())
    assert hub.create_repo is create_repo


class Answers:
    """Something of this machine that accepts connections, at an address that is not its loopback's."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.listening.accept()[0].close()
            except OSError:
                return


@pytest.mark.parametrize("network", [True, False])
def test_connections_to_other_machines_are_named_or_refused(
    monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    here = Answers()
    tried: list[Any] = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [
            (
                socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                ("192.0.2.7" if host == "data.example.com" else host, port),
            )
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        tried.append(address[0])
        return real(self, ("127.0.0.1", here.port))

    monkeypatch.setattr(socket.socket, "connect", connect)
    with sandbox.apart(network=network) as box:
        socket.create_connection(("127.0.0.1", here.port)).close()
        if network:
            socket.create_connection(("data.example.com", 443)).close()
        else:
            with pytest.raises(OSError, match=r"no connection to data\.example\.com"):
                socket.create_connection(("data.example.com", 443))
        notes = box.notes()
    assert tried == (["127.0.0.1", "192.0.2.7"] if network else ["127.0.0.1"])
    said = "connected to" if network else "was refused connections (--no-network) to"
    assert f"the program {said} data.example.com" in notes
    here.listening.close()


def test_python_that_a_program_starts_is_named_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''import socket\ntry:\n    socket.socket().connect((\"192.0.2.1\", 9))\n"
        "except OSError as error:\n    print(error.errno)'''])\n"
    )
    ran = subprocess.run(
        [sys.executable, str(HERE / "inside.py"), "--no-network", str(program)], env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "refused connections (--no-network) to 192.0.2.1" in ran.stdout, ran.stderr


NAMESPACES, LANDLOCK = (), (sys.executable, str(HERE / "refused.py"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's protections")
@pytest.mark.parametrize("before", [NAMESPACES, LANDLOCK])
def test_without_a_network_this_machine_alone_is_reached(tmp_path: Path, before: tuple[str, ...]) -> None:
    """By the system call alone, which no function of Python's sees, and by another program."""
    here = Answers()
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, socket, struct, subprocess, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def place(host): return struct.pack('H', 2) + struct.pack('>H', int(sys.argv[1])) + socket.inet_aton(host) + bytes(8)\n"
        "def tried(call, kind, *arguments):\n    failed = call(libc.socket(2, kind, 0), *arguments) < 0\n"
        "    return ctypes.get_errno() if failed else 0\n"
        "for host in ('192.0.2.1', '127.0.0.1'):\n    print('connect', host, tried(libc.connect, 1, place(host), 16))\n"
        "    print('send', host, tried(libc.sendto, 2, b'1', 1, 0, place(host), 16))\n"
        "    name = ctypes.create_string_buffer(place(host)); part = ctypes.create_string_buffer(b'1')\n"
        "    vector = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(part), 1))\n"
        "    header = struct.pack('QIIQQQQiI', ctypes.addressof(name), 16, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0)\n"
        "    print('message', host, tried(libc.sendmsg, 2, header, 0))\n"
        "server = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(server.getsockname()).close()\n"
        "code = 'import socket; socket.socket().connect((\"192.0.2.9\", 9))'\n"
        "print(subprocess.run([sys.executable, '-I', '-c', code], env={}, capture_output=True, text=True).stderr)\n"
    )
    ran = subprocess.run(
        [*before, sys.executable, str(HERE / "inside.py"), "--no-network", str(program), str(here.port)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    here.listening.close()
    assert ran.returncode == 3, ran.stderr
    calls = ("connect", "send", "message")
    assert [
        f"{call} 192.0.2.1 101" in ran.stdout and f"{call} 127.0.0.1 0" in ran.stdout for call in calls
    ] == [True] * 3
    assert "Network is unreachable" in ran.stdout
    assert "was refused connections (--no-network) to 192.0.2.1, 192.0.2.9" in ran.stdout
