"""What is said of convolutions' workspaces names who was asked, or how somebody can be."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzer
from analyzer.devices import load
from analyzer.graph import Category
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.report.formats import View, render
from analyzer.report.json import loads
from analyzer.report.words import sizes
from analyzer.runtimes.convolutions import notes_on_convolutions
from analyzer.runtimes.events import Malloc
from tests.paths import MODELS

UNASKED = Malloc(1, 2**20, Category.WORKSPACE, basis="bounded", plan="first", assumed=2**19)


@pytest.mark.parametrize("device", ["h100", "h200", "rtx4090"])
def test_without_a_library_what_helps_is_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of GPUs with recorded answers: nobody can be asked for those that no record has."""
    monkeypatch.setenv("ANALYZER_CUDNN", "none")
    profile = load(device)
    assert not choices_of(profile).asker.has_library
    (note,) = notes_on_convolutions(profile, (UNASKED,))
    assert (
        "workspaces are between bounds" in note
        and "0.9 GB" in note
        and "pip install 'gpu-memory-analyzer[cudnn]'" in note
    )


def test_with_a_library_only_a_gpu_knows_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libcudnn.so.9"
    library.touch()
    monkeypatch.setenv("ANALYZER_CUDNN", str(library))
    (note,) = notes_on_convolutions(load("h100"), (UNASKED,))
    assert "only a GPU says" in note and "assumed, between bounds" in note and "pip install" not in note


@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet50.onnx", {"batch": 32}), ("unetr.py", {"batch": 2, "mode": "train"})],
)
def test_the_second_line_is_how_much_that_may_be(
    name: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ONNX Runtime's sessions and of PyTorch's alike: a range, what to type, and its size; once."""
    monkeypatch.setenv("ANALYZER_CUDNN", "none")
    estimate = analyzer.analyze(MODELS / name, device="rtx4090", **options)  # type: ignore[arg-type]
    ((note, (least, most)),) = estimate.certainty.unasked.items()
    assert note in estimate.notes
    assert estimate.reserved_range[0] <= least < most <= estimate.reserved_range[1]
    shown = str(render("estimate", "text", estimate, View(width=120))).splitlines()
    assert shown[1].startswith("it may take ") and "to know them: pip install" in " ".join(shown[1:3])
    assert f"it may take {sizes(*estimate.device_range)}: convolutions' workspaces" in shown[1]
    assert " ".join(shown).count("pip install") == 1
    assert loads(estimate.to_json()).certainty.unasked == {note: [least, most]}


def test_a_model_without_convolutions_has_no_such_line() -> None:
    estimate = analyzer.analyze(MODELS / "gpt2.py", batch=1, device="h200")
    assert not estimate.certainty.unasked
