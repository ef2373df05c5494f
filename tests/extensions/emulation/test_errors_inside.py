"""How the emulated process ends in an error: the program's own frames are printed, a user's mistake is handed on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from analyzer_emulation import emulate, launch
from tests.paths import PYTHONPATH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulated runtime is for Linux")


def ended(folder: Path, text: str) -> tuple[dict[str, Any], str]:
    """How the process says that a program ended, and its stderr; it has no torch to watch."""
    script, out = folder / "train.py", folder / "out.json"
    script.write_text(text)
    job = {
        "script": str(script), "module": False, "arguments": [], "packages": [PYTHONPATH], "kernels": {},
        "assume": {}, "until": "end", "history": True, "device": 0, "figures": True,
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job))
    words = [sys.executable, launch.INSIDE, folder / "job.json", out]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(out.read_text())["ended"], done.stderr


def test_the_traceback_begins_in_the_program(tmp_path: Path) -> None:
    how, told = ended(tmp_path, "def f():\n    raise ValueError('its own')\nf()\n")
    assert how == {"how": "error", "kind": "ValueError", "message": "its own"}
    assert told.startswith(f'Traceback (most recent call last):\n  File "{tmp_path / "train.py"}", line 3')


def test_a_mistake_is_message_and_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from analyzer.errors import InputError\nraise InputError('batch 4', 'give 8')\n"
    how, told = ended(tmp_path, text)
    assert how == {"how": "error", "kind": "InputError", "message": "batch 4", "hint": "give 8"}
    assert told == ""
    build = launch.Torch(Path(sys.executable), "2.11.0+cu130", (13, 0))
    monkeypatch.setattr(launch, "find_torch", lambda _: build)
    monkeypatch.setattr(emulate, "_ran", lambda *_, **__: {"ended": how})
    program = emulate.EmulatedProgram("net.pt2", "module")
    with pytest.raises(InputError, match="batch 4") as caught:
        emulate.followed(program, emulate.Options(device="h200"), None, {})
    assert caught.value.hint == "give 8"
