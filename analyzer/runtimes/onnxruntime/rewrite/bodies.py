"""Operators without a kernel of their own run as the operators ONNX defines them by.

HardSwish = x * HardSigmoid(x, 1/6, 1/2) where the provider has no kernel (CPU); Mish = x * tanh(softplus(x)).

Source: the operators' function bodies in `onnx/defs/nn/defs.cc`, inlined when the graph is partitioned
(`core/framework/graph_partitioner.cc`). Measured: `tests/data/ort/sharing.json`.
Not modelled: GroupNormalization, Bernoulli and other functions (one kernel, noted as unknown).
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

# Operator -> (providers without a kernel, the operators f is made of, innermost first): x * f(x).
BODIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "HardSwish": (("cpu",), ("HardSigmoid",)),
    "Mish": (("cpu", "cuda"), ("Softplus", "Tanh")),
}


def expand(editor: Editor, provider: str) -> None:
    """Replace the operators of `BODIES` that the provider has no kernel for."""
    for node in list(editor.graph.nodes.values()):
        without, operators = BODIES.get(node.operator, ((), ()))
        if provider in without:
            _chain(editor, node, operators)


def _chain(editor: Editor, node: Node, operators: tuple[str, ...]) -> None:
    """x * f(x), f applied operator by operator."""
    x, result = node.inputs[0], node.outputs[0]
    value = editor.value(x)
    name = x
    for operator in operators:
        inner = editor.new_value(x, value.shape, value.symbols, f"{node.name}_{operator}")
        editor.add(operator, operator, [name], [inner])
        name = inner
    editor.add("Mul", "Mul", [x, name], [result])
    editor.remove(node)
