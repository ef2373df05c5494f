"""Batches as people have them: dictionaries, nested structures, None, a tokenizer's batch with labels."""

from __future__ import annotations

from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import analyzer
from analyzer.nested import strangers_in, tensors_in, with_tensors
from analyzer.planning.curve import sweep
from analyzer.planning.fit import fit
from analyzer.spec import TensorSpec
from benchmarks.subjects.networks.torchvision_cpu import enable

HEAD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 256), nn.Linear(256, 10)

    def forward(self, x, mask=None, labels=None, scale=1.0):
        out = self.two(torch.relu(self.one(x))) * scale
        if labels is None:
            return out
        return Output(nn.functional.cross_entropy(out, labels), out)

class Output:
    def __init__(self, loss, logits):
        self.loss, self.logits = loss, logits

def make_model():
    return Net()

def loss(output, labels):
    return nn.functional.cross_entropy(output, labels)
"""
PLAIN = "def make_batch(n):\n    return (torch.randn(n, 64),), (torch.zeros(n, dtype=torch.long),)\n"
X, Y = "torch.randn(n, 64)", "torch.zeros(n, dtype=torch.long)"


def written(folder: Path, batch: str, own_loss: bool = False) -> Path:
    """A target whose batch is this expression of n; own_loss: the target's file says none."""
    path = folder / "net.py"
    head = HEAD.partition("def loss(")[0] if own_loss else HEAD
    path.write_text(f"{head}\ndef make_batch(n):\n    return {batch}\n")
    return path


@pytest.mark.parametrize(
    "batch",
    [f"{X}, {Y}", f"[{X}], [{Y}]", f"{{'x': {X}}}, {Y}", f"{{'x': {X}, 'mask': None}}, ({Y},)",
     f"({X}, None), {Y}", f"{{'scale': 1.0, 'x': {X}}}, {Y}"],
)  # fmt: skip
def test_the_same_batch_written_otherwise(tmp_path: Path, batch: str) -> None:
    """Whatever holds the tensors, the step asks for the same."""
    plain = tmp_path / "plain.py"
    plain.write_text(f"{HEAD}\n{PLAIN}")
    one = analyzer.analyze(plain, mode="train", batch=32, device="h200")
    other = analyzer.analyze(written(tmp_path, batch), mode="train", batch=32, device="h200")
    assert (other.peak_allocated, other.peak_reserved) == (one.peak_allocated, one.peak_reserved)
    assert other.timeline.delta == one.timeline.delta


def test_a_batch_with_its_labels_has_the_outputs_own_loss(tmp_path: Path) -> None:
    target = written(tmp_path, f"{{'x': {X}, 'labels': {Y}}}", own_loss=True)
    found = analyzer.analyze(target, mode="train", batch=32, device="h200")
    assert not any("loss" in note for note in found.notes)
    assert any(row.operator.startswith("aten::nll_loss") for row in found.allocations.origins)
    assert analyzer.analyze(target, batch=32, device="h200").peak_allocated > 0
    said = analyzer.analyze(
        written(tmp_path, f"{{'x': {X}}}", own_loss=True), mode="train", batch=32, device="h200"
    )
    assert "no loss and no targets were given: the sum of the output is assumed" in said.notes


def test_a_curve_and_the_largest_batch_of_dictionaries(tmp_path: Path) -> None:
    target = written(tmp_path, f"{{'x': {X}, 'labels': {Y}}}", own_loss=True)
    curve = sweep(target, range(2, 12), mode="train", device="h200")
    fresh = analyzer.analyze(target, mode="train", batch=7, device="h200")
    assert curve.rows[5].peak_reserved == fresh.peak_reserved
    assert fit(target, mode="train", device="1GiB").batch > 1000


class Detector(nn.Module):
    """As torchvision's: images of their own sizes in a list, a dictionary of boxes for each; in training a dictionary of losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        features = [self.layer(image).mean() for image in images]
        if targets is None:
            return features
        boxes = torch.stack([target["boxes"].sum() for target in targets])
        return {"classes": torch.stack(features).sum(), "boxes": (torch.stack(features) * boxes).sum()}


def detections(batch: int) -> tuple[Any, Any]:
    images = [torch.randn(3, 32, 40) for _ in range(batch)]
    return (images, [{"boxes": torch.randn(5, 4), "area": 3.0} for _ in range(batch)]), None


def test_lists_and_dictionaries_reach_the_model_as_they_are() -> None:
    curve = sweep(Detector(), [2, 3], detections, mode="train", device="h200")
    assert not curve.failures and curve.rows[1].peak_allocated > curve.rows[0].peak_allocated


def test_a_tokenizers_batch_on_a_transformers_model() -> None:
    transformers = pytest.importorskip("transformers")
    enable()  # torchvision, which transformers imports, beside a CPU build of torch
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = transformers.BertForSequenceClassification(config)

    def batch(n: int) -> tuple[Any, Any]:
        ids = torch.ones(n, 16, dtype=torch.long)
        encoded = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": torch.zeros(n, dtype=torch.long),
        }
        return transformers.BatchEncoding(encoded), None

    ((row,), (again,)) = (sweep(model, [n], batch, mode="train", device="h200").rows for n in (4, 4))
    assert row == again and row.peak_allocated > 0
    # By name, though other parameters of `forward` lie between them.
    said = analyzer.analyze(
        model, {"labels": TensorSpec((4,), "int64"), "input_ids": TensorSpec((4, 16), "int64"),
                "attention_mask": TensorSpec((4, 16), "int64")}, mode="train", device="h200",
    )  # fmt: skip
    assert said.peak_allocated == row.peak_allocated
    assert any(origin.operator.startswith("aten::nll_loss") for origin in said.allocations.origins)


Pair = namedtuple("Pair", "first second")


def test_structures_are_kept() -> None:
    one, two, three = (torch.zeros(n) for n in (1, 2, 3))
    structure = {"a": [one, None, "name"], "b": Pair(two, {"c": (three, 4)}), "d": ()}
    assert [tuple(t.shape) for t in tensors_in(structure)] == [(1,), (2,), (3,)]
    made = with_tensors(structure, iter(["x", "y", "z"]))
    assert made == {"a": ["x", None, "name"], "b": Pair("y", {"c": ("z", 4)}), "d": ()} and isinstance(
        made["b"], Pair
    )
    assert with_tensors(UserDict(a=one), iter("x")) == {"a": "x"}
    assert list(strangers_in(structure)) == [] and list(strangers_in({"a": [{1}]})) == [{1}]
