"""ONNX files really run under ONNX Runtime's CPU provider and compared with the plan's prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")

import onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

from analyzer.cli import main  # noqa: E402
from analyzer.errors import InputError  # noqa: E402
from analyzer_verify.runs.session import runs, with_weights  # noqa: E402
from analyzer_verify.verify import verify  # noqa: E402
from tests.paths import MODELS  # noqa: E402

BYTES = 64 * 64 * 4


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """x @ w -> Relu -> @ v, batch free, weights of 64 x 64 in external data that is not there."""
    weights = []
    for number, name in enumerate("wv"):
        weight = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=[64, 64], data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", "absent.data"), ("offset", number * BYTES), ("length", BYTES)):
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        weights,
    )
    path = tmp_path / "chain.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()
    )
    return path


def test_a_chain_is_predicted_exactly(chain: Path) -> None:
    found = verify(str(chain), batch=256)
    assert found.runtime == "onnxruntime CPU" and found.batch == 256
    for name in ("peak in use", "held"):
        figure = found.figure(name)
        assert figure.predicted == figure.measured and figure.error_percent == 0
    assert all(mark.same for mark in found.marks)
    assert any("made at random" in note for note in found.notes)


def test_a_transformer_without_its_weights_runs_and_is_predicted_exactly() -> None:
    found = verify(f"{MODELS}/bert.onnx", batch=1)
    assert found.figure("peak in use").error_percent == 0
    assert found.figure("held").error_percent == 0


def test_command_line(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(chain), "--batch", "8"]) == 0
    shown = capsys.readouterr()
    assert "onnxruntime CPU · inference · batch 8" in " ".join(shown.out.split())  # a long path wraps
    assert "peak in use" in shown.out and shown.err == ""
    assert (
        main(["verify", str(chain), "--batch", "8", "--format", "json", "-o", str(tmp_path / "v.json")]) == 0
    )
    document = json.loads((tmp_path / "v.json").read_text())
    assert document["schema"] == 1 and document["marks"][0]["event"] == "run 1"
    assert {figure["name"] for figure in document["figures"]} >= {"naive sum", "graph", "peak in use", "held"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "train"], "is run for inference"),
        (["--runtime-option", "provider=tpu"], "unknown provider 'tpu'"),
    ],
)
def test_bad_usage(chain: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(chain), "--batch", "2", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_inputs_without_names_mean_nothing_to_a_file(chain: Path) -> None:
    with pytest.raises(InputError, match="by name"):
        verify(str(chain), inputs=(np.zeros((2, 64)),), batch=2)


def test_weights_that_are_there_are_used(chain: Path, tmp_path: Path) -> None:
    (chain.parent / "absent.data").write_bytes(bytes(2 * BYTES))
    folder = tmp_path / "copy"
    folder.mkdir()
    assert with_weights(chain, folder, np.random.default_rng(0)) == (chain, 0)


def test_made_up_weights_have_their_size_and_are_not_all_zero(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    path, nbytes = with_weights(chain, folder, np.random.default_rng(0))
    assert nbytes == 2 * BYTES
    tensor, _ = onnx.load(str(path)).graph.initializer
    assert onnx.numpy_helper.to_array(tensor).std() == pytest.approx(0.02, rel=0.1)


def event(name: str, provider: str = "CPUExecutionProvider", **memory: int) -> dict[str, Any]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"provider": provider, **memory}}


def test_the_profile_is_read_run_by_run() -> None:
    first = event("a", mem_bytes_in_use=5, mem_in_use_peak=9, mem_arena_held=16)
    second = event("a", mem_bytes_in_use=3, mem_in_use_peak=12, mem_arena_held=32)
    other = {"cat": "Session", "name": "run", "args": {}}
    assert runs([other, first, second], 2, "CPU") == [
        {"in_use": 5, "peak_in_use": 9, "held": 16},
        {"in_use": 3, "peak_in_use": 12, "held": 32},
    ]


def test_a_profile_without_memory_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="says nothing about memory"):
        runs([event("a")], 1, "CPU")
    with pytest.raises(RuntimeError, match="3 kernels in 2 runs"):
        runs([event("a")] * 3, 2, "CPU")
