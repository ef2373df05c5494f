"""Operators without a kernel of their own run as the operators that ONNX defines them by.

1. A node that no provider of the session has a kernel for (`kernels/registered.py`), and that ONNX defines as
   a function of others, is replaced by the function's body; what that contains likewise, until nothing is
   left to replace. An operator may have a kernel for float32 and be a function for float16.
2. A body that does not depend on the call is void if one of its operators has changed between the operator
   set it was written for and the model's: Relu is a function in operator set 18, and one kernel, for float32,
   from 19 on.
3. This happens when nodes are assigned to providers, after the basic optimizations: what could be folded in
   the body is not. Where the file defines functions of its own, it happens before any optimization.
4. The body's Constant nodes are initializers; its other nodes take the next free indices, in the body's
   order, call by call: execution order follows from indices (`plan/order.py`).

The bodies are those of the installed onnx package, specialised by its own inliner for the types at hand;
their shapes are inferred as the whole model's are.

Source: `core/framework/graph_partitioner.cc` (`InlineNodes`, `InlineFunctionsAOT`), `core/graph/graph.cc`
(`InlineFunctionProto`, `TryGetFunctionProto`), `onnx/defs/schema.cc` (`GetFunction`,
`ValidateReferencedOpsInFuncton`). Not modelled: functions of ONNX Runtime's own operators; SequenceMap, whose
body is a graph.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.onnx.shapes.infer import infer
from analyzer.onnx.shapes.native import Context
from analyzer.onnx.structure import OVERRIDABLE_IR, prepare
from analyzer.onnx.types import ValueType, to_type_proto
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.kernels import declared
from analyzer.runtimes.onnxruntime.load import build
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor, rename_outer
from analyzer.runtimes.onnxruntime.rewrite.inference import proto_of

_ROUNDS = 10
_LARGEST_CONSTANT = 1024  # elements of a constant that a body's shapes may depend on


def expand(editor: Editor, provider: str) -> None:
    """Replace functions without a kernel by their bodies, until none is left."""
    for _ in range(_ROUNDS):
        calls = [
            node for _, node in sorted(editor.graph.nodes.items()) if _is_call(editor.graph, node, provider)
        ]
        if not sum([_replace(editor, node) for node in calls]):
            return


def _is_call(graph: RuntimeGraph, node: Node, provider: str) -> bool:
    return (
        not node.domain
        and not node.bodies
        and _is_function(node.op, graph.opset)
        and not any(declared.has_kernel(one, node, graph) for one in (provider, "cpu"))
    )


def _replace(editor: Editor, node: Node) -> bool:
    """Replace a call by its body; return False if there is none."""
    graph = editor.graph
    body = _body(graph, node)
    if body is None:
        return False
    outside_names = {*node.inputs, *node.outputs, ""}
    stem = f"{node.op}_{node.index}/"
    names = {name: name if name in outside_names else graph.fresh(stem + name) for name in (*body.values, "")}
    for name, value in body.values.items():
        if name not in outside_names:
            renamed = Value(
                names[name],
                value.dtype,
                value.shape,
                value.symbols,
                body.constant(name),
                bounded=value.bounded,
            )
            graph.values[names[name]] = renamed
            if name in body.initializers:
                graph.initializers[names[name]] = None
    editor.remove(node)
    for _, inner in sorted(body.nodes.items()):
        inputs, outputs = ([names[name] for name in each] for each in (inner.inputs, inner.outputs))
        added = editor.add(stem + inner.name, inner.op, inputs, outputs, inner.attributes, inner.domain)
        for sub in inner.bodies.values():
            rename_outer(sub, names)
        added.bodies = inner.bodies
        editor.set_implicit(added, [names[name] for name in inner.implicit])
    return True


def _body(graph: RuntimeGraph, node: Node) -> RuntimeGraph | None:
    """Return the function's body for this call as a graph, None if ONNX gives none."""
    import onnx
    import onnx.inliner

    call_graph = onnx.GraphProto(name="call", node=[_with_defaults(proto_of(node), graph.opset)])
    actual: dict[str, ValueType] = {}
    symbolic: dict[str, ValueType] = {}
    for name in dict.fromkeys(filter(None, node.inputs)):
        value = graph.values[name]
        actual[name] = ValueType(value.dtype, value.shape)
        symbolic[name] = ValueType(value.dtype, value.symbols)
        call_graph.input.append(onnx.ValueInfoProto(name=name, type=to_type_proto(actual[name])))
    for name in filter(None, node.outputs):
        kind = to_type_proto(ValueType(graph.values[name].dtype, graph.values[name].shape))
        call_graph.output.append(onnx.ValueInfoProto(name=name, type=kind))
    opsets = {"": graph.opset}
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=call_graph)
    model.opset_import.extend([onnx.OperatorSetIdProto(domain="", version=graph.opset)])
    try:
        inlined = onnx.inliner.inline_selected_functions(
            model, [("", node.op)], False, inline_schema_functions=True
        )
        if any(item.op_type == node.op and list(item.output) == node.outputs for item in inlined.graph.node):
            return None
        _fill(inlined.graph, graph)
        structure = prepare(inlined.graph, graph.opset)
        common = Context(opsets, OVERRIDABLE_IR)
        types = infer(structure, {name: actual[name] for name in structure.inputs}, common)
        input_types = {name: symbolic[name] for name in structure.inputs}
        symbols = infer(structure, input_types, Context(opsets, OVERRIDABLE_IR, symbolic=True))
        graph.notes.extend(note for note in types.notes if note not in graph.notes)
        return build(structure, types, symbols, graph.opset)
    except (AnalyzerError, RuntimeError, ValueError, TypeError, onnx.checker.ValidationError):
        return None  # it stays one kernel, which is named as not known


def _with_defaults(call: Any, opset: int) -> Any:
    """Return the call with the attributes it leaves to the operator's definition: the body may read them."""
    import onnx

    names = {attribute.name for attribute in call.attribute}
    schema: Any = onnx.defs.get_schema(call.op_type, max_inclusive_version=opset, domain="")
    for name, attribute in schema.attributes.items():
        if name not in names and attribute.default_value.name:
            call.attribute.append(attribute.default_value)
    return call


def _fill(body: Any, graph: RuntimeGraph) -> None:
    """Make small constants among a body's inputs its initializers, to infer shapes from them."""
    import onnx

    inputs = list(body.input)
    del body.input[:]
    for item in inputs:
        data = graph.constant(item.name)
        if data is not None and data.size <= _LARGEST_CONSTANT:
            body.initializer.append(onnx.numpy_helper.from_array(data, item.name))
        else:
            body.input.append(item)


@lru_cache(maxsize=1024)
def _is_function(op: str, opset: int) -> bool:
    """Return whether ONNX defines the operator, in this operator set, by others."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(op, max_inclusive_version=opset, domain="")
    except onnx.defs.SchemaError:
        return False
    if schema.has_context_dependent_function:
        return True
    written = [version for version in schema.function_opset_versions if version <= opset]
    return bool(written) and _still_valid(
        onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(written))),
        max(written),
        opset,
    )


def _still_valid(body: Any, written: int, opset: int) -> bool:
    """Return whether no operator that a body uses changed since the operator set it was written for."""
    import onnx

    return all(
        node.domain
        or onnx.defs.get_schema(node.op_type, max_inclusive_version=written).since_version
        == onnx.defs.get_schema(node.op_type, max_inclusive_version=opset).since_version
        for node in body.node
    )
