"""Training on the CPU inside a program that is followed, of tensors with and without memory behind them: it runs, as PyTorch runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import analyzer

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
LINEAR = """
net = nn.Linear(2000, 2000)  # 15 MiB, and a bias that is real
x = torch.randn(32, 2000)
loss = net(x).square().mean()
loss.backward()
assert net.weight.grad.shape == (2000, 2000) and net.bias.grad.shape == (2000,)
assert net.weight.grad.device == net.bias.grad.device == torch.device("cpu") and loss.item() == 1.0
assert "meta" not in repr(loss)
with torch.no_grad():
    net.weight -= 0.1 * net.weight.grad
"""
LAYERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.conv, self.norm = nn.Embedding(5000, 256), nn.Conv1d(256, 512, 5, padding=2), nn.BatchNorm1d(512)
        self.wide, self.scale, self.narrow, self.out = nn.Linear(512, 1024), nn.LayerNorm(1024), nn.Linear(1024, 8), nn.Linear(8, 5000)

    def forward(self, i):
        x = F.relu(self.norm(self.conv(self.table(i).transpose(1, 2)))).mean(-1)
        return self.out(torch.tanh(self.narrow(F.dropout(self.scale(F.gelu(self.wide(x))), 0.1, self.training))))

net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(2):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(torch.randint(0, 5000, (16, 64))), torch.randint(0, 5000, (16,)))
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
assert all(p.grad.shape == p.shape and p.grad.device == p.device for p in net.parameters())
"""
PIECES = """
large, small, one = torch.randn(2000, 300, requires_grad=True), torch.randn(300, 4, requires_grad=True), torch.tensor(2.0, requires_grad=True)
(large @ small * one).square().mean().backward()
torch.stack([small.sum(), large.sum(), one]).sum().backward()
gradients = torch.autograd.grad((large * 2).sum() + small.sum(), [large, small])
assert [g.shape for g in (*gradients, one.grad)] == [large.shape, small.shape, ()]
lstm = nn.LSTM(256, 512, 2, batch_first=True)
nn.Linear(512, 3)(lstm(torch.randn(8, 20, 256))[0][:, -1]).pow(2).mean().backward()
coder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 1)
coder(torch.randn(4, 32, 512)).sum().backward()
"""
ON_THE_GPU = "\nnn.Linear(64, 64, device='cuda')(torch.ones(2, 64, device='cuda')).sum().backward()\n"


@pytest.mark.parametrize("text", [LINEAR, LAYERS, PIECES])
def test_a_step_on_the_host_is_followed(tmp_path: Path, text: str) -> None:
    """And takes nothing of the GPU."""
    alone, both = tmp_path / "alone.py", tmp_path / "both.py"
    alone.write_text(HEAD + ON_THE_GPU)
    both.write_text(HEAD + text + ON_THE_GPU)
    found, expected = (analyzer.run(path, device="h200") for path in (both, alone))
    assert found.incomplete is None
    assert (found.peak_allocated, found.peak_reserved) == (expected.peak_allocated, expected.peak_reserved)


def test_a_tensor_left_on_the_host_is_still_an_error(tmp_path: Path) -> None:
    (tmp_path / "mixed.py").write_text(
        HEAD + "w = torch.randn(8, 8, requires_grad=True)\n(torch.ones(8, 8).cuda() @ w).sum().backward()\n"
    )
    said = analyzer.run(tmp_path / "mixed.py", device="h200").incomplete
    assert said is not None and "mixed.py:5" in said and "got cuda:0" in said and "meta" not in said
