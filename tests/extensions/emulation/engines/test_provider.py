"""`analyze FILE.onnx --engine emulate`: ONNX Runtime's own requests, from a stand-in for onnxruntime-gpu whose requests are
known, on the emulated runtime of this package."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import analyzer
from analyzer.cli import main
from analyzer.errors import MissingDependencyError, OptionError, RunError
from analyzer.results.estimate import Estimate
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.provided import Kernel, Provided, Request, SessionRecord
from analyzer_emulation import library
from analyzer_emulation.inference import find_provider
from analyzer_emulation.provider import without_weights
from analyzer_emulation.reach import provider_within_reach

HERE = Path(__file__).parent / "onnxruntime_stand_in"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with the stand-in: this one, with a folder of its own before all others."""
    try:
        library.path()
    except MissingDependencyError as error:
        pytest.skip(error.message)
    site = tmp_path / "site"
    shutil.copytree(HERE, site)
    (site / PROVIDER).parent.mkdir(exist_ok=True)
    (site / PROVIDER).write_bytes(b"\0libcudart.so.13\0libcublas.so.13\0libc.so.6\0libcudart.so.13.local\0")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def model(folder: Path, how: str = "") -> Path:
    """A weight of 1,000 numbers and a Relu; `how` is in the file for the stand-in to read."""
    weight = helper.make_tensor(
        "w", TensorProto.FLOAT, [1000], np.zeros(1000, np.float32).tobytes(), raw=True
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1000])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1000])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "w"], ["y"], name="add"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [weight], doc_string=how)
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    )
    return path


def emulated(path: Path, python: Path, **options: Any) -> Estimate:
    return analyzer.analyze(path, batch=8, device="h200", engine="emulate", python=python, **options)


def test_requests_are_the_provider_s(tmp_path: Path, python: Path) -> None:
    """Run 2: the weight, the weights laid out anew, the input's copy, the pattern's block, a result and scratch, each in chunks
    of 256 B: 4,096 + 8,192 + 32,000 + 12,288 + 32,000 + 512."""
    estimate = emulated(model(tmp_path), python)
    assert estimate.engine == "emulate"
    assert estimate.peak_allocated == 4096 + 8192 + 32000 + 12288 + 32000 + 512
    rows = {row.name: (row.nbytes, row.category, row.rule) for row in estimate.top(10)}
    assert rows["w"] == (4096, "parameters", "ort-initializer")
    assert rows["weights laid out anew"] == (8192, "workspace", "ort-packed-weights")
    assert rows["x"] == (32000, "inputs", "ort-input")
    assert rows["relu scratch"] == (512, "scratch", "ort-emulated-kernel")
    assert rows["r"] == (32000, "activations", "ort-kernel-output")
    assert estimate.modelled["onnxruntime"] == "1.30"


def test_the_block_holds_what_the_first_run_took_by_itself(tmp_path: Path, python: Path) -> None:
    """The pattern's block of 12,288 B: a result of 12,000 B, the rest of it unused."""
    estimate = emulated(model(tmp_path), python)
    rows = {row.name: row.nbytes for row in estimate.top(10) if row.rule == "ort-memory-pattern"}
    assert rows == {"relu: result 1": 12000, "rest of the memory pattern": 288}


def test_runs_of_several_batches(tmp_path: Path, python: Path) -> None:
    """The copies of both runs' inputs are known as such: of 2 x 1,000 and of 8 x 1,000 numbers."""
    path = model(tmp_path)
    estimate = analyzer.analyze(path, batches=(2, 8), device="h200", engine="emulate", python=python)
    assert estimate.peak_allocated == 4096 + 8192 + 32000 + 12288 + 32000 + 512
    assert {row.name: row.nbytes for row in estimate.top(10)}["x"] == 32000
    assert [run.batch for run in estimate.after_runs] == [2, 8]


def test_initializers_are_in_the_files_order() -> None:
    """A process has an order of its own; the same requests in another order are the same answer."""
    weights = {"a": 1000, "b": 2000, "c": 3000}
    values = {name: Value(name, "float32", (count,), None) for name, count in weights.items()}
    graph = RuntimeGraph({}, values, [], [], dict.fromkeys(weights), 18, 0)

    def events(order: str) -> list[tuple[str, int]]:
        requests = [
            Request(place + 1, 4096 * (place + 1), 4 * weights[name]) for place, name in enumerate(order)
        ]
        record = SessionRecord([*requests, Request(8, 4096 * 9, 64)], [9], 5, [])
        taken_first = Provided(record, graph, [], False).events()
        return [(event.label, event.nbytes) for event in taken_first if isinstance(event, Malloc)]

    assert events("cab") == events("abc")
    assert events("bca") == [("a", 4000), ("b", 8000), ("c", 12000), ("weights laid out anew", 64)]


def test_values_that_the_host_reads_are_told(tmp_path: Path, python: Path) -> None:
    assert emulated(model(tmp_path), python).caveats == ()
    (caveat,) = emulated(model(tmp_path, "reads"), python).caveats
    assert "Relu relu" in caveat
    assert "memory may be more" in caveat


def test_ranges_go_to_what_other_values_allow(tmp_path: Path, python: Path) -> None:
    """The simulation has results as large as values can make them: here more than the stand-in asks for."""
    other, plain = (emulated(model(tmp_path, how), python) for how in ("reads", ""))
    simulated = analyzer.analyze(model(tmp_path), batch=8, device="h200", engine="simulate")
    assert other.peak_allocated == plain.peak_allocated < simulated.peak_allocated
    assert plain.allocated_range[1] < simulated.peak_allocated <= other.allocated_range[1]


def test_bodies_that_run_kernels_are_counted_by_the_nodes_around_them() -> None:
    """A Loop whose body runs an If with a kernel, and a kernel; a Scan whose body runs on the host; the same in run 2."""

    def kernel(begin: int, end: int, op: str, provider: str = "cuda") -> Kernel:
        return Kernel(begin, end, op.lower(), op, provider, ())

    run = [
        (0, 1, "Relu"),
        (2, 9, "Loop"),
        (3, 6, "If"),
        (4, 5, "Exp"),
        (7, 8, "Neg"),
        (10, 13, "Scan"),
        (11, 12, "Abs", "cpu"),
    ]
    kernels = [kernel(begin + start, end + start, *what) for start in (0, 20) for begin, end, *what in run]
    kernels.sort(key=lambda one: one.end)
    assert SessionRecord([], [], 0, kernels).bodies() == 2


def test_what_it_refuses_is_said_in_its_words(tmp_path: Path, python: Path) -> None:
    with pytest.raises(
        RunError, match=r"ONNX Runtime 1\.30\.0 refuses it: .*Load model failed: this one"
    ) as error:
        emulated(model(tmp_path, "refused"), python)
    assert "\x1b" not in error.value.message
    with pytest.raises(RunError, match=r"libnew\.so\.1: no such file"):
        emulated(model(tmp_path, "without_provider"), python)
    with pytest.raises(RunError, match=r"prefer_nhwc == 0 was false\. No NHWC layout"):
        emulated(model(tmp_path, "falls_back"), python)


def test_sessions_that_are_not_emulated(tmp_path: Path, python: Path) -> None:
    for options in ({"provider": "cpu"}, {"shared_with": str(model(tmp_path))}):
        with pytest.raises(OptionError, match="are not emulated"):
            emulated(model(tmp_path), python, runtime_options=options)
    with pytest.raises(OptionError, match="are not emulated"):
        emulated(model(tmp_path), python, mode="train")


@pytest.mark.parametrize("binding", ["caller", "device"])
def test_bound_tensors_are_the_caller_s(tmp_path: Path, python: Path, binding: str) -> None:
    """The input's 32,000 bytes are no request of the session's, nor those of an output that the caller has."""
    estimate = emulated(model(tmp_path), python, runtime_options={"io_binding": binding})
    result = 32000 if binding == "device" else 0
    assert estimate.peak_allocated == 4096 + 8192 + 12288 + result + 512
    plain = emulated(model(tmp_path), python)
    assert estimate.device_used - plain.device_used == (32000 if binding == "device" else 64000)


def test_a_captured_graph_is_launched_with_its_own_binding(tmp_path: Path, python: Path) -> None:
    """It runs once, so that no pattern's block comes, and without the handles of a run's own stream."""
    estimate = emulated(model(tmp_path), python, runtime_options={"enable_cuda_graph": 1})
    assert estimate.peak_allocated == 4096 + 8192 + 12032 + 512
    bound = emulated(model(tmp_path), python, runtime_options={"io_binding": "caller"})
    assert bound.device_used - estimate.device_used == 72 * 2**20


def test_auto_asks_where_the_simulation_is_uncertain(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_PYTHON", str(python))
    path = model(tmp_path)
    assert analyzer.analyze(path, batch=8, device="h200").engine == "trace"
    unknown = onnx.load(path)
    unknown.graph.node[0].op_type, unknown.graph.node[0].domain = "Mine", "my.domain"
    unknown.opset_import.append(helper.make_opsetid("my.domain", 1))
    unknown.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, ["batch", 1000]))
    onnx.save(unknown, path)
    estimate = analyzer.analyze(path, batch=8, device="h200")
    assert estimate.engine == "emulate"
    assert "so ONNX Runtime 1.30.0 itself was run, emulated" in estimate.notes[0]
    assert analyzer.analyze(path, batch=8, device="h200", engine="simulate").engine == "trace"


def test_verify_puts_the_session_beside_its_prediction(
    tmp_path: Path, python: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in takes more than the simulation knows: 4,096 + 8,192 + 32,000 + 12,288 + 32,000 + 512."""
    words = ["verify", str(model(tmp_path)), "--emulated", "--batch", "8", "--device", "h200"]
    assert main([*words, "--python", str(python), "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    figures = {figure["name"]: figure for figure in document["figures"]}
    predicted = analyzer.analyze(
        tmp_path / "model.onnx", batch=8, device="h200", release={"onnxruntime": "1.30"}
    )
    assert figures["peak in use"]["measured"] == 89_088
    assert figures["peak in use"]["predicted"] == predicted.peak_allocated != 89_088
    assert figures["device"]["measured"] == emulated(tmp_path / "model.onnx", python).device_used
    assert [mark["event"] for mark in document["marks"]] == ["run 1", "run 2"]
    assert main([*words, "--python", str(python)]) == 0
    assert "emulated      error" in capfd.readouterr().out
    monkeypatch.setenv("ANALYZER_PYTHON", sys.executable)
    assert main(words) == 2
    assert "analyze engine install onnxruntime-gpu" in capfd.readouterr().err


def test_the_libraries_are_those_that_the_provider_names(python: Path) -> None:
    provider = find_provider(python)
    assert (provider.version, provider.cuda) == ("1.30.0", (13, 0))
    assert provider.libraries == ("libcublas.so.13", "libcudart.so.13", "libcudnn.so", "libcudnn.so.9")


def test_a_python_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDependencyError, match="has no onnxruntime-gpu"):
        find_provider(sys.executable)
    monkeypatch.setenv("ANALYZER_PYTHON", sys.executable)
    assert provider_within_reach() is None
    with pytest.raises(MissingDependencyError, match="no onnxruntime-gpu is available"):
        analyzer.analyze(model(tmp_path), batch=8, engine="emulate")


def test_weights_take_no_room(tmp_path: Path) -> None:
    """A weight of 64 MiB beside the file, absent, and one of 64 B there: the copy's file is as long and takes a page."""
    big = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[2**24])
    small = helper.make_tensor("small", TensorProto.INT64, [8], np.arange(8).tobytes(), raw=True)
    folder = tmp_path / "source"
    folder.mkdir()
    for tensor, offset, length in ((big, 4096, 2**26), (small, 0, 64)):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    (folder / "data").write_bytes(np.arange(8).tobytes())
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2**24])
    graph = helper.make_graph([helper.make_node("Relu", ["big"], ["y"])], "g", [], [y], [big, small])
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    copy = without_weights(folder / "m.onnx", tmp_path)
    assert (tmp_path / "weights").stat().st_size == 2**26 + 64
    assert (tmp_path / "weights").stat().st_blocks * 512 <= 8192
    loaded = onnx.load(copy)
    assert onnx.numpy_helper.to_array(loaded.graph.initializer[1]).tolist() == list(range(8))


def test_json_says_whose_figures_they_are(tmp_path: Path, python: Path) -> None:
    assert json.loads(emulated(model(tmp_path), python).to_json())["engine"] == "emulate"


def test_a_release_that_is_not_there(tmp_path: Path, python: Path) -> None:
    with pytest.raises(OptionError, match=r"ONNX Runtime 1\.30\.0 of .* is not 1\.31"):
        emulated(model(tmp_path), python, release={"onnxruntime": "1.31"})
