"""Graph optimization as ONNX Runtime applies it before it plans memory.

Levels are ONNX Runtime's: 0 none, 1 basic (provider-independent), 2 extended (fusions per provider), 99 all.
Passes run in its order; a level's whole list is repeated until nothing changes, at most ten times, but for
constant sharing and the transpose optimizer, which run once a level (`ShouldOnlyApplyOnce`).

1. basic: small eliminations and shared constants (`cleanup`), common subexpressions, constant folding
   (`folding`), after which shapes are inferred anew (`inference`), MatMul+Add → Gemm, LayerNorm and Gelu
   recognition (`fusions`), quantization spread (`quantized`), transpose optimization last (`transposes`).
2. Operators the provider has no kernel for, but ONNX defines by others, are expanded (`bodies`); nodes are
   assigned to providers (`placement`); with `prefer_nhwc` layouts change (`layout`).
3. extended: quantized groups → operators on integers (`quantized`), Gather/Slice → Split, BiasGelu,
   SkipLayerNormalization, FastGelu, BiasSoftmax, MatMul scale (`fusions`).
4. Casts around half precision without a kernel (`casts`); copies between host and device are inserted
   (`copies`).

Source: `core/optimizer/graph_transformer_utils.cc` (`GenerateTransformers`), `graph_transformer_mgr.cc`.
Checked against the executed node lists of 14 models on onnxruntime-gpu 1.30 (`tests/data/ort`).

Not modelled: attention and embedding fusions of exporters older than torch 2 (Attention,
EmbedLayerNormalization), the CPU provider's layouts of level 3 (NCHWc, NHWC). Of what changed between
releases: 1.32's Attention with a local window and 5 of 47 functions of the onnx package's tests, which take
other amounts than before; kernels that releases before 1.31 lacked; initializers before 1.24, of which small
ones were not kept in the arena.

Compared with real releases: from 1.22 to 1.32, node by node
(`tests/runtimes/onnxruntime/test_rewrites_against_ort.py`, 176 graphs each); from 1.28 on what a session
takes, to the byte (all tests of that folder pass under 1.28, 1.29, 1.31); what the arena holds of five
quantised networks under 1.24, 1.25 and 1.27.
"""

from __future__ import annotations

from analyzer.releases import RECORDED, Release
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import declared, registered
from analyzer.runtimes.onnxruntime.plan.placement import assign
from analyzer.runtimes.onnxruntime.reads import refused_nodes
from analyzer.runtimes.onnxruntime.rewrite import (
    bodies,
    casts,
    cleanup,
    copies,
    folding,
    inference,
    layout,
    transposes,
)
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions import BASIC, EXTENDED, fuse
from analyzer.runtimes.onnxruntime.rewrite.quantized import groups, remains, spreading

_STEPS = 10


def optimise(
    graph: RuntimeGraph,
    provider: str,
    level: int,
    *,
    nhwc: bool = False,
    release: Release = RECORDED["onnxruntime"],
    inside: bool = False,
) -> None:
    """Rewrite the graph in place for "cuda" or "cpu", as a release does, and assign every node to a provider.
    inside: whether it is a subgraph, whose constants are not shared (`ConstantSharing::ApplyImpl` does not
    recurse)."""
    graph.release = release
    if level < BASIC:
        _subgraphs(Editor(graph), provider, level, nhwc=nhwc)
    if graph.functions_first:
        bodies.expand(Editor(graph), provider)
    spreading.one_reader_each(Editor(graph))
    if level >= BASIC:
        for step in range(_STEPS):
            editor = Editor(graph)
            before = editor.changes
            cleanup.run(editor)
            spreading.remove_double_pairs(editor)
            if not step and not inside:
                cleanup.share_constants(editor)
            cleanup.common_subexpressions(editor)
            if folding.run(editor):
                inference.refresh(editor)
            if not step:
                _subgraphs(editor, provider, level, nhwc=nhwc)
            folded = editor.changes
            fuse(editor, BASIC, provider)
            if editor.changes != folded:
                inference.refresh(editor)
            spreading.spread(editor)
            if not step:
                transposes.run(editor)
            if editor.changes == before:
                break
    editor = Editor(graph)
    indices = set(graph.nodes)
    bodies.expand(editor, provider)
    for index in graph.nodes.keys() - indices:
        for body in graph.nodes[index].bodies.values():
            optimise(body, provider, 0, release=release)
    editor.drop_unread()
    assign(graph, provider)
    if nhwc and provider == "cuda":
        layout.to_channels_last(Editor(graph))
        assign(graph, provider)
    for step in range(_STEPS if level >= EXTENDED else 0):
        editor = Editor(graph, partitioned=True)
        remains.drop_activations(editor)
        if provider == "cpu" and not step:
            transposes.run(editor)
            for node in graph.nodes.values():
                if not node.provider and declared.has_kernel("cpu", node, graph):
                    node.provider = "cpu"
        groups.signed_to_unsigned(editor)
        groups.to_integers(editor)
        fuse(editor, EXTENDED, provider)
        remains.clean_up(editor)
        editor.drop_unread()
        if not editor.changes:
            break
    casts.insert(Editor(graph), fold=level > EXTENDED)
    _name_missing(graph, provider)
    if provider == "cuda":
        copies.insert(Editor(graph))


def _subgraphs(editor: Editor, provider: str, level: int, *, nhwc: bool) -> None:
    """Rewrite subgraphs by what is constant around them. Transformers go into them one by one; here one
    level's all at once, where the first time the constants around them are folded."""
    graph = editor.graph
    for node in list(graph.nodes.values()):
        for body in node.bodies.values():
            body.fixed = frozenset(name for name in body.outer if graph.is_constant(name))
            body.values |= {name: graph.values[name] for name in body.fixed}
            optimise(body, provider, level, nhwc=nhwc, release=graph.release, inside=True)
            body.outer &= {*body.consumers(), *body.outputs}
        if node.bodies:
            read = [
                name for name in node.implicit if any(name in body.outer for body in node.bodies.values())
            ]
            editor.set_implicit(node, read)


def _name_missing(graph: RuntimeGraph, provider: str) -> None:
    """Assign nodes that no provider runs to the session's own: ONNX Runtime refuses the model."""
    missing = [node for _, node in sorted(graph.nodes.items()) if not node.provider]
    for node in missing:
        node.provider = provider
    names = sorted({node.operator for node in missing if node.domain in registered.OWN_DOMAINS})
    if names:
        graph.refusals.append(f"no kernel for {', '.join(names)} of these types or versions")
    graph.refusals += refused_nodes(graph)
    graph.refusals += [
        reason for node in graph.nodes.values() for body in node.bodies.values() for reason in body.refusals
    ]
