"""Real exports (14 models, dynamic batch, weights absent) against the shapes ONNX Runtime reported when it ran them.

`onnx_graphs.tar.gz`: made by `torch.onnx.export(dynamo=True)` from torch 2.11, weights removed.
`ort_kernel_shapes.json.gz`: output element types and shapes of every kernel of onnxruntime-gpu 1.30 on an H200.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from analyzer.capture.onnx import capture_onnx
from analyzer.graph import Category
from tests.paths import DATA

KERNELS = json.loads(gzip.decompress((DATA / "ort_kernel_shapes.json.gz").read_bytes()))
ORT_TYPES = {"float": "float32", "double": "float64"}
# ONNX Runtime's transpose optimizer pushed transposes through named nodes of these: same sizes, other order.
TRANSPOSED = {"convnext_tiny", "swin_t"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx_graphs")
    with tarfile.open(DATA / "onnx_graphs.tar.gz") as archive:
        # Python 3.11 has filters from 3.11.4 on.
        archive.extractall(path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return path


@pytest.mark.parametrize("case", sorted(KERNELS))
def test_shapes_are_those_of_the_run(case: str, folder: Path) -> None:
    model, batch = case.split("@")
    graph = capture_onnx(folder / f"{model}.onnx", batch=int(batch))
    predicted = {
        operator.module: [[out.dtype, list(out.shape)] for out in operator.outputs if out is not None]
        for operator in graph.operators
    }
    compared = 0
    for name, outputs in KERNELS[case].items():
        if (
            name in predicted
        ):  # the nodes ONNX Runtime's optimizer left as they were; those it makes have new names
            expected = [[ORT_TYPES.get(dtype, dtype), shape] for dtype, shape in outputs]
            if model in TRANSPOSED:
                expected = [[dtype, sorted(shape)] for dtype, shape in expected]
                predicted[name] = [[dtype, sorted(shape)] for dtype, shape in predicted[name]]
            assert predicted[name] == expected, name
            compared += 1
    assert compared >= 0.7 * len(KERNELS[case])
    assert [note for note in graph.notes if "the file of weights" not in note] == []


def test_every_graph_of_the_archive_was_run(folder: Path) -> None:
    assert {path.stem for path in folder.glob("*.onnx")} == {case.split("@")[0] for case in KERNELS}


@pytest.mark.parametrize("model", ["resnet50", "swin_t", "gpt2"])
def test_sizes_are_exact_integers_at_an_absurd_batch(model: str, folder: Path) -> None:
    small, double, huge = (capture_onnx(folder / f"{model}.onnx", batch=b) for b in (1000, 2000, 10**12))
    for a, b, c in zip(small.storages, double.storages, huge.storages, strict=True):
        per_thousand = b.nbytes - a.nbytes
        assert c.nbytes == a.nbytes + per_thousand * (10**9 - 1)


def test_parameters_are_the_published_count(folder: Path) -> None:
    graph = capture_onnx(folder / "vgg16.onnx", batch=1)
    parameters = sum(s.nbytes for s in graph.storages if s.category is Category.PARAMETER)
    biases = 4224 + 4096 + 4096 + 1000  # the exporter removed them: this model's were all zero
    assert parameters == (138_357_544 - biases) * 4 + 16  # and the Reshape's two int64


def test_planner_sees_names_not_numbers(folder: Path) -> None:
    graph = capture_onnx(folder / "resnet50.onnx", batch=64)
    first = graph.operators[0]
    assert first.name == "Conv"
    assert first.outputs[0] is not None
    assert (first.outputs[0].shape, first.outputs[0].symbols) == ((64, 64, 112, 112), ("batch", 64, 112, 112))
    assert all("unk__" not in str(meta.symbols) for op in graph.operators for meta in op.outputs if meta)
