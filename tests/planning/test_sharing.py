"""What a program is on one device serves the others, and every device still gets its own answer."""

from __future__ import annotations

from dataclasses import fields
from unittest import mock

import pytest

from analyzer.options import Options
from analyzer.parametric.program import BatchProgram
from analyzer.pipeline.workload import Workload
from analyzer.planning.fit import fit, fits
from analyzer.planning.intervals import intervals_of
from analyzer.results.estimate import Estimate
from analyzer.runtimes.base import Limit
from tests.paths import ROOT

CNN = str(ROOT / "models" / "cnn.py")


def test_batches_are_joined_once_for_all_devices() -> None:
    workload = Workload(CNN, Options.of({"mode": "train", "device": "h200"}))
    first = intervals_of(workload, 1, 64)
    other = workload.on("l4")
    with mock.patch.object(BatchProgram, "__init__", side_effect=AssertionError):
        shared = intervals_of(other, 1, 64)
    alone = intervals_of(Workload(CNN, Options.of({"mode": "train", "device": "l4"})), 1, 64)
    for batch in (1, 2, 40, 64):
        assert shared.at(batch) == alone.at(batch)
        assert shared.at(batch, Limit(10**8, True)) == alone.at(batch, Limit(10**8, True))
    assert any(shared.at(batch).device_used != first.at(batch).device_used for batch in (2, 40))


def test_a_session_is_planned_for_each_device() -> None:
    file = str(ROOT / "models" / "cnn.onnx")
    devices = ("2GiB", "t4", "h200")
    found = dict(fits(file, devices))
    assert {device: found[device] for device in devices} == {
        device: fit(file, device=device) for device in devices
    }


# What an estimate in plain numbers leaves out (`pipeline/attribution.py`), or says in part.
WHERE = {
    "allocations", "breakdown", "by_line", "by_module", "certainty", "graph_peak", "iterations", "marks", "peak_at",
    "peak_event", "peak_requested", "saved_for_backward", "segments", "tensors", "timeline",
}  # fmt: skip


@pytest.mark.parametrize("limit", [None, "600MiB"])
def test_further_devices_are_told_in_plain_numbers(limit: str | None) -> None:
    devices = ("l4", "3GiB", "t4")
    found = dict(fits(CNN, devices, mode="train", limit=limit))
    plain = 0
    for device, answer in found.items():
        alone = fit(CNN, device=device, mode="train", limit=limit)
        assert not isinstance(answer, Exception) and answer.brief is not None
        whole = answer.at
        assert whole is not None and whole.tensors and whole == alone.at
        for field in fields(Estimate):
            if field.name not in WHERE:
                assert getattr(answer.brief, field.name) == getattr(whole, field.name), field.name
        for name in ("assumed", "beside_range", "kept_bytes", "spare_bytes", "unknown_operators"):
            assert getattr(answer.brief.certainty, name) == getattr(whole.certainty, name)
        assert (answer.batch, answer.notes, answer.gaps) == (alone.batch, alone.notes, alone.gaps)
        assert (answer.verdict, answer.reserved_range) == (alone.verdict, alone.reserved_range)
        assert answer.failure == alone.failure
        plain += not answer.brief.tensors
    assert plain
