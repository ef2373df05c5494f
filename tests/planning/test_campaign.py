"""The promise of the curve, kept on measured models: at sizes nobody captured it says what a fresh analysis says.

`pytest -m campaign tests/planning` does all ten models in training and inference, and four ONNX files (minutes); one of each
runs always. `benchmarks/sweep.py` prints the same with what it costs.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from analyzer.options import Options
from analyzer.planning.curve import Row, curve
from analyzer.planning.pieces import figures_of
from analyzer.planning.subject import Subject
from tests.paths import MODELS

SIZES = 12
ZOO = (
    "resnet50",
    "gpt2",
    "swin_t",
    "lstm",
    "unet",
    "encoder",
    "llama_tiny",
    "mobilenet_v3_large",
    "ckpt_mlp",
    "squeezenet1_1",
)
ALWAYS = ("lstm",)
ONNX = ("resnet50.onnx", "bert.onnx", "vit_b_16.onnx", "cnn.onnx")


def cases(names: tuple[str, ...], always: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=() if name in always else pytest.mark.campaign) for name in names]


def check(subject: Subject, batches: range, seed: str) -> None:
    """`SIZES` of the rows that were evaluated, each beside an analysis of its own."""
    found = curve(subject, batches)
    free = [row for row in found.rows if row.batch not in found.captures] or list(found.rows)
    for row in random.Random(seed).sample(free, SIZES):
        fresh = figures_of(subject.analysis(row.batch))
        assert row == Row(
            row.batch, fresh.peak_allocated, fresh.peak_reserved, fresh.device_used, fresh.naive
        )


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", cases(ZOO, ALWAYS))
def test_measured_models(name: str, mode: str) -> None:
    pytest.importorskip("torchvision", exc_type=(ImportError, RuntimeError))
    pytest.importorskip("transformers")
    import development_zoo as models

    make_model, make_batch, loss = models.M[name]
    with torch.device("meta"):
        model = make_model()
    given: dict[str, Any] = {"inputs": make_batch, "mode": mode, "device": "h200"}
    if mode == "train":
        given |= {"loss": loss, "optimizer": models.OPT["adam"]}
    check(Subject(model, Options.of(given)), range(2, 202), f"{name} {mode}")


@pytest.mark.parametrize("name", cases(ONNX, ("cnn.onnx",)))
def test_onnx_files(name: str) -> None:
    check(Subject(MODELS / name, Options.of({"device": "h200"})), range(2, 202, 8), name)
