"""ONNX Runtime's allocation plan: which tensors share a buffer, and after which kernel a buffer is released.

1. Use counts: one for each use of a value as an input (a graph input, an initializer, or a graph output
   counts one more, so it is never overwritten), one more for being defined.
2. Nodes of one stream are walked in order; buffers are shared within a stream only. For each output, the
   first that matches: it is a graph output: own buffer; its kernel aliases an input: that input's buffer; the
   kernel may work in place, the input's buffer has exactly one use left and both have the same size: that
   buffer; somebody reads it and a buffer on the free list has the same size: that one; otherwise a new
   buffer.
3. After a node, each buffer whose count drops to zero goes to the front of the free list, inputs first, then
   outputs nobody reads. The free list is searched from the front.
4. "Same size": equal element sizes, not strings, equal rank, and every dimension equal as a number or as a
   non-empty name. Unknown dimensions match nothing; scalars are not taken from the free list. Bytes are never
   compared.
5. A buffer is released after the last kernel that reads it, or any tensor sharing it; buffers nobody reads
   live to the end of the run.
6. In the body of a Loop, an Identity of something the Loop passes in (but the iteration number) is no copy.

Source: `core/framework/allocation_planner.cc` (`ComputeReuseCount`, `ComputeSingleStreamReusePlan`,
`FindReusableInput`, `FindReusableTensor`, `SameSize`, `GenerateDeallocationPlan`).

Not modelled: strided tensors (training builds), several streams on one device, IO binding.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.graph import dtype_bits
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.kernels import declared


class Kind(enum.Enum):
    """How a value gets its buffer in the plan."""

    EXISTING = "existing"
    STATIC = "static"
    OUTPUT = "output"
    ALLOCATE = "allocate"
    REUSE = "reuse"


@dataclass(frozen=True, slots=True)
class Placement:
    """kind; `buffer` is the value whose buffer this one uses (itself if it has its own); `on_host`."""

    kind: Kind
    buffer: str
    on_host: bool


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """`release[i]`: buffers released after the kernel with index i."""

    placements: Mapping[str, Placement]
    release: Mapping[int, tuple[str, ...]]


def same_size(left: Value, right: Value) -> bool:
    """Return whether element sizes, ranks and dimensions (numbers or names) are equal; no strings."""
    if left.symbols is None or right.symbols is None or "string" in (left.dtype, right.dtype):
        return False
    if not left.dtype or not right.dtype or dtype_bits(left.dtype) != dtype_bits(right.dtype):
        return False
    if len(left.symbols) != len(right.symbols):
        return False
    return all(a == b and a != "" for a, b in zip(left.symbols, right.symbols, strict=True))


def locations(graph: RuntimeGraph) -> dict[str, bool]:
    """Value name to whether its buffer is in host memory."""
    on_host: dict[str, bool] = {}
    for node in graph.nodes.values():
        for place, name in enumerate(node.outputs):
            if name:
                on_host[name] = declared.output_on_host(node.provider, node.kernel, place)
    outside = {*graph.inputs, *graph.initializers}
    for node in graph.nodes.values():
        for place, name in enumerate(node.inputs):
            if name in outside and name not in on_host:
                on_host[name] = declared.input_on_host(node.provider, node.kernel, place)
        for name in node.implicit:
            if name in outside and name not in on_host:
                on_host[name] = node.provider == "cpu"
    return on_host


def plan(
    graph: RuntimeGraph, lanes: list[list[Node]], reuse: bool = True, loop_body: bool = False
) -> BufferPlan:
    """Return the plan for the nodes of each stream (`order.streams`)."""
    values = graph.values
    on_host = locations(graph)
    placements: dict[str, Placement] = {}
    for name in graph.initializers:
        placements[name] = Placement(Kind.STATIC, name, on_host.get(name, True))
    for name in (*graph.inputs, *graph.outer):
        placements[name] = Placement(Kind.EXISTING, name, on_host.get(name, True))
    counts = _use_counts(graph)
    outputs = set(graph.outputs)
    read = {name for node in graph.nodes.values() for name in (*node.inputs, *node.implicit)}

    for lane in lanes:
        uses = dict(counts)
        free: list[str] = []
        for node in lane:
            for place, name in enumerate(node.outputs):
                if not name:
                    continue
                host = on_host[name]
                buffer = (
                    "" if name in outputs else _shared_input(node, place, placements, uses, values, reuse)
                )
                if name in outputs:
                    shared = loop_body and node.op == "Identity" and node.inputs[0] in graph.inputs[1:]
                    placements[name] = Placement(Kind.EXISTING if shared else Kind.OUTPUT, name, host)
                    continue
                if not buffer and reuse and name in read:
                    buffer = _from_free_list(name, host, free, placements, values)
                if buffer:
                    uses[buffer] += uses.get(name, 0)
                    placements[name] = Placement(Kind.REUSE, buffer, host)
                else:
                    placements[name] = Placement(Kind.ALLOCATE, name, host)
            for name in (*node.inputs, *node.implicit, *node.outputs):
                if not name or name not in placements:
                    continue
                buffer = placements[name].buffer
                uses[buffer] = uses.get(buffer, 0) - 1
                if uses[buffer] == 0:
                    free.insert(0, buffer)
    return BufferPlan(placements, _releases(lanes, placements))


def _use_counts(graph: RuntimeGraph) -> dict[str, int]:
    """Return the use counts of values: one per use as an input, one for the definition, one more if the
    caller or the session owns it."""
    counts: dict[str, int] = {}
    for name in (*graph.inputs, *graph.initializers, *graph.outer, *graph.outputs):
        counts[name] = counts.get(name, 0) + 1
    for node in graph.nodes.values():
        for name in (*node.inputs, *node.implicit, *node.outputs):
            if name:
                counts[name] = counts.get(name, 0) + 1
    return counts


def _shared_input(
    node: Node,
    place: int,
    placements: Mapping[str, Placement],
    uses: Mapping[str, int],
    values: Mapping[str, Value],
    reuse: bool,
) -> str:
    """Return the buffer of an input this output takes over, or ""."""
    for source, target in declared.alias(node.provider, node.kernel, len(node.inputs), len(node.outputs)):
        # A buffer of another stream that is not planned yet cannot be shared.
        if target == place and node.inputs[source] in placements:
            return placements[node.inputs[source]].buffer
    if not reuse:
        return ""
    for source, target in declared.in_place(node.provider, node.kernel):
        name = node.inputs[source] if source < len(node.inputs) else ""
        if target != place or name not in placements:
            continue
        buffer = placements[name].buffer
        if uses.get(buffer) == 1 and same_size(values[name], values[node.outputs[place]]):
            return buffer
    return ""


def _from_free_list(
    name: str, host: bool, free: list[str], placements: Mapping[str, Placement], values: Mapping[str, Value]
) -> str:
    """Take a matching buffer off the free list, or ""."""
    if not values[name].symbols:
        return ""
    for position, candidate in enumerate(free):
        if placements[candidate].on_host == host and same_size(values[candidate], values[name]):
            del free[position]
            return candidate
    return ""


def _releases(lanes: list[list[Node]], placements: Mapping[str, Placement]) -> dict[int, tuple[str, ...]]:
    """Return the buffers to release after each kernel: the last that reads one, or a tensor sharing it.

    Read from several streams it is listed once for each: whichever reader runs last releases it (`session`
    counts).
    """
    last: dict[str, dict[int, int]] = {}
    for lane, nodes in enumerate(lanes):
        for node in nodes:
            for name in (*node.inputs, *node.implicit):
                if name and name in placements:
                    buffer = placements[name].buffer
                    if placements[buffer].kind is Kind.ALLOCATE:
                        last.setdefault(buffer, {})[lane] = node.index
    release: dict[int, list[str]] = {}
    for buffer, by_lane in last.items():
        for index in by_lane.values():
            release.setdefault(index, []).append(buffer)
    return {index: tuple(buffers) for index, buffers in release.items()}
