"""An interrupted `verify` of an ONNX file leaves nothing behind: once it left the generated weights, 98 MB each time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

ROWS = 4096


def _save(path: Path) -> None:
    """A long chain of products whose weights (64 MiB each) are in a file that is not there."""
    weight = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[ROWS, ROWS], data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", "absent.data"), ("offset", 0), ("length", 4 * ROWS * ROWS)):
        weight.external_data.add(key=key, value=str(value))
    nodes = [helper.make_node("MatMul", [f"x{n}", "w"], [f"x{n + 1}"]) for n in range(40)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", ROWS]) for name in ("x0", "x40")]
    graph = helper.make_graph(nodes, "long", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


@pytest.mark.timeout(120)
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Ctrl-C while the session runs: what was written goes with it, in the temporary folder and beside the model."""
    (tmp_path / "model").mkdir()
    (tmp_path / "temporary").mkdir()
    target = tmp_path / "model" / "model.onnx"
    _save(target)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    running = subprocess.Popen(
        [sys.executable, "-m", "analyzer", "verify", str(target), "--batch", "2000"],
        env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end and not _written(tmp_path / "temporary"):
        time.sleep(0.05)
        assert running.poll() is None, running.communicate()
    assert _written(tmp_path / "temporary")
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=30)[1].decode()
    assert running.returncode == 130 and "interrupted" in said and "Traceback" not in said
    left = [path.name for path in (tmp_path / "temporary").iterdir()]
    assert [name for name in left if name != ".ses"] == []  # ONNX Runtime's own mark of its session
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["model.onnx"]


def _written(folder: Path) -> bool:
    """Whether the generated weights are there, at least in part."""
    return any(path.stat().st_size > 1 << 20 for path in folder.rglob("weights"))
