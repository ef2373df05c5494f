"""Recurrent layers of the CUDA provider: cuDNN's work space and what the provider puts beside it."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)

_LENGTHS = 4  # place of the sequence lengths among the inputs
_WORK_BYTES = 8 << 20  # of cuDNN's work space a direction, whatever the sizes and the type


@rule("cuda", "LSTM", "GRU", "RNN")
def _recurrent(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """cudnn_rnn_base.cc: sequence lengths, Y where the model does not ask for it, weights in cuDNN's layout
    unless cached, cuDNN's work space, and Y once more to reorder two directions. The work space is a fit
    without residue to 246 measurements (H200, cuDNN 9.19; LSTM, GRU, RNN; `tests/data/ort/kernels.json.gz`),
    in half precision to four more (`tests/data/h200/onnx_cuda.json.gz`)."""
    x, w = shape_of(graph, node.inputs[0]), shape_of(graph, node.inputs[1])
    size = element_bytes(graph, node.inputs[0])
    hidden = int(node.attributes.get("hidden_size", 0))
    if len(x) != 3 or len(w) != 3 or hidden <= 0:
        return []
    steps, batch, features = x
    directions, gates = w[0], w[1] // hidden
    state = steps * batch * hidden * directions
    takes: Takes = [(4 * batch, "exact")]
    if not node.outputs or not node.outputs[0]:
        takes.append((size * state, "exact"))
    if not all(graph.is_constant(name) for name in node.inputs[1:3]):
        takes += [(nbytes, "exact") for nbytes in packing.recurrent(node, graph)]
    one = (
        gates * hidden * (features + hidden)
        + (gates + 1) * steps * batch * hidden
        + (gates + (6 if node.op == "LSTM" else 2)) * batch * hidden
    )
    both = 4 * batch * hidden * (steps + 1) if directions == 2 else 0
    work = (
        directions * _WORK_BYTES
        + size * (directions * one + both + steps * batch * features)
        + 256
        + -(-8 * batch // 32) * 32
    )
    same_lengths = not node.input(_LENGTHS)  # with lengths of their own cuDNN takes less, as recorded
    basis = "measured" if settings.device.name == "h200" and size == 4 and same_lengths else "bounded"
    takes.append((work, basis))
    return [*takes, (size * state, "exact")] if directions == 2 else takes
