"""A session's other lives beside a real ONNX Runtime on the CPU provider: runs of changing batch, an arena that shrinks or is
shared with another session, inputs and outputs that are bound; and options that only the CUDA provider has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import analyzer
from analyzer.cli import main
from analyzer.devices import resolve
from analyzer.errors import InputError, OptionError
from analyzer.onnx.model import read
from analyzer.options import Options
from analyzer.runtimes.onnxruntime import predict
from analyzer.runtimes.onnxruntime.runtime import SessionPrediction
from analyzer_verify.verify import verify
from tests.paths import MODELS

H200, _ = resolve("h200")
POINTS = 32 * 32 * 4  # bytes of a channel

# Runs sessions of the files given, on inputs of the batches given, and prints what each kernel's arena held.
REAL = """
import json, sys
import numpy as np, onnxruntime as ort
how = json.loads(sys.argv[1])
ort.set_default_logger_severity(4)
if how.get("shared"):
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, None)
sessions = []
for place, path in enumerate(how["files"]):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, f"{how['folder']}/{place}"
    options.intra_op_num_threads, options.graph_optimization_level = 1, ort.GraphOptimizationLevel(2)
    if how.get("shared"):
        options.add_session_config_entry("session.use_env_allocators", "1")
    sessions.append(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
bindings = [session.io_binding() for session in sessions]
outputs = []
said = ort.RunOptions()
if how.get("shrinks"):
    said.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
for batch in how["batches"]:
    x = np.ones((batch, 3, 32, 32), np.float32)
    for session, binding in zip(sessions, bindings):
        if not how.get("bound"):
            session.run(None, {"x": x}, said)
            continue
        binding.bind_cpu_input("x", x)
        if how["bound"] == "caller":
            y = np.empty((batch, 8, 32, 32), np.float32)
            outputs.append(y)
            binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        elif not outputs:
            binding.bind_output("y")
            outputs.append(None)
        session.run_with_iobinding(binding, said)
rows = []
for session in sessions:
    events = json.load(open(session.end_profiling()))
    kernels = [e["args"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    size = len(kernels) // len(how["batches"])
    for run in range(len(how["batches"])):
        own = [k for k in kernels[run * size : (run + 1) * size] if "mem_arena_held" in k]
        rows.append([int(own[-1]["mem_bytes_in_use"]), max(int(k["mem_in_use_peak"]) for k in own),
                     max(int(k["mem_arena_held"]) for k in own)])
print(json.dumps(rows))
"""


def net(path: Path, channels: int) -> Path:
    """Three convolutions with Sin between them, `channels` in the middle."""
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["":17]> g (float[N,3,32,32] x) => (float[N,8,32,32] y) {'
        " a = Conv<pads=[1,1,1,1]>(x, u) b = Sin(a) c = Conv<pads=[1,1,1,1]>(b, v) d = Sin(c)"
        " y = Conv<pads=[1,1,1,1]>(d, w) }"
    )
    for name, shape in (("u", (64, 3, 3, 3)), ("v", (channels, 64, 3, 3)), ("w", (8, channels, 3, 3))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    onnx.save(model, path)
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return net(tmp_path / "large.onnx", 128)


def real(folder: Path, files: list[Path], batches: list[int], **how: Any) -> list[list[int]]:
    """In use at the end, highest in use so far, held at most: for each run, session by session."""
    pytest.importorskip("onnxruntime")
    said = json.dumps({"files": list(map(str, files)), "batches": batches, "folder": str(folder), **how})
    done = subprocess.run(
        [sys.executable, "-c", REAL, said], capture_output=True, text=True, check=True, timeout=120
    )
    return list(json.loads(done.stdout))


def predicted(path: Path, batches: list[int], **options: Any) -> SessionPrediction:
    models = {batch: read(path, batch) for batch in batches}
    return predict(
        models[max(batches)],
        options={"provider": "cpu", **options},
        device=H200,
        runs=[models[b] for b in batches],
    )


def figures(found: SessionPrediction) -> list[tuple[int, int]]:
    """Highest in use so far and held at most, of each run."""
    rows, highest = [], found.session.peak_in_use
    for _, run in found.runs:
        highest = max(highest, run.peak_in_use)
        rows.append((highest, run.held_most))
    return rows


@pytest.mark.parametrize(
    ("batches", "shrinks"),
    [
        ([1, 64, 8], False), ([8, 8, 8], False), ([64, 1, 64, 1, 8], False), ([1, 2, 3, 4, 5], False),
        ([1, 64, 8], True), ([1, 2, 3, 4, 5], True),
    ],
)  # fmt: skip
def test_runs_of_changing_batch(large: Path, tmp_path: Path, batches: list[int], shrinks: bool) -> None:
    """The arena only grows, unless it is told to shrink; a batch met before has its pattern."""
    measured = real(tmp_path, [large], batches, shrinks=shrinks)
    found = predicted(large, batches, enable_memory_arena_shrinkage="cpu:0" if shrinks else "")
    assert figures(found) == [(peak, held) for _, peak, held in measured]
    held = [run.held for _, run in found.runs]
    if not shrinks:
        assert held == sorted(held)
    elif batches[1] == 64:  # what is left after a run is less than it held, as the next one finds
        assert held[1] < found.runs[1][1].held_most and held[1] <= measured[2][2] < measured[1][2]


def test_a_shrinking_arena_says_what_addresses_decide(large: Path, tmp_path: Path) -> None:
    """Two free chunks of 2 MiB after the first run: the results lie in the one the host put lower, and that region stays."""
    measured = real(tmp_path, [large], [8, 8, 8], shrinks=True)
    found = predicted(large, [8, 8, 8], enable_memory_arena_shrinkage="cpu:0")
    assert [peak for peak, _ in figures(found)] == [peak for _, peak, _ in measured]
    assert any("shrinking arena" in note and "may be more" in note for note in found.notes)


def test_the_largest_batch_is_not_the_whole_story(large: Path) -> None:
    """After 1 and 64 the arena holds more than after 64 alone would."""
    sequence = analyzer.analyze(large, batches=(1, 64, 8), device="h200", runtime_options={"provider": "cpu"})
    assert sequence.batch == 64
    assert sequence.options["batches"] == (1, 64, 8)
    assert [mark.event for mark in sequence.marks] == ["session", "run 1", "run 2", "run 3"]
    alone = analyzer.analyze(large, batch=64, device="h200", runtime_options={"provider": "cpu"})
    assert sequence.peak_reserved > alone.marks[1].reserved


@pytest.mark.parametrize("bound", ["caller", "device"])
def test_bound_inputs_and_outputs(large: Path, tmp_path: Path, bound: str) -> None:
    measured = real(tmp_path, [large], [8, 8, 8], bound=bound)
    found = predicted(large, [8, 8, 8], io_binding=bound)
    assert figures(found) == [(peak, held) for _, peak, held in measured]
    output = 8 * 8 * POINTS
    assert found.runs[-1][1].in_use == (output if bound == "device" else 0)


def test_sessions_that_share_an_arena(large: Path, tmp_path: Path) -> None:
    small = net(tmp_path / "small.onnx", 32)
    measured = real(tmp_path, [large, small], [8, 8, 8], shared=True)
    found = predicted(large, [8, 8, 8], shared_with=str(small))
    rows = figures(found)  # large, small, large, small, ...
    assert [name for name, _ in found.runs][:2] == ["run 1", "run 1 of session 2"]
    first, second = measured[:3], measured[3:]
    expected = [tuple(row[1:]) for pair in zip(first, second, strict=True) for row in pair]
    assert rows == expected
    alone = predicted(large, [8, 8, 8]).held + predicted(small, [8, 8, 8]).held
    assert found.held < alone


def test_a_shared_arena_whose_other_sessions_are_not_named_says_so(large: Path) -> None:
    found = predict(
        large, batch=2, options={"provider": "cpu", "session.use_env_allocators": "1"}, device=H200
    )
    assert any("other sessions, which are not counted" in note for note in found.notes)


def test_bound_tensors_on_the_gpu_are_the_callers(large: Path) -> None:
    plain = predict(large, batch=8, options={}, device=H200)
    bound = predict(large, batch=8, options={"io_binding": "caller"}, device=H200)
    inputs, outputs = 8 * 3 * POINTS, 8 * 8 * POINTS
    assert plain.peak_in_use - bound.peak_in_use >= inputs + outputs
    assert any(note.startswith(f"{inputs + outputs:,} bytes of bound") for note in bound.notes)
    assert bound.device_bytes - bound.held == plain.device_bytes - plain.held + inputs + outputs


def test_cuda_graphs_need_bound_tensors_and_say_what_is_not_modelled(large: Path) -> None:
    graph = predict(large, batch=8, options={"enable_cuda_graph": "1"}, device=H200)
    bound = predict(large, batch=8, options={"io_binding": "caller"}, device=H200)
    assert graph.peak_in_use == bound.peak_in_use
    assert any("captured graph" in note and "memory may be more" in note for note in graph.notes)
    with pytest.raises(OptionError, match="CUDA provider"):
        predict(large, batch=8, options={"enable_cuda_graph": "1", "provider": "cpu"}, device=H200)


@pytest.mark.parametrize(
    "name", ["tensorrt", "TensorrtExecutionProvider", "openvino", "OpenVINOExecutionProvider"]
)
def test_other_providers_are_named_as_not_modelled(
    large: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(large), "--batch", "2", "--runtime-option", f"provider={name}"]) == 2
    said = capsys.readouterr().err
    assert f"'{name}' is not modelled" in said and "not TensorRT, OpenVINO" in said


def test_verify_runs_the_batches(large: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = verify(str(large), batches=(1, 16, 4))
    assert [mark.event for mark in found.marks] == ["run 1", "run 2", "run 3"]
    assert all(mark.same for mark in found.marks)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batches", "1,x"], "are no batches"),
        (["--batches", "0,1"], "a batch is 0"),
        (["--batches", "1,2", "--batch", "3"], "batches are given beside a batch"),
        (["--batches", "1,2", "--mode", "train"], "this is training"),
        (["--batch", "2", "--runtime-option", "shared_with="], "shared_with"),
        (["--batch", "2", "--runtime-option", "shared_with=nowhere.onnx"], "cannot read nowhere.onnx"),
        (["--batch", "2", "--runtime-option", "io_binding=yes"], "io_binding is 'yes'"),
    ],
)
def test_what_makes_no_sense(
    large: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(large), "-q", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_batches_are_of_sessions_alone() -> None:
    with pytest.raises(OptionError, match="a PyTorch target"):
        analyzer.analyze(MODELS / "linear.py", batches=(1, 2))
    with pytest.raises(InputError):
        Options(batches=(2**63,))
