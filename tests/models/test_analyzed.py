"""Every file in `models/` through the whole analysis, in both modes; document 002's strategies in its order."""

from __future__ import annotations

import pytest
import torch

from analyzer import Estimate, analyze
from tests.models.model_files import NAMES, load
from tests.paths import MODELS
from tests.report.adding_up import adds_up

# A convolutional network, and a transformer whose embedding is its last layer too; the others with `-m campaign`.
QUICK = ("cnn", "gpt2")


def run(name: str, **options: object) -> Estimate:
    attribute = options.pop("attribute", "")
    target = f"{MODELS / name}.py" + (f":{attribute}" if attribute else "")
    return analyze(target, **{"batch": 2, "device": "h200", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.campaign) for name in NAMES]
)
def test_both_modes(name: str) -> None:
    infer, train = run(name, mode="infer"), run(name, mode="train")
    with torch.device("meta"):
        model = load(name).make_model()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    gradients = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    for estimate in (infer, train):
        assert estimate.naive.weights == weights
        assert weights <= estimate.graph_peak <= estimate.peak_requested <= estimate.peak_allocated
        assert estimate.peak_allocated <= estimate.peak_reserved < estimate.device_used
        assert sum(estimate.breakdown.values()) == estimate.peak_allocated
        adds_up(estimate)
        assert estimate.breakdown["parameters"] >= weights
    assert infer.saved_for_backward == 0
    assert infer.peak_allocated < train.peak_allocated
    assert "optimizer state" not in train.breakdown
    assert train.graph_peak >= weights + max(gradients, train.saved_for_backward)


def test_what_a_vision_transformer_saves_by_hand() -> None:
    """What ViT-B/16 saves for each further image, from its equations and where attention copies, to the byte."""
    two, three = (run("vit_b_16", mode="train", batch=batch).saved_for_backward for batch in (2, 3))
    tokens, width, hidden, heads = 197, 768, 3072, 12
    layer = (
        tokens * width * 2  # both residual sums, which a layer norm reads
        + tokens * 2 * 2  # mean and inverse deviation of both layer norms
        + tokens * width  # what the first norm feeds to attention, copied to have tokens before images
        + tokens * width * 3  # query, key and value
        + tokens * width * 2  # attention's output, and its copy for the projection
        + heads * 224  # log-sum-exp, 197 rows rounded up to a multiple of 32
        + tokens * width  # the second norm's output, which the perceptron reads
        + tokens * hidden * 2  # the perceptron before and after GELU
    )
    # Tokens with positions, the last norm's output with mean and inverse deviation, the log-softmax.
    stem = tokens * width * 2 + tokens * 2 + 1000
    assert three - two == 4 * (12 * layer + stem)


@pytest.mark.campaign
def test_document_002_strategies() -> None:
    base = run("retinanet_r50_fpn", mode="train", optimizer="sgd")
    amp = run("retinanet_r50_fpn", mode="train", optimizer="sgd", amp="fp16")
    accumulated = run("retinanet_r50_fpn", mode="train", optimizer="sgd", grad_accumulation=2)
    checkpointed = run(
        "retinanet_r50_fpn", mode="train", optimizer="sgd", attribute="make_model_checkpointed"
    )
    combined = run(
        "retinanet_r50_fpn",
        mode="train",
        optimizer="sgd",
        attribute="make_model_checkpointed",
        amp="fp16",
        grad_accumulation=2,
    )
    # The order of the document's table, and its remark that the three combine.
    assert amp.peak_allocated < base.peak_allocated < accumulated.peak_allocated
    assert checkpointed.peak_allocated < base.peak_allocated
    assert combined.peak_allocated < min(amp.peak_allocated, checkpointed.peak_allocated)
