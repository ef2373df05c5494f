"""`torch.func`'s transforms: gradients of every sample at once, of a module that is first called inside them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from analyzer.options import Options  # noqa: E402
from analyzer_programs.program import follow  # noqa: E402

PER_SAMPLE = """
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
weights = {name: weight.detach() for name, weight in net.named_parameters()}

def loss(weights, x, label):
    return nn.functional.cross_entropy(functional_call(net, weights, (x[None],)), label[None])

x, labels = torch.randn(64, 256, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
for step in range(3):
    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, labels)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
    scale = (1.0 / norms).clamp(max=1)
    for name, g in each.items():
        weights[name] = weights[name] - 0.1 * (g * scale.view(-1, *[1] * (g.dim() - 1))).sum(0)
"""


def test_gradients_of_every_sample(tmp_path: Path) -> None:
    """As PyTorch 2.11 asks for memory on the emulated runtime (28 November 2026)."""
    script = tmp_path / "program.py"
    script.write_text(PER_SAMPLE)
    estimate = follow(script, (), Options.of({"device": "h100"}), {})[0].estimate
    assert (estimate.peak_allocated, estimate.peak_reserved) == (138_539_008, 159_383_552)


ATTENTION = """
import torch
from torch.func import grad, vmap

def loss(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).float().square().mean()

each, every = grad(loss, (0, 1, 2)), (2, 4, 300, 64)
if VMAP:
    each, every = vmap(each), (3, *every)
g = each(*(torch.randn(every, device="cuda", dtype=torch.KIND) for _ in range(3)))
"""


@pytest.mark.parametrize(
    ("kind", "vmap", "peaks"),
    [
        ("float32", False, (6_821_376, 8_388_608)),
        ("bfloat16", False, (4_322_816, 6_291_456)),
        ("float32", True, (22_150_144, 29_360_128)),
        ("bfloat16", True, (13_855_232, 33_554_432)),
    ],
)
def test_attention_inside_transforms(kind: str, vmap: bool, peaks: tuple[int, int], tmp_path: Path) -> None:
    """As PyTorch 2.11 asks for memory on the emulated runtime (30 November 2026): scores are not kept."""
    script = tmp_path / "program.py"
    script.write_text(ATTENTION.replace("KIND", kind).replace("VMAP", str(vmap)))
    estimate = follow(script, (), Options.of({"device": "h200"}), {})[0].estimate
    assert (estimate.peak_allocated, estimate.peak_reserved) == peaks
