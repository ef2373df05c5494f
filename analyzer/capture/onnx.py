"""An ONNX model as the `Graph` every other stage works on: no weights, no torch, nothing executed.

1. Operators are the nodes in the file's order (sorted if the file is not): `name` is the operator type,
   `domain` its operator set ("" is ONNX's own), `arguments` the inputs with None where one is left out,
   `keywords` the attributes as plain values, `module` the node's name, `source` the user's code line and
   `scope` the module path where the exporter recorded them.
2. Every value is a storage of its own, also a Reshape's result: whether it shares memory is the runtime's
   choice.
3. Initializers and Constant nodes are PARAMETER storages, packed types at packed size, born first; inputs are
   born next; intermediate results die after their last reader, unread ones at once; outputs, inputs and
   parameters live on. Initializers nothing reads are left out and noted: ONNX Runtime drops them.
4. `TensorMeta.symbols` is the shape as ONNX Runtime knows it when a session is created ("" unknown).
5. Model-local functions are inlined. Operators of a subgraph run just before the node that owns it, with its
   name in front of theirs ("if_3/then_branch/conv") and the keyword `REGION`; an If runs the larger branch
   (or the one its constant condition picks), a Loop or Scan its body once. A subgraph's results are the
   owner's results where the shapes agree, one storage; otherwise the owner makes its own.
6. Values that are bounded, guessed or refused by ONNX Runtime are noted in `Graph.notes`.

Not modelled: the content of maps; strings beyond their headers (32 bytes each).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.graph import (
    Argument,
    Birth,
    Category,
    Death,
    Graph,
    Mark,
    Moment,
    Operator,
    Run,
    Storage,
    TensorMeta,
    contiguous_strides,
    nbytes_of,
)
from analyzer.onnx.model import read
from analyzer.onnx.node import DEFAULT_DOMAINS
from analyzer.onnx.shapes.bind import Described
from analyzer.onnx.shapes.infer import Inferred
from analyzer.onnx.structure import Structure, reads
from analyzer.onnx.types import ValueType, display, element_count

# The keyword that tells which subgraph an operator belongs to: "if_3/then_branch".
REGION = "@region"
# The keyword under which an operator with subgraphs reads outer values: a tuple of tensors.
CAPTURED = "@captured"
_KEPT_ATTRIBUTE_BYTES = 1024


def capture_onnx(path_or_model: Any, *, batch: int | None = None, inputs: Described | None = None) -> Graph:
    """Return the graph of an ONNX model at given input shapes.

    path_or_model: whatever `onnx_model.read` takes; a model read before keeps its batch and inputs. batch:
    what the batch dimension is bound to, whatever the export calls it. inputs: name -> (shape, dtype or
    None), for inputs the batch alone does not settle.
    Raises TargetError for a file that is no sound model, InputError for shapes that are missing or do not
    fit.
    """
    model = read(path_or_model, batch, inputs)
    builder = _Builder(model.batch, list(dict.fromkeys((*model.refused, *model.shapes.binding.notes))))
    graph = builder.build(_Scope(model.structure, model.shapes.actual, model.shapes.symbolic))
    return replace(graph, notes=(*graph.notes, *model.absent)) if model.absent else graph


@dataclass(frozen=True, slots=True)
class _Scope:
    """One graph with its types at the batch (`actual`) and as ONNX Runtime knows them when it plans
    (`symbolic`); `region` is "" for the main graph."""

    structure: Structure
    actual: Inferred
    symbolic: Inferred
    region: str = ""

    @property
    def prefix(self) -> str:
        """Prefix of the node names of a subgraph; "" for the main graph."""
        return self.region + "/" if self.region else ""

    def types(self, name: str) -> tuple[ValueType, ValueType | None]:
        """Return the value's type at the batch, and as ONNX Runtime sees it."""
        return self.actual.types[name], self.symbolic.types.get(name)


class _Builder:
    """Collects storages, operators and moments of a graph and its subgraphs."""

    def __init__(self, batch: int | None, notes: list[str]) -> None:
        self.batch = batch
        self.notes = notes
        self.storages: list[Storage] = []
        self.operators: list[Operator] = []
        self.program: list[Moment] = []
        self.parameters: dict[int, dict[str, TensorMeta]] = {}  # of each subgraph, by its identity

    def build(self, scope: _Scope) -> Graph:
        """Return the finished, checked graph."""
        values: dict[str, TensorMeta] = {}
        self._initializers(scope.structure, scope.actual, values)
        self.program.append(Mark("model"))
        for name in scope.structure.inputs:
            values[name] = self._add_storage(name, *scope.types(name), Category.INPUT)
            self.program.append(Birth(values[name].storage))
        self.program.append(Mark("0.input"))
        self._nodes(scope, values, {})
        self.program.append(Mark("0.forward"))
        notes = tuple(dict.fromkeys(self.notes))
        return Graph(
            "onnx", tuple(self.storages), tuple(self.operators), tuple(self.program), self.batch, notes
        ).check()

    def _add_storage(
        self, name: str, value: ValueType, symbolic: ValueType | None, category: Category
    ) -> TensorMeta:
        """Append the storage of a value and return its tensor; an unknown size is noted, and taken as a
        scalar's."""
        sizes = value.sizes
        if sizes is None or (not value.dtype and value.kind == "tensor"):
            sizes = sizes or ()
            self.notes.append(f"the size of {display(name)!r} ({value.kind}) is unknown and not counted")
        dtype = value.dtype or "float32"
        index = len(self.storages)
        self.storages.append(Storage(index, nbytes_of(element_count(sizes), dtype), category, display(name)))
        symbols = () if category is Category.PARAMETER else _symbols(sizes, symbolic)
        return TensorMeta(index, sizes, contiguous_strides(sizes), dtype, symbols=symbols)

    def _initializers(self, structure: Structure, actual: Inferred, values: dict[str, TensorMeta]) -> None:
        """Births of a graph's parameters and of those of the subgraphs that run."""
        used = _all_reads(structure)
        unused_count = unused_bytes = 0
        for name in structure.initializers:
            value = actual.types[name]
            if name in used:
                values[name] = self._add_storage(name, value, None, Category.PARAMETER)
                self.program.append(Birth(values[name].storage))
            else:
                unused_count += 1
                unused_bytes += nbytes_of(element_count(value.sizes or ()), value.dtype)
        if unused_count:
            self.notes.append(
                f"{unused_count} initializers ({unused_bytes} bytes) are read by nothing and not counted"
            )
        for place in structure.subgraphs:
            for inner, types in _counted_subgraphs(structure, place, actual).values():
                self._initializers(inner, types, self.parameters.setdefault(id(inner), {}))

    def _nodes(self, scope: _Scope, values: dict[str, TensorMeta], shared: Mapping[str, TensorMeta]) -> None:
        """Add a graph's nodes; `values`: inputs and initializers; `shared`: results the owner has."""
        self.notes += scope.actual.notes
        structure = scope.structure
        last: dict[str, int] = {}
        for place, node in enumerate(structure.nodes):
            for name in (*node.input, *reads(structure, place)):
                last[name] = place
        kept = set(structure.outputs)
        dying: dict[int, list[str]] = {}
        for name in structure.producers:
            if name in last and name not in kept:
                dying.setdefault(last[name], []).append(name)
        for place, node in enumerate(structure.nodes):
            metas = {
                name: shared.get(name) or self._add_storage(name, *scope.types(name), Category.ACTIVATION)
                for name in node.output
                if name
            }
            if place in structure.subgraphs:
                self._subgraphs(scope, place, values, metas)
            values |= metas
            self._add_operator(scope, place, values)
            for name in (*dying.get(place, ()), *(n for n in metas if n not in last and n not in kept)):
                self.program.append(Death(values[name].storage))

    def _add_operator(self, scope: _Scope, place: int, values: Mapping[str, TensorMeta]) -> None:
        """Append a node as an operator; what its subgraphs read from outside are further arguments."""
        node = scope.structure.nodes[place]
        keywords = {attribute.name: plain(attribute) for attribute in node.attribute}
        captured = reads(scope.structure, place)
        if captured:
            keywords[CAPTURED] = tuple(values[name] for name in captured)
        if scope.region:
            keywords[REGION] = scope.region
        index = len(self.operators)
        self.operators.append(
            Operator(
                index,
                display(node.op_type),
                tuple(values[name] if name else None for name in node.input),
                tuple(values[name] if name else None for name in node.output),
                keywords,
                module=scope.prefix + display(node.name),
                source=_source(node),
                scope=_scope(node),
                domain="" if node.domain in DEFAULT_DOMAINS else display(node.domain),
            )
        )
        self.program.append(Run(index))

    def _subgraphs(
        self, scope: _Scope, place: int, values: Mapping[str, TensorMeta], metas: Mapping[str, TensorMeta]
    ) -> None:
        """Add the owner's subgraphs just before the owner."""
        node = scope.structure.nodes[place]
        owner = display(node.name or next((name for name in node.output if name), node.op_type))
        for attribute, (inner, types) in _counted_subgraphs(scope.structure, place, scope.actual).items():
            inferred = scope.symbolic.children.get(place, {}).get(attribute) or Inferred({})
            body = _Scope(inner, types, inferred, f"{scope.prefix}{owner}/{attribute}")
            local = {name: values[name] for name in inner.captured} | self.parameters[id(inner)]
            for name in inner.inputs:
                local[name] = self._add_storage(name, *body.types(name), Category.ACTIVATION)
                self.program.append(Birth(local[name].storage))
            before = set(local)
            self._nodes(body, local, _shared(node, inner, types, metas))
            handed_on = {meta.storage for meta in metas.values()}
            ending = [*inner.inputs, *(name for name in inner.outputs if name not in before)]
            for storage in dict.fromkeys(local[name].storage for name in ending):
                if storage not in handed_on:
                    self.program.append(Death(storage))


def _counted_subgraphs(
    structure: Structure, place: int, actual: Inferred
) -> dict[str, tuple[Structure, Inferred]]:
    """Return the subgraphs of node `place` that are counted, with their types."""
    children = actual.children.get(place, {})
    return {
        attribute: (inner, children[attribute])
        for attribute, inner in structure.subgraphs[place].items()
        if attribute in children and actual.chosen.get(place, attribute) == attribute
    }


def _shared(
    node: Any, inner: Structure, types: Inferred, metas: Mapping[str, TensorMeta]
) -> dict[str, TensorMeta]:
    """Subgraph results that are the owner's results: an If hands its branch's buffers on."""
    if node.op_type != "If":
        return {}
    shared: dict[str, TensorMeta] = {}
    for name, out in zip(inner.outputs, node.output, strict=False):
        if (
            out
            and name in inner.producers
            and name not in shared
            and types.types[name].sizes == metas[out].shape
        ):
            shared[name] = metas[out]
    return shared


def _all_reads(structure: Structure) -> set[str]:
    """Return the names of all values read by a node, a subgraph or the graph's outputs."""
    used = {name for node in structure.nodes for name in node.input} | set(structure.outputs)
    for inner in structure.subgraphs.values():
        for sub in inner.values():
            used.update(sub.captured)
    return used


def _symbols(sizes: tuple[int, ...], symbolic: ValueType | None) -> tuple[str | int, ...]:
    """Return the shape as ONNX Runtime's planner knows it at creation; () if it is all numbers."""
    if symbolic is None or symbolic.shape is None or len(symbolic.shape) != len(sizes):
        return ("",) * len(sizes)
    if all(isinstance(size, int) for size in symbolic.shape):
        return ()
    return tuple(display(size) if isinstance(size, str) else size for size in symbolic.shape)


def plain(attribute: Any) -> Argument:
    """Return an attribute as a plain value; tensors as "dtype[shape]", subgraphs by name."""
    match attribute.type:
        case 1:
            return float(attribute.f)
        case 2:
            return int(attribute.i)
        case 3:
            return str(attribute.s[:_KEPT_ATTRIBUTE_BYTES], "utf-8", "replace")
        case 4:
            return f"tensor{list(attribute.t.dims)}"
        case 5:
            return f"graph {display(attribute.g.name)}"
        case 6:
            return tuple(attribute.floats)
        case 7:
            return tuple(attribute.ints)
        case 8:
            return tuple(
                item[:_KEPT_ATTRIBUTE_BYTES].decode("utf-8", "replace") for item in attribute.strings
            )
        case _:
            return None


def _source(node: Any) -> str:
    """Return "file.py:123" of the innermost user line in the exporter's stack trace, "" if there is none."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            place = ""
            for line in entry.value.split("\n"):
                if line.lstrip().startswith('File "'):
                    name, _, rest = line.strip()[6:].partition('", line ')
                    if rest and "/torch/" not in name and not name.startswith("torch/"):
                        place = f"{name}:{rest.split(',')[0]}"
            return display(place)
    return ""


def _scope(node: Any) -> str:
    """Return the dotted path of the innermost module the exporter recorded for the node, "" if it recorded
    none.

    `torch.onnx.export(dynamo=True)` records `pkg.torch.onnx.name_scopes`, a list's text ("['', 'layer1',
    'layer1.0', 'add']") whose last entry is the operation; `namespace` says the same as "path: class/path:
    class/...: operation". The older exporter names nodes by their scope ("/layer1/layer1.0/conv1/Conv").
    Source: `torch/onnx/_internal/exporter/_core.py` (`_set_node_metadata`),
    `torch/csrc/jit/passes/onnx/naming.cpp`.
    """
    recorded = {entry.key: entry.value for entry in node.metadata_props}
    scopes = re.findall(r"'([^']*)'", recorded.get("pkg.torch.onnx.name_scopes", ""))
    if len(scopes) > 1:
        return display(next((scope for scope in reversed(scopes[:-1]) if scope), ""))
    namespace = recorded.get("namespace", "").split("/")
    if len(namespace) > 1:
        paths = [part.partition(":")[0].strip() for part in namespace[:-1]]
        return display(next((path for path in reversed(paths) if path), ""))
    if node.name.startswith("/") and node.name.count("/") > 1:
        return display(".".join(node.name.split("/")[1:-1]))
    return ""
