"""cuDNN's recurrent layers: formulas against 1,200 layers run on an H200."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.libraries.cudnn.recurrent import MODES, Recurrent
from tests.paths import DATA

LAYERS = DATA / "h200" / "recurrent_layers.json.gz"


@pytest.fixture(scope="module")
def layers() -> list[tuple[Recurrent, list[int]]]:
    with gzip.open(LAYERS, "rt") as file:
        return [(Recurrent(*row[:9]), row[9:]) for row in json.load(file)["layers"]]


def test_reserve_and_flat_weights_to_the_byte(layers: list[tuple[Recurrent, list[int]]]) -> None:
    for layer, (reserve, _, _, _, flat) in layers:
        assert layer.reserve_bytes() == reserve, layer
        if flat:
            gates = {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
            biases = 2 * gates * layer.hidden * layer.directions * layer.layers
            assert (layer.matrix_count + biases) * (4 if layer.dtype == "float32" else 2) == flat


def test_inference_workspace_within_an_allocation_unit(layers: list[tuple[Recurrent, list[int]]]) -> None:
    for layer, (_, _, _, inference, _) in layers:
        assert abs(layer.inference_workspace_bytes() - inference) < 2048, layer


def test_training_workspace(layers: list[tuple[Recurrent, list[int]]]) -> None:
    """To 8 KiB unless layers overlap (several, one direction, not persistent); then within 27 %."""
    overlapping = 0
    for layer, (_, training, backward, _, _) in layers:
        for found, measured, persists in (
            (layer.training_workspace_bytes(), training, layer._persists(False)),
            (layer.training_workspace_bytes(backward=True), backward, layer._persists(True)),
        ):
            if layer.layers > 1 and layer.directions == 1 and not persists:
                overlapping += abs(found - measured) > 8192
                assert abs(found / measured - 1) < 0.27, layer
            elif layer.mode.startswith("RNN") and layer.layers == 1 and layer.steps > 256:
                continue
            else:
                assert abs(found - measured) < 8192, layer
    assert overlapping < 0.12 * 2 * len(layers)


def test_no_figure_of_a_measured_layer_moves(layers: list[tuple[Recurrent, list[int]]]) -> None:
    """The distance from what was measured, all layers together: a formula that moves a byte of any layer moves this."""
    distance = [0, 0, 0]
    for layer, (_, training, backward, inference, _) in layers:
        distance[0] += layer.inference_workspace_bytes() - inference
        distance[1] += layer.training_workspace_bytes() - training
        distance[2] += layer.training_workspace_bytes(backward=True) - backward
    assert distance == [-4550, 610_491_190, 621_415_174]


@given(
    st.sampled_from(MODES),
    st.integers(1, 512),
    st.integers(1, 512),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 64),
    st.integers(1, 300),
)
def test_training_never_takes_less_than_inference(
    mode: str, inputs: int, hidden: int, layers: int, directions: int, batch: int, steps: int
) -> None:
    layer = Recurrent(mode, "float32", inputs, hidden, layers, directions, batch, steps)
    assert layer.training_workspace_bytes() >= layer.inference_workspace_bytes() > 0
    assert layer.reserve_bytes() % 32 == 0
    dropped = Recurrent(mode, "float32", inputs, hidden, layers, directions, batch, steps, dropout=True)
    assert dropped.reserve_bytes() >= layer.reserve_bytes()
