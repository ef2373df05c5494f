"""Every graph transformer of ONNX Runtime, and what this prediction does about it.

1. **Followed**: carried out here, in the file named.
2. **Named**: recognised by the operators it works on, and said in a note (`unmodelled.py`).
3. **Elsewhere**: never runs in the sessions predicted here: for other providers or training, off unless asked
   for, or done before a transformer could (dimension overrides are bound with the inputs).

The names are ONNX Runtime's classes. Source: `core/optimizer/graph_transformer_utils.cc`
(`GenerateTransformers`, `GenerateRewriteRules`), `core/session/inference_session.cc` (`TransformGraph`); the
classes in the library of 1.30 (`tests/data/ort/transformers.txt`).
"""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.runtimes.onnxruntime.rewrite import unmodelled
from analyzer.tables import by_name

_CLEANUP, _FUSIONS = "rewrite/cleanup.py", "rewrite/fusions"
_SPREADING, _REMAINS = "rewrite/quantized/spreading.py", "rewrite/quantized/remains.py"

# File -> the transformers it carries out.
_TRANSFORMERS_OF = {
    _CLEANUP: "EliminateIdentity EliminateDropout EliminateSlice CastElimination ExpandElimination"
    " NoopElimination PreShapeNodeElimination ConstantSharing CommonSubexpressionElimination",
    "rewrite/folding.py": "ConstantFolding UnsqueezeElimination",
    "rewrite/transposes": "TransposeOptimizer",
    "rewrite/casts.py": "InsertCastTransformer RemoveDuplicateCastTransformer FuseInitializersTransformer",
    "rewrite/copies.py": "MemcpyTransformer",
    _SPREADING: "DoubleQDQPairsRemover QDQPropagationTransformer WeightBiasQuantization"
    " EnsureUniqueDQForNodeUnit WhereDummyDq",
    "rewrite/quantized/groups.py": "QDQS8ToU8Transformer QDQSelectorActionTransformer",
    _REMAINS: "ClipQuantFusion ReluQuantFusion QDQFinalCleanupTransformer",
    f"{_FUSIONS}/integer.py": "MatMulIntegerToFloatFusion DynamicQuantizeMatMulFusion",
    f"{_FUSIONS}/convolution.py": "ConvAddFusion ConvMulFusion ConvBNFusion ConvActivationFusion PadFusion",
    f"{_FUSIONS}/gemm.py": "GemmTransposeFusion GemmSumFusion",
    f"{_FUSIONS}/matmul.py": "MatMulAddFusion GemmActivationFusion MatmulTransposeFusion MatMulScaleFusion"
    " MatMulNBitsFusion",
    f"{_FUSIONS}/activation.py": "GeluFusion FastGeluFusion BiasGeluFusion QuickGeluFusion",
    f"{_FUSIONS}/normalization.py": "LayerNormFusion SimplifiedLayerNormFusion SkipLayerNormFusion",
    f"{_FUSIONS}/shapes.py": "ReshapeFusion GatherSliceToSplitFusion GatherToSliceFusion",
    f"{_FUSIONS}/elementwise.py": "DivMulFusion NotWhereFusion FuseReluClip",
    f"{_FUSIONS}/softmax.py": "BiasSoftmaxFusion",
}
# Transformer -> the file that carries it out.
FOLLOWED: Mapping[str, str] = by_name(_TRANSFORMERS_OF)

_BASES = "GraphTransformer RuleBasedGraphTransformer SelectorActionTransformer"
_TRAINING = "BiasSoftmaxDropoutFusion BitmaskDropoutReplacement SceLossGradBiasFusion TritonFusion"
# Transformer -> why no session predicted here runs it.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(_BASES.split(), "a base class, which runs the others"),
    **dict.fromkeys(_TRAINING.split(), "training"),
    "RocmBlasAltImpl": "ROCm",
    "MatMulActivationFusion": "DirectML",
    "Avx2WeightS8ToU8Transformer": "session.x64quantprecision",
    "CastChainElimination": "session.enable_cast_chain_elimination",
    "GeluApproximation": "optimization.enable_gelu_approximation",
    "FreeDimensionOverrideTransformer": "dimensions are bound with the inputs (`onnx/shapes/bind.py`)",
}


def named() -> frozenset[str]:
    """Return the transformers that a note names where they may act."""
    return frozenset(name for entry in unmodelled.TRANSFORMERS for name in entry.names)


def names() -> tuple[str, ...]:
    """Return all transformers listed here, in alphabetical order."""
    return tuple(sorted({*FOLLOWED, *ELSEWHERE, *named()}))


def about(name: str) -> tuple[str, str] | None:
    """Return how a transformer is treated, and where or why; None if it is not listed."""
    if name in FOLLOWED:
        return "followed", FOLLOWED[name]
    if name in named():
        return "named", "rewrite/unmodelled.py"
    return ("elsewhere", ELSEWHERE[name]) if name in ELSEWHERE else None
