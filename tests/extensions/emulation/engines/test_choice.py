"""`--engine`: what is traced, what is emulated, and what is said of it, with an emulation that is told what to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.engines import choice
from analyzer.errors import CaptureError, MissingDependencyError, OptionError, RunError
from analyzer.results.estimate import Estimate
from analyzer_emulation import emulations
from analyzer_emulation.apart import Request
from analyzer_emulation.reach import within_reach
from tests.extensions.emulation.engines import builds
from tests.paths import ROOT

PLAIN = "import torch\nx = torch.ones(1024, device='cuda')\n"
FAILS = PLAIN + "raise ValueError('its own')\n"
COMPILED = PLAIN + "print(torch.compile(lambda a: a + 1)(x))\n"
Answers = list[Request]


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """Whoever is asked to emulate answers with an estimate of ten bytes, ended by `incomplete`, or with an error."""

    def prepare(incomplete: str | None = None, error: str = "") -> Answers:
        asked: Answers = []

        def answer(request: Request) -> Estimate:
            asked.append(request)
            if error:
                raise RunError(error, "see")
            other = Path(request.words).with_name("other.py")
            other.write_text(PLAIN)
            found = (
                choice.EngineChoice("trace")
                .analyze_program(other, (), analyzer.options.Options(), {})
                .estimate
            )
            return replace(found, engine="emulate", peak_allocated=10, incomplete=incomplete)

        monkeypatch.setattr(emulations, "emulate", answer)
        return asked

    return prepare


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    python = builds.fake_python(tmp_path / "environment")
    monkeypatch.setenv("ANALYZER_PYTHON", str(python))
    return python


def _script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_what_tracing_accounts_for_is_not_emulated(tmp_path: Path, build: Path, emulated: Any) -> None:
    asked = emulated()
    estimate = analyzer.run(_script(tmp_path, PLAIN), device="h100")
    assert (estimate.engine, estimate.peak_allocated, asked) == ("trace", 4096, [])
    assert build.exists()


@pytest.mark.parametrize(
    ("text", "met"),
    [(FAILS, "ValueError: its own"), (COMPILED, "torch.compile is not followed")],
)
def test_a_doubt_goes_on_by_emulation(
    tmp_path: Path, build: Path, emulated: Any, text: str, met: str
) -> None:
    asked = emulated()
    script = _script(tmp_path, text)
    estimate = analyzer.run(
        script,
        ["--epochs", 3],
        device="h100",
        until=2,
        runtime_options={"cublas_workspace": ":0:0"},
        environment={"A": "b"},
    )
    assert (estimate.engine, estimate.peak_allocated) == ("emulate", 10)
    assert estimate.notes[0].startswith("tracing was uncertain: ")
    assert met in estimate.notes[0]
    assert estimate.notes[0].endswith("so torch 2.11.0+cu130 itself was run, emulated")
    (request,) = asked
    assert (request.python, request.arguments, request.until) == (str(build), ("--epochs", "3"), 2)
    assert request.environment == {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "A": "b"}


def test_tracing_alone_is_tracing_alone(tmp_path: Path, build: Path, emulated: Any) -> None:
    asked = emulated()
    estimate = analyzer.run(_script(tmp_path, FAILS), device="h100", engine="trace")
    assert estimate.engine == "trace"
    assert "its own" in (estimate.incomplete or "")
    assert asked == []
    assert build.exists()


@pytest.mark.parametrize("answer", [{"incomplete": "it ended, too"}, {"error": "it ended, too"}])
def test_where_emulation_gets_no_further_the_traced_estimate_stands(
    tmp_path: Path, build: Path, emulated: Any, answer: dict[str, str]
) -> None:
    emulated(**answer)
    estimate = analyzer.run(_script(tmp_path, FAILS), device="h100")
    assert (estimate.engine, estimate.peak_allocated) == ("trace", 4096)
    assert estimate.notes[-1].endswith("emulated, torch 2.11.0+cu130 gets no further: it ended, too")
    assert "its own" in (estimate.incomplete or "")
    assert build.exists()


def test_without_a_build_the_command_that_brings_one_is_named(tmp_path: Path, emulated: Any) -> None:
    asked = emulated()
    estimate = analyzer.run(_script(tmp_path, COMPILED), device="h100")
    assert estimate.engine == "trace"
    assert "analyze engine install torch==2.11.0" in estimate.notes[-1]
    assert asked == []
    with pytest.raises(MissingDependencyError, match="analyze engine install"):
        analyzer.run(_script(tmp_path, PLAIN), engine="emulate")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("torch.func.hessian(lambda a: a.sin().sum())(torch.ones(4).cuda())", "torch.func"),
        ("torch.nn.LazyBatchNorm1d().cuda()(torch.ones(2, 4, device='cuda'))", "a lazy module's parameter"),
        ("torch.cuda.MemPool()", "MemPool is a part of PyTorch's CUDA build"),
    ],
)
def test_what_is_not_traced_is_said_in_a_sentence(
    tmp_path: Path, emulated: Any, text: str, sentence: str
) -> None:
    assert emulated() == []
    estimate = analyzer.run(_script(tmp_path, f"import torch\n{text}\n"), device="h100")
    assert estimate.incomplete is not None
    assert sentence in estimate.incomplete and "Error:" not in estimate.incomplete
    assert "analyze engine install" in estimate.notes[-1]


def test_a_build_does_not_bring_a_package_of_the_programs(tmp_path: Path, emulated: Any) -> None:
    assert emulated() == []
    estimate = analyzer.run(_script(tmp_path, "import not_there_at_all"), device="h100")
    assert not any("engine install" in note for note in estimate.notes)
    assert any("install not_there_at_all beside analyzer" in note for note in estimate.notes)


def test_another_release_is_not_emulated_in_the_place_of_one_that_was_asked_for(
    tmp_path: Path, build: Path, emulated: Any
) -> None:
    asked = emulated()
    estimate = analyzer.run(_script(tmp_path, COMPILED), device="h100", release={"torch": "2.8"})
    assert estimate.engine == "trace"
    assert asked == []
    assert (
        analyzer.run(_script(tmp_path, COMPILED), device="h100", release={"torch": "2.11"}).engine
        == "emulate"
    )
    assert build.exists()


def test_a_target_that_cannot_be_traced(tmp_path: Path, build: Path, emulated: Any) -> None:
    asked = emulated()
    net = tmp_path / "net.py"
    net.write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.vmap(lambda a: a.item())(x)\n"
        "def make_model():\n    return Net()\ndef make_batch(batch):\n    return (torch.ones(batch, 3),), ()\n"
    )
    with pytest.raises(CaptureError):
        analyzer.analyze(str(net), batch=2, engine="trace")
    estimate = analyzer.analyze(str(net), batch=2, device="h100")
    assert estimate.engine == "emulate"
    (request,) = asked
    assert request.is_target
    assert request.options["batch"] == 2
    assert build.exists()


def test_what_is_not_emulated_says_so(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="programs of other runtimes than PyTorch are not emulated"):
        analyzer.analyze(str(ROOT / "models/cnn.onnx"), engine="emulate", mode="train")
    with pytest.raises(OptionError, match="there is no engine 'magic'"):
        analyzer.run(_script(tmp_path, PLAIN), engine="magic")


def test_the_command_line_says_who_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = _script(tmp_path, FAILS)
    assert main(["run", "--device", "h100", "--engine", "trace", str(script)]) == 2
    assert "its own" in capsys.readouterr().err
    assert (
        main(["run", "--device", "h100", "--engine", "emulate", "--python", str(tmp_path), str(script)]) == 2
    )
    assert "is not a Python" in capsys.readouterr().err
    assert main(["run", "--rank", "all", "--nproc-per-node", "2", "--engine", "emulate", str(script)]) == 2


def test_a_named_python_must_have_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="is not a Python"):
        within_reach(tmp_path)
    cpu = builds.fake_python(tmp_path / "cpu", "__version__ = '2.13.0'\ncuda: Optional[str] = None\n")
    with pytest.raises(MissingDependencyError, match="is not a CUDA build"):
        within_reach(cpu)
    monkeypatch.setenv("ANALYZER_PYTHON", str(cpu))
    assert within_reach() is None


def test_an_interrupted_program_is_no_doubt(tmp_path: Path) -> None:
    estimate = analyzer.run(_script(tmp_path, PLAIN + "raise KeyboardInterrupt\n"), device="h100")
    assert estimate.incomplete == "interrupted"
    assert choice.doubt_of(estimate) is None
