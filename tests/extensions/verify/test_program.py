"""`analyze verify run`: a program beside what was recorded of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.cli import main  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.runtimes.events import Free, Malloc  # noqa: E402
from analyzer_programs.program import follow  # noqa: E402
from analyzer_verify.program import compared  # noqa: E402
from analyzer_verify.report import render  # noqa: E402
from analyzer_verify.results import Verification  # noqa: E402
from tests.paths import DATA, ROOT  # noqa: E402

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


@pytest.fixture(scope="module")
def measured_runs() -> dict[str, dict[str, Any]]:
    """The measured sides of real runs on an H200, by name."""
    with gzip.open(DATA / "h200" / "programs_verified.json.gz", "rt") as file:
        return {row["name"]: row for row in json.load(file)}


def beside(row: dict[str, Any]) -> Verification:
    options = Options.of({"device": "h200", "runtime_options": {"alloc_conf": row["conf"]}})
    found, _ = follow(ROOT / row["script"], row["arguments"], options, {}, whole=True)
    return compared(found, row["ok"], row["environment"])


def errors(verification: Verification) -> dict[str, float | None]:
    names = ("allocated", "reserved", "device")
    return {name: verification.figure(name).error_percent for name in names}


def test_a_classifier_is_predicted_request_by_request(measured_runs: dict[str, Any]) -> None:
    """Loader, mixed batches, evaluation, schedule: every request and every return of the real run, in order."""
    found = beside(measured_runs["digits"])
    assert found.history is not None and found.history.same and found.history.recorded_count == 1241
    assert errors(found) == {"allocated": 0.0, "reserved": 0.0, "device": 0.0}
    assert len(found.marks) == 10 and all(mark.same for mark in found.marks)


def test_a_language_model_is_exact_under_expandable_segments(measured_runs: dict[str, Any]) -> None:
    """Accumulation, bfloat16, an average of the weights, an evaluation, sampled text."""
    found = beside(measured_runs["language_model_expandable"])
    assert errors(found) == {"allocated": 0.0, "reserved": 0.0, "device": 0.0}
    assert len(found.marks) == 6 and all(mark.same for mark in found.marks)


def test_two_networks_with_two_optimizers_are_exact(measured_runs: dict[str, Any]) -> None:
    """The convolutions and transposed ones of a small generator and its critic, each of which cuDNN was asked for."""
    found = beside(measured_runs["gan"])
    assert errors(found) == {"allocated": 0.0, "reserved": 0.0, "device": 0.0}
    assert found.history is not None and found.history.same


def test_under_the_asynchronous_backend_what_is_allocated_is_exact(measured_runs: dict[str, Any]) -> None:
    found = beside(measured_runs["language_model_async"])
    assert found.figure("allocated").error_percent == 0.0 and found.history is None
    assert abs(found.figure("reserved").error_percent or 0.0) < 10


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch may find a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["verify", "run", str(script)]) == 2
    assert "can only be verified on an NVIDIA GPU" in capsys.readouterr().err
    assert main(["verify", "run", str(tmp_path / "other.py")]) == 2
    assert "no such file" in capsys.readouterr().err
