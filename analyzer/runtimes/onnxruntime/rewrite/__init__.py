"""Graph optimization as ONNX Runtime applies it before it plans memory.

Levels are ONNX Runtime's: 0 none, 1 basic (provider-independent), 2 extended (fusions per provider), 99 all. Passes
run in its order; the whole basic list is repeated until nothing changes, at most ten times.

1. basic: small eliminations and shared constants (`cleanup`), common subexpressions, constant folding (`folding`),
   MatMul+Add → Gemm, LayerNorm and Gelu recognition (`fusions`), transpose optimization last (`transposes`).
2. Operators the provider has no kernel for, but ONNX defines by others, are expanded (`bodies`); nodes are assigned
   to providers (`placement`); with `prefer_nhwc` layouts change (`layout`).
3. extended: Gather/Slice → Split, BiasGelu, SkipLayerNormalization, FastGelu, BiasSoftmax, MatMul scale (`fusions`).
4. Copies between host and device are inserted (`copies`).

Source: `core/optimizer/graph_transformer_utils.cc` (`GenerateTransformers`), `graph_transformer_mgr.cc`.
Checked against the executed node lists of 14 models on onnxruntime-gpu 1.30 (`tests/data/ort`).

Not modelled: attention and embedding fusions of exporters older than torch 2 (Attention, EmbedLayerNormalization),
quantization propagation, the CPU provider's blocked layouts of level 3 (NCHWc), cast propagation.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.plan.placement import assign
from analyzer.runtimes.onnxruntime.rewrite import bodies, cleanup, copies, folding, layout, transposes
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions import BASIC, EXTENDED, fuse

_STEPS = 10


def optimise(graph: RuntimeGraph, provider: str, level: int, *, nhwc: bool = False) -> None:
    """Rewrite the graph in place for "cuda" or "cpu" and assign every node to a provider."""
    for node in graph.nodes.values():
        for body in node.bodies.values():
            optimise(body, provider, level, nhwc=nhwc)
    if level >= BASIC:
        for _ in range(_STEPS):
            editor = Editor(graph)
            before = editor.changes
            cleanup.run(editor)
            cleanup.share_constants(editor)
            cleanup.common_subexpressions(editor)
            folding.run(editor)
            fuse(editor, BASIC, provider)
            transposes.run(editor)
            if editor.changes == before:
                break
    editor = Editor(graph)
    bodies.expand(editor, provider)
    editor.drop_unread()
    assign(graph, provider)
    if nhwc and provider == "cuda":
        layout.to_channels_last(Editor(graph))
        assign(graph, provider)
    if level >= EXTENDED:
        editor = Editor(graph)
        fuse(editor, EXTENDED, provider)
        editor.drop_unread()
    if provider == "cuda":
        copies.insert(Editor(graph))
