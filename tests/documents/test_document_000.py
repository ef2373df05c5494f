"""Document 000: the naive sum for the CNN; the variable of 1 GiB and UNETR under both frameworks it compares.

Each row of its second framework, TensorFlow, is one command line here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import analyzer
from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.cli import main
from analyzer.devices import load
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.runtimes.timeline import simulate
from tests.documents.as_written import simulation
from tests.paths import MODELS

MIB = 2**20


def test_naive_terms_of_the_cnn() -> None:
    naive = analyzer.analyze(MODELS / "cnn.py", batch=128, mode="train", optimizer="sgd", device="h200").naive
    terms = (naive.data, naive.weights, naive.forward_output, naive.weight_gradient, naive.output_gradient)
    assert [round(term / MIB, 1) for term in terms] == [73.5, 3.8, 240.6, 3.8, 314.1]
    assert round(naive.training / MIB, 1) == 635.8
    assert round(naive.inference / MIB, 1) == 317.9


def test_a_variable_of_one_gib_is_allocated_and_reserved_exactly() -> None:
    def script(recorder: Recorder) -> None:
        variable = torch.zeros(1024**3 // 4, dtype=torch.float32, device="cuda")
        recorder.mark("define")
        del variable
        recorder.mark("delete")

    marks = {m.event: (m.allocated, m.reserved) for m in simulation(script, 0).marks}
    assert marks == {"define": (2**30, 2**30), "delete": (0, 2**30)}


@pytest.mark.parametrize(
    ("optimizer", "moments"), [("sgd", 0), ("sgdm", 1), ("adagrad", 1), ("rmsprop", 1), ("adam", 2)]
)
def test_moments_are_what_the_optimizer_keeps(optimizer: str, moments: int) -> None:
    naive = analyzer.analyze(
        MODELS / "cnn.py", batch=2, mode="train", optimizer=optimizer, device="h200"
    ).naive
    assert naive.moments == moments


GROWTH = ("--runtime-option", "allow_growth=True")


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The estimate of one command line."""
    assert main([*arguments, "--device", "rtx4090", "--format", "json", "-q"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_variable_under_tensorflow_with_memory_growth(capsys: pytest.CaptureFixture[str]) -> None:
    """The document's table: current 1,024.0 MiB, peak 1,024.0. The region grown to is 1,024 MiB too: 2 MiB doubled nine
    times. NVML grew by 2,046.5 MiB there; what of it is not the region is TensorFlow's own, and not predicted."""
    found = asked(capsys, str(MODELS / "variable.py"), "--runtime", "tensorflow", *GROWTH)
    assert found["peak_allocated"] / MIB == 1024.0
    assert found["peak_reserved"] / MIB == 1024.0 <= 3634.8 - 1588.3
    assert found["marks"][-1]["allocated"] / MIB == 1024.0
    assert any("not TensorFlow's" in note for note in found["notes"])


def test_tensorflow_takes_the_whole_card_without_memory_growth(capsys: pytest.CaptureFixture[str]) -> None:
    """ "By default TensorFlow takes as much as it can at the start": all but what it leaves to the system, 1,536 MiB on
    compute capability 8.9."""
    found = asked(capsys, str(MODELS / "variable.py"), "--runtime", "tensorflow")
    rest = load("rtx4090").usable_bytes - found["device_used"]
    assert found["peak_reserved"] > 20 * 1024 * MIB
    assert rest / MIB == pytest.approx(1536, abs=1)


@pytest.mark.campaign
def test_unetr_needs_about_the_same_under_both_frameworks(capsys: pytest.CaptureFixture[str]) -> None:
    """The document expects no great difference between the two implementations of UNETR."""
    step = (str(MODELS / "unetr.py"), "--batch", "1", "--mode", "train")
    tensorflow = asked(capsys, *step, "--runtime", "tensorflow", *GROWTH)
    pytorch = asked(capsys, *step)
    assert tensorflow["naive"] == pytorch["naive"]
    assert tensorflow["peak_allocated"] == pytest.approx(pytorch["peak_allocated"], rel=0.1)


def test_tensorflow_regions_of_unetr_double() -> None:
    """Each region as `bfc_allocator.cc` extends: what was due, or doubled until the request fits."""
    said = {"batch": 1, "mode": "train", "device": "rtx4090", "runtime": "tensorflow", "steps": 1}
    found = analysis(str(MODELS / "unetr.py"), Options.of({**said, "runtime_options": {"allow_growth": "1"}}))
    allocator: Any = found.prediction.allocator()
    simulate(found.events, allocator)
    due = 2 * MIB
    for extension in allocator.extensions:
        doubled = due
        while doubled < extension.requested_bytes:
            doubled *= 2
        assert extension.region_bytes == doubled
        due = doubled if doubled > due else 2 * due
    assert len(allocator.extensions) > 5
    assert found.estimate.peak_reserved == sum(e.region_bytes for e in allocator.extensions)
