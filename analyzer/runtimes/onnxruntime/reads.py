"""Files a release of ONNX Runtime reads: no newer format, and no newer operator set of ONNX's own; and nodes
whose kernels refuse their inputs' shapes.

Source: `core/providers/cpu/llm/rotary_embedding_helper.h` (`CheckInputs`); its own sentences about a file
of IR version 99 and one of operator set 99, by onnxruntime 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1,
1.26.0 to 1.32.0 (`core/graph/model.cc`); releases before and after are taken for the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.releases import Release, written
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph

# From this release on: the newest IR version and operator set.
_NEWEST: tuple[tuple[Release, int, int], ...] = (
    ((1, 20), 10, 21),
    ((1, 21), 10, 22),
    ((1, 23), 11, 23),
    ((1, 24), 13, 25),
    ((1, 25), 13, 26),
    ((1, 32), 14, 28),
)


def refusals(ir_version: int, opset: int, release: Release) -> tuple[str, ...]:
    """Return why a release does not read a file of this IR version and operator set; none where it does."""
    _, newest, last = next((row for row in reversed(_NEWEST) if row[0] <= release), _NEWEST[0])
    of_release = f"that ONNX Runtime {written(release)} reads"
    reasons = []
    if ir_version > newest:
        reasons.append(f"the file has IR version {ir_version}, the newest {of_release} is {newest}")
    if opset > last:
        reasons.append(f"the file has operator set {opset}, the newest {of_release} is {last}")
    return tuple(reasons)


def refused_nodes(graph: RuntimeGraph) -> Iterator[str]:
    """Yield why kernels refuse nodes of a graph at its sizes: a RotaryEmbedding without positions has a cache
    for every sequence."""
    for node in graph.nodes.values():
        if node.operator != "RotaryEmbedding" or node.input(3):
            continue
        x, cache = (graph.values[node.input(place)].shape for place in (0, 1))
        if x is None or cache is None or len(x) not in (3, 4):
            continue
        if len(cache) != 3 or cache[:2] != (x[0], x[-2]):
            sizes = "x".join(map(str, cache))
            yield (
                f"RotaryEmbedding {node.name} without position_ids wants a cos_cache of {x[0]} sequences"
                f" of {x[-2]} tokens, and has {sizes}"
            )
