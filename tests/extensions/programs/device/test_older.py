"""What older releases of torch keep: a softmax its input, FlashAttention 1 a layout of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import analyzer

MIB = 1 << 20


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, release: str) -> list[str]:
    """What the program prints with that release."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    estimate = analyzer.run(path, device="a100-40gb", release={"torch": release})
    assert estimate.incomplete is None
    return capsys.readouterr().out.split()


SOFTMAX = """
    import torch

    x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    scores = x * 2
    result = torch.{name}(scores, -1)
    del scores
    print(torch.cuda.memory_allocated())
    loss = result.sum()
    loss.backward()
    print(torch.cuda.memory_allocated())
"""


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("release", "kept"), [("1.10", 4), ("1.11", 0), ("2.11", 0)])
def test_a_softmax_kept_its_input_until_its_gradient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, release: str, kept: int
) -> None:
    """x, the result and, in torch 1.10, the scores are 4 MiB each; then x, the result, the gradient of x and the loss."""
    before, after = map(int, said(tmp_path, capsys, SOFTMAX.format(name=name), release))
    assert before == (8 + kept) * MIB
    assert after == 12 * MIB + 512


STEPS = """
    import torch

    torch.set_default_device("cuda")
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.{name}(net.parameters(), {options})
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print(*(state["step"].device.type for state in optimizer.state.values()))
"""


@pytest.mark.parametrize(
    ("name", "options", "release", "device"),
    [
        ("Adam", "", "2.11", "cuda"),
        ("AdamW", "", "2.11", "cuda"),
        ("Adam", "", "2.13", "cpu"),
        ("Adam", "fused=True", "2.13", "cuda"),
        ("NAdam", "", "2.13", "cuda"),
    ],
)
def test_adams_steps_were_counted_on_the_default_device(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: str,
    release: str,
    device: str,
) -> None:
    """Whichever release is installed; other optimizers leave it to the default device in all of them."""
    assert said(tmp_path, capsys, STEPS.format(name=name, options=options), release) == [device] * 2


FLASH = """
    import torch

    q, k, v = (torch.randn(64, 2, 4, 32, device="cuda", dtype=torch.float16).permute(1, 2, 0, 3) for _ in range(3))
    result = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    print(result.permute(2, 0, 1, 3).is_contiguous(), result.transpose(1, 2).is_contiguous())
"""


@pytest.mark.parametrize(("release", "layout"), [("2.1", ["False", "True"]), ("2.6", ["True", "False"])])
def test_flash_attention_lies_as_its_query_since_the_second_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str, layout: list[str]
) -> None:
    """Queries that lie as (length, batch, heads, size), as in `nn.MultiheadAttention`."""
    assert said(tmp_path, capsys, FLASH, release) == layout


CONVOLUTION = """
    import torch

    torch.nn.functional.conv2d(torch.randn(4, 128, 64, 64, device="cuda"), torch.randn(128, 128, 3, 3, device="cuda"), padding=1)
"""


@pytest.mark.parametrize(("release", "certain"), [("2.3", False), ("2.4", True)])
def test_cudnn_8_was_asked_nothing(tmp_path: Path, release: str, certain: bool) -> None:
    """What cuDNN 9 was asked for an RTX 3090 is certain there, and may be half off with the cuDNN 8 of torch 2.3."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(CONVOLUTION))
    estimate = analyzer.run(path, device="rtx3090", release={"torch": release})
    least, most = estimate.reserved_range
    assert least <= estimate.peak_reserved <= most
    assert (least == most) == certain
