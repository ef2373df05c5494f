"""The figures of one ONNX Runtime session at any batch of a range, without reading its file again.

1. The file is read and rewritten at several batches. It is **the same session** if nodes and their places are
   the same one by one; only values' shapes may differ.
2. ONNX Runtime plans before it knows the batch, by the dimensions' names: order, buffers and releases are
   then the same too. Where it sees numbers instead that change with the batch (a file that fixes another),
   any two may be equal at some batch, and its plan another one there: no such batches are joined.
3. Each dimension is a polynomial in the batch, checked at a batch that did not make it (`polynomial.py`).
4. At a batch the values take their shapes there, and what depends on sizes is worked out by what always does:
   kernels' scratch, the memory pattern, the arena (`runtimes/onnxruntime/resized.py`).
5. Many batches are recorded at once, with dimensions that are another number at each (`parametric/lanes.py`);
   those at which the session asks for something else are recorded apart.

Not modelled: as in `planning/intervals.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from analyzer.devices import DeviceProfile
from analyzer.parametric.lanes import Integers, Lanes, in_parts
from analyzer.parametric.numbers import NotTheSame, Numbers
from analyzer.releases import Release
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Batches, Figures, ParametricCapture
from analyzer.runtimes.onnxruntime.frame import Frame, frame, rewritten
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.resized import ResizedSession, Runs

# A shape as a function of the batch, or of many (`Lanes`).
Shape: TypeAlias = Callable[[Any], tuple[Any, ...]]


class Sessions:
    """A file's sessions at any batch and device: their common frame, and its values' shapes."""

    def __init__(self, parametric: ParametricCapture, settings: SessionOptions, release: Release) -> None:
        """Raises NotTheSame, AnalyzerError."""
        graphs = [rewritten(each.model, None, settings, release=release) for each in parametric.sources]
        self.frame: Frame = frame(graphs[0], settings)
        # Values of one shape have one function of the batch.
        self._shapes: dict[Shape, list[Value]] = {}
        for value, shape in _shapes(graphs, Numbers(parametric.batches)):
            self._shapes.setdefault(shape, []).append(value)

    def resize(self, batch: int | Lanes) -> None:
        """Set the frame's values to their shapes at a batch. Raises as `Polynomial.at`."""
        for shape, values in self._shapes.items():
            sizes = shape(batch)
            for value in values:
                value.shape = sizes


class SessionBatches(Batches):
    """Figures of a session on one device, at any batch it holds for.

    prepared: batch → what the session asks for there, with others that were recorded at once; and the
    batch's lane among them.
    """

    def __init__(
        self, parametric: ParametricCapture, settings: SessionOptions, profile: DeviceProfile
    ) -> None:
        """parametric: of a file, captured at three batches at least. Raises NotTheSame, AnalyzerError."""
        self._naive = parametric.naive
        release = profile.releases["onnxruntime"]
        sessions = parametric.known.get((settings, release))
        self._sessions: Sessions = sessions or Sessions(parametric, settings, release)
        parametric.known[settings, release] = self._sessions
        self._sessions.resize(parametric.batches[0])  # another device's batches may have gone before
        self._session = ResizedSession(self._sessions.frame, settings, profile)
        if not self._session.plain:
            raise NotTheSame("the arena's other rules", anywhere=True)
        self.prepared: dict[int, tuple[Runs | None, int]] = {}

    def prepare(self, batches: Sequence[int]) -> None:
        """Record the session at many batches together, where it asks for the same."""

        def recorded(together: Integers) -> dict[int, tuple[Runs | None, int]]:
            if len(together) < 2:
                return {}
            try:
                runs = self._recorded(Lanes(together), len(together))
            except ArithmeticError:
                return {}
            return {batch: (runs, lane) for lane, batch in enumerate(together.tolist())}

        for _, sessions in in_parts(np.array(batches, np.int64), recorded):
            self.prepared |= sessions

    def at(self, batch: int, limit: Limit | None = None) -> Figures:
        """Return the figures there. Raises ArithmeticError as `Polynomial.at`, and where only an analysis
        knows: under a limit, on a device without room."""
        if limit is not None:
            raise ArithmeticError("a session under a limit is analysed")
        runs, lane = self.prepared.get(batch) or (self._recorded(batch), 0)
        figures = None if runs is None else self._session.figures(runs, lane)
        if figures is None:
            raise ArithmeticError(f"the session at batch {batch} is analysed")
        return Figures(
            batch, figures.peak_in_use, figures.held, figures.device_bytes, self._naive(batch).total
        )

    def _recorded(self, batch: int | Lanes, lane_count: int = 0) -> Runs | None:
        """Return the session's requests at a batch. Raises as `Polynomial.at` and `ResizedSession.runs`."""
        self._sessions.resize(batch)
        return self._session.runs(lane_count)


def _shapes(graphs: Sequence[RuntimeGraph], numbers: Numbers) -> Iterator[tuple[Value, Shape]]:
    """Yield the values of the first graph whose shape varies with the batch, with it. Raises NotTheSame.

    The plan follows from what is the same: nodes, and values' types and sizes as ONNX Runtime sees them
    (`symbols`).
    """
    _same_nodes(graphs)
    for values in _side_by_side([graph.values for graph in graphs], "the graph's values"):
        one = values[0]
        if any(value.symbols != one.symbols for value in values[1:]):
            raise NotTheSame(f"the size of {one.name} is fixed in the file", anywhere=True)
        if any(not _alike((v.dtype, v.bounded, v.data), (one.dtype, one.bounded, one.data)) for v in values):
            raise NotTheSame(one.name)
        shapes = [value.shape for value in values if value.shape is not None]
        if shapes and len(shapes) < len(values):
            raise NotTheSame(one.name)
        shape = numbers.integers(shapes, one.name) if shapes else None
        if callable(shape):
            yield one, shape
    for nodes in zip(*(graph.nodes.values() for graph in graphs), strict=True):
        for bodies in _side_by_side([node.bodies for node in nodes], "the graph's bodies"):
            yield from _shapes(bodies, numbers)


def _same_nodes(graphs: Sequence[RuntimeGraph]) -> None:
    """Raise NotTheSame unless the graphs are the same but for shapes."""
    first = graphs[0]
    for other in graphs[1:]:
        for node, same in zip(first.nodes.values(), other.nodes.values(), strict=False):
            if _all_but_attributes(node) != _all_but_attributes(same) or not _alike(
                node.attributes, same.attributes
            ):
                raise NotTheSame(node.name or node.op)
        if list(first.nodes) != list(other.nodes):
            raise NotTheSame("how many nodes run")
        ends = [
            (g.inputs, g.outputs, list(g.initializers), g.outer, g.fixed, g.overridable, g.opset)
            for g in (first, other)
        ]
        if ends[0] != ends[1]:
            raise NotTheSame("the graph's inputs, outputs or initializers")


def _all_but_attributes(node: Node) -> tuple[Any, ...]:
    """Return a node's fields except its attributes, for comparison."""
    return (
        node.index,
        node.name,
        node.operator,
        node.inputs,
        node.outputs,
        node.implicit,
        node.provider,
        tuple(node.bodies),
    )


def _alike(one: Any, other: Any) -> bool:
    """Equal, arrays element by element."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is other or (one is not None and other is not None and np.array_equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(value, other[name]) for name, value in one.items())
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)


def _side_by_side(every: Sequence[Mapping[Any, Any]], what: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values all mappings have under each key. Raises NotTheSame if keys differ."""
    for other in every[1:]:
        if other.keys() != every[0].keys():
            raise NotTheSame(what)
    for name in every[0]:
        yield tuple(mapping[name] for mapping in every)
