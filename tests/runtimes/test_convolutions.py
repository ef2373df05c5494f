"""What is said of convolutions' workspaces names who was asked, or how somebody can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.graph import Category
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.runtimes.convolutions import notes_on_convolutions
from analyzer.runtimes.events import Malloc

UNASKED = Malloc(1, 2**20, Category.WORKSPACE, basis="bounded", plan="first", assumed=2**19)


@pytest.mark.parametrize("device", ["h100", "h200", "rtx4090"])
def test_without_a_library_what_helps_is_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of GPUs with recorded answers: nobody can be asked for those that no record has."""
    monkeypatch.setenv("ANALYZER_CUDNN", "none")
    profile = load(device)
    assert not choices_of(profile).asker.has_library
    (note,) = notes_on_convolutions(profile, (UNASKED,))
    assert "workspaces are bounded" in note and "pip install 'gpu-memory-analyzer[cudnn]'" in note


def test_with_a_library_only_a_gpu_knows_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libcudnn.so.9"
    library.touch()
    monkeypatch.setenv("ANALYZER_CUDNN", str(library))
    (note,) = notes_on_convolutions(load("h100"), (UNASKED,))
    assert "only a GPU says" in note and "assumed, between bounds" in note and "pip install" not in note
