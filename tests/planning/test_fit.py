"""The largest batch: against trials on an H200, and where the answer is plain by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from analyzer.cli import main
from analyzer.errors import InputError, OptionError
from analyzer.planning.fit import fit
from analyzer.planning.intervals import Intervals
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Figures
from tests.paths import DATA, MODELS
from tests.planning.targets import Small, small_batch

MIB = 2**20
GIB = 2**30
TRIALS = {entry["case"]["model"]: entry for entry in json.loads((DATA / "h200" / "fit.json").read_text())}


class Add(nn.Module):
    """One result of the input's size, and the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def megabytes(batch: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """4 MiB a sample."""
    return (torch.randn(batch, MIB),), ()


def test_by_hand() -> None:
    """From the second iteration on, the next input is made while the last one and its result live. From 10 MiB on each is
    a segment of its own: three times 4 MiB a sample, so 100 MiB are enough for 8 samples (96 MiB) and not for 9."""
    found = fit(Add(), megabytes, device="h200", limit=100 * MIB)
    assert (found.batch, found.limit, found.device_bound) == (8, 100 * MIB, False)
    assert found.at is not None and found.at.peak_reserved == 96 * MIB
    failed = found.beyond.out_of_memory if found.beyond else None
    assert failed is not None
    assert (failed.requested_bytes, failed.allocated_bytes, failed.limit_bytes) == (
        36 * MIB,
        72 * MIB,
        100 * MIB,
    )
    assert (failed.label, failed.phase) == ("input 0", "1.input")


def test_not_even_one() -> None:
    found = fit(Add(), megabytes, device="h200", limit=2 * MIB)
    assert (found.batch, found.at) == (0, None)
    assert found.beyond is not None and found.beyond.out_of_memory is not None


def test_a_device_smaller_than_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(MODELS / "resnet50.py"), "--mode", "train", "--device", "700MiB"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("not even one sample runs on 700MiB")
    assert "batch 1 does not fit: no memory for " in out


def test_the_limit_of_a_device_is_what_the_process_leaves() -> None:
    """2 GiB less context and libraries; nothing larger fits, and the estimate itself says so too."""
    found = fit(Small(), small_batch, mode="train", device="2GiB")
    assert found.device_bound and found.limit < 2 * GIB
    assert found.at is not None and found.at.device_used <= 2 * GIB
    assert found.beyond is not None and found.beyond.out_of_memory is not None


# The model of the trials that is quickest to analyse; benchmarks/fit/score.py does all.
@pytest.mark.parametrize("name", ["resnet18"])
def test_never_larger_than_what_ran(name: str) -> None:
    torchvision = pytest.importorskip("torchvision", exc_type=(ImportError, RuntimeError))
    trial = TRIALS[name]
    with torch.device("meta"):
        model = getattr(torchvision.models, name)()

    def batch(size: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return (torch.randn(size, 3, 224, 224),), (torch.randint(0, 1000, (size,)),)

    found = fit(
        model,
        batch,
        mode="train",
        loss="cross_entropy",
        optimizer=trial["case"]["opt"],
        device="h200",
        limit=trial["case"]["limit_mib"] * MIB,
    )
    assert found.batch == trial["largest"]
    at = trial["trials"][str(found.batch)]
    assert found.at is not None and found.beyond is not None
    assert (found.at.peak_allocated, found.at.peak_reserved) == (at["allocated"], at["reserved"])
    assert found.beyond.out_of_memory is not None


def test_bad_input() -> None:
    with pytest.raises(InputError, match="what is asked for"):
        fit(Small(), small_batch, device="h200", batch=4)
    with pytest.raises(OptionError, match="is no size"):
        fit(Small(), small_batch, device="h200", limit="much")
    with pytest.raises(InputError, match="holds nothing"):
        fit(Small(), small_batch, device="h200", limit=0)


def test_the_greatest_length() -> None:
    """`Add` on 2 samples of a length in MiB: as the batch by hand above, with two samples' bytes a step."""

    def longer(batch: int, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return (torch.randn(batch, length, MIB // 4),), ()

    found = fit(Add(), longer, device="h200", limit=100 * MIB, longest=True, batch=2)
    assert (found.batch, found.samples) == (16, 2)  # 32 MiB three times; 17 would be 34 MiB
    with pytest.raises(OptionError, match="another length"):
        fit(Small(), small_batch, device="h200", longest=True)


def test_a_session_fits_as_its_analysis_says() -> None:
    """ONNX: the answer and the batch beyond it are what `analyze` says of them, also under the arena's own limit."""
    import analyzer

    target = MODELS / "cnn.onnx"
    found = fit(target, device="3GiB")
    assert found.at is not None and found.beyond is not None
    assert found.at == analyzer.analyze(target, batch=found.batch, device="3GiB")
    assert found.at.fits() and not found.beyond.fits()
    limited = fit(target, device="3GiB", limit="256MiB")
    assert 0 < limited.batch < found.batch
    assert "t4 was not measured: context and library code" in " ".join(fit(target, device="t4").notes)


def test_an_order_of_loading_that_does_not_run_is_no_verdict_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Within 8.5 MiB one to eight samples of cnn.onnx run in some orders alone: nothing fits, and nothing is said to run."""
    import analyzer

    target = str(MODELS / "cnn.onnx")
    limit = 8704 << 10
    doubt = analyzer.analyze(target, batch=1, device="t4", runtime_options={"gpu_mem_limit": limit}).doubt
    assert " of 21 run" in doubt
    for option in (["--limit", f"{limit}"], ["--runtime-option", f"gpu_mem_limit={limit}"]):
        assert main(["fit", target, "--device", "t4", *option, "-q"]) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert out.startswith("no batch surely runs ") and "; up to 8 may " in out
        assert f"batch 1 may not fit: {doubt}" in out
        assert "it runs" not in out and "fits, even" not in out
    found = fit(target, device="t4", limit=limit)
    assert (found.batch, found.perhaps, found.verdict) == (0, 8, "may not fit")


def test_a_batch_that_fails_does_not_end_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    """Without room for the pattern's block the session goes on in less: 8 fails, 9 to 13 run, each as `analyze` says."""
    import analyzer

    target, asked = MODELS / "cnn.onnx", {"arena_extend_strategy": "kSameAsRequested"}
    found = fit(target, device="720MiB", runtime_options=asked)
    runs = [
        batch
        for batch in range(1, 17)
        if analyzer.analyze(target, batch=batch, device="720MiB", runtime_options=asked).fits()
    ]
    assert runs == [*range(1, found.batch + 1), *found.also] and found.also
    assert found.batch + 1 not in found.also
    option = "arena_extend_strategy=kSameAsRequested"
    assert main(["fit", str(target), "--device", "720MiB", "--runtime-option", option, "-q"]) == 0
    assert "larger ones run too, though not all above it: 9 to 13" in capsys.readouterr().out


def test_the_batch_beyond_says_why_the_arena_grows(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1 GiB: what the first convolution makes of 86 samples, 86 x 8 x 222 x 222 floats (129 MiB), has the next region of 256 MiB."""
    assert main(["fit", str(MODELS / "cnn.onnx"), "--device", "1GiB", "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "of 1.0 GiB device memory: the arena, whose regions double, takes one of 256 MiB for 129 MiB of"
        in out
    )
    assert "would hold" not in out and "analyze what-if --largest" in out


def test_the_room_left_is_that_of_the_lower_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """The arena's own limit, however it is said, and the device: what is held is of the lower one."""
    target = MODELS / "cnn.onnx"
    said = fit(target, device="t4", limit="256MiB")
    set_ = fit(target, device="t4", runtime_options={"gpu_mem_limit": "256MiB"})
    assert (said.batch, said.headroom) == (set_.batch, set_.headroom)
    assert said.limit == set_.limit == 256 << 20
    device = fit(target, device="1GiB")
    above = fit(target, device="1GiB", limit="64GiB")
    assert (above.batch, above.limit) == (device.batch, device.limit)
    assert main(["fit", str(target), "--device", "t4", "--limit", "256MiB", "-q"]) == 0
    assert "that was tried" not in capsys.readouterr().out


def test_what_nobody_measured_is_said_with_its_span() -> None:
    """A T4's context and library code are nobody's measurement: named with their bytes, and what they mean for the answer."""
    found = fit(Add(), megabytes, device="t4")
    said = " ".join(found.notes)
    assert re.search(
        r"t4 was not measured: context and library code [\d,.]+ MiB.* are taken from a GPU that was",
        said,
    )
    assert "first kernel" not in said and "(analyze devices t4)" in said
    span = re.search(r"between ([\d,]+) and ([\d,]+): the context and library code", said)
    assert span is not None
    low, high = (int(word.replace(",", "")) for word in span.groups())
    assert low == found.batch < high == found.perhaps
    assert found.at is not None
    below, above = found.at.device_range
    assert below < found.at.device_used < above
    measured = fit(Add(), megabytes, device="h200", limit=100 * MIB)
    assert not any("nobody" in note for note in measured.notes)
    assert measured.at is not None and set(measured.at.device_range) == {measured.at.device_used}


def test_an_answer_says_whether_it_is_certain() -> None:
    """Nothing is assumed of additions: under a limit the answer is certain on any GPU, and its range is the figure itself. On a device
    what the context leaves is not known: the answer fits with the least, and the largest that may is named beside it."""
    certain = fit(Add(), megabytes, device="t4", limit=100 * MIB)
    assert (certain.batch, certain.verdict, certain.reserved_range) == (8, "fits", (96 * MIB, 96 * MIB))
    assert fit(Add(), megabytes, device="t4", limit=2 * MIB).verdict == "does not fit"
    edge = fit(Add(), megabytes, device="t4")
    assert edge.verdict == "fits" and edge.device_bound and edge.beyond_verdict == "does not fit"
    from analyzer import analyze

    verdicts = [
        analyze(Add(), torch.empty(batch, MIB, device="meta"), device="t4").verdict()
        for batch in (edge.batch, edge.batch + 1, edge.perhaps, edge.perhaps + 1)
    ]
    assert verdicts == ["fits", "may not fit", "may not fit", "does not fit"]
    assert fit(Add(), megabytes, device="h200", limit=100 * MIB).verdict == "fits"


def test_an_answer_of_few_samples_is_looked_for_near_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times 1 GiB a sample: 4 samples fill a T4's 14.4 GiB, whatever its context takes. Batches that nothing but a range
    of many samples would need are not evaluated."""
    evaluated: list[int] = []
    at = Intervals.at

    def counted(self: Intervals, batch: int, limit: Limit | None = None) -> Figures:
        evaluated.append(batch)
        return at(self, batch, limit)

    monkeypatch.setattr(Intervals, "at", counted)

    def gigabytes(batch: int) -> tuple[Any, Any]:
        return (torch.empty(batch, 256 * MIB, device="meta"),), ()

    found = fit(Add(), gigabytes, device="t4")
    assert found.batch == 4 and any(
        note.startswith("the largest batch is 4 in either case") for note in found.notes
    )
    assert max(evaluated) == 16  # a search begins there


class Choosy(nn.Module):
    """Takes neither 8 nor 16 samples, from which a search would see how memory grows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] in (8, 16):
            raise ValueError("no such batch")
        return torch.relu(self.layer(x))


def test_a_program_may_refuse_the_batches_a_search_begins_with() -> None:
    def made(batch: int) -> tuple[Any, Any]:
        return (torch.empty(batch, 4096, 256, device="meta"),), ()

    refusing = fit(Choosy(), made, mode="infer", device="1GiB")
    assert (
        refusing.batch
        == fit(nn.Sequential(nn.Linear(256, 256), nn.ReLU()), made, mode="infer", device="1GiB").batch
        > 16
    )


def test_the_smallest_gpu_that_runs_a_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By memory, whatever the order of the names; as its analysis at that batch says."""
    target = str(MODELS / "cnn.py")
    most = fit(target, device="2GiB").batch
    devices = ["--device", "4GiB,1GiB,2GiB", "-q"]
    assert main(["fit", target, "--batch", str(most), *devices]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"smallest of these GPUs that surely runs batch {most:,}: 2GiB\n\n2GiB: fits: ")
    assert "\n1GiB: does not fit: " in out and "4GiB" not in out.replace(" GiB", "")
    assert main(["fit", target, "--batch", str(100 * most), *devices]) == 1
    assert capsys.readouterr().out.startswith(f"none of these GPUs surely runs batch {100 * most:,}\n\n")
    plain = tmp_path / "plain.py"
    plain.write_text("import torch\ndef make_model():\n    return torch.nn.Linear(256, 250)\n")
    described = ["--input", "input=256", "--batch", "8"]  # of one sample, as for any search
    assert main(["fit", str(plain), *described, *devices]) == 0
    out = capsys.readouterr().out
    assert out.startswith("smallest of these GPUs that surely runs batch 8: 1GiB\n\n")
    assert out.endswith(f"analyze fit {plain} --device 1GiB --input input=256\n")  # with its options
    assert main(["fit", target, "--batch", "8", "--device", "2GiB"]) == 2
    assert "--all-devices for the smallest GPU" in capsys.readouterr().err
    assert main([target, "--all-devices"]) == 2
    assert "analyze fit has it" in capsys.readouterr().err


def test_a_table_of_many_devices_has_no_sections_and_whole_names() -> None:
    """Behind 51 devices' table were 1,100 lines of notes; a long name was cut at its beginning."""
    from dataclasses import replace

    from analyzer.devices import by_memory, load
    from analyzer.report.formats import View, render

    sizes = [load(name).usable_bytes for name in by_memory()]
    assert sizes == sorted(sizes)
    answer = fit(MODELS / "linear.py", device="2GiB")
    assert answer.brief is not None
    many = [replace(answer, brief=replace(answer.brief, device=f"rtx-of-a-long-name-{n}")) for n in range(9)]
    shown = str(render("fits", "text", many))
    assert "rtx-of-a-long-name-8 " in shown and len(shown.splitlines()) == 12 and "--verbose" in shown
    assert len(str(render("fits", "text", many, View(verbose=True))).splitlines()) > 40
    assert "largest batch" in str(render("fits", "text", many[:8]))


def test_of_a_session_the_answer_lies_below_a_batch_in_doubt() -> None:
    """68 samples may find no room in some order of initializers, where 85 run: the arena makes do with less there."""
    found = fit(MODELS / "cnn.onnx", device="1GiB")
    assert (found.batch, found.perhaps) == (64, 85)
    assert found.at is not None and found.at.verdict() == "fits"
    notes = " ".join(found.notes)
    assert "batch 65 may not fit: " in notes and "batch 85 surely runs" in notes
