"""A program that is followed for so long at most ends wherever it is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzer.options import Options
from analyzer_programs.following import deadline
from analyzer_programs.program import unheard, watched

ENDLESS = """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.randn(8, 64, device="cuda")).sum().backward(); opt.step()
{0}
"""


@pytest.fixture
def unused_signal() -> Iterator[None]:
    """pytest-timeout's signal, as a process without it has it."""
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.usefixtures("unused_signal")
@pytest.mark.parametrize(
    "rest",
    [
        "n = 0\nwhile n < 1 << 40: n += 1",
        "x = torch.zeros(8, device='cuda')\nfor _ in range(1 << 40): x.add_(1)",
    ],
)
def test_it_ends_without_another_call_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    """Neither a loop of Python's nor one of operators calls a model, or steps."""
    monkeypatch.setattr(deadline, "_GRACE_SECONDS", 0.2)
    script = tmp_path / "train.py"
    script.write_text(ENDLESS.format(rest))
    begun = time.monotonic()
    with unheard():
        ran = watched(
            str(script), (), Options.of({"device": "2GiB"}), {}, until="steady", least_steps=1, seconds=2.0
        ).ran
    assert ran.cut and ran.steps == 1 and ran.error is None
    assert time.monotonic() - begun < 60
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0
