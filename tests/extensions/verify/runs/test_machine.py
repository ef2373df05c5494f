"""The machine a real run needs, with a made-up NVML: who is on the GPU, what is missing, what is said."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from analyzer.cli import main  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer.errors import DoesNotFit, MissingDependencyError  # noqa: E402
from analyzer_verify.runs import machine  # noqa: E402
from tests.devices.fake_nvml import Card, FakeNvml, install  # noqa: E402
from tests.paths import MODELS  # noqa: E402

LINEAR = str(MODELS / "linear.py")
GPU = machine.Gpu("NVIDIA H200", "580.1", 100 << 30, 40 << 30, 60 << 30, {})


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return install(monkeypatch, FakeNvml(Card("GPU-1")))


@pytest.mark.usefixtures("nvml")
def test_who_is_on_the_gpu() -> None:
    found = machine.require_cuda("m.py")
    assert found == machine.Gpu("NVIDIA H200", "580.1", 100, 30, 70, {1: 70})
    assert machine.has_gpu() and machine.device_bytes() == 70 and machine.process_bytes() is None


def test_figures_are_of_the_visible_gpu(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process counts 5 bytes on the second GPU; its own entry is none of the others."""
    nvml.cards = (*nvml.cards, Card("GPU-2", "NVIDIA L4", (9, 4, 5), {os.getpid(): 5, 8: None}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine.gpu("m.py") == machine.Gpu("NVIDIA L4", "580.1", 9, 4, 5, {8: 0})
    assert (machine.process_bytes(), machine.device_bytes()) == (5, 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not machine.has_gpu()
    with pytest.raises(
        MissingDependencyError, match="on an NVIDIA GPU, and CUDA_VISIBLE_DEVICES= leaves none visible"
    ):
        machine.gpu("m.py")


def test_what_is_missing_is_one_sentence(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.broken = nvml.NVMLError_LibraryNotFound()
    with pytest.raises(MissingDependencyError) as caught:
        machine.require_cuda("m.py")
    assert caught.value.message == (
        "m.py can only be verified on an NVIDIA GPU, and no NVIDIA driver is installed here"
    )
    nvml.broken = nvml.NVMLError("Unknown Error")
    with pytest.raises(MissingDependencyError, match="the driver reports none: Unknown Error"):
        machine.require_cuda("m.py")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(MissingDependencyError, match="is built without CUDA"):
        machine.require_cuda("m.py")


@pytest.mark.skipif(torch.version.cuda is not None, reason="a build of torch with CUDA")
def test_command_line_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", LINEAR, "--batch", "2"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Traceback" not in shown.err
    message, hint = shown.err.splitlines()
    assert message.startswith(
        f"analyze: error: {LINEAR} can only be verified on an NVIDIA GPU, and this torch"
    )
    assert hint.startswith("  hint: ")
    assert main(["calibrate"]) == 2
    assert "can only be measured on an NVIDIA GPU" in capsys.readouterr().err


def test_too_little_memory_stops_before_the_run() -> None:
    assert machine.check_room(30 << 30, GPU, force=False) == []
    with pytest.raises(DoesNotFit) as caught:
        machine.check_room(50 << 30, GPU, force=False)
    assert "would need 50.0 GiB" in caught.value.message and "40.0 GiB free" in caught.value.message
    assert machine.check_room(50 << 30, GPU, force=True) == [
        "run with --force although the estimate says it does not fit"
    ]


def test_other_processes_are_named() -> None:
    shared = replace(GPU, others={7: 60 << 30})
    (note,) = machine.check_room(1, shared, force=False)
    assert note.startswith("1 other process holds 60.0 GiB of the GPU")
    with pytest.raises(DoesNotFit, match="1 other process holds"):
        machine.check_room(50 << 30, shared, force=False)


def test_versions_other_than_the_profiles_are_noted() -> None:
    same = {"gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "cudnn": "9.19.0", "driver": "580.159.04"}
    assert machine.differences(load("h200"), same) == []
    other = {**same, "gpu": "NVIDIA L4", "torch": "2.12.1", "cudnn": "9.190.0"}
    notes = machine.differences(load("h200"), other)
    assert len(notes) == 3
    assert (
        "measured on another GPU: NVIDIA L4" in notes[0] and "torch 2.11, this machine has 2.12.1" in notes[1]
    )
