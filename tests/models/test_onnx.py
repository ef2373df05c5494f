"""The ONNX graphs in models/: their sizes, that they hold no weights, and that the script still makes them."""

from __future__ import annotations

import importlib.util

import onnx
import pytest

from analyzer.capture.onnx import capture_onnx
from analyzer.graph import Category
from tests.paths import MODELS

# PyTorch's parameter counts. The exporter folds batch norms away (all 53,120 of their parameters in ResNet-50, which
# has no other biases but the classifier's) and leaves out biases that are zero.
PARAMETERS = {"cnn": 985_914, "resnet50": 25_557_032 - 53_120, "vit_b_16": 86_567_656, "bert": 109_514_298}


def floats(name: str) -> int:
    graph = capture_onnx(MODELS / f"{name}.onnx", batch=2)
    inputs = {m.storage: m.dtype for op in graph.operators for m in op.inputs}
    return sum(
        s.nbytes // 4
        for s in graph.storages
        if s.category is Category.PARAMETER and inputs[s.index] == "float32"
    )


@pytest.mark.parametrize("name", ["cnn", "resnet50"])
def test_every_parameter_is_there(name: str) -> None:
    assert floats(name) == PARAMETERS[name]


@pytest.mark.parametrize("name", ["vit_b_16", "bert"])
def test_every_parameter_but_zero_biases_is_there(name: str) -> None:
    assert 0.999 * PARAMETERS[name] < floats(name) < PARAMETERS[name]


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_no_weights_and_a_dynamic_batch(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    assert path.stat().st_size < 200_000
    assert not path.with_suffix(".onnx.data").exists()
    model = onnx.load(path, load_external_data=False)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    small, large = (capture_onnx(path, batch=batch) for batch in (1, 3))
    inputs = [next(s.nbytes for s in g.storages if s.category is Category.INPUT) for g in (small, large)]
    assert inputs[1] == 3 * inputs[0]


def test_nodes_name_their_line_of_source() -> None:
    graph = capture_onnx(MODELS / "resnet50.onnx", batch=1)
    convolutions = [op.source for op in graph.operators if op.name == "Conv"]
    assert len(convolutions) == 53
    assert all(source.startswith("models/resnet50.py:") for source in convolutions)


def test_the_script_makes_the_same_graph() -> None:
    pytest.importorskip("onnxscript")
    specification = importlib.util.spec_from_file_location("export_onnx", MODELS / "export_onnx.py")
    assert specification is not None and specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    made = capture_onnx(script.export("cnn"), batch=4)
    kept = capture_onnx(MODELS / "cnn.onnx", batch=4)
    assert [op.name for op in made.operators] == [op.name for op in kept.operators]
    assert [s.nbytes for s in made.storages] == [s.nbytes for s in kept.storages]
