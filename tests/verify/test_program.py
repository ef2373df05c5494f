"""`analyze verify run`: a program beside what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from analyzer.cli import main  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.pipeline.program import follow  # noqa: E402
from analyzer.report.verification import render  # noqa: E402
from analyzer.runtimes.events import Free, Malloc  # noqa: E402
from analyzer.verify.program import compared  # noqa: E402

SCRIPT = """
import torch
weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(4):
    loss = (weight * 3).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def recorded(script: Path) -> dict[str, object]:
    """What a run that goes exactly as predicted would have written down."""
    found, _ = follow(script, (), Options.of({"device": "h200"}), {}, whole=True)
    history, numbers = list[int](), dict[int, int]()
    for event in found.events:
        if isinstance(event, Malloc):
            numbers[event.key] = len(numbers)
            history.append(event.nbytes)
        elif isinstance(event, Free):
            history.append(-1 - numbers[event.key])
    estimate = found.estimate
    return {
        "marks": [
            {"event": mark.event, "allocated": mark.allocated, "reserved": mark.reserved}
            for mark in estimate.marks
            if mark.event.endswith(".step")
        ],
        "peaks": [
            {
                "peak_allocated": estimate.peak_allocated,
                "peak_reserved": estimate.peak_reserved,
                "peak_requested": estimate.peak_requested,
            }
        ],
        "nvml_process": {"before": None, "end": estimate.device_used},
        "nvml_device": {"before": 0, "end": 0},
        "history": history,
        "versions": {"torch": torch.__version__},
        "seconds": 1.0,
    }


def test_a_run_as_predicted_and_one_that_is_not(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    measured = json.loads(json.dumps(recorded(script)))
    found, _ = follow(script, (), Options.of({"device": "h200"}), {}, whole=True)
    same = compared(found, measured, {})
    assert same.history is not None and same.history.same
    assert [figure.error_percent for figure in same.figures if figure.name != "graph"][1:] == [0.0] * 4
    assert [mark.event for mark in same.marks] == ["0.step", "1.step", "2.step", "3.step"]
    assert all(mark.same for mark in same.marks) and "Events: all 4 exact" in render(same)

    measured["history"][3] += 512
    other = compared(found, measured, {})
    assert other.history is not None and other.history.first is not None
    assert other.history.first.source.startswith("train.py:")
    measured["history"] = None
    assert compared(found, measured, {}).history is None


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch may find a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["verify", "run", str(script)]) == 2
    assert "can only be verified on an NVIDIA GPU" in capsys.readouterr().err
    assert main(["verify", "run", str(tmp_path / "other.py")]) == 2
    assert "no such file" in capsys.readouterr().err
