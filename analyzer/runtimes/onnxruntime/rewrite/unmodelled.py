"""Transformers of ONNX Runtime that this prediction does not follow: named where they may change a graph.

Each entry is a transformer of ONNX Runtime's, the level it belongs to, the providers it works for, and the
operators by which a graph it may change is recognised. The note says in which direction the figures may be
off. Every other transformer is carried out (`rewrite/__init__.py`).

Source: `core/optimizer/graph_transformer_utils.cc` (`GenerateTransformers`, `GenerateRewriteRules`), 1.31.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.onnx.shapes import extensions
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.rewrite.casts import INSERTED

BASIC, EXTENDED, LAYOUT = 1, 2, 3
_MS = "com.microsoft."
_SCAN_OPSET = 9  # since when a Scan has no batch of its own


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """names: of transformers. needs: operators that a graph it may change has, all of them; as a chain, each
    reading the one before it."""

    names: tuple[str, ...]
    level: int
    needs: tuple[str, ...]
    providers: tuple[str, ...] = ("cpu", "cuda")
    more: bool = False
    chain: bool = False

    def may_change(self, graph: RuntimeGraph) -> bool:
        """Return whether the graph, or a subgraph, has what the transformers work on."""
        nodes = list(graph.walk())
        if not self.chain:
            return {node.operator for node in nodes}.issuperset(self.needs)
        last = {name for node in nodes if node.operator == self.needs[0] for name in node.outputs}
        for operator in self.needs[1:]:
            readers = [node for node in nodes if node.operator == operator and last.intersection(node.inputs)]
            last = {name for node in readers for name in node.outputs}
        return bool(last)


TRANSFORMERS: tuple[Unmodelled, ...] = (
    Unmodelled(("MatmulBNFusion",), BASIC, ("MatMul", "BatchNormalization")),
    Unmodelled(("LabelEncoderFusion",), BASIC, ("ai.onnx.ml.LabelEncoder",)),
    Unmodelled(
        ("AttentionFusion", "EmbedLayerNormFusion"), EXTENDED, ("LayerNormalization", "Softmax", "ReduceSum")
    ),
    Unmodelled(("BiasDropoutFusion",), EXTENDED, ("Dropout",), ("cuda",)),
    Unmodelled(("SliceConcatToSpaceToDepthFusion",), BASIC, ("Slice", "Slice", "Concat", "Conv"), chain=True),
    Unmodelled(
        ("DQMatMulNBitsFusion",),
        BASIC,
        ("DequantizeLinear", "Reshape", "Transpose", "MatMul"),
        chain=True,
    ),
    Unmodelled(
        ("BiasSkipLayerNormFusion",),
        EXTENDED,
        ("MatMul", "Add", f"{_MS}SkipLayerNormalization"),
        chain=True,
    ),
    Unmodelled(("MatMulNBitsMlpFusion",), EXTENDED, (f"{_MS}MatMulNBits", f"{_MS}QuickGelu"), chain=True),
    Unmodelled(
        ("MatMulNBitsQkvFusion",),
        EXTENDED,
        (f"{_MS}SkipSimplifiedLayerNormalization", f"{_MS}MatMulNBits"),
        chain=True,
    ),
    Unmodelled(
        ("GroupQueryAttentionPreNormFusion", "GqaValueLayoutTransformer"),
        EXTENDED,
        (f"{_MS}GroupQueryAttention",),
        ("cuda",),
    ),
    Unmodelled(("NchwcTransformer", "ConvAddActivationFusion"), LAYOUT, ("Conv",), ("cpu",), more=True),
    Unmodelled(("NhwcTransformer",), LAYOUT, ("QLinearConv",), more=True),
    Unmodelled(("GroupQueryAttentionFusion",), EXTENDED, ("com.microsoft.GroupQueryAttention",), ("cuda",)),
)
# Of the transpose optimizer, which is followed, what is not: Transposes pushed behind a quantization.
_BEHIND_QUANTIZATION = Unmodelled(("TransposeOptimizer",), BASIC, ("Transpose", "QuantizeLinear"), chain=True)


def notes(graph: RuntimeGraph, provider: str, level: int) -> tuple[str, ...]:
    """Return a line for each transformer that may change this graph and is not modelled."""
    operators = {node.operator for node in graph.walk()}
    lines = []
    for entry in TRANSFORMERS:
        if level >= entry.level and provider in entry.providers and entry.may_change(graph):
            shown = ", ".join(entry.names[:3]) + (", ..." if len(entry.names) > 3 else "")
            direction = "memory may be more, or less" if entry.more else "memory may be less"
            lines.append(
                f"ONNX Runtime may rewrite {' and '.join(entry.needs)} further ({shown}), not modelled:"
                f" {direction}"
            )
    if provider == "cpu" and any(node.name.startswith(INSERTED) for node in graph.walk()):
        lines.append(
            "the CPU provider computes half precision in float32, between Casts; how it joins operators there"
            " is not followed in every case: memory may be more"
        )
    if provider == "cpu" and operators & packing.INTEGERS:
        lines.append(
            "integer weights are packed as processors with AVX2 or AVX-512 do it; with AMX or VNNI an"
            " operator may take some KiB less, or more"
        )
    added = sorted({node.op for node in graph.walk() if node.domain in extensions.DOMAINS})
    if added:
        lines.append(
            f"{', '.join(added)}: of ONNX Runtime's extensions, which the session must register; they run on"
            " the CPU, and what they take besides their results is not in the arena"
        )
    if level >= BASIC and _BEHIND_QUANTIZATION.may_change(graph):
        lines.append(
            "ONNX Runtime may quantize before it transposes, a quarter of the bytes to move, not modelled:"
            " memory may be less, and since other chunks are then free, held memory may be more"
        )
    if graph.opset < _SCAN_OPSET and "Scan" in operators:
        lines.append("the body of a Scan of operator set 8 is not followed: memory may be more")
    sequences = sorted(op for op in operators if "Sequence" in op or op.startswith("Optional"))
    if sequences:
        lines.append(f"tensors inside sequences ({', '.join(sequences)}) are not counted: memory may be more")
    return tuple(lines)
