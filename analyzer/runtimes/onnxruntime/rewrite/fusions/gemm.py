"""Gemm with the Transposes around it, and with the sum behind it."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, Symbols
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import is_op, other_operand, replace
from analyzer.runtimes.onnxruntime.rewrite.transposes.pushing import drop_if_unread

OPTIONAL_BIAS = 11  # operator set from which on Gemm's third input may be missing


def biases(rows: int | str, columns: int | str) -> tuple[Symbols, ...]:
    """Return the bias shapes Gemm adds to such a matrix: [N], [1, N], [M, 1] or [M, N]."""
    return ((columns,), (1, columns), (rows, 1), (rows, columns))


@fusion(
    "GemmTransposeFusion", "gemm_transpose_fusion.cc", begins=("Gemm",), takes=("Transpose",), makes=("Gemm",)
)
def gemm_transpose(editor: Editor, node: Node) -> None:
    """A Transpose that only Gemms read is Gemm's attribute; so is one that alone reads a Gemm without bias,
    whose operands then change places."""
    if editor.edge_count(node.outputs[0]) > 1:
        return
    inputs, gone = list(node.inputs), []
    flags = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    for place in (0, 1):
        maker = editor.maker.get(inputs[place])
        if (
            is_op(maker, "Transpose")
            and maker.provider == node.provider
            and maker.outputs[0] not in editor.final
            and editor.only_read_by(maker.outputs[0], "Gemm")
        ):
            flags[place] = not flags[place]
            inputs[place] = maker.inputs[0]
            gone.append(maker)
    last = node
    after = editor.only_user(node)
    without_bias = len(inputs) == 2 and editor.graph.opset >= OPTIONAL_BIAS
    if is_op(after, "Transpose") and without_bias and after.provider == node.provider:
        last = after
        inputs.reverse()
        flags = [not flag for flag in reversed(flags)]
    if not gone and last is node:
        return
    attributes = {**node.attributes, "transA": int(flags[0]), "transB": int(flags[1])}
    rest = [] if last is node else [node]
    replace(editor, last, rest, "Gemm", inputs, "", attributes, f"{node.name}/GemmTransposeFusion/")
    for maker in gone:
        if maker.index in editor.graph.nodes:
            drop_if_unread(editor, maker)


@fusion("GemmSumFusion", "gemm_sum_fusion.cc", begins=("Gemm",), takes=("Sum",), makes=("Gemm",))
def gemm_sum(editor: Editor, node: Node) -> None:
    """A Gemm without bias, and the Sum of its result and what can be one."""
    total = editor.only_user(node)
    shape = editor.value(node.outputs[0]).symbols
    if not is_op(total, "Sum") or len(total.inputs) != 2 or total.provider != node.provider:
        return
    if len(node.inputs) != 2 or editor.graph.opset < OPTIONAL_BIAS or shape is None or len(shape) != 2:
        return
    bias = other_operand(total, node.outputs[0])
    symbols = editor.value(bias).symbols
    if symbols not in biases(*shape) or "" in (symbols or ()):
        return
    attributes = {**node.attributes, "beta": 1.0}
    replace(
        editor, total, [node], "Gemm", [*node.inputs, bias], "", attributes, f"{node.name}/GemmSumFusion/"
    )
