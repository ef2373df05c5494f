"""Programs that serve by ONNX Runtime: which they are, and by its own CUDA provider where there is one.

Run where this Python has onnxruntime-gpu, or ANALYZER_ONNXRUNTIME_PYTHON is the Python of an environment with it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import analyzer
from analyzer.engines.sessions import has_sessions, has_sessions_alone
from analyzer.errors import MissingDependencyError
from analyzer.results.estimate import Estimate
from analyzer_emulation.inference import find_provider
from analyzer_emulation.launch import find_torch

MIB = 2**20
SCRIPT = """
import sys
import numpy as np
import onnxruntime as ort

options = {options}
session = ort.InferenceSession(sys.argv[1], providers=[("CUDAExecutionProvider", options)])
shrinking = ort.RunOptions()
shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
for rows in {rows}:
    session.run(None, {{"x": np.zeros((rows, 1024), np.float32)}}, {how})
"""


@pytest.fixture
def python() -> Path:
    try:
        return find_provider(os.environ.get("ANALYZER_ONNXRUNTIME_PYTHON")).python
    except MissingDependencyError as error:
        pytest.skip(error.message)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product with a weight of 4 MiB."""
    weight = numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1024]) for name in ("x", "y"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    path = tmp_path / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def emulated(
    model: Path, python: Path, options: dict[str, str], rows: tuple[int, ...], how: str = "None"
) -> Estimate:
    script = model.parent / "serve.py"
    script.write_text(SCRIPT.format(options=options, rows=rows, how=how))
    return analyzer.emulate(script, [str(model)], python=python, device="h200")


def test_a_program_is_known_by_what_it_imports(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text("import model\n")
    (tmp_path / "model.py").write_text("def load():\n    import onnxruntime.capi\n")
    assert has_sessions(script) and has_sessions_alone(script)
    (tmp_path / "model.py").write_text("import onnxruntime\nfrom torch import nn\n")
    assert has_sessions(script) and not has_sessions_alone(script)
    script.write_text("import torch\n")
    assert not has_sessions(script)
    script.write_text("import (\n")
    assert not has_sessions(script) and not has_sessions(tmp_path / "absent.py")


def test_figures_by_request(model: Path, python: Path) -> None:
    """Input and output of 4 KiB a row: the arena doubles its regions and keeps them."""
    estimate = emulated(model, python, {}, (64, 1024, 64))
    after = [(row.allocated, row.reserved) for row in estimate.after_runs]
    assert len(after) == 5 and estimate.incomplete is None
    assert {in_use for in_use, _ in after} == {4 * MIB}
    assert estimate.peak_allocated == 12 * MIB
    assert after[2][1] == after[3][1] == estimate.peak_reserved > after[1][1]
    assert any("give nothing back" in note for note in estimate.notes)
    assert estimate.after_runs[2].event == "request 2, serve.py:11, x 1024x1024"


def test_shrinkage_gives_regions_back(model: Path, python: Path) -> None:
    same = {"arena_extend_strategy": "kSameAsRequested"}
    estimate = emulated(model, python, same, (64, 1024, 64), "shrinking")
    assert [row.reserved for row in estimate.after_runs] == [4 * MIB] * 5
    assert estimate.peak_reserved == 12 * MIB


def test_a_limit_refuses_and_the_traceback_is_the_program_s(
    model: Path, python: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    limit = {"gpu_mem_limit": str(8 * MIB), "arena_extend_strategy": "kSameAsRequested"}
    estimate = emulated(model, python, limit, (64, 4096))
    assert estimate.out_of_memory is not None and not estimate.fits()
    assert estimate.out_of_memory.requested_bytes == 16 * MIB
    shown = capfd.readouterr().err
    assert "serve.py" in shown and "extensions/analyzer_emulation" not in shown


def test_auto_asks_the_provider(model: Path, python: Path) -> None:
    script = model.parent / "serve.py"
    script.write_text(SCRIPT.format(options={}, rows=(8,), how="None"))
    estimate = analyzer.run(script, [str(model)], python=python, device="h200")
    assert estimate.engine == "emulate" and estimate.runtime == "onnxruntime"


BESIDE_TORCH = """
import sys
import numpy as np
import onnxruntime as ort
import torch

session = ort.InferenceSession(sys.argv[1], providers=["CUDAExecutionProvider"])
for rows in (256, 4096, 256):
    x = torch.zeros(rows, 1024, device="cuda")
    y = torch.empty_like(x)
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, tuple(x.shape), x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, tuple(y.shape), y.data_ptr())
    session.run_with_iobinding(binding)
    del x, y
"""


def test_pytorch_and_sessions_share_the_device(model: Path, python: Path) -> None:
    """The weight's 4 MiB lie in the arena; inputs and outputs are PyTorch's tensors, 4 KiB a row and tensor."""
    try:
        find_torch(python)
    except MissingDependencyError as error:
        pytest.skip(error.message)
    script = model.parent / "serve.py"
    script.write_text(BESIDE_TORCH)
    estimate = analyzer.emulate(script, [str(model)], python=python, device="h200")
    assert estimate.incomplete is None and estimate.runtime == "pytorch"
    assert [row.allocated // MIB for row in estimate.after_runs] == [4, 6, 36, 6, 4]
    assert estimate.peak_allocated == 36 * MIB
    assert estimate.after_runs[0].reserved == 4 * MIB < estimate.peak_reserved == 38 * MIB
    assert any("1 session and 3 requests" in note for note in estimate.notes)


def test_a_traced_program_s_sessions_are_not_in_its_figures(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text("import torch\ntry:\n    import onnxruntime\nexcept ImportError:\n    pass\n")
    estimate = analyzer.run(script, device="h200", engine="trace")
    assert any("sessions of ONNX Runtime are not followed" in caveat for caveat in estimate.caveats)
