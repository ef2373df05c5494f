"""Everything around a real run, without a GPU: jobs, the observer, the machine, what is said when something is amiss."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.cli import main  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer.errors import DoesNotFit, MissingDependencyError, OptionError, TargetError  # noqa: E402
from analyzer.graph import Phase  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.pipeline import analysis  # noqa: E402
from analyzer.report.verification import render  # noqa: E402
from analyzer.runs import jobs, machine  # noqa: E402
from analyzer.runs.observer import Counters, Observer  # noqa: E402
from analyzer.runs.program import build, fast_random  # noqa: E402
from analyzer.runs.worker import perform  # noqa: E402
from analyzer.spec import TensorSpec  # noqa: E402
from analyzer.verification import Verification  # noqa: E402
from analyzer.verify import verify  # noqa: E402
from analyzer.verify.pytorch import compared  # noqa: E402
from tests.devices.fake_nvml import Card, FakeNvml, install  # noqa: E402
from tests.paths import MODELS  # noqa: E402

LINEAR = str(MODELS / "linear.py")
GPU = machine.Gpu("NVIDIA H200", "580.1", 100 << 30, 40 << 30, 60 << 30, {})


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_options_survive_the_way_to_another_process() -> None:
    options = Options(
        inputs={"x": TensorSpec((2, 3), "float16")}, batch=2, mode="train", amp="bf16",
        targets=(TensorSpec((2,), "int64", (1,)),), runtime_options={"cublas_workspace": ":0:0"},
    )  # fmt: skip
    assert jobs.options_of(jobs.describe(LINEAR, options)) == options


def test_of_a_tensor_only_its_looks_go_along() -> None:
    job = jobs.describe(LINEAR, Options(inputs=(torch.zeros(4, 2).t(),)))
    assert jobs.options_of(job).inputs == (TensorSpec((2, 4), "float32", (1, 2)),)


def test_what_cannot_go_to_another_process_is_refused() -> None:
    with pytest.raises(TargetError, match="Linear in this process"):
        jobs.describe(torch.nn.Linear(1, 1), Options())
    with pytest.raises(OptionError, match="optimizer is a function"):
        jobs.describe(LINEAR, Options(optimizer=torch.optim.SGD))


def test_runtime_options_are_the_workers_environment() -> None:
    def given(**options: Any) -> dict[str, str]:
        return jobs.environment_of(Options(runtime_options=options))

    assert given(cublas_workspace=":0:0", alloc_conf="expandable_segments:True") == {
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }
    assert given(cublas_workspace=8 << 20) == {"CUBLAS_WORKSPACE_CONFIG": ":8192:1"}


def test_a_worker_that_fails_says_why() -> None:
    result = jobs.run({"kind": "pytorch", "target": "nowhere.py", "options": {}})
    assert result["error"].startswith("nowhere.py: no such file") and result["hint"]


def test_a_worker_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text("import os, sys\nprint('farewell', file=sys.stderr, flush=True)\nos._exit(7)\n")
    result = jobs.run({"kind": "pytorch", "target": str(script), "options": {}})
    assert result["error"] == "the run ended with code 7: farewell"


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import time\ntime.sleep(60)\n")
    result = jobs.run({"kind": "pytorch", "target": str(script), "options": {}, "timeout_seconds": 3})
    assert result["error"] == "the run did not end within 3 seconds"


def test_an_unknown_kind_is_a_result_too() -> None:
    assert "unknown kind of job 'dance'" in perform({"kind": "dance"})["error"]


# -- the program -----------------------------------------------------------------------------------------------------


def test_the_step_is_built_with_real_tensors() -> None:
    step = build(LINEAR, Options(batch=3, mode="train", optimizer="adam", dtype="bfloat16"))
    assert step.inputs[0].device.type == "cpu" and step.inputs[0].dtype is torch.bfloat16
    assert step.inputs[0].shape == (3, 256) and step.model.weight.device.type == "cpu"
    assert step.model.weight.dtype is torch.bfloat16 and step.model.weight.float().std() > 0


def test_described_inputs_become_random_tensors_and_integers_zero(tmp_path: Path) -> None:
    target = tmp_path / "model.py"
    target.write_text("import torch\nmake_model = lambda: torch.nn.Identity()\n")
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


# -- the observer ----------------------------------------------------------------------------------------------------


@dataclass
class FakeMeter:
    """An allocator that only counts."""

    allocated: int = 0
    peak: int = 0

    def use(self, nbytes: int) -> None:
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)

    def read(self) -> Counters:
        return Counters(self.allocated, self.allocated, self.peak, self.peak, self.peak)

    def reset_peaks(self) -> None:
        self.peak = self.allocated


def test_peaks_start_anew_with_each_iteration() -> None:
    meter = FakeMeter()
    observer = Observer(meter)
    meter.use(500)
    meter.use(-400)
    observer.mark("model")
    for iteration, transient in enumerate((50, 20)):
        observer.step = iteration
        observer.phase = Phase.FORWARD
        meter.use(transient)
        meter.use(-transient)
        observer.mark(f"{iteration}.forward")
    observer.finish()
    assert [(event, c.peak_allocated) for event, c in observer.marks] == [
        ("model", 500),
        ("0.forward", 150),
        ("1.forward", 120),
    ]
    assert [peak.peak_allocated for peak in observer.peaks] == [150, 120]


def test_a_program_without_iterations_has_one_peak() -> None:
    meter = FakeMeter()
    observer = Observer(meter)
    meter.use(7)
    observer.finish()
    assert [peak.peak_allocated for peak in observer.peaks] == [7]


# -- the machine -----------------------------------------------------------------------------------------------------


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


# -- a whole verification, with the GPU's side made up from the prediction -------------------------------------------


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
    import analyzer.verify as package

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
