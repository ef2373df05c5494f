"""Fusions: several nodes that ONNX Runtime runs as one kernel. The table says in which order, at which level,
for whom.

1. Level 1 (basic) is for both providers and repeated with the eliminations until nothing changes; level 2
   (extended) runs once, after nodes are assigned to providers.
2. A pattern's inner results must have one reader and be no graph output. A new node takes the next index and
   keeps the name of the result it makes.

Source: `core/optimizer/graph_transformer_utils.cc` (`GenerateTransformers`) for the order; each fusion names
its file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.activation import (
    GELU_OPSET,
    bias_gelu,
    fast_gelu,
    gelu,
    quick_gelu,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.convolution import (
    conv_activation,
    conv_add,
    conv_batch_norm,
    conv_mul,
    pad,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.elementwise import div_mul, not_where, relu_clip
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import Fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.gemm import gemm_sum, gemm_transpose
from analyzer.runtimes.onnxruntime.rewrite.fusions.integer import dynamic_matmul, integer_to_float
from analyzer.runtimes.onnxruntime.rewrite.fusions.matmul import (
    gemm_activation,
    matmul_add,
    matmul_add_rest,
    matmul_scale,
    matmul_transpose,
    nbits_bias,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.normalization import (
    LAYER_NORM_OPSET,
    layer_norm,
    rms_norm,
    skip_layer_norm,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.shapes import (
    gather_slice_to_split,
    gather_to_slice,
    reshape,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.softmax import bias_softmax

BASIC, EXTENDED = 1, 2


@dataclass(frozen=True, slots=True)
class Turn:
    """A fusion's turn: level, providers, and operator sets from `opset` to before `before`."""

    level: int
    fusion: Fusion
    providers: tuple[str, ...] = ("cpu", "cuda")
    opset: int = 1
    before: int = sys.maxsize


ORDER: tuple[Turn, ...] = (
    Turn(BASIC, div_mul),
    Turn(BASIC, relu_clip),
    Turn(BASIC, gemm_sum),
    Turn(BASIC, gemm_transpose),
    Turn(BASIC, not_where),
    Turn(BASIC, conv_add),
    Turn(BASIC, conv_mul),
    Turn(BASIC, conv_batch_norm),
    Turn(BASIC, pad),
    Turn(BASIC, matmul_add),
    Turn(BASIC, reshape),
    # Where Gelu is an operator of ONNX Runtime's own, basic optimization may not introduce it.
    Turn(BASIC, gelu, opset=GELU_OPSET),
    # So is LayerNormalization.
    Turn(BASIC, layer_norm, opset=LAYER_NORM_OPSET),
    Turn(EXTENDED, gemm_transpose),
    Turn(EXTENDED, gemm_activation, ("cpu",)),
    Turn(EXTENDED, integer_to_float, ("cpu",)),
    Turn(EXTENDED, dynamic_matmul, ("cpu",)),
    Turn(EXTENDED, conv_activation, ("cpu",)),
    Turn(EXTENDED, gelu, before=GELU_OPSET),
    Turn(EXTENDED, layer_norm, before=LAYER_NORM_OPSET),
    Turn(EXTENDED, rms_norm),
    Turn(EXTENDED, gather_slice_to_split),
    Turn(EXTENDED, gather_to_slice),
    Turn(EXTENDED, matmul_transpose),
    Turn(EXTENDED, bias_gelu),
    Turn(EXTENDED, matmul_add_rest),
    Turn(EXTENDED, skip_layer_norm),
    Turn(EXTENDED, fast_gelu),
    Turn(EXTENDED, quick_gelu),
    Turn(EXTENDED, bias_softmax, ("cuda",)),
    Turn(EXTENDED, matmul_scale),
    Turn(EXTENDED, nbits_bias),
)


def fuse(editor: Editor, level: int, provider: str) -> None:
    """Run a level's fusions for a provider, in ONNX Runtime's order."""
    for turn in ORDER:
        if (
            turn.level == level
            and provider in turn.providers
            and turn.opset <= editor.graph.opset < turn.before
        ):
            turn.fusion.apply(editor)
