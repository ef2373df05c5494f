"""A whole verification without a GPU: its side is made up from the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.cli import main  # noqa: E402
from analyzer.errors import DoesNotFit, OptionError  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.pipeline import analysis  # noqa: E402
from analyzer_verify.pytorch import compared  # noqa: E402
from analyzer_verify.report import render  # noqa: E402
from analyzer_verify.results import Verification  # noqa: E402
from analyzer_verify.runs import machine  # noqa: E402
from analyzer_verify.runs.observer import Counters  # noqa: E402
from analyzer_verify.verify import verify  # noqa: E402
from tests.paths import MODELS  # noqa: E402

LINEAR = str(MODELS / "linear.py")
GPU = machine.Gpu("NVIDIA H200", "580.1", 100 << 30, 40 << 30, 60 << 30, {})


def recorded(options: Options, change: int = 0) -> dict[str, Any]:
    """What a run would return if everything went as predicted, the last forward pass `change` bytes more."""
    predicted = analysis(LINEAR, options)
    estimate = predicted.estimate
    history: list[int] = []
    numbers: dict[int, int] = {}
    for event in predicted.events:
        if hasattr(event, "nbytes"):
            numbers[event.key] = len(numbers)
            history.append(event.nbytes)
        elif hasattr(event, "key"):
            history.append(-1 - numbers[event.key])
    marks = []
    for mark in estimate.marks:
        more = change if mark.event == "2.forward" else 0
        counters = Counters(mark.allocated + more, mark.reserved, mark.peak, mark.reserved, mark.peak)
        marks.append({"event": mark.event, **asdict(counters)})
    peak = Counters(0, 0, estimate.peak_allocated, estimate.peak_reserved, estimate.peak_requested)
    nvml = {"before": 0, "context": 0, "end": estimate.device_used}
    return {
        "marks": marks, "peaks": [asdict(peak)], "nvml_process": nvml, "nvml_device": nvml, "history": history,
        "versions": {"torch": "2.11.0", "cuda": "13.0", "cudnn": "9.19.0"}, "seconds": 1.0,
    }  # fmt: skip


OPTIONS = Options(batch=4, mode="train", optimizer="adam", device="h200")


@pytest.fixture(scope="module")
def exact() -> Iterator[Verification]:
    predicted = analysis(LINEAR, OPTIONS)
    yield compared(
        predicted, recorded(OPTIONS), predicted.estimate.graph_peak, machine.fingerprint(GPU), ["a note"]
    )


def test_a_run_as_predicted_is_exact_everywhere(exact: Verification) -> None:
    assert all(mark.same for mark in exact.marks) and len(exact.marks) == 20
    assert exact.history is not None and exact.history.same
    for name in ("graph", "requested", "allocated", "reserved", "device"):
        assert exact.figure(name).error_percent == 0
    text = render(exact)
    assert "Events: all 20 exact" in text and "every return were predicted" in text and "Note: a note" in text
    document = exact.to_dict()
    assert document["figures"][3]["error_percent"] == 0.0 and document["history"]["first"] is None


def test_an_event_that_differs_is_shown() -> None:
    wrong = compared(analysis(LINEAR, OPTIONS), recorded(OPTIONS, change=512), None, {})
    assert [mark.event for mark in wrong.marks if not mark.same] == ["2.forward"]
    text = render(wrong)
    assert "Events: 19 of 20 exact" in text and "-512" in text


def test_out_of_memory_is_reported_with_both_states() -> None:
    measured = recorded(OPTIONS)
    measured["marks"] = measured["marks"][:4]
    measured["out_of_memory"] = {
        "after": "0.zero_grad",
        "message": "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "counters": asdict(Counters(1 << 30, 2 << 30, 0, 0, 0)),
    }
    found = compared(analysis(LINEAR, OPTIONS), measured, None, {})
    assert found.history is None and found.out_of_memory is not None
    text = render(found)
    assert "Out of memory after 0.zero_grad: 1.0 GiB allocated, 2.0 GiB reserved." in text
    assert "predicted there: " in text and "Tried to allocate 2.00 GiB" in text


def test_exit_codes(
    exact: Verification, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import analyzer_verify.verify as package

    monkeypatch.setattr(package, "verify", lambda *_, **__: exact)
    assert main(["verify", LINEAR]) == 0

    def too_large(*_: Any, **__: Any) -> None:
        raise DoesNotFit("the run would need much", "take less")

    monkeypatch.setattr(package, "verify", too_large)
    assert main(["verify", LINEAR]) == 1
    assert "analyze: stopped: the run would need much" in capsys.readouterr().err


def test_unknown_options_are_refused() -> None:
    with pytest.raises(OptionError, match="no option 'bach'"):
        verify(LINEAR, bach=3)
