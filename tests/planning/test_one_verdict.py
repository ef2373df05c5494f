"""One verdict: what `fit` calls the largest batch fits by the default command, and the next one does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import analyzer
from analyzer.cli import main
from analyzer.planning.curve import sweep
from analyzer.planning.fit import fit
from analyzer.planning.grid import load, run
from analyzer.planning.search import MOST
from tests.paths import MODELS

GIB = 2**30
DEVICES = ("2GiB", "t4", "rtx4090")
# Quick to analyse; the others are the campaign's.
QUICK = ("cnn.onnx", "cnn.py", "linear_mnist.py")
EXAMPLES = sorted(
    path.name for path in MODELS.iterdir() if path.suffix in (".py", ".onnx") and path.stem != "export_onnx"
)


def verdict(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """The exit code of the default command, and its first lines."""
    code = main([*arguments, "--top", "0"])
    return code, capsys.readouterr().out.splitlines()[:3]


@pytest.mark.parametrize(("device", "largest", "perhaps"), [("2GiB", 246, 246), ("24GiB", 4664, 4854)])
@pytest.mark.parametrize("option", ["--device", "--budget"])
def test_what_fit_says_the_default_command_says(
    capsys: pytest.CaptureFixture[str], device: str, largest: int, perhaps: int, option: str
) -> None:
    """Up to the recorded batches cuDNN takes nothing for a first layer; far beyond them nobody knows, and what it may
    take would leave less."""
    target = [str(MODELS / "cnn.py"), "--mode", "train"]
    assert main(["fit", *target, option, device]) == 0
    assert capsys.readouterr().out.startswith(f"largest batch {largest:,} on ")
    code, lines = verdict(capsys, *target, "--batch", str(largest), option, device)
    assert code == 0 and lines[0].startswith(("fits: ", "within budget: "))
    assert largest < perhaps or lines[1].startswith("with room it would take ")
    if largest < perhaps:
        code, lines = verdict(capsys, *target, "--batch", str(largest + 1), option, device)
        assert code == 1 and lines[0].startswith(("may not fit: ", "may be over budget: "))
    code, lines = verdict(capsys, *target, "--batch", str(perhaps + 1), option, device)
    assert code == 1 and lines[0].startswith(("does not fit: needs ", "over budget: needs "))
    assert lines[1].startswith("first failed allocation: ")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.campaign) for name in EXAMPLES]
)
@pytest.mark.sampled(3)
def test_every_example_has_one_verdict(capsys: pytest.CaptureFixture[str], name: str, device: str) -> None:
    target = [str(MODELS / name), *(["--mode", "train"] if name.endswith(".py") else [])]
    found = fit(target[0], device=device, **({"mode": "train"} if len(target) > 1 else {}))
    if found.batch:
        assert verdict(capsys, *target, "--batch", str(found.batch), "--device", device)[0] == 0
    if found.batch < MOST and not found.refused:
        assert verdict(capsys, *target, "--batch", str(found.batch + 1), "--device", device)[0] == 1


def test_figures_are_the_devices_and_those_with_room_are_kept() -> None:
    """On 2 GiB 246 samples run in less than they take with room; of a device with room nothing is said."""
    tight = analyzer.analyze(MODELS / "cnn.py", mode="train", batch=246, device="2GiB")
    free = analyzer.analyze(MODELS / "cnn.py", mode="train", batch=246, device="h200")
    assert free.with_room is None and free.needed == tight.needed
    assert tight.with_room is not None and tight.with_room.device_used == free.device_used > 2 * GIB
    assert tight.fits() and tight.device_used <= 2 * GIB and tight.fits("2GiB") and tight.fits("rtx4090")
    assert free.fits() and not free.fits("2GiB")  # the same job, analysed for another device
    over = analyzer.analyze(MODELS / "cnn.py", mode="train", batch=247, device="2GiB")
    room = analyzer.analyze(MODELS / "cnn.py", mode="train", batch=247, device="h200")
    assert not over.fits() and over.out_of_memory is not None and over.out_of_memory.operator
    assert (over.peak_allocated, over.peak_reserved) == (room.peak_allocated, room.peak_reserved)
    assert over.fits("h200") and not over.stopped


def test_a_saved_estimate_keeps_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "tight.json")
    asked = [str(MODELS / "cnn.py"), "--mode", "train", "--batch", "246", "--device", "2GiB"]
    assert main([*asked, "--format", "json", "-o", saved]) == 0
    assert json.loads(Path(saved).read_text())["fits"] is True
    assert main(["report", saved, "--budget", "2GiB", "--top", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fits: ") and "within budget: " in out and "with room it would take" in out
    assert "on a larger GPU" not in out  # the budget is the whole device
    assert main([*asked[:-1], "h200", "--budget", "2GiB", "--top", "0"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "on a larger GPU torch.cuda.set_per_process_memory_fraction (" in out


def test_without_a_device_there_is_no_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.devices.nvml.name", lambda: None)
    code, lines = verdict(capsys, str(MODELS / "cnn.py"), "--mode", "train", "--batch", "200000")
    assert code == 0 and lines[0].startswith("on h200 it would take ")
    assert "--device NAME or SIZE says whether it fits" in lines[0]
    estimate = analyzer.analyze(MODELS / "cnn.py", mode="train", batch=200000)
    assert estimate.device_assumed and estimate.with_room is None and not estimate.fits()


def test_the_gpu_of_this_machine_gives_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.devices.nvml.name", lambda: "Tesla T4")
    code, lines = verdict(capsys, str(MODELS / "cnn.py"), "--batch", "4")
    assert code == 0 and lines[0].startswith("fits: ") and "t4, this machine's GPU" in lines[1]


def test_a_curve_says_which_batches_run() -> None:
    """Rows are with room; whether they run on the device is what the default command says of each."""
    wanted = [1, 100, 240, 246, 247, 248, 256, 512]
    rows = sweep(MODELS / "cnn.py", wanted, mode="train", device="2GiB").rows
    assert {row.batch: row.fits for row in rows} == {batch: batch <= 246 for batch in wanted}
    assert rows == sweep(MODELS / "cnn.py", wanted, mode="train", device="24GiB").rows


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.sampled(1)
def test_what_if_and_grid_judge_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str) -> None:
    """The base of `what-if` is what the default command says; a row of a grid too."""
    batch = fit(MODELS / "cnn.py", mode=mode, device="2GiB").batch
    for size, fits in ((batch, "yes"), (batch + 1, "no")):
        main(
            [
                "what-if",
                str(MODELS / "cnn.py"),
                "--mode",
                mode,
                "-b",
                str(size),
                "--device",
                "2GiB",
                "--format",
                "json",
            ]
        )
        base = json.loads(capsys.readouterr().out)["strategies"][0]
        assert base["fits"] is (fits == "yes")
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        f"targets: [{MODELS / 'cnn.py'}]\nbatches: [{batch}, {batch + 1}]\ndevices: [2GiB]\noptions: {{mode: {mode}}}\n"
    )
    assert [row["fits"] for row in run(load(grid))] == [True, False]
