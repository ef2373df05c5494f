"""Releases: which one is chosen, what is said of it, and how it is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

import analyzer
from analyzer import releases
from analyzer.cli import main
from analyzer.errors import OptionError
from analyzer.releases import RECORDED, Span
from analyzer.report.json import loads
from tests.paths import MODELS


def test_a_span_has_both_its_ends() -> None:
    assert [(2, minor) in Span((2, 9), (2, 11)) for minor in (8, 9, 11, 12)] == [False, True, True, False]
    assert (1, 0) in Span(until=(2, 8)) and (3, 0) in Span(since=(2, 15)) and (0, 0) in Span()
    spans = (Span((2, 9), (2, 11)), Span(until=(2, 8)), Span((2, 15)), Span((1, 3), (1, 3)), Span())
    assert [str(span) for span in spans] == ["2.9 to 2.11", "up to 2.8", "since 2.15", "1.3", ""]


def installed(monkeypatch: pytest.MonkeyPatch, version: str | None, gpu: bool) -> None:
    monkeypatch.setattr(releases, "installed", lambda name: version)
    monkeypatch.setattr(releases, "runs_on_a_gpu", lambda name: gpu)


@pytest.mark.parametrize(
    ("version", "gpu", "said", "expected"),
    [
        ("2.13.0+cpu", False, {}, (2, 11)),  # a build for the CPU runs nothing on a GPU
        ("2.13.0", True, {}, (2, 13)),
        ("2.16.1", True, {}, (2, 16)),
        ("2.13.0", True, {"torch": "2.8"}, (2, 8)),
        (None, False, {}, (2, 11)),
    ],
)
def test_which_release_is_chosen(
    monkeypatch: pytest.MonkeyPatch, version: str | None, gpu: bool, said: dict[str, str], expected: Any
) -> None:
    installed(monkeypatch, version, gpu)
    assert releases.chosen("torch", said, RECORDED) == expected


def test_the_cpu_provider_is_whatever_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "1.32.0", False)
    assert releases.chosen("onnxruntime", {}, RECORDED) == (1, 31)
    assert releases.chosen("onnxruntime", {}, RECORDED, on_gpu=False) == (1, 32)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"cudnn": "9.26"}, "the release of 'cudnn' cannot be asked for: it is 9.19"),
        ({"torhc": "2.8"}, "the release of 'torhc' cannot be asked for"),
        ({"torch": "new"}, "'new' is not a release"),
    ],
)
def test_what_cannot_be_asked_for(said: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        releases.checked(said)


def test_one_note_for_a_newer_and_for_an_older_release() -> None:
    for text, which, like in (("2.16", "newer", "2.15"), ("2.5", "older", "2.6")):
        first, rest = releases.notes({"torch": text, "cuda": "13.0"}, {"torch": "2.13.0+cpu"})
        assert first.startswith(
            f"torch {text} is {which} than what is known (2.6 to 2.15)"
        ) and first.endswith(like)
        assert "as measured with torch 2.11" in rest and "2.13.0+cpu" in rest
    assert releases.notes({"torch": "2.11", "cuda": "13.0"}, {"torch": "2.13.0+cpu"}) == ()


def test_an_estimate_names_its_releases(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    saved = tmp_path / "estimate.json"
    command = [
        str(MODELS / "linear_mnist.py"),
        "--batch",
        "100",
        "--mode",
        "train",
        "--release",
        "torch=2.15",
    ]
    assert main([*command, "--format", "json", "-o", str(saved)]) == 0
    document = json.loads(saved.read_text())
    assert document["modelled"] == {"torch": "2.15", "cuda": "13.0"}
    assert loads(saved.read_text()).modelled["torch"] == "2.15"
    assert main(command) == 0
    assert "\nFigures of: torch 2.15" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main([*command, "--format", "html", "-o", str(page)]) == 0
    assert "figures of: torch 2.15" in page.read_text()


def test_what_torch_takes_differs_where_its_releases_do() -> None:
    pytest.importorskip("torch")
    at = {
        release: analyzer.analyze(
            MODELS / "linear_mnist.py", batch=100, mode="train", release={"torch": release}
        )
        for release in ("2.8", "2.11", "2.13", "2.15")
    }
    workspaces = {
        release: sum(row.nbytes for row in estimate.tensors if "workspace" in row.rule)
        for release, estimate in at.items()
    }
    # Two kept by threads and cuBLASLt's for the call, or kept too; none of cuBLASLt's own; the one of the call under way.
    assert workspaces == {"2.8": 65 << 20, "2.11": 65 << 20, "2.13": 64 << 20, "2.15": 32 << 20}
    difference = analyzer.compare(at["2.11"], at["2.15"])
    assert difference.unlike == (("figures of", "torch 2.11", "torch 2.15"),)


def test_a_runtime_knows_what_it_does_not_depend_on() -> None:
    with pytest.raises(OptionError, match="what onnxruntime takes does not depend on torch"):
        analyzer.analyze(MODELS / "cnn.onnx", batch=1, release={"torch": "2.8"})


def test_the_version_names_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"analyze {analyzer.__version__}" and lines[1].startswith("torch 2.6 to 2.15")


def test_the_command_tells_what_a_release_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from benchmarks.__main__ import main as benchmarks
    from benchmarks.releases import changes

    has = {
        "old": {"version": "2.11.0", "has": {"aten::mm": "mm(a)", "aten::gone": "gone()"}, "missing": []},
        "new": {
            "version": "2.15.0",
            "has": {"aten::mm": "mm(a, b)", "aten::relu.new": "relu()", "aten::unheard_of": "x()"},
            "missing": ["torch.cuda.renamed"],
        },
    }
    monkeypatch.setattr(changes, "_asked", lambda python, name: has[python])
    monkeypatch.setattr(changes, "PAGE", tmp_path / "RELEASES.md")
    for _ in range(2):  # the second time in place of the first
        assert benchmarks(["releases", "torch", "old", "new"]) == 0
    page = (tmp_path / "RELEASES.md").read_text()
    assert page.count("## torch 2.11.0 to 2.15.0") == 1
    for line in (
        "- `mm(a)` → `mm(a, b)`",
        "- `torch.cuda.renamed`",
        "New operators that nobody covers: 1.",
        "- `aten::gone`",
    ):
        assert line in page
    assert benchmarks(["releases", "torch"]) == 2


@pytest.mark.parametrize(
    ("modelled", "version", "gpu", "said"),
    [
        (
            "2.11",
            "2.13.0+cpu",
            False,
            "2.11 (measured; 2.13.0+cpu is installed, and runs on no GPU: --release torch=2.13)",
        ),
        (
            "2.11",
            "2.13.0",
            False,
            "2.11 (measured; 2.13.0 is installed, and runs on no GPU: --release torch=2.13)",
        ),
        ("2.8", "2.13.0+cpu", False, "2.8 (asked for; installed: 2.13.0+cpu)"),
        ("2.11", "2.13.0+cu130", True, "2.11 (asked for; installed: 2.13.0+cu130)"),
    ],
)
def test_why_figures_are_not_of_the_installed_release(
    monkeypatch: pytest.MonkeyPatch, modelled: str, version: str, gpu: bool, said: str
) -> None:
    installed(monkeypatch, version, gpu)
    assert (
        releases.line({"torch": modelled, "cuda": "13.0"}, {"torch": version}) == f"torch {said}, CUDA 13.0"
    )
