"""The program a worker runs: real tensors where the capture had none."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from analyzer.options import Options  # noqa: E402
from analyzer.spec import TensorSpec  # noqa: E402
from analyzer_verify.runs.program import build, fast_random  # noqa: E402
from tests.paths import MODELS  # noqa: E402

LINEAR = str(MODELS / "linear.py")


def test_the_step_is_built_with_real_tensors() -> None:
    step = build(LINEAR, Options(batch=3, mode="train", optimizer="adam", dtype="bfloat16"))
    assert step.inputs[0].device.type == "cpu" and step.inputs[0].dtype is torch.bfloat16
    assert step.inputs[0].shape == (3, 256) and step.model.weight.device.type == "cpu"
    assert step.model.weight.dtype is torch.bfloat16 and step.model.weight.float().std() > 0


def test_described_inputs_become_random_tensors_and_integers_zero(tmp_path: Path) -> None:
    target = tmp_path / "model.py"
    target.write_text(
        "import torch\n"
        "class Two(torch.nn.Module):\n"
        "    def forward(self, a, b):\n"
        "        return a\n"
        "make_model = Two\n"
    )
    inputs = {"a": TensorSpec((2, 3, 4, 4), "float32"), "b": TensorSpec((2,), "int64")}
    step = build(str(target), Options(inputs=inputs, channels_last=True))
    assert step.inputs[0].is_contiguous(memory_format=torch.channels_last) and step.inputs[0].std() > 0
    assert step.inputs[1].tolist() == [0, 0]


def test_large_tensors_repeat_a_block_of_random_values() -> None:
    with fast_random():
        large = torch.empty(5 << 20).normal_(2.0, 0.5)
        small = torch.empty(1000).uniform_(-1, 1)
    assert large.mean() == pytest.approx(2.0, abs=0.01) and large.std() == pytest.approx(0.5, abs=0.01)
    assert torch.equal(large[: 1 << 20], large[1 << 20 : 2 << 20]) and small.unique().numel() > 900
    assert "normal_" not in vars(torch.Tensor)
