"""Recurrent layers: which layer a call describes, what is copied, and when the reserve is kept."""

from __future__ import annotations

import dataclasses
import gzip
import json
from contextlib import nullcontext
from typing import Any

import pytest

from analyzer.graph import TensorMeta
from analyzer.libraries.cudnn.recurrent import Recurrent
from analyzer.runtimes.pytorch.scratch import kernel_allocations
from analyzer.runtimes.pytorch.scratch.recurrent import _algorithm, _layer
from analyzer.runtimes.pytorch.scratch.script import AbsentError
from tests.paths import DATA
from tests.runtimes.pytorch.scratch.handwritten import H200, call, spread, tensor, words

X, STATE, FLAT = tensor(9, 4, 16), tensor(2, 4, 32), tensor(1000)
NAMES = (
    "mode", "hidden_size", "proj_size", "num_layers", "batch_first", "dropout", "train", "bidirectional",
    "batch_sizes",
)  # fmt: skip


def operator(source: TensorMeta | None = X, **given: Any):  # type: ignore[no-untyped-def]
    chosen = {
        "mode": 2, "hidden_size": 32, "proj_size": 0, "num_layers": 2, "batch_first": False, "dropout": 0.0,
        "train": True, "bidirectional": False, "batch_sizes": (), **given,
    }  # fmt: skip
    arguments = (source, (FLAT,), 4, FLAT, STATE, STATE, *(chosen[name] for name in NAMES), None)
    results = (tensor(9, 4, 32), STATE, STATE, tensor(0, dtype="uint8"), FLAT)
    return call("aten::_cudnn_rnn", arguments, results)


LSTM = Recurrent("LSTM", "float32", 16, 32, 2, 1, 4, 9, algorithm="small")
PACKED = dataclasses.replace(LSTM, batch=4, steps=3, rows=8, algorithm="standard")


def test_layers_run_on_an_h200_to_the_byte() -> None:
    """1,200 of them: reserve, workspaces of training, of the backward pass and of inference, flat weights; each pass with the
    algorithm that PyTorch asks for."""
    recorded = json.loads(gzip.decompress((DATA / "h200" / "recurrent_layers.json.gz").read_bytes()))
    for row in recorded["layers"]:
        layer, measured = Recurrent(*row[:9]), row[9:]
        forward, backward = (
            dataclasses.replace(layer, algorithm=_algorithm(layer, H200, last)) for last in (False, True)
        )
        element_bytes = 4 if layer.dtype == "float32" else 2
        assert measured == [
            layer.reserve_bytes(),
            forward.training_workspace_bytes(),
            backward.training_workspace_bytes(),
            forward.inference_workspace_bytes(),
            layer.weight_count * element_bytes if measured[-1] else 0,
        ], layer


@pytest.mark.parametrize(
    ("given", "layer"),
    [
        ({}, LSTM),
        ({"mode": 0}, dataclasses.replace(LSTM, mode="RNN_RELU")),
        ({"mode": 3}, dataclasses.replace(LSTM, mode="GRU")),
        ({"mode": 4}, None),
        ({"mode": -1}, None),
        ({"hidden_size": 33}, dataclasses.replace(LSTM, hidden=33)),
        ({"num_layers": 3}, dataclasses.replace(LSTM, layers=3)),
        ({"bidirectional": True}, dataclasses.replace(LSTM, directions=2)),
        ({"batch_first": True}, dataclasses.replace(LSTM, batch=9, steps=4)),
        ({"batch_sizes": (4, 3, 1), "source": tensor(8, 16)}, PACKED),
        ({"proj_size": 8}, dataclasses.replace(LSTM, projection=8, algorithm="standard")),
        ({"hidden_size": 193}, dataclasses.replace(LSTM, hidden=193, algorithm="standard")),
        (
            {"source": tensor(9, 4, 16, dtype="float64")},
            dataclasses.replace(LSTM, dtype="float64", algorithm="standard"),
        ),
        ({"dropout": 0.5}, dataclasses.replace(LSTM, dropout=True)),
        ({"dropout": 0.5, "train": False}, LSTM),
        ({"source": tensor(9, 4, 16, dtype="int8")}, None),
        ({"source": None}, None),
    ],
)
def test_the_layer_of_a_call(given: dict[str, Any], layer: Recurrent | None) -> None:
    with nullcontext() if layer else pytest.raises(AbsentError):
        assert _layer(operator(**given), H200) == layer


def test_a_call_that_leaves_its_defaults_out() -> None:
    bare = call("aten::_cudnn_rnn", (X, (FLAT,), 4, FLAT, STATE, STATE, 2), (X,), hidden_size=32)
    assert _layer(bare, H200) == dataclasses.replace(LSTM, layers=1)
    without = call("aten::_cudnn_rnn", (X, (FLAT,), 4, FLAT, STATE, STATE), (X,))
    with pytest.raises(AbsentError):
        _layer(without, H200)
    nothing = _layer(call("aten::_cudnn_rnn", (X, (FLAT,), 4, FLAT, STATE, STATE, 2), (X,)), H200)
    assert nothing.hidden == 0


@pytest.mark.parametrize(
    ("capability", "sm_count", "large"),
    [((8, 0), 108, True), ((8, 0), 98, True), ((8, 0), 97, False), ((8, 6), 108, False), ((7, 0), 108, False),
     ((9, 0), 132, True)],
)  # fmt: skip
def test_large_gpus_have_persistent_kernels_of_wider_layers(
    capability: tuple[int, int], sm_count: int, large: bool
) -> None:
    device = dataclasses.replace(H200, compute_capability=capability, sm_count=sm_count)
    layer = Recurrent("LSTM", "float16", 128, 256, 1, 1, 8, 9)
    assert _algorithm(layer, device, False) == ("static" if large else "standard")


@pytest.mark.parametrize(
    "changed",
    [{"hidden": 1152}, {"layers": 2}, {"directions": 2}, {"inputs": 64}, {"batch": 136}, {"batch": 12}, {"mode": "GRU"},
     {"dtype": "float32"}, {"rows": 72}, {"mode": "RNN_TANH", "hidden": 896, "batch": 96}],
)  # fmt: skip
def test_whose_layers_are_not_asked_for_as_persistent(changed: dict[str, Any]) -> None:
    layer = Recurrent("LSTM", "float16", 128, 256, 1, 1, 8, 9)
    assert _algorithm(dataclasses.replace(layer, **changed), H200, False) == "standard"


COPY = 9 * 4 * 16 * 4


def test_forward() -> None:
    """Results, workspace, and in training the reserve, in the place of a result without elements."""
    space, reserve = LSTM.training_workspace_bytes(), LSTM.reserve_bytes()
    assert words(operator()) == f"=0 =1 =2 =4 +{space}? =3:{reserve} -{space}?"
    assert kernel_allocations(operator(), H200).libraries == {"cudnn"}
    space = LSTM.inference_workspace_bytes()
    inference = words(operator(train=False))
    assert inference == f"=0 =1 =2 =4 +{space}? =3 -{space}?"
    assert words(operator(mode=7)) == "=0 =1 =2 =3 =4"
    few = dataclasses.replace(operator(train=False), outputs=(X, STATE))
    assert words(few) == f"=0 =1 +{space}? -{space}?"


def test_the_input_is_brought_to_time_major_order() -> None:
    copied = f"+{COPY} =0 =1 =2 =4 +"
    assert words(operator(batch_first=True)).startswith(copied)
    assert words(operator(spread(X))).startswith(copied)
    turned = tensor(4, 9, 16, stride=(16, 64, 1))
    assert words(operator(turned, batch_first=True)).startswith("=0 ")
    packed = tensor(36, 16)
    assert words(operator(packed, batch_first=True, batch_sizes=(4,) * 9)).startswith("=0 ")


def backward(**given: Any) -> str:
    """All gradients sent, unless `given` leaves one out."""
    made = operator(
        **{key: value for key, value in given.items() if key not in ("grads", "results", "stride0")}
    ).arguments
    grads = given.get("grads", (tensor(9, 4, 32), STATE, STATE))
    arguments = (*made[:2], given.get("stride0", 4), *made[3:6], tensor(9, 4, 32), *grads, *made[6:])
    results = given.get("results", (X, STATE, STATE, FLAT))
    told = call("aten::_cudnn_rnn_backward", arguments, results)
    assert kernel_allocations(told, H200).libraries <= {"cudnn"}
    return words(told)


SPACE = LSTM.training_workspace_bytes()
TWICE = f"+{SPACE}? -{SPACE}?"


def test_backward() -> None:
    """Workspace twice: for the data's gradients, then for the weights'."""
    assert backward() == f"=0 =1 =2 {TWICE} =3 {TWICE}"
    assert backward(mode=9) == "=0 =1 =2 =3"
    assert backward(results=(X, STATE, STATE)) == f"=0 =1 =2 {TWICE} {TWICE}"
    more = backward(results=(X, STATE, STATE, FLAT, FLAT))
    assert more == f"=0 =1 =2 {TWICE} =3 =4 {TWICE}"


def test_gradients_without_biases_are_copied_out_of_a_buffer_that_has_them() -> None:
    """Two matrices a layer; the buffer is cuDNN's, with two biases of every layer."""
    matrices = (tensor(128, 16), tensor(128, 32), tensor(128, 32), tensor(128, 32))
    buffer = sum(128 * width for width in (16, 32, 32, 32)) * 4 + 2 * 2 * 128 * 4
    assert buffer == LSTM.weight_count * 4
    told = backward(stride0=2, results=(X, STATE, STATE, *matrices))
    assert told == f"=0 =1 =2 {TWICE} +{buffer} +{SPACE}? =3 =4 =5 =6 -{SPACE}? -{buffer}"


def test_gradients_nobody_sent_are_zeros_until_the_end() -> None:
    out, state = 9 * 4 * 32 * 4, 2 * 4 * 32 * 4
    plain = f"=0 =1 =2 {TWICE} =3 {TWICE}"
    assert backward(grads=(None, STATE, STATE)) == f"+{out} {plain} -{out}"
    assert backward(grads=(tensor(9, 4, 32), None, None)) == f"+{state} +{state} {plain} -{state} -{state}"
    assert backward(grads=(tensor(9, 4, 32), STATE, None)) == f"+{state} {plain} -{state}"


def test_the_gradient_is_brought_to_time_major_order_for_the_data_alone() -> None:
    out = 9 * 4 * 32 * 4
    assert backward(grads=(spread(tensor(9, 4, 32)), STATE, STATE)) == (
        f"+{out} =0 =1 =2 {TWICE} -{out} =3 {TWICE}"
    )
    assert backward(source=spread(X)) == (f"+{COPY} =0 =1 =2 {TWICE} -{COPY} +{COPY} =3 {TWICE} -{COPY}")


def test_dropout_state() -> None:
    device = dataclasses.replace(H200, sm_count=10, max_threads_per_sm=100)
    state = call("aten::_cudnn_init_dropout_state", (0.1, True, 0), (tensor(1),))
    assert words(state, device) == "=0 +8 -8 cudnn dropout state+24000?"
    assert kernel_allocations(state, device).libraries == {"cudnn"}


def test_a_cell_makes_what_its_backward_pass_needs_first() -> None:
    state, gates = tensor(4, 32), tensor(4, 96)
    forward = call("aten::_thnn_fused_gru_cell", (gates, gates, state), (state, tensor(4, 160)))
    assert words(forward) == "=1 =0"
    wide = tensor(4, 128)
    forward = call("aten::_thnn_fused_lstm_cell", (wide, wide, state), (state, state, wide))
    assert words(forward) == "=2 =0 =1"


def test_gradients_of_a_cells_biases_are_sums_over_the_batch() -> None:
    """2,400 rows of 576 gates: the staging memory of the sums of an H200's recorded step."""
    gates, state, bias = tensor(2400, 576), tensor(2400, 192), tensor(576)
    name = "aten::_thnn_fused_gru_cell_backward"
    told = words(call(name, (state, tensor(2400, 960), True), (gates, gates, state, bias, bias)))
    summed = "+11206656 +20 -20 -11206656"
    assert told == f"=0 =1 =2 =3 {summed} =4 {summed}"
    assert (
        words(call(name, (state, tensor(2400, 960), False), (gates, gates, state, None, None)))
        == "=0 =1 =2 =3 =4"
    )
    name = "aten::_thnn_fused_lstm_cell_backward_impl"
    assert words(call(name, (), (gates, state, bias))) == f"=0 =1 =2 {summed}"
