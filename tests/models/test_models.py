"""The files in `models/`: parameter counts of the literature, and arithmetic where a library cannot be the judge."""

from __future__ import annotations

import ast

import pytest
import torch
from torch.nn import functional as F

from tests.models.model_files import NAMES, load
from tests.paths import MODELS

# name -> parameters: torchvision's and transformers' published counts; by hand for the documents' own models.
PARAMETERS = {
    "variable": 2**28,
    "linear": 256 * 250 + 250,
    "linear_mnist": 784 * 10 + 10,
    "feedforward": 200 * 100 + 100 + 100 * 200 + 200,
    "cnn": 985_914,
    "resnet50": 25_557_032,
    "vit_b_16": 86_567_656,
    "unetr": 92_802_478,
    "gpt2": 124_439_808,
    "llama": 6_738_415_616,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name: str) -> None:
    with torch.device("meta"):
        model = load(name).make_model()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


def test_retinanet_parameter_count() -> None:
    """MMDetection's model zoo: 37.74 M trainable parameters with COCO's 80 classes.

    By hand: ResNet-50 without its classifier 23,508,032; neck 7,997,440; branches 4,720,640; class scores
    256·9·9·80 + 9·80; boxes 256·9·36 + 36. Frozen: stem 9,408 + 128, first stage 215,808.
    """
    with torch.device("meta"):
        model = load("retinanet_r50_fpn").make_model(class_count=80)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 23_508_032 + 7_997_440 + 4_720_640 + (256 * 9 * 720 + 720) + (256 * 9 * 36 + 36)
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trainable == count - (9_408 + 128 + 215_808)
    assert round(trainable / 1e6, 2) == 37.74


@pytest.mark.parametrize("name", NAMES)
def test_only_torch_is_imported(name: str) -> None:
    standard = {"collections", "contextlib", "dataclasses", "math", "os", "typing"}
    for node in ast.walk(ast.parse((MODELS / f"{name}.py").read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        assert {module.partition(".")[0] for module in modules} <= standard | {"torch"}


@pytest.mark.parametrize("name", NAMES)
def test_step_runs_without_data(name: str) -> None:
    """Forward, loss and backward on the meta device; every parameter that can learn and is read gets a gradient."""
    module = load(name)
    with torch.device("meta"):
        model = module.make_model()
        inputs, targets = module.make_batch(2)
        result = module.loss(model(*inputs), *targets)
    assert result.shape == ()
    result.backward()
    idle = {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert all("norm_cross_attn" in n for n in idle)


def test_checkpointing_changes_no_gradient() -> None:
    module = load("retinanet_r50_fpn")
    torch.manual_seed(0)
    plain = module.make_model().train()
    checkpointed = module.make_model_checkpointed().train()
    checkpointed.load_state_dict(plain.state_dict())
    (images,), targets = module.make_batch(1, height=64, width=64)
    gradients = []
    for model in (plain, checkpointed):
        module.loss(model(images), *targets).backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])


def test_frozen_stage_and_batch_norm_stay_in_evaluation_mode() -> None:
    with torch.device("meta"):
        model = load("retinanet_r50_fpn").make_model().train()
    assert model.training and model.backbone.layer2.training
    assert not model.backbone.layer1[0].conv1.training
    assert not model.backbone.layer4[2].bn3.training


def test_focal_loss_is_the_published_formula() -> None:
    """FL(p_t) = -alpha_t (1 - p_t)^gamma log(p_t) (Lin et al. 2017), differentiated by autograd for comparison."""
    torch.manual_seed(0)
    scores = torch.randn(7, 20, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 19, 20, 20, 7, 1])
    ours = load("retinanet_r50_fpn").SigmoidFocalLoss.apply(scores, labels, 2.0, 0.25)
    truth = F.one_hot(labels, 21)[:, :20].double()
    p = torch.sigmoid(scores)
    p_t = p * truth + (1 - p) * (1 - truth)
    alpha_t = 0.25 * truth + 0.75 * (1 - truth)
    published = -alpha_t * (1 - p_t) ** 2.0 * torch.log(p_t)
    torch.testing.assert_close(ours, published)
    weights = torch.rand_like(ours)
    (a,) = torch.autograd.grad((ours * weights).sum(), scores, retain_graph=True)
    (b,) = torch.autograd.grad((published * weights).sum(), scores)
    torch.testing.assert_close(a, b)


def test_readme_lists_every_model_with_its_parameter_count() -> None:
    rows = [line.split("|") for line in (MODELS / "README.md").read_text().splitlines() if ".py` |" in line]
    listed = {row[1].strip(" `").removesuffix(".py"): int(row[4].replace(",", "")) for row in rows}
    assert listed.keys() == set(NAMES)
    with torch.device("meta"):
        for name, count in listed.items():
            assert sum(parameter.numel() for parameter in load(name).make_model().parameters()) == count, name
