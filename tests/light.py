"""The light installation: fixtures that run code and commands where there is no torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from analyzer.errors import DISTRIBUTION
from tests.paths import MODELS

# An interpreter that finds everything but torch, as one has it that installed the base dependencies alone.
HIDING = """
import sys
from importlib.machinery import PathFinder

class WithoutTorch:
    def find_distributions(self, context):
        return PathFinder.find_distributions(context)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutTorch() if finder is PathFinder else finder for finder in sys.meta_path]
"""


# For every line it is told, a child runs some code with these words as its command line, as a process of its own would: what all
# of them import is imported once.
FORKING = """
import json, os, onnx, networkx, scipy.optimize
from analyzer.pipeline import analysis
import analyzer.planning.curve, analyzer.planning.fit, analyzer.planning.what_if

from importlib.util import find_spec
from analyzer import protection

if protection.sandbox() is None:
    enter = protection.enter
    protection.enter = lambda *given: enter(*given[:-1], True)

if find_spec("analyzer_timing"):
    import analyzer_timing.advise

for line in sys.stdin:
    code, words, folder = json.loads(line)
    if not (child := os.fork()):
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv[1:] = words
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__", "sys": sys})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Light: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Light]:
    """What becomes of code, with words as its command line, where there is no torch."""
    folder = tmp_path_factory.mktemp("light")
    with subprocess.Popen(
        [sys.executable, "-c", HIDING + FORKING],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None and server.stdout is not None

        def ran(code: str, *words: str) -> subprocess.CompletedProcess[str]:
            print(json.dumps((code, words, str(folder))), file=server.stdin, flush=True)
            ended = int(server.stdout.readline())  # type: ignore[union-attr]
            out, err = ((folder / name).read_text() for name in ("stdout", "stderr"))
            return subprocess.CompletedProcess(words, ended, out, err)

        yield ran
        server.stdin.close()


@pytest.fixture
def command(light: Light) -> Light:
    return lambda words: light("from analyzer.cli import main\nsys.exit(main())", *words.split())


PROGRAM, FILE = str(MODELS / "cnn.py"), str(MODELS / "cnn.onnx")


def needs_torch(ran: subprocess.CompletedProcess[str]) -> None:
    """The command ends with one sentence on torch."""
    *before, message, hint = ran.stderr.splitlines()
    assert all(line.startswith("analyze: protection: ") for line in before)  # of a whole program
    assert ran.returncode == 2 and not ran.stdout
    assert re.fullmatch(r"analyze: error: .* torch is not installed", message) and "internal" not in message
    assert hint.startswith(f"  hint: pip install '{DISTRIBUTION}[torch]'")


def raises(light: Light, call: str) -> None:
    """The function raises the error that names torch."""
    code = f"""
import analyzer
try:
    analyzer.{call.format(py=PROGRAM, onnx=FILE)}
except analyzer.MissingDependencyError as error:
    print(error.message)
"""
    ran = light(code)
    assert ran.returncode == 0 and ran.stdout.strip().endswith("torch is not installed"), ran.stderr
