"""An ONNX model read once: its structure and every value's shape, which capture, training and ONNX Runtime
all start from.

Functions local to the model are inlined first; external data is checked but not read (`onnx_file`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer.errors import InputError, TargetError
from analyzer.files import allowed, more
from analyzer.onnx import file as onnx_file
from analyzer.onnx.file import MOST_NODES
from analyzer.onnx.node import DEFAULT_DOMAINS, node_name
from analyzer.onnx.shapes.any_batch import Shapes, infer_shapes
from analyzer.onnx.shapes.bind import Described, check_batch
from analyzer.onnx.structure import Structure, prepare
from analyzer.onnx.types import display


@dataclass(frozen=True, slots=True)
class ShapedModel:
    """The main graph and its shapes at `batch`. opset: version of ONNX's own operator set.

    has_functions: whether the file defined functions of its own, which are inlined here.
    refused: why ONNX Runtime would refuse the file, or these sizes, although what it would need is known.
    absent: a sentence on external data that is not there.
    """

    structure: Structure
    shapes: Shapes
    opset: int
    batch: int | None
    has_functions: bool = False
    refused: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    ir_version: int = 0


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model read and checked, before its sizes are known. proto: what was read, functions inlined; short,
    absent: files of external data that end too early, and that are not there, in words."""

    proto: Any
    structure: Structure
    opset: int
    folder: Path | None
    has_functions: bool
    short: tuple[str, ...]
    absent: tuple[str, ...]

    def at(
        self,
        batch: int | None = None,
        inputs: Described | None = None,
        values: Mapping[str, float] = MappingProxyType({}),
        assume: Mapping[str, bool] = MappingProxyType({}),
        like: ShapedModel | None = None,
    ) -> ShapedModel:
        """Return the model with all shapes inferred for a batch; arguments as of `read`. like: an earlier
        result at another batch, which supplies what does not depend on it. Raises InputError, TargetError."""
        check_batch(batch)
        _check_names(self.structure, values, assume)
        known = None if like is None else like.shapes
        shapes = infer_shapes(self.structure, self.proto, batch, inputs, self.folder, values, assume, known)
        refused = (*self.short, *shapes.binding.refused)
        return ShapedModel(
            self.structure,
            shapes,
            self.opset,
            batch,
            self.has_functions,
            refused,
            self.absent,
            self.proto.ir_version,
        )


def read(
    path_or_model: Any,
    batch: int | None = None,
    inputs: Described | None = None,
    values: Mapping[str, float] = MappingProxyType({}),
    assume: Mapping[str, bool] = MappingProxyType({}),
) -> ShapedModel:
    """Return a model with all shapes inferred.

    path_or_model: a path, an `onnx.ModelProto`, its serialized bytes, or what an earlier call returned, which
    stays as it is. batch, inputs: as for `capture_onnx`. values: the number in an input of one element.
    assume: what an If finds, by the name of its condition or its own.
    Raises TargetError for a file that is no sound model, InputError for shapes that are missing or do not
    fit.
    """
    if isinstance(path_or_model, ShapedModel):
        return path_or_model
    check_batch(batch)
    return opened(path_or_model).at(batch, inputs, values, assume)


def opened(path_or_model: Any) -> OpenedModel:
    """Open a path, `onnx.ModelProto` or its bytes. Raises TargetError for an invalid model."""
    folder = None
    short: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    if isinstance(path_or_model, str | Path):
        folder = Path(path_or_model).parent
        model = onnx_file.load(path_or_model)
        onnx_file.check_external(model, folder)
        short, absent = onnx_file.too_short(model, folder), onnx_file.absent(model, folder)
    elif isinstance(path_or_model, bytes):
        model = onnx_file.parse(onnx_file.without_bulk(path_or_model), "the model")
    else:
        model = path_or_model
        onnx_file.check_versions(model, "the model")
    has_functions = bool(model.functions)
    if has_functions:
        model = _inlined(model)
    opset = next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), 1)
    structure = prepare(model.graph, opset, folder, ir_version=model.ir_version)
    return OpenedModel(model, structure, opset, folder, has_functions, short, absent)


def _check_names(structure: Structure, values: Mapping[str, float], assume: Mapping[str, bool]) -> None:
    """Raises InputError for a value of no input, and for a condition of no If."""
    for name in values:
        if name not in structure.inputs:
            names = ", ".join(map(display, structure.inputs)) or "none"
            raise InputError(f"the model has no input {display(name)!r}", f"its inputs are: {names}")
    conditions = dict.fromkeys(_condition_names(structure)) if assume else {}
    for name in assume:
        if name not in conditions:
            names = ", ".join(display(item) for item in list(conditions)[:10] if item) or "none"
            raise InputError(f"no If has the condition or the name {display(name)!r}", f"there are: {names}")


def _condition_names(structure: Structure) -> Iterator[str]:
    for node in structure.nodes:
        if node.op_type == "If" and node.domain in DEFAULT_DOMAINS:
            yield from (node.input[0], node.name)
    for inner in structure.subgraphs.values():
        for graph in inner.values():
            yield from _condition_names(graph)


MOST_DEEP = 100  # functions that call each other: an exporter nests them as modules are


def _inlined(model: Any) -> Any:
    """Return the model with local functions inlined. Raises TargetError for too many, or too deep."""
    import onnx
    import onnx.inliner

    count, depth = _inlined_count(model)
    if depth > MOST_DEEP:
        raise TargetError(
            f"the model's local functions and subgraphs are nested more than {MOST_DEEP} deep",
            "export the model again without local functions",
        )
    if count > allowed(MOST_NODES):
        raise TargetError(
            f"the model's local functions come to {count:,} nodes where they are called: more than"
            f" {allowed(MOST_NODES):,} are not read",
            f"export the model again without local functions; {more()}",
        )
    names = {(function.domain, function.name) for function in model.functions}
    try:
        inlined = onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise TargetError(
            f"the model's local functions cannot be inlined: {display(' '.join(str(error).split()))}",
            "export the model again without local functions",
        ) from None
    left = next((node for node in inlined.graph.node if (node.domain, node.op_type) in names), None)
    if left is not None:
        raise TargetError(
            f"{node_name(left)} is a local function that calls itself", "export the model again"
        )
    return inlined


def _inlined_count(model: Any) -> tuple[int, int]:
    """Return the nodes after inlining every function, and how deep they call each other; a recursive one is
    one node. Beyond `MOST_DEEP` nothing is counted."""
    functions = {(function.domain, function.name): function for function in model.functions}
    counts: dict[tuple[str, str], tuple[int, int]] = {}

    def of(nodes: Any, depth: int) -> tuple[int, int]:
        if depth > MOST_DEEP:
            return 0, 1
        count = deepest = 0
        for node in nodes:
            called = (node.domain, node.op_type)
            if called in functions and called not in counts:
                counts[called] = 1, 0  # until it is known: one that calls itself is not inlined
                counts[called] = of(functions[called].node, depth + 1)
            inner = [
                of(attribute.g.node, depth + 1) for attribute in node.attribute if attribute.HasField("g")
            ]
            inner.append(counts.get(called, (1, -1)))
            count += sum(inside for inside, _ in inner)
            deepest = max(deepest, *(below + 1 for _, below in inner))
        return count, deepest

    return of(model.graph.node, 0)
