"""Resize and Upsample on the CPU provider: tables of positions and weights."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)

_SUPPORT = {"linear": 2.0, "cubic": 4.0}  # width of the filter, in positions of the input


@rule("cpu", "Resize", "Upsample")
def _cpu_resize(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """upsample.cc: linear by two positions and two weights a row and column; with antialias
    (upsample_antialias.h) a window of weights for each row and column, and the image resized in one
    direction."""
    source, result = shape_of(graph, node.inputs[0]), shape_of(graph, node.outputs[0])
    mode = node.attributes.get("mode", "nearest")
    if mode not in _SUPPORT or source == result or len(source) < 2 or len(source) != len(result):
        return []
    space = [axis for axis in range(len(source)) if source[axis] != result[axis]]
    last = len(source) == 4 and space[-1] < 3 and 1 in space  # channels last
    axes = [1, 2] if last else list(range(len(source)))[-(3 if len(source) in (3, 5) else 2) :]
    if node.attributes.get("antialias", 0):
        return _antialias(source, result, axes, str(mode), element_bytes(graph, node.inputs[0]))
    if mode == "cubic":
        return []
    each = 24 if len(axes) == 3 else 16
    return [(each * sum(result[axis] for axis in axes), "exact")]


def _antialias(
    source: tuple[int, ...], result: tuple[int, ...], axes: list[int], mode: str, size: int
) -> Takes:
    """Return an antialiased resize's filter weights by axis and the image between its two passes."""
    takes = []
    for axis in reversed(axes):
        scale = source[axis] / max(result[axis], 1)
        support = _SUPPORT[mode] * 0.5 * max(scale, 1.0)
        takes.append((4 * (2 * math.ceil(support) + 1) * result[axis], "exact"))
    rows, columns = axes[-2:]
    image = (
        math.prod(source) // max(source[0] * source[columns], 1) * result[columns] if len(source) > 3 else 0
    )
    takes.append((size * (image or source[rows] * result[columns]), "exact"))
    return takes
