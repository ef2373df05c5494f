"""Layout change for `prefer_nhwc`: layout-sensitive kernels run on channels-last tensors.

1. Each such node the CUDA provider has an NHWC kernel for is wrapped: its data input transposed to channels
   last, its output back. Then the transpose optimizer moves these Transposes down wherever it can (Concat by
   its usual cost), so that most of them cancel.
2. Convolution weights are packed to NHWC when the session is made (`packing`).

Source: `core/optimizer/layout_transformation/layout_transformation.cc`,
`core/providers/cuda/cuda_execution_provider.cc` (`ShouldConvertDataLayoutForOp`).
Checked: executed nodes of ResNet-18 and EfficientNet-B0 on an H200.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite import transposes
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes.pushing import transpose_input, transpose_output

NHWC = "com.ms.internal.nhwc"
_KERNELS = """
    AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalMaxPool GridSample
    LRN MaxPool SpaceToDepth
"""
KERNELS = frozenset(_KERNELS.split())
_TYPES = ("float32", "float16")


def to_channels_last(editor: Editor) -> None:
    """Wrap layout-sensitive 4-D CUDA kernels; Transposes then move down and cancel."""
    for node in editor.order():
        value = editor.value(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node.domain or node.op not in KERNELS or value is None or value.dtype not in _TYPES:
            continue
        rank = len(value.symbols or ())
        if rank == 4:
            _wrap_in_transposes(editor, node, rank)
    transposes.run(editor, layout=True)


def _wrap_in_transposes(editor: Editor, node: Node, rank: int) -> None:
    last = (0, *range(2, rank), 1)
    first = (0, rank - 1, *range(1, rank - 1))
    transpose_input(editor, node, 0, last)
    transpose_output(editor, node, 0, first)
    # The node in the internal domain is a new one.
    editor.add(node.name, node.op, list(node.inputs), list(node.outputs), dict(node.attributes), NHWC)
    editor.remove(node)
