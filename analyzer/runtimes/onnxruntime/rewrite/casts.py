"""Half precision where a provider has no kernel for it: the node computes in float32, with Casts around it.

1. A node without a kernel for its types that reads float16 gets each such operand through a Cast to float32
   (one a value, whoever reads it), makes float32, and a Cast makes the float16 result of that.
2. A node that has a kernel for float16 but stands alone between such nodes computes in float32 too.
3. A Cast back to the type it came from goes, with the Cast before it if nobody else needs that one.
4. A Cast of a constant runs again in every run: these Casts come after constant folding. Only the highest
   level makes the constant itself float32.

Source: `core/optimizer/insert_cast_transformer.cc` (with `RemoveDuplicateCastTransformer`),
`fuse_initializers_transformer.cc`. Not modelled: nodes with subgraphs, which are never cast.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels import declared
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.tables import by_name

_HALF, _SINGLE = "float16", "float32"
INSERTED = "InsertedPrecisionFreeCast_"
_TO = {_HALF: 10, _SINGLE: 1}  # TensorProto.DataType
_OF_BITS = {
    1: "bool",
    8: "uint8 int8",
    16: "uint16 int16 float16 bfloat16",
    32: "uint32 int32 float32",
    64: "uint64 int64 float64",
}
_BITS = by_name(_OF_BITS)


def insert(editor: Editor, *, fold: bool) -> None:
    """Put Casts around nodes that no provider runs. fold: convert constants themselves."""
    _free_lonely(editor)
    casts: dict[str, str] = {}
    for node in editor.order():
        halves = [name for name in dict.fromkeys(node.inputs) if _has_dtype(editor, name, _HALF)]
        if node.provider or node.bodies or not halves:
            continue
        node.provider = "cpu"
        for name in halves:
            if name not in casts:
                casts[name] = _operand(editor, name, fold=fold)
            for place in editor.places(node, name):
                editor.set_input(node, place, casts[name])
        for place, name in enumerate(node.outputs):
            if _has_dtype(editor, name, _HALF):
                _result(editor, node, place)
    _remove_duplicates(editor)


def _has_dtype(editor: Editor, name: str, dtype: str) -> bool:
    return bool(name) and editor.value(name).dtype == dtype


def _needs_cast(editor: Editor, node: Node) -> bool:
    return not node.provider and any(_has_dtype(editor, name, _HALF) for name in node.inputs)


def _free_lonely(editor: Editor) -> None:
    """Take the provider from nodes whose neighbours all compute in float32, if there is a kernel for that."""
    graph = editor.graph
    for _, node in sorted(graph.nodes.items()):
        if node.provider != "cpu" or node.bodies or any(name in editor.final for name in node.outputs):
            continue
        sources = [
            editor.maker[name]
            for name in node.inputs
            if _has_dtype(editor, name, _HALF) and name in editor.maker
        ]
        results = [name for name in node.outputs if _has_dtype(editor, name, _HALF)]
        readers = [user for name in results for user in editor.users(name)]
        fed = any(name in editor.maker for name in node.inputs)
        reads = any(_has_dtype(editor, name, _HALF) for name in node.inputs)
        if not (fed and reads and results):
            continue
        if all(_needs_cast(editor, other) for other in (*sources, *readers)) and declared.has_kernel(
            "cpu", node, graph, {_HALF: _SINGLE}
        ):
            node.provider = ""


def _operand(editor: Editor, name: str, *, fold: bool) -> str:
    """Return the name of the value converted to float32."""
    value = editor.value(name)
    single = editor.new_value(name, value.shape, value.symbols, INSERTED + name)
    editor.value(single).dtype = _SINGLE
    if fold and editor.is_constant(name):
        data = editor.graph.constant(name)
        editor.value(single).data = None if data is None else data.astype(_SINGLE)
        editor.graph.initializers[single] = None
    else:
        editor.add(INSERTED + name, "Cast", [name], [single], {"to": _TO[_SINGLE]}, "", "cpu")
    return single


def _result(editor: Editor, node: Node, place: int) -> None:
    """Let the node make float32, and a Cast its former value."""
    name = node.outputs[place]
    value = editor.value(name)
    single = editor.new_value(name, value.shape, value.symbols, INSERTED + name)
    editor.value(single).dtype = _SINGLE
    editor.take_output(node, place, single)
    editor.add(INSERTED + name, "Cast", [single], [name], {"to": _TO[_HALF]}, "", "cpu")


def _remove_duplicates(editor: Editor) -> None:
    """Remove casts back to the first type, and let casts of a cast read its source, where nothing is lost."""
    graph = editor.graph
    for index in sorted(graph.nodes):
        node = graph.nodes.get(index)
        if node is None or node.operator != "Cast" or not node.outputs[0]:
            continue
        source, result = node.inputs[0], node.outputs[0]
        casts = [user for user in editor.users(result) if user.operator == "Cast"]
        first, second = editor.value(source).dtype, editor.value(result).dtype
        if any(
            _loses(first, second, node) and _loses(second, editor.value(user.inputs[0]).dtype, user)
            for user in casts
        ):
            continue
        back = [
            user
            for user in casts
            if editor.value(user.outputs[0]).dtype == first and user.outputs[0] not in editor.final
        ]
        others = [user for user in casts if user not in back]
        readers = len(editor.users(result))
        for user in back:
            editor.replace_uses(user.outputs[0], source)
            editor.remove(user)
        if casts and readers == len(casts) and result not in editor.final:
            for user in others:
                editor.set_input(user, 0, source)
            editor.remove(node)


def _loses(source: str, result: str, node: Node) -> bool:
    """Return whether a Cast may lose precision; those inserted here do not count."""
    if source not in _BITS or result not in _BITS:
        return True
    floating, integral = "float" in source, "float" not in result
    unsigned = result.startswith("uint") and not (source == "bool" or source.startswith("uint"))
    if unsigned or (floating and integral):
        return True
    if (source.startswith("uint") and result.startswith("int")) or (
        not floating and source != "bool" and not integral
    ):
        return _BITS[result] <= _BITS[source]
    if {source, result} == {_HALF, "bfloat16"}:
        return True
    return _BITS[source] > _BITS[result] and not node.name.startswith(INSERTED)
