"""The command line on real PyTorch targets: what must hold whatever the figures are, and each kind of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.report import json as json_report
from tests.paths import MODELS

MIB = 2**20
CNN = MODELS / "cnn.py"
NET = """
import torch
from torch import nn

print("loading")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x)

make_model = Net
crash = lambda: Net().missing
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def test_the_published_sum_of_document_000(run: Any) -> None:
    code, out, _ = run(
        CNN,
        "--batch",
        128,
        "--mode",
        "train",
        "--optimizer",
        "sgd",
        "--format",
        "json",
        "--device",
        "h200",
    )
    document = json.loads(out)
    naive = {name: value / MIB for name, value in document["naive"].items() if isinstance(value, int)}
    published = {
        "data": 73.5, "weights": 3.8, "forward_output": 240.6, "weight_gradient": 3.8, "output_gradient": 314.1,
        "training": 635.8, "inference": 317.9,
    }  # fmt: skip
    assert code == 0 and {name: round(naive[name], 1) for name in published} == published


def test_what_an_estimate_must_hold(run: Any, tmp_path: Path) -> None:
    graph = tmp_path / "graph.txt"
    code, out, _ = run(CNN, "-b", 4, "--mode", "train", "--format", "json", "--dump-graph", graph)
    estimate = json_report.loads(out)
    assert code == 0 and estimate.batch == 4 and estimate.mode == "train"
    assert sum(estimate.breakdown.values()) == estimate.peak_allocated
    assert estimate.graph_peak <= estimate.peak_allocated <= estimate.peak_reserved <= estimate.device_used
    assert max(estimate.timeline.allocated) >= estimate.peak_allocated
    certain = estimate.certainty
    assert certain.exact + certain.measured + certain.bounded == estimate.peak_allocated
    assert [row.nbytes for row in estimate.tensors] == sorted(
        (row.nbytes for row in estimate.tensors), reverse=True
    )
    dumped = graph.read_text()
    assert (
        "aten.convolution.default" in dumped
        and "aten.convolution_backward.default" in dumped
        and "cnn.py:" in dumped
    )


def test_text_names_modules_and_lines(run: Any) -> None:
    code, out, _ = run(CNN, "-b", 4, "--mode", "train", "--device", "24GiB", "--top", 3)
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("fits: ") and "of 24.0 GiB" in lines[0]
    assert max(map(len, lines)) <= 80 and "convolution cnn.py:" in out
    assert [line.split()[0] for line in lines if line.startswith(("naive sum", "graph live", "pytorch:"))] == [
        "naive", "graph", "pytorch:", "pytorch:", "pytorch:",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "code"), [(["--device", "1MiB"], 1), (["--budget", "1MiB"], 1), (["--budget", "1TiB"], 0)]
)
def test_limits(run: Any, limit: list[str], code: int) -> None:
    ran = run(CNN, "-b", 4, *limit)
    assert ran.code == code, ran.err


def test_described_inputs_and_a_module_that_prints(net: Path, run: Any) -> None:
    code, out, err = run(
        net, "--input", "x=8", "-b", 16, "--mode", "train", "--loss", "sum", "--format", "json"
    )
    estimate = json_report.loads(out)
    assert code == 0 and estimate.batch == 16 and "loading" in err
    assert estimate.naive.data == (16 * 8 + 16 * 4) * 4


def test_an_absurd_batch_still_has_an_answer(run: Any) -> None:
    code, out, _ = run(CNN, "-b", 10**12, "--format", "json")
    assert code == 0 and json.loads(out)["peak_allocated"] > 10**12 * 3 * 224 * 224 * 4


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("{cnn}", ["--batch", "0"], "batch is 0"),
        ("{cnn}", ["--batch", "-3"], "batch is -3"),
        ("{cnn}", ["--device", "h300"], "unknown device 'h300'"),
        ("{cnn}", ["--device", "12parsecs"], "12parsecs"),
        ("{cnn}", ["--mode", "train", "--optimizer", "adamm"], "unknown optimizer 'adamm'"),
        ("{cnn}", ["--dtype", "float33"], "float33"),
        ("{cnn}", ["--mode", "train", "--loss", "hinge"], "unknown loss 'hinge'"),
        ("{cnn}", ["--runtime", "tensorrt"], "unknown runtime 'tensorrt'"),
        ("{cnn}", ["--runtime-option", "speed=11"], "unknown runtime option 'speed'"),
        ("{cnn}", ["--mode", "train", "--checkpoint", "zzz"], "zzz"),
        ("{cnn}", ["--grad-accumulation", "0"], "grad_accumulation"),
        ("{net}", [], "does not say what its inputs are"),
        ("{net}", ["--input", "x=9", "-b", "2"], "net.py:13"),
        ("{net}:crash", [], "net.py:16: AttributeError"),
        ("{net}:nothing", [], "has no attribute 'nothing'"),
        ("{net}:torch", [], "which is no model"),
        ("{net}.txt", [], "no such file"),
        ("no_such_package:Net", [], "no module named no_such_package"),
    ],
)
def test_bad_input(
    net: Path,
    run: Any,
    tmp_path: Path,
    target: str,
    options: list[str],
    message: str,
) -> None:
    before = sorted(tmp_path.rglob("*"))
    output = tmp_path / "estimate.json"
    code, out, err = run(
        target.format(cnn=CNN, net=net),
        *options,
        "-o",
        output,
        "--dump-graph",
        tmp_path / "graph.txt",
    )
    lines = [line for line in err.splitlines() if line != "loading"]
    assert code == 2 and out == ""
    assert len(lines) == 2 and lines[0].startswith("analyze: error: ") and lines[1].startswith("  hint: ")
    assert message in lines[0]
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before


def test_the_command_itself(net: Path) -> None:
    """Installed entry point, own process: the working directory's modules are importable, streams are apart."""
    ran = subprocess.run(
        [sys.executable, "-m", "analyzer.cli", "net:Net", "--unprotected", "--input", "x=8", "--format", "json"],
        cwd=net.parent, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and json.loads(ran.stdout)["target"] == "net:Net" and "loading" in ran.stderr
