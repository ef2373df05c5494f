"""The largest value of a script's own option: `run` says that it fits, and that the next one does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import analyzer
from analyzer.cli import main
from analyzer.planning.vary import without

SCRIPT = """
import argparse
import torch, torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--samples", type=int, default=1 << 30)
parser.add_argument("--least", type=int, default=1)
args = parser.parse_args()
assert args.batch_size >= args.least, "too few"
batch = min(args.batch_size, args.samples)
net = nn.Sequential(nn.Linear(args.width, 1024), nn.GELU(), nn.Linear(1024, args.width)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(args.samples // args.batch_size if args.samples < 1 << 30 else 3):
    loss = net(torch.randn(batch << 10, args.width, device="cuda")).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def test_the_largest_value_fits_and_the_next_does_not(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", script, "--vary=--batch-size", "--device", "2GiB,1GiB", "--format", "json"]
    assert main([*arguments, "--", "--width", "128", "--batch-size", "3"]) == 0
    out, err = capsys.readouterr()
    larger, smaller = json.loads(out)["fits"]
    assert (larger["option"], larger["device"]) == ("--batch-size", "2GiB") and larger["batch"] > 64
    assert 8 < smaller["batch"] < larger["batch"]
    for found in (larger, smaller):
        at, beyond = (
            analyzer.run(
                script, ("--width", "128", "--batch-size", str(found["batch"] + more)), device=found["device"]
            )
            for more in (0, 1)
        )
        assert at.within(at.usable_bytes) and not beyond.within(beyond.usable_bytes)
        assert at.verdict() == found["verdict"] and at.peak_reserved == found["peak_reserved"]
        assert at.out_of_memory is None and found["beyond"] is not None
    assert "analyze: tried: --batch-size 1: fits: " in err and err.count("tried: ") < 24
    # The second search begins where growth on the first one's device puts it.
    assert err.count("tried: --batch-size 1: ") == 1


def test_it_is_said_in_words(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", script, "-q", "--vary", "--batch-size", "--device", "1GiB"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("largest --batch-size ") and "does not fit: no memory for " in out
    assert f"analyze run --device 1GiB {script} --batch-size " in " ".join(out.split())
    assert "tried" not in err


def test_where_the_data_end_a_larger_batch_takes_no_more(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch above the samples there are makes no step: no answer, although it takes little."""
    assert main(["fit", script, "--vary=--batch-size", "--device", "8GiB", "--", "--samples", "24"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("largest --batch-size 24 on 8GiB")
    assert "at --batch-size 25 the program itself fails: " in out


def test_a_script_that_fails_with_one_begins_with_two(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", script, "--vary=--batch-size", "--device", "1GiB", "--", "--least", "2"]) == 0
    assert capsys.readouterr().out.startswith("largest --batch-size ")
    assert main(["fit", script, "--vary=--batch-size", "--device", "1GiB", "--", "--least", "3"]) == 2
    err = capsys.readouterr().err
    assert "too few" in err and "--batch-size 2" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--vary=batch"], "--vary batch is no option"),
        (["--vary=--batch-size", "--mode", "train"], "--mode is not for --vary"),
        (["--", "--width", "8"], "a script's arguments are for --vary"),
    ],
)
def test_what_cannot_be_varied_is_said(
    script: str, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(["fit", script, "--device", "1GiB", *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "advise"])
def test_a_script_without_make_model_is_told_what_to_type(
    script: str, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = Path(script)
    path.write_text(SCRIPT.split("args = ", maxsplit=1)[0].replace("--batch-size", "--train-batch"))
    assert main([command, script, "--device", "1GiB"]) == 2
    err = capsys.readouterr().err
    assert f"analyze run --device NAME {script}" in err
    assert f"analyze fit --vary=--train-batch --device NAME {script}" in err


def test_an_option_and_its_value_are_taken_out() -> None:
    given = ("--a", "1", "--batch-size", "8", "--batch-size=9", "--batch", "7")
    assert without(given, "--batch-size") == ("--a", "1", "--batch", "7")


def test_needs_that_grow_evenly_take_few_tries(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From far above the limit the next value is where the line through both needs is full: no walk down in steps."""
    assert main(["fit", script, "--vary=--batch-size", "--device", "4GiB"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("largest --batch-size ") and err.count("analyze: tried: ") <= 7


def test_the_answer_surely_fits_and_the_largest_that_may_is_beside_it(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody measured an RTX 3060's context: one more may fit, and the line says so; each is what `run` says of it."""
    assert (
        main(
            [
                "fit",
                script,
                "-q",
                "--vary=--batch-size",
                "--device",
                "rtx3060",
                "--format",
                "json",
                "--",
                "--width",
                "96",
            ]
        )
        == 0
    )
    (found,) = json.loads(capsys.readouterr().out)["fits"]
    verdicts = [
        analyzer.run(script, ("--width", "96", "--batch-size", str(value)), device="rtx3060").verdict()
        for value in (found["batch"], found["batch"] + 1, found["perhaps"], found["perhaps"] + 1)
    ]
    assert verdicts == ["fits", "may not fit", "may not fit", "does not fit"]
    assert (
        main(["fit", script, "-q", "--vary=--batch-size", "--device", "rtx3060", "--", "--width", "96"]) == 0
    )
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(
        f"largest --batch-size {found['batch']:,} on rtx3060 surely, {found['perhaps']:,} at best: "
    )


def test_the_smallest_gpu_of_a_script(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At its own batch, unchanged: followed on few GPUs, and each verdict is that of `run`."""
    words = ["fit", script, "-q", "--vary=--batch-size", "--device", "h100,2GiB,rtx3060,b300"]
    assert main([*words, "--batch", "900"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"smallest of these GPUs that surely runs {script} --batch-size 900: h100\n")
    verdicts = dict(
        line.split(": ", 2)[:2] for line in out.splitlines()[2:] if "GiB: " in line or "GiB of" in line
    )
    assert verdicts == {"h100": "fits", "rtx3060": "does not fit", "2GiB": "does not fit"}
    estimate = analyzer.run(script, ("--batch-size", "900"), device="rtx3060")
    assert estimate.verdict() == "does not fit"
    assert main([*words[:-1], "2GiB,1GiB", "--batch", "900"]) == 1
    assert capsys.readouterr().out.startswith("none of these GPUs surely runs ")


def test_a_script_that_ignores_the_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fixed.py"
    path.write_text("import torch\ntorch.ones(1 << 20, device='cuda')\n")
    assert main(["fit", str(path), "--vary=--batch-size", "--device", "2GiB"]) == 2
    err = capsys.readouterr().err
    assert "takes as much with --batch-size 1 as with 16" in err and "it does not use --batch-size" in err
