"""The light installation: without torch every command that needs it says so in one sentence, and the others work."""

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
import analyzer_timing.advise, analyzer.planning.curve, analyzer.planning.fit, analyzer.planning.what_if

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
NEEDING = (
    PROGRAM,
    "torch.nn:Linear",
    f"{FILE} --mode train --batch 4",
    f"what-if {PROGRAM} --batch 4",
    f"advise {PROGRAM} --batch 4 --device t4",
    f"what-if {FILE} --mode train --batch 4",
    f"fit {PROGRAM} --device t4",
    f"fit {FILE} --mode train --device t4",
    f"sweep {PROGRAM} --batch 1:8",
    f"run {PROGRAM}",
    f"verify {PROGRAM}",
    f"verify run {PROGRAM}",
    f"allocators {PROGRAM} --batch 4",
    "calibrate",
)


@pytest.mark.parametrize("words", NEEDING)
def test_one_sentence_and_the_documented_code(command: Light, words: str) -> None:
    ran = command(words)
    *before, message, hint = ran.stderr.splitlines()
    assert all(line.startswith("analyze: protection: ") for line in before)  # of a whole program
    assert ran.returncode == 2 and not ran.stdout
    assert re.fullmatch(r"analyze: error: .* torch is not installed", message) and "internal" not in message
    assert hint.startswith(f"  hint: pip install '{DISTRIBUTION}[torch]'")


@pytest.mark.parametrize(
    "words",
    [f"{FILE} --batch 4", f"what-if {FILE} --batch 4", f"advise {FILE} --batch 4 --device t4", f"fit {FILE} --device t4", f"sweep {FILE} --batch 1:4", "devices",
     "explain Conv", "explain aten::convolution", "--version"],
)  # fmt: skip
def test_what_needs_no_torch_works(command: Light, words: str) -> None:
    ran = command(words)
    assert ran.returncode == 0 and ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "call",
    ["analyze({py!r})", "analyze({onnx!r}, batch=4, mode='train')", "what_if({py!r})", "advise({py!r}, device='t4')", "fit({py!r}, device='t4')",
     "sweep({py!r}, range(1, 9))", "run({py!r})"],
)  # fmt: skip
def test_the_api_raises_the_documented_error(light: Light, call: str) -> None:
    code = f"""
import analyzer
try:
    analyzer.{call.format(py=PROGRAM, onnx=FILE)}
except analyzer.MissingDependencyError as error:
    print(error.message)
"""
    ran = light(code)
    assert ran.returncode == 0 and ran.stdout.strip().endswith("torch is not installed"), ran.stderr
