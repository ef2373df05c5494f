"""The command line on ONNX files: what must hold whatever the figures are, no torch, and each kind of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.cli import main
from analyzer.report import json as json_report
from tests.paths import ROOT

RESNET = ROOT / "models/resnet50.onnx"


def linear(
    batch: Any = "batch", features: Any = 8, opset: int = 17, location: str = "", name: str = "linear"
) -> onnx.ModelProto:
    """y = x @ w with w of 8x4, its data external at `location` if given."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 4], [0.0] * 32)
    if location:
        weight.ClearField("float_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name=name)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def test_what_an_estimate_must_hold(run: Any, tmp_path: Path) -> None:
    graph = tmp_path / "graph.txt"
    code, out, _ = run(RESNET, "--batch", 64, "--format", "json", "--dump-graph", graph, "--device", "h200")
    estimate = json_report.loads(out)
    assert code == 0 and (estimate.batch, estimate.runtime, estimate.framework) == (64, "onnxruntime", "onnx")
    assert (
        sum(estimate.breakdown.values())
        == estimate.peak_allocated
        <= estimate.peak_reserved
        <= estimate.device_used
    )
    assert estimate.graph_peak <= estimate.peak_allocated
    # ResNet-50 has 25,557,032 float32 parameters; exporters fold batch norms' into the convolutions' or keep all.
    assert 25.4e6 * 4 < estimate.naive.weights < 25.7e6 * 4
    assert "Conv(" in graph.read_text()


def test_text(run: Any) -> None:
    code, out, _ = run(RESNET, "--batch", 64, "--device", "24GiB")
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("fits: ") and max(map(len, lines)) <= 80
    assert "onnxruntime · inference · batch 64" in out


def test_no_torch_is_imported() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "analyzer.cli", str(RESNET), "--batch", "64", "-q"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert "onnx" in modules and not modules & {"torch", "transformers", "torchvision"}


def test_the_batch_has_many_spellings(run: Any, tmp_path: Path) -> None:
    peaks = []
    for number, batch in enumerate(("batch", "N", -1, 1)):
        path = save(linear(batch), tmp_path / f"{number}.onnx")
        code, out, _ = run(path, "--batch", 2**20, "--format", "json")
        assert code == (2 if batch == 1 else 0)  # ONNX Runtime refuses any batch but a fixed one
        peaks.append(json.loads(out)["peak_allocated"])
    assert len(set(peaks)) == 1 and peaks[0] >= 2**20 * 12 * 4


def test_absent_external_data_is_fine(run: Any, tmp_path: Path) -> None:
    path = save(linear(location="weights.bin"), tmp_path / "m.onnx")
    code, out, _ = run(path, "--batch", 4, "--format", "json")
    found = json.loads(out)
    assert code == 0 and found["naive"]["weights"] == 8 * 4 * 4
    note = (
        "the file of weights 'weights.bin' is not beside the model: sizes come from the model's file, 0.0 MiB"
    )
    assert any(line.startswith(note) for line in found["notes"])
    (tmp_path / "weights.bin").write_bytes(bytes(128))
    assert "beside the model" not in run(path, "--batch", 4, "--format", "json")[1]


def test_an_input_is_titled_as_it_is_typed(run: Any, tmp_path: Path) -> None:
    path = save(linear(features="width"), tmp_path / "m.onnx")
    assert "--input width=8 " in run(path, "--batch", 4, "--input", "width=8")[1].replace("\n", " ")
    assert "--input x=8:float32" in run(path, "--batch", 4, "--input", "x=8:float32")[1]


def test_a_named_dimension_and_a_whole_input_say_the_same(run: Any, tmp_path: Path) -> None:
    path = save(linear(features="width"), tmp_path / "m.onnx")
    ways = (
        ["--batch", 4096, "--input", "width=8"],
        ["--batch", 4096, "--input", "x=8"],
        ["--input", "x=4096x8:float32"],
    )
    peaks = [json.loads(run(path, *way, "--format", "json")[1])["peak_allocated"] for way in ways]
    assert len(set(peaks)) == 1


def test_an_absurd_batch_still_has_an_answer(run: Any, tmp_path: Path) -> None:
    code, out, _ = run(save(linear(), tmp_path / "m.onnx"), "-b", 10**12, "--format", "json")
    assert code == 0 and json.loads(out)["peak_allocated"] >= 10**12 * 12 * 4
    assert run(RESNET, "-b", 10**12)[0] == 0


def test_an_operator_onnx_does_not_know(run: Any, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["":18]> g (float[N,4] x) => (float[N,4] y) { y = Foo(x) }'
    )
    path = save(model, tmp_path / "foo.onnx")
    code, _, err = run(path, "-b", "4", "--strict")
    assert code == 2 and "Foo" in err
    assert json.loads(run(path, "-b", "4", "--format", "json")[1])["certainty"]["unknown_operators"]


def test_hostile_names_do_not_reach_the_terminal(run: Any, tmp_path: Path) -> None:
    path = save(linear(name="\x1b[31mevil\u202e[bold]"), tmp_path / "m.onnx")
    graph = tmp_path / "graph.txt"
    code, out, err = run(path, "--batch", 2**20, "--dump-graph", graph)
    assert code == 0 and "evil" in graph.read_text()
    for text in (out, err, graph.read_text()):
        assert "\x1b" not in text and "\u202e" not in text


def _bad_files(folder: Path) -> None:
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "text.onnx").write_text("this is no model\n" * 40)
    data = RESNET.read_bytes()
    (folder / "truncated.onnx").write_bytes(data[: len(data) // 2])
    save(linear(opset=9999), folder / "opset.onnx")
    save(linear(location="../../../../etc/passwd"), folder / "outside.onnx")
    save(linear(location="/etc/passwd"), folder / "absolute.onnx")
    save(linear(), folder / "dynamic.onnx")
    save(linear(features="width"), folder / "width.onnx")
    save(linear(features=9), folder / "mismatch.onnx")
    save(linear(), folder / "fine.onnx")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("missing", [], ["missing.onnx"]),
        ("empty", [], ["empty"]),
        ("text", [], ["ONNX"]),
        ("truncated", [], ["truncated.onnx"]),
        ("opset", ["-b", "1"], ["9999"]),
        ("outside", ["-b", "1"], ["outside"]),
        ("absolute", ["-b", "1"], ["/etc/passwd"]),
        ("dynamic", [], ["x axis 0", "batch", "--batch"]),
        ("width", ["-b", "4"], ["x axis 1", "--input width="]),
        ("mismatch", ["-b", "4"], ["linear"]),
        ("fine", ["-b", "0"], ["batch"]),
        ("fine", ["-b", "-2"], ["batch"]),
        ("fine", ["-b", "4", "--input", "z=8"], ["'z'", "x"]),
        ("fine", ["-b", "4", "--input", "x=8:int64"], ["int64"]),
        ("fine", ["-b", "4", "--input", "x=2x3x8"], ["x"]),
        ("fine", ["-b", "4", "--device", "abacus"], ["unknown device 'abacus'"]),
        ("fine", ["-b", "4", "--runtime", "pytorch"], ["ONNX"]),
        ("fine", ["-b", "4", "--runtime-option", "speed=11"], ["speed"]),
        ("fine", ["-b", "4", "--dtype", "fp16"], ["ONNX"]),
        ("fine", ["-b", "4", "--channels-last"], ["ONNX"]),
        ("fine", ["-b", "4", "--amp", "bf16"], ["ONNX"]),
    ],
)
def test_bad_input(run: Any, tmp_path: Path, name: str, options: list[str], words: list[str]) -> None:
    _bad_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(
        tmp_path / f"{name}.onnx",
        *options,
        "-o",
        tmp_path / "e.json",
        "--dump-graph",
        tmp_path / "g.txt",
    )
    lines = err.splitlines()
    assert code == 2 and out == ""
    assert len(lines) == 2 and lines[0].startswith("analyze: error: ") and lines[1].startswith("  hint: ")
    for word in words:
        assert word in err
    assert sorted(tmp_path.rglob("*")) == before


def test_settings_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dictionary of providers, or of one's options; anything else is an error in one line."""
    path = tmp_path / "options.json"
    path.write_text(
        '{"CUDAExecutionProvider": {"gpu_mem_limit": 1000000, "prefer_nhwc": true, "use_tf32": 0}}'
    )
    asked = [
        str(ROOT / "models/cnn.onnx"),
        "--batch",
        "4",
        "--device",
        "h200",
        "-q",
        "--runtime-options",
        str(path),
    ]
    assert main(asked) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "use_tf32=0 is not simulated: memory may be more, or less" in out and "gpu_mem_limit caps" in out
    path.write_text('[["CUDAExecutionProvider", {"gpu_mem_limit": 1000000}], "CPUExecutionProvider"]')
    assert main(asked) == 1
    assert "gpu_mem_limit caps" in " ".join(capsys.readouterr().out.split())
    path.write_text('["gpu_mem_limit"]')
    assert main(asked) == 2
    assert "is no object of names and values" in capsys.readouterr().err
    path.write_text("{")
    assert main(asked) == 2
    assert "Traceback" not in capsys.readouterr().err
