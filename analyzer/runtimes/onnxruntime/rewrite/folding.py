"""Constant folding: a node all of whose inputs are constants becomes constants.

1. Only deterministic operators that the CPU provider has a kernel for are folded, none with subgraphs, and
   none whose result the runtime must not keep (random generators, `QuantizeLinear`/`DequantizeLinear` pairs
   that quantized kernels look for).
2. `Shape` of a value whose dimensions are all known numbers is folded without the value being constant.
3. A folded value keeps its type and shape; its elements only if they are few and the file holds all that make
   them. Unknown elements (weights stored outside the file) fold just the same.
4. An If with a constant condition is replaced by the branch it takes (`branches`).
5. Results of the same operators on the same constants are equal, whatever they are called: kernels share what
   they pack of them (`packing`).

Source: `core/optimizer/constant_folding.cc`.
"""

from __future__ import annotations

import hashlib

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels import declared
from analyzer.runtimes.onnxruntime.rewrite import branches
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

_NEVER = """
    RandomUniform RandomNormal RandomUniformLike RandomNormalLike Multinomial Bernoulli DequantizeLinear
    Optional OptionalGetElement OptionalHasElement SequenceEmpty SequenceConstruct SequenceInsert
    SequenceErase SequenceAt SequenceLength SplitToSequence ConcatFromSequence
"""
NEVER = frozenset(_NEVER.split())


def run(editor: Editor) -> bool:
    """Fold every node that can be folded, in execution order. Returns whether there was one."""
    before = editor.changes
    for node in editor.order():
        if branches.inline(editor, node):
            continue
        if node.op == "Shape" and not node.domain:
            _fold_shape(editor, node)
        elif _foldable(editor, node):
            _to_constants(editor, node)
    return editor.changes != before


def _foldable(editor: Editor, node: Node) -> bool:
    if node.domain or node.bodies or node.op in NEVER or any(name in editor.final for name in node.outputs):
        return False
    names = [name for name in (*node.inputs, *node.implicit) if name]
    if not names or not all(editor.is_constant(name) for name in names):
        return False
    if not all(editor.value(name).shape is not None for name in node.outputs if name):
        return False
    return declared.has_kernel("cpu", node, editor.graph)


def _to_constants(editor: Editor, node: Node) -> None:
    for place, name in enumerate(node.outputs):
        if name:
            editor.graph.initializers[name] = None
            value = editor.value(name)
            value.origin = _origin(editor, node, place)
            if value.shape is not None:
                value.symbols = value.shape
    editor.remove(node)


def _origin(editor: Editor, node: Node, place: int) -> str:
    """Return the operator, its attributes and where its inputs come from; of few known elements, these."""
    digest = hashlib.blake2b(f"{node.operator} {place} {sorted(map(str, node.attributes.items()))}".encode())
    for name in node.inputs:
        data = editor.graph.constant(name) if name else None
        digest.update(f"\0{editor.graph.origin(name) if name and data is None else ''}".encode())
        if data is not None:
            digest.update(f"{data.dtype} {data.shape}".encode() + data.tobytes())
    return digest.hexdigest()


def _fold_shape(editor: Editor, node: Node) -> None:
    """Replace a `Shape` of known sizes by their constant."""
    source = editor.value(node.inputs[0])
    if source.symbols is None or node.outputs[0] in editor.final:
        return
    if not all(isinstance(size, int) for size in source.symbols):
        return
    start = int(node.attributes.get("start", 0))
    end = node.attributes.get("end")
    sizes = source.symbols[start : None if end is None else int(end)]
    result = editor.value(node.outputs[0])
    result.data = np.array(sizes, dtype=np.int64)
    _to_constants(editor, node)
