"""An If whose condition is a constant is replaced by the branch it takes.

The branch's nodes take the next free indices, in topological order; its constants are the graph's, and what
it makes for the If goes by the If's names. The other branch is gone, with its weights.

Source: `core/optimizer/constant_folding.cc` (`ConstantFoldIfNode`), `core/graph/graph.cc`
(`Graph::InlineIfSubgraph`). Compared with real sessions:
`tests/extensions/verify/onnxruntime/test_branches.py`.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.plan.order import topological
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor, rename_outer


def inline(editor: Editor, node: Node) -> bool:
    """Replace an If by its branch; return False if the condition is unknown before the run."""
    graph = editor.graph
    condition = graph.constant(node.input(0))
    if node.operator != "If" or condition is None or condition.size != 1:
        return False
    body = node.bodies.get("then_branch" if condition.reshape(-1)[0] else "else_branch")
    if body is None or not {*body.outputs} <= body.producers().keys():
        return False
    names = _names(graph, body, node)
    for old in body.initializers:
        body.constant(old)  # its elements are found by the name it has in the file
        graph.initializers[names[old]] = None
    for old, value in body.values.items():
        if old not in body.outer:
            graph.values[names[old]] = replace(value, name=names[old])
    editor.remove(node)
    for inner in topological(body):
        name = f"{node.name}/{inner.name}"
        inputs, outputs = ([names[old] for old in each] for each in (inner.inputs, inner.outputs))
        added = editor.add(name, inner.op, inputs, outputs, inner.attributes, inner.domain)
        added.counted, added.bodies = inner.counted, inner.bodies
        for sub in inner.bodies.values():
            rename_outer(sub, names)
        editor.set_implicit(added, [names[name] for name in inner.implicit])
    return True


def _names(graph: RuntimeGraph, body: RuntimeGraph, node: Node) -> dict[str, str]:
    """Return the branch's value names in the graph; outer values and results keep theirs."""
    outer_names = dict(zip(body.outputs, node.outputs, strict=False))
    names = {"": ""}
    for name in body.values:
        names[name] = (
            name
            if name in body.outer
            else outer_names.get(name) or graph.fresh(f"{node.name or node.op}/{name}")
        )
    return names
