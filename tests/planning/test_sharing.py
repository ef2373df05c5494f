"""What a program is on one device serves the others, and every device still gets its own answer."""

from __future__ import annotations

from unittest import mock

from analyzer.options import Options
from analyzer.parametric.program import BatchProgram
from analyzer.planning.fit import fit, fits
from analyzer.planning.intervals import intervals_of
from analyzer.planning.subject import Subject
from analyzer.runtimes.base import Limit
from tests.paths import ROOT

CNN = str(ROOT / "models" / "cnn.py")


def test_batches_are_joined_once_for_all_devices() -> None:
    subject = Subject(CNN, Options.of({"mode": "train", "device": "h200"}))
    first = intervals_of(subject, 1, 64)
    other = subject.on("l4")
    with mock.patch.object(BatchProgram, "__init__", side_effect=AssertionError):
        shared = intervals_of(other, 1, 64)
    alone = intervals_of(Subject(CNN, Options.of({"mode": "train", "device": "l4"})), 1, 64)
    for batch in (1, 2, 40, 64):
        assert shared.at(batch) == alone.at(batch)
        assert shared.at(batch, Limit(10**8, True)) == alone.at(batch, Limit(10**8, True))
    assert any(shared.at(batch).device_used != first.at(batch).device_used for batch in (2, 40))


def test_a_session_is_planned_for_each_device() -> None:
    file = str(ROOT / "models" / "resnet50.onnx")
    devices = ("2GiB", "t4", "h200")
    found = dict(fits(file, devices))
    assert {device: found[device] for device in devices} == {
        device: fit(file, device=device) for device in devices
    }
