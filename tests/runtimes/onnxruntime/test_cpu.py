"""Predictions for `CPUExecutionProvider` against a real ONNX Runtime, kernel by kernel.

The CPU provider runs the same planner, memory pattern and arena as the CUDA provider, so this checks them for real.
Everything must agree to the byte.
"""

from __future__ import annotations

import onnx
import pytest

pytest.importorskip("onnxruntime")

from tests.runtimes.onnxruntime import ort_reference as reference
from tests.runtimes.onnxruntime.ort_models import MODELS

GRAPHS = (
    "seed_cnn", "resnet18", "squeezenet1_1", "shufflenet_v2_x1_0", "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_large",
    "regnet_y_400mf", "densenet121", "unet", "unet3d", "conv1d", "encoder", "convnext_tiny", "lstm", "gru",
)  # fmt: skip
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
BASIC, EXTENDED = 1, 2


def _compare(model: onnx.ModelProto, batch: int, level: int, strategy: str) -> None:
    shape_only = onnx.ModelProto.FromString(model.SerializeToString())
    content = reference.with_weights(model)
    options = {"arena_extend_strategy": strategy, "graph_optimization_level": level}
    mine = reference.predicted(shape_only, batch, options, "cpu")
    real = reference.measured(content, batch, level, strategy)
    assert [row.op for row in mine.first] == [row.op for row in real.first]
    assert (mine.peak, mine.held) == (real.peak, real.held)
    # After every kernel, what is asked for agrees; which free chunk serves it may depend on the addresses that the
    # operating system gave to regions of one size.
    for predicted_run, measured_run in ((mine.first, real.first), (mine.second, real.second)):
        assert [row.requested for row in predicted_run] == [row.requested for row in measured_run]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sampled(8)
def test_exported_models(name: str, batch: int, strategy: str) -> None:
    """Peak in use and held are exact; so are the executed operators, their order, and the bytes requested after every kernel."""
    _compare(reference.graph(name), batch, BASIC, strategy)


@pytest.mark.parametrize("name", ["seed_cnn", "mobilenet_v3_large", "unet", "encoder", "convnext_tiny"])
def test_extended_optimization(name: str) -> None:
    """The same with the provider's fusions."""
    _compare(reference.graph(name), 1, EXTENDED, "kSameAsRequested")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", [0, BASIC, EXTENDED])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_handmade_models(name: str, level: int, strategy: str) -> None:
    """Dynamic and hard-coded batch, half precision, QDQ, int4, If, Loop, data-dependent sizes, spelt-out fusions."""
    batch = 4 if name == "hard_coded_batch" else 2
    _compare(MODELS[name](), batch, level, strategy)
