"""Recurrent layers of cuDNN (copies to time-major order, workspace, the reserve kept for the backward pass),
and cells.

Sizes of workspace and reserve: `libraries/cudnn/recurrent.py`. Source: `aten/src/ATen/native/cudnn/RNN.cpp`
(`_cudnn_rnn`, `_cudnn_rnn_backward`), `aten/src/ATen/native/cuda/RNN.cu` (`_thnn_fused_{lstm,gru}_cell_cuda`
and their backward); orders and the 24 bytes of dropout's state from recorded histories (H200). Not modelled:
double backward.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES
from analyzer.libraries.cudnn.recurrent import MODES, Algorithm, Recurrent, dropout_state_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    contiguous_copy_bytes,
    contiguous_like,
    permuted,
)
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import AbsentError, Basis, Script, present, rule

_SEED_BYTES = 8
_SMALL = {"LSTM": (192, 128), "GRU": (192, 128), "RNN": (384, 256)}  # forward, backward
_WIDEST_STATIC = 1024
_BIASED = (4, 5)  # tensors of a layer and direction that has biases; the second with a projection


def _layer(operator: Operator, device: DeviceProfile, backward: bool = False) -> Recurrent:
    """Return the layer. backward: with the algorithm of the backward pass. Raises AbsentError if cuDNN has no
    such type."""
    source = present(operator, "input")
    mode = operator.integer("mode", default=-1)
    if source.dtype not in ELEMENT_BYTES or not 0 <= mode < len(MODES):
        raise AbsentError
    lengths = operator.integers("batch_sizes")
    rows = source.shape[0] if lengths else None
    if lengths:
        steps, batch = len(lengths), lengths[0]
    else:
        steps, batch = source.shape[:2]
        if operator.integer("batch_first"):
            steps, batch = batch, steps
    dropout = operator.argument("dropout", default=0.0)
    layer = Recurrent(
        MODES[mode],
        source.dtype,
        source.shape[-1],
        operator.integer("hidden_size"),
        operator.integer("num_layers", default=1),
        2 if operator.integer("bidirectional") else 1,
        batch,
        steps,
        bool(dropout) and bool(operator.argument("train")),
        operator.integer("proj_size"),
        rows,
    )
    return replace(layer, algorithm=_algorithm(layer, device, backward))


def _algorithm(layer: Recurrent, device: DeviceProfile, backward: bool) -> Algorithm:
    """Return the algorithm PyTorch asks cuDNN for (`get_algo`): "standard" for packed sequences, projections
    and float64; persistent kernels for small layers (`use_rnn_persist_small_h`) and some float16 layers
    (`use_persist_common_heuristics`, `use_persist_device_heuristics`)."""
    if layer.rows is not None or layer.projection or layer.dtype == "float64":
        return "standard"
    kind = layer.mode.partition("_")[0]
    if layer.hidden <= _SMALL[kind][backward]:
        return "small"
    single = layer.layers == 1 and layer.directions == 1 and layer.hidden <= _WIDEST_STATIC
    large = device.architecture.persistent_layers and device.sm_count >= 98
    if not (layer.dtype == "float16" and single and large and kind != "GRU"):
        return "standard"
    if layer.hidden % 128 or layer.inputs % 128 or layer.batch % 8 or layer.batch > 128:
        return "standard"
    return "static" if kind == "LSTM" or layer.batch < 96 or layer.hidden < 896 else "standard"


def _time_major(operator: Operator, tensor: TensorMeta) -> TensorMeta:
    """Return the tensor as the kernel sees it: transposed if batches come first."""
    if operator.integers("batch_sizes") or not operator.integer("batch_first"):
        return tensor
    return permuted(tensor, (1, 0, *range(2, len(tensor.shape))))


@rule("aten::_cudnn_rnn", name="cudnn-recurrent", sure=(Basis.EXACT, Basis.MEASURED))
def cudnn_rnn(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A contiguous time-major copy of the input, the results, a flat weight buffer where the weights do not
    lie in one, cuDNN's workspace and, in training, the reserve it keeps for the backward pass.
    """
    layer, source = _layer(operator, device), present(operator, "input")
    script.library("cudnn")
    script.copies(_time_major(operator, source))
    for index in (0, 1, 2, 4):
        if index < len(operator.outputs):
            script.output(index)
    train = bool(operator.argument("train"))
    nbytes = layer.training_workspace_bytes() if train else layer.inference_workspace_bytes()
    script.temporary(nbytes, Basis.MEASURED)
    if train:
        script.output(3, layer.reserve_bytes())


@rule("aten::_cudnn_rnn_backward", name="cudnn-recurrent-grad", sure=(Basis.EXACT, Basis.MEASURED))
def cudnn_rnn_backward(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Zeros for gradients nobody sent; then twice, for data and for weights, the time-major copies and
    cuDNN's workspace; contiguous copies of the states' gradients with the data's. The weights' gradients are
    views of one buffer; without biases, which cuDNN's buffer has all the same, copies of its parts.
    """
    layer, source = _layer(operator, device, backward=True), present(operator, "input")
    script.library("cudnn")
    sent = [operator.tensor(name) for name in ("grad_output", "grad_hy", "grad_cy")]
    for index, like in enumerate([operator.tensor(name) for name in ("output", "hx", "cx")]):
        if sent[index] is None and like is not None:
            sent[index] = zeros = contiguous_like(like)
            script.temporary(bytes_of(zeros))
    output_grad, *state_grads = sent
    copy_bytes = contiguous_copy_bytes(_time_major(operator, source))
    grad_bytes = contiguous_copy_bytes(output_grad and _time_major(operator, output_grad))
    workspace_bytes = layer.training_workspace_bytes()

    held = script.temporaries(copy_bytes, grad_bytes)
    script.output(0)
    held += [script.temporary(contiguous_copy_bytes(grad)) for grad in state_grads]
    script.output(1)
    script.output(2)
    held.append(script.temporary(workspace_bytes, Basis.MEASURED))
    script.release(*reversed(held))

    weights = range(3, len(operator.outputs))
    held = [script.temporary(copy_bytes)]
    views = operator.integer("weight_stride0", default=4) in _BIASED
    separate = weights and not views
    if separate:
        held.append(script.temporary(layer.weight_count * ELEMENT_BYTES[layer.dtype]))
    else:
        for index in weights:
            script.output(index)
    held.append(script.temporary(workspace_bytes, Basis.MEASURED))
    if separate:
        for index in weights:
            script.output(index)


@rule("aten::_cudnn_init_dropout_state", name="cudnn-dropout-state", sure=(Basis.EXACT, Basis.MEASURED))
def dropout_state(_operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Dropout between layers keeps one state a process: 24 bytes for every thread the GPU can hold (recorded
    on an H200), after a seed of 8 bytes.
    """
    script.library("cudnn")
    script.release(script.temporary(_SEED_BYTES))
    nbytes = dropout_state_bytes(device.sm_count * device.max_threads_per_sm)
    script.workspace("cudnn dropout state", nbytes, Basis.MEASURED)


@rule("aten::_thnn_fused_lstm_cell_backward_impl", "aten::_thnn_fused_gru_cell_backward")
def recurrent_cell_grad(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The gradients of gates and state, then those of the biases, each a sum of the gates' over the batch.

    Results: (gates, state, bias) of an LSTM; (input gates, hidden gates, state, input bias, hidden bias) of a
    GRU.
    """
    gates_count, biases_at = (1, 2) if operator.name.startswith("aten::_thnn_fused_lstm") else (2, 3)
    for index in range(biases_at):
        script.output(index)
    for gates, index in enumerate(range(biases_at, biases_at + gates_count)):
        source = operator.outputs[gates]
        if index < len(operator.outputs) and operator.outputs[index] is not None and source is not None:
            script.output(index)
            sum_over(script, device, source, (0,))
