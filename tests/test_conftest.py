"""In how many processes tests run, and what they hear (`conftest.py`)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.paths import PYTHONPATH, ROOT


@pytest.mark.parametrize(
    ("words", "options", "count"),
    [
        (["tests"], {}, 2),
        (["tests/graph", "tests/test_docs.py"], {}, 2),
        (["tests/test_docs.py", "tests/test_rules.py::test_one"], {}, None),
        (["tests"], {"numprocesses": 0}, 0),
        (["tests"], {"numprocesses": 8}, 8),
        (["tests"], {"usepdb": True}, None),
    ],
)
def test_folders_run_in_two_processes(
    words: list[str],
    options: dict[str, Any],
    count: int | None,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.chdir(ROOT)
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    option = SimpleNamespace(**{"numprocesses": None, "dist": "no", "usepdb": False, **options})
    conftest.pytest_cmdline_main(SimpleNamespace(args=words, option=option))
    assert option.numprocesses == count
    assert option.dist == ("loadfile" if count == 2 else "no")


def test_what_takes_longest_begins_first(pytestconfig: pytest.Config) -> None:
    """Before files with more tests; of one file the tests stay in their order."""
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    longest = [ROOT / "tests" / name for name in conftest.LONGEST]
    assert all(path.is_file() for path in longest)
    items = [
        SimpleNamespace(path=path, name=name)
        for path, names in ((ROOT / "one", "a"), (ROOT / "many", "bcd"), (longest[-1], "ef"))
        for name in names
    ]
    conftest._longest_first(items)
    assert "".join(item.name for item in items) == "efbcda"


def test_a_files_tests_stay_together(tmp_path: Path) -> None:
    """Of two files each has a process, when pytest is started without words, as the README does."""
    pytest.importorskip("xdist")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    for name in "ab":
        told = f"import os\ndef test_{{}}():\n    print(os.environ['PYTEST_XDIST_WORKER'] + '{name}')\n"
        (tmp_path / f"tests/test_{name}.py").write_text(told.format(1) + told.format(2))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rP", "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    places = sorted(word for word in ran.stdout.split() if word.startswith("gw"))
    assert places in (["gw0a"] * 2 + ["gw1b"] * 2, ["gw0b"] * 2 + ["gw1a"] * 2)


def test_started_in_the_background_children_can_be_interrupted(tmp_path: Path) -> None:
    """A shell's `pytest &` ignores SIGINT; a process that a test starts does not inherit that."""
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_child.py").write_text(
        "import signal, subprocess, sys\n"
        "def test_interrupted():\n"
        "    told = 'import os, signal; os.kill(os.getpid(), signal.SIGINT)'\n"
        "    ended = subprocess.run([sys.executable, '-c', told], stderr=subprocess.DEVNULL)\n"
        "    assert ended.returncode == -signal.SIGINT\n"
    )
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does before it starts it
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_child.py"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert ran.returncode == 0, ran.stdout + ran.stderr
