"""Copies between host and device where a node's provider does not find its operand.

1. A value a CUDA kernel makes in device memory and a CPU node reads gets one MemcpyToHost; a value made on
   the host and read by a CUDA kernel in device memory one MemcpyFromHost, whatever the number of readers.
2. A graph input that both sides read stays on the host and is copied by one MemcpyFromHost; one that only
   CUDA kernels read in device memory is copied there by the session.
3. A constant both sides read exists twice.

Source: `core/optimizer/transformer_memcpy.cc`. Measured: `tests/data/ort/kernels.json.gz`.
Not modelled: values that subgraphs read.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.kernels import declared
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor


def insert(editor: Editor) -> None:
    """Insert the copies into a graph whose nodes have providers."""
    graph = editor.graph
    for node in editor.order():
        for place, name in enumerate(node.outputs):
            if name:
                _connect(editor, name, declared.output_on_host(node.provider, node.kernel, place))
    for name in graph.inputs:
        wanted = {_wants_host(editor, user, name) for user in editor.users(name)}
        if len(wanted) == 2:
            _connect(editor, name, True)
    for name in list(graph.initializers):
        _duplicate(editor, name)


def _wants_host(editor: Editor, node: Node, name: str) -> bool:
    """Return whether the node reads the value in host memory."""
    if node.bodies:
        return node.provider == "cpu"
    return all(
        declared.input_on_host(node.provider, node.kernel, place) for place in editor.places(node, name)
    )


def _connect(editor: Editor, name: str, on_host: bool) -> None:
    """Insert a copy of a value for the nodes that want it on the other side (host or device)."""
    apart = [
        node
        for node in editor.users(name)
        if not node.op.startswith("Memcpy") and _wants_host(editor, node, name) != on_host
    ]
    # Control flow copies what its bodies need by itself.
    apart = [node for node in apart if not node.bodies]
    if not apart:
        return
    value = editor.value(name)
    copy = editor.new_value(name, value.shape, value.symbols)
    op = "MemcpyFromHost" if on_host else "MemcpyToHost"
    editor.add("Memcpy", op, [name], [copy], {}, "", "cuda")
    for node in apart:
        for place in editor.places(node, name):
            editor.set_input(node, place, copy)


def _duplicate(editor: Editor, name: str) -> None:
    """Give host and device users of a constant a copy each."""
    graph: RuntimeGraph = editor.graph
    users = editor.users(name)
    host = [node for node in users if _wants_host(editor, node, name)]
    if not host or len(host) == len(users):
        return
    value = editor.value(name)
    twin = editor.new_value(name, value.shape, value.symbols)
    graph.values[twin] = Value(twin, value.dtype, value.shape, value.symbols, graph.constant(name))
    graph.initializers[twin] = None
    for node in host:
        for place in editor.places(node, name):
            editor.set_input(node, place, twin)
