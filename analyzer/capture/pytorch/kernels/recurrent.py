"""Recurrent layers and cells: which operators CUDA runs for them, and what those return.

Sources are files of `aten/src/ATen/native`, torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from analyzer.capture.pytorch.kernels.layouts import META, like

aten = torch.ops.aten
_BIASED_LAYERS = (4, 5)


def flat_rnn_count(weights: Any, stride0: int) -> int:
    """Elements of cuDNN's buffer of a recurrent layer's weights: two biases of every layer and direction,
    whether it has any or not (`CUDNN_RNN_DOUBLE_BIAS`, `cudnn/RNNUtils.h`). stride0: tensors of a layer and
    direction, 4, or 5 with a projection."""
    count: int = sum(weight.numel() for weight in weights)
    missing = 0 if stride0 in _BIASED_LAYERS else len(weights) // stride0
    return count + missing * 2 * int(weights[0].shape[0])


def cudnn_rnn(
    x: Any,
    weights: Any,
    stride0: int,
    buffer: Any,
    hx: Any,
    cx: Any,
    mode: int,
    hidden: int,
    projection: int,
    layers: int,
    batch_first: bool,
    p: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Any,
    state: Any,
) -> Any:
    """`cudnn/RNN.cpp`: output, hidden, cell, reserve (its size is the library's), weight buffer."""
    layout = (mode, hidden, projection, layers, batch_first, p, train, bidirectional, batch_sizes, state)
    output, hy, cy, reserve, _ = aten._cudnn_rnn.default(x, weights, stride0, buffer, hx, cx, *layout)
    if batch_first and not batch_sizes:
        # The kernel works on time-major memory and returns a transposed view of it.
        output = like(output.transpose(0, 1)).transpose(0, 1)
    if cx is None:
        cy = x.new_empty(0)
    if buffer is None:
        buffer = torch.empty(flat_rnn_count(weights, stride0), dtype=x.dtype, device=META)
    else:
        buffer = buffer.view(-1)
    return output, hy, cy, reserve, buffer


def cudnn_rnn_backward(
    x: Any,
    weights: Any,
    stride0: int,
    buffer: Any,
    hx: Any,
    cx: Any,
    output: Any,
    grad_output: Any,
    grad_hy: Any,
    grad_cy: Any,
    mode: int,
    hidden: int,
    projection: int,
    layers: int,
    batch_first: bool,
    p: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Any,
    state: Any,
    reserve: Any,
    mask: Any,
) -> Any:
    """`cudnn/RNN.cpp`: weight gradients are views of one buffer, or without biases own tensors."""
    dx = like(x.transpose(0, 1)).transpose(0, 1) if batch_first and not batch_sizes else like(x)
    dhx, dcx = like(hx), like(cx) if cx is not None else None
    grads = []
    if mask[3] and stride0 not in _BIASED_LAYERS:
        grads = [like(weight) for weight in weights]
    elif mask[3]:
        flat = torch.empty(sum(w.numel() for w in weights), dtype=weights[0].dtype, device=META)
        offset = 0
        for weight in weights:
            grads.append(flat.as_strided(weight.shape, weight.contiguous().stride(), offset))
            offset += weight.numel()
    return dx, dhx, dcx, grads


def fused_lstm_cell_backward(_hy: Any, _cy: Any, cell: Any, _new: Any, workspace: Any, has_bias: bool) -> Any:
    """`cuda/RNN.cu`: gradients of the gates, the cell state, and the bias."""
    bias = torch.empty(workspace.size(1), dtype=workspace.dtype, device=META) if has_bias else None
    return like(workspace), like(cell), bias


def fused_gru_cell(_gates: Any, _hidden: Any, hx: Any, *_: Any) -> Any:
    """`cuda/RNN.cu`: hidden state, and five values a unit as workspace for the backward pass."""
    return like(hx), torch.empty((hx.size(0), 5 * hx.size(1)), dtype=hx.dtype, device=META)


def fused_gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> Any:
    """`cuda/RNN.cu`: gradients of both gates, the hidden state, and both biases."""
    width = 3 * workspace.size(1) // 5
    gates = [torch.empty((workspace.size(0), width), dtype=workspace.dtype, device=META) for _ in range(2)]
    biases = [torch.empty(width, dtype=workspace.dtype, device=META) if has_bias else None for _ in range(2)]
    return *gates, like(grad), *biases


def _rnn(mode: int, has_cell: bool, dropout_state: list[Any], packed: bool = False) -> Callable[..., Any]:
    """cuDNN's recurrent layers: one operator a call (`RNN.cpp`, `cudnn/RNN.cpp`).

    A packed sequence comes with the batch size of every time step instead of the order of dimensions.
    """

    def run(x: Any, *rest: Any) -> Any:
        if packed:
            sizes, hidden, params, _biases, layers, p, train, both = rest
            first, batch_sizes = False, sizes.tolist()
        else:
            hidden, params, _biases, layers, p, train, both, first = rest
            batch_sizes = []
        hx: Any = hidden[0] if has_cell else hidden
        cx: Any = hidden[1] if has_cell else None
        state = None
        if p > 0 and train:
            # One buffer of random-number state per process, made when first needed (`get_dropout_state`).
            if not dropout_state:
                made = aten._cudnn_init_dropout_state(p, True, 0, dtype=torch.uint8, device=META)
                dropout_state.append(made)
            state = dropout_state[0]
        projection = hx.size(2) if has_cell and hx.size(2) != cx.size(2) else 0
        size = cx.size(2) if has_cell else hx.size(2)
        stride0 = len(params) // (layers * (2 if both else 1))
        flat = params[0]
        total = flat_rnn_count(params, stride0)
        buffer = None
        if flat.untyped_storage().nbytes() == total * flat.element_size():
            buffer = torch.as_strided(flat.detach(), (total,), (1,), 0)
        out = aten._cudnn_rnn(
            x,
            params,
            stride0,
            buffer,
            hx,
            cx,
            mode,
            size,
            projection,
            layers,
            first,
            p,
            train,
            both,
            batch_sizes,
            state,
        )
        return (out[0], out[1], out[2]) if has_cell else (out[0], out[1])

    return run


def lstm_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """`LSTMCell`, `RNN.cpp`: on CUDA one kernel behind the two products."""
    hidden, cell = hx
    gates = aten.matmul(x, w_ih.t()), aten.matmul(hidden, w_hh.t())
    return aten._thnn_fused_lstm_cell(*gates, cell, b_ih, b_hh)[:2]


def gru_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """`GRUCell`, `RNN.cpp`: as `lstm_cell`."""
    gates = aten.matmul(x, w_ih.t()), aten.matmul(hx, w_hh.t())
    return aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]


def flatten_rnn_weights(weights: Any, stride0: int, *_: Any) -> Any:
    """`_cudnn_rnn_flatten_weight` (`cudnn/RNN.cpp`): one zeroed buffer, the weights become views of it."""
    first = weights[0]
    # Left unfilled: the recorder need not follow its values.
    buffer = torch.empty(flat_rnn_count(weights, stride0), dtype=first.dtype, device=META)
    offset = 0
    for weight in weights:
        with torch.no_grad():
            weight.set_(buffer.untyped_storage(), offset, weight.shape, weight.contiguous().stride())
        offset += weight.numel()
    return buffer


def decisions() -> dict[Any, Callable[..., Any]]:
    """Operator overload -> the CUDA decision."""
    dropout_state: list[Any] = []
    return {
        aten.lstm_cell.default: lstm_cell,
        aten.gru_cell.default: gru_cell,
        aten.lstm.input: _rnn(2, True, dropout_state),
        aten.lstm.data: _rnn(2, True, dropout_state, packed=True),
        aten.gru.input: _rnn(3, False, dropout_state),
        aten.gru.data: _rnn(3, False, dropout_state, packed=True),
        aten.rnn_tanh.input: _rnn(1, False, dropout_state),
        aten.rnn_tanh.data: _rnn(1, False, dropout_state, packed=True),
        aten.rnn_relu.input: _rnn(0, False, dropout_state),
        aten.rnn_relu.data: _rnn(0, False, dropout_state, packed=True),
    }


RESULTS: dict[Any, Callable[..., Any]] = {
    aten._cudnn_rnn.default: cudnn_rnn,
    aten._cudnn_rnn_backward.default: cudnn_rnn_backward,
    aten._thnn_fused_lstm_cell_backward_impl.default: fused_lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: fused_gru_cell,
    aten._thnn_fused_gru_cell_backward.default: fused_gru_cell_backward,
    aten._cudnn_init_dropout_state.default: lambda *a, **k: torch.empty(0, dtype=torch.uint8, device=META),
}
