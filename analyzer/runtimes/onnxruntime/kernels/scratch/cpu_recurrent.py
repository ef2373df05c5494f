"""Recurrent layers of the CPU provider: states, gates and reversed sequences of each direction."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)


def _wanted(node: Node, place: int) -> bool:
    return len(node.outputs) > place and bool(node.outputs[place])


def _sizes(node: Node, graph: RuntimeGraph) -> tuple[int, int, int, int] | None:
    """(steps, batch, features, hidden), None if they are not known."""
    x, r = shape_of(graph, node.inputs[0]), shape_of(graph, node.inputs[2])
    hidden = int(node.attributes.get("hidden_size", r[-1] if r else 0))
    return (x[0], x[1], x[2], hidden) if len(x) == 3 and hidden > 0 else None


def _directions(node: Node) -> tuple[bool, ...]:
    """Return, for each direction of the layer, whether it runs backwards."""
    direction = node.attributes.get("direction", "forward")
    return (False, True) if direction == "bidirectional" else (direction == "reverse",)


@rule("cpu", "RNN")
def _cpu_rnn(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """rnn.cc: the inputs times their weights for every step, and the whole sequence where it is no result."""
    sizes = _sizes(node, graph)
    if sizes is None:
        return []
    steps, batch, _, hidden = sizes
    state = element_bytes(graph, node.inputs[0]) * steps * batch * hidden
    takes = [(state, "exact")]
    return takes if _wanted(node, 0) else [*takes, (state * len(_directions(node)), "exact")]


@rule("cpu", "LSTM")
def _cpu_lstm(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """uni_directional_lstm.cc (AllocateBuffers), deep_cpu_lstm.cc: last states that are no results; for each
    direction two rows of zeros, three states, the four gates of every step, summed biases, and input and
    result reversed for the backward one; sequence lengths where none are given."""
    sizes = _sizes(node, graph)
    if sizes is None:
        return []
    steps, batch, features, hidden = sizes
    size = element_bytes(graph, node.inputs[0])
    state, row = size * batch * hidden, size * hidden
    backwards = _directions(node)
    takes = [state * len(backwards) for place in (1, 2) if not _wanted(node, place)]
    for backward in backwards:
        takes += [row, row, state, state, state, 4 * steps * state]
        takes += [row] * 4 if node.input(3) else []
        takes += [size * steps * batch * features, steps * state] if backward else []
    takes += [] if node.input(4) else [4 * batch] * len(backwards)
    return [(nbytes, "exact") for nbytes in takes]


@rule("cpu", "GRU")
def _cpu_gru(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """deep_cpu_gru.cc (AllocateBuffers): the last state if it is no result; for each direction two states,
    biases repeated for the batch, the three gates of every step, and input and result reversed for the
    backward one; sequence lengths where none are given."""
    sizes = _sizes(node, graph)
    if sizes is None:
        return []
    steps, batch, features, hidden = sizes
    size = element_bytes(graph, node.inputs[0])
    state = size * batch * hidden
    linear = bool(node.attributes.get("linear_before_reset", 0))
    backwards = _directions(node)
    takes = [] if _wanted(node, 1) else [state * len(backwards)]
    for backward in backwards:
        takes += [state, state]
        takes += [state] * (4 if linear else 3) if node.input(3) else []
        takes += [state] if linear else []
        takes += [3 * steps * state]
        takes += [size * steps * batch * features, steps * state] if backward else []
    takes += [] if node.input(4) else [4 * batch] * len(backwards)
    return [(nbytes, "exact") for nbytes in takes]
