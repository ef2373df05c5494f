"""What would help an ONNX session that does not fit: only what changes something, and can be typed for a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import analyzer
from analyzer.cli import main
from analyzer.planning.what_if import what_if
from analyzer.runtimes.base import Saving
from analyzer.runtimes.onnxruntime.advice import saving_sentence
from tests.paths import MODELS

MIB = 1 << 20
CONVOLUTIONAL = str(MODELS / "cnn.onnx")


def saved(path: Path, text: str) -> str:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["":17, "my.ops":1]> {text}')
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def products(tmp_path: Path) -> str:
    """Many weights of 2.25 MiB and no convolution: regions that follow the requests lie in pages of 2 MiB."""
    nodes = " ".join(f"a{place + 1} = MatMul(a{place}, w{place})" for place in range(24))
    path = saved(tmp_path / "products.onnx", f"g (float[N,768] a0) => (float[N,768] a24) {{ {nodes} }}")
    model = onnx.load(path)
    weight = np.ones((768, 768), np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(weight, f"w{place}") for place in range(24))
    onnx.save(model, path)
    return path


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    return saved(
        tmp_path / "unknown.onnx",
        "g (float[N,1024] x) => (float[N,1024] y) { y = my.ops.MyPlugin(x) }",
    )


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_search_for_an_algorithm_is_for_convolutions(products: str) -> None:
    def changes(target: str) -> str:
        return " ".join(way.name for way in what_if(target, batch=4, device="h200"))

    assert "cudnn_conv_algo_search" in changes(CONVOLUTIONAL)
    without = changes(products)
    assert "cudnn_conv_algo_search" not in without and "both of these settings" in without


def test_no_devices_are_offered_that_an_onnx_file_cannot_take(capsys: pytest.CaptureFixture[str]) -> None:
    for budget in ("100MiB", "500MiB"):
        assert main([CONVOLUTIONAL, "--batch", "1", "--device", "h200", "--budget", budget, "-q"]) == 1
        out = shown(capsys)
        assert "no single change" in out and "allow more" in out and "--parallel" not in out


def test_an_unknown_operator_is_the_obstacle(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([unknown, "--batch", "4", "--device", "2GiB", "-q"]) == 1
    out = shown(capsys)
    assert "cheapest change" not in out
    assert "an operator decides whether it fits, not counting what my.ops.MyPlugin takes for itself" in out


def test_a_change_that_may_fit_takes_less(products: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a GPU that was not measured, on budgets that may be enough: as many regions as weights take more pages."""
    estimate = analyzer.analyze(products, batch=4, device="t4")
    least = estimate.device_range[0]
    for part in range(8):
        budget = least + part * (estimate.device_used - least) // 8
        assert main([products, "--batch", "4", "--device", "t4", "--budget", str(budget), "-q"]) == 1
        said = shown(capsys).partition("cheapest change that may fit: ")[2]
        if said:
            taken = float(said.partition(" MiB of ")[0].rpartition(" ")[2].replace(",", ""))
            assert taken < round(estimate.device_used / MIB, 1)


def test_a_setting_is_named_by_what_the_device_has_of_it() -> None:
    """Held less in more pages of the driver's is no saving."""
    saving = Saving("arena_extend_strategy=kSameAsRequested", 700 * MIB, 981 * MIB, 1092 * MIB)
    assert saving_sentence(saving, 1024 * MIB, 1024 * MIB) is None
    assert saving_sentence(saving, 1200 * MIB, 1200 * MIB) is not None


def test_pages_are_neither_context_nor_code(products: str) -> None:
    """Of a GPU that was not measured: under regions of 2.25 MiB lie two pages of 2 MiB, which the context has nothing of."""
    asked = {"arena_extend_strategy": "kSameAsRequested"}
    pages = analyzer.analyze(products, batch=4, device="a10", runtime_options=asked)
    plain = analyzer.analyze(products, batch=4, device="a10")
    assert pages.device_used - pages.peak_reserved > plain.device_used - plain.peak_reserved
    name = "context and library code"
    assert pages.certainty.assumed[name] == plain.certainty.assumed[name]
    least, most = pages.device_range
    assert least < pages.device_used < most


def test_longer_samples_of_a_file_are_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", CONVOLUTIONAL, "--longest", "--device", "h200"]) == 2
    said = capsys.readouterr().err
    assert "--input NAME=LENGTH" in said and "make_batch" not in said
