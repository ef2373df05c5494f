"""PaddlePaddle as a runtime, beyond what document 003 asks for."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import analyzer
from analyzer.graph import Category
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.runtimes.events import Malloc
from analyzer.spec import TensorSpec
from analyzer_plugins.paddle.flags import Flags, parse
from models.gpt2 import GPT2
from tests.extensions.plugins.paddle.twins import SIDE, TWINS
from tests.paths import MODELS

MIB = 2**20


def test_recomputation_is_freed_as_anything_else() -> None:
    """A checkpointed block keeps its input alone; its inside is made again in the backward pass."""
    tokens = analyzer.TensorSpec((4, 512), "int64")
    said: dict[str, Any] = {
        "inputs": tokens,
        "targets": tokens,
        "mode": "train",
        "device": "h200",
        "steps": 1,
    }
    with torch.device("meta"):
        model = GPT2(depth=3)
    for runtime in ("pytorch", "paddle"):
        plain = analyzer.analyze(model, runtime=runtime, **said)
        again = analyzer.analyze(model, runtime=runtime, checkpoint="transformer.h.*", **said)
        assert again.saved_for_backward < plain.saved_for_backward
        assert again.peak_allocated < plain.peak_allocated


def test_an_onnx_graph_takes_the_workspaces_of_the_same_convolutions() -> None:
    """ResNet-50 exported and not: the same convolutions, so the same largest workspace; and it is said whose they are."""
    said: dict[str, Any] = {"batch": 2, "device": "h200", "runtime": "paddle", "steps": 1}

    def workspaces(target: str) -> list[int]:
        found = analysis(str(MODELS / target), Options.of(said))
        assert any("cuDNN workspace PyTorch's would" in note for note in found.notes)
        taken = [event for event in found.events if isinstance(event, Malloc)]
        return sorted(event.nbytes for event in taken if event.category is Category.SCRATCH)

    assert set(workspaces("resnet50.onnx")) == set(workspaces("resnet50.py")) != set()


def test_sums_gradients_are_counted_at_a_bound_that_is_shown() -> None:
    model, optimizer = TWINS["shared_sgd"]
    said = {"inputs": TensorSpec((SIDE, SIDE)), "mode": "train", "optimizer": optimizer, "loss": lambda o: o}
    found = analysis(model(), Options.of({**said, "device": "h200", "runtime": "paddle"})).estimate
    assert found.certainty.bounded == 2 * MIB
    assert any("counted at most 2.0 MiB" in note for note in found.notes)


def test_convolutions_take_at_most_the_limit() -> None:
    """resnet50 at batch 64 wants more than 16 MiB of workspace for some."""

    def largest(limit_mb: int) -> int:
        options = {"batch": 64, "mode": "train", "device": "h200", "steps": 1, "runtime": "paddle"}
        flags = {"FLAGS_conv_workspace_size_limit": limit_mb}
        found = analysis(str(MODELS / "resnet50.py"), Options.of({**options, "runtime_options": flags}))
        return max(
            getattr(event, "nbytes", 0)
            for event in found.events
            if getattr(event, "label", "").startswith("aten::convolution") and event.storage == -1
        )

    assert largest(16) == 16 * MIB < largest(512)


def test_flags_know_themselves_by_both_names() -> None:
    assert parse({"gpu_memory_limit_mb": 5}, {}) == parse({"FLAGS_gpu_memory_limit_mb": "5"}, {})
    assert parse({}, {"FLAGS_free_idle_chunk": "1", "PATH": "x"}) == Flags(free_idle_chunk=True)
    assert not parse({"enable_inplace": False}, {"FLAGS_pir_apply_inplace_pass": "1"}).pir_apply_inplace_pass


@pytest.fixture(autouse=True)
def no_flags_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FLAGS_"):
            monkeypatch.delenv(name)
