"""Result types of operators outside ONNX's own domains: ONNX Runtime's contrib operators.

1. Most follow an ONNX operator, given other inputs or more attributes: `DELEGATES` says which, and ONNX's own
   inference answers for it.
2. The others state their results' shapes here, from the operators' documentation; dimensions may be names.
3. An operator not in these tables gives nothing: the caller names and bounds it.

Source: `docs/ContribOperators.md` of ONNX Runtime 1.31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analyzer.onnx.shapes import extensions
from analyzer.onnx.shapes.native import NodeError
from analyzer.onnx.types import Dim, ValueType

_Inputs = list["ValueType | None"]
_Delegate = Callable[[Any], dict[str, ValueType]]
_Results = list["ValueType | None"]
_Constant = Callable[[str], Any]

# Operators ONNX Runtime keeps in the default domain though ONNX does not define them; LayerNormalization only
# since an operator set.
IN_DEFAULT_DOMAIN = frozenset({"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"})
_DEFINED_SINCE = {"LayerNormalization": 17}
# ONNX's own, whose function body its inference rejects where axes are left out (onnx 1.23: "must be specified
# for a Constant node").
_BODY_REJECTED = frozenset({"MeanVarianceNormalization"})

# Contrib operator -> (ONNX operator it follows, which inputs that one gets).
DELEGATES: dict[str, tuple[str, slice | tuple[int, ...]]] = {
    "FusedConv": ("Conv", (0, 1, 2)),
    "FusedGemm": ("Gemm", (0, 1, 2)),
    "NhwcFusedConv": ("Conv", (0, 1, 2)),
    "QGemm": ("Gemm", (0, 3)),
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearWhere": ("Where", (0, 1, 4)),
    "QLinearConcat": ("Concat", slice(2, None, 3)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearReduceMean": ("ReduceMean", (0,)),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1)),
    "MatMulIntegerToFloat": ("MatMul", (0, 1)),
    "MatMulInteger16": ("MatMul", (0, 1)),
    "FusedMatMulActivation": ("MatMul", (0, 1)),
    "SparseToDenseMatMul": ("MatMul", (0, 1)),
    "MaxpoolWithMask": ("MaxPool", (0,)),
    "Pad": ("Pad", slice(None)),
    "GridSample": ("GridSample", slice(None)),
    "Unique": ("Unique", (0,)),
}
# Those whose result has the type of a scale among the inputs from the third on.
_FLOAT_RESULTS = frozenset({"DynamicQuantizeMatMul", "MatMulIntegerToFloat"})

# First result like the first input.
_SAME = """
    Affine BiasAdd BiasDropout BiasGelu BiasSoftmax BitmaskBiasDropout BitmaskDropout ComplexMul
    ComplexMulConj FastGelu Gelu GemmaRotaryEmbedding GroupNorm ImageScaler Inverse LongformerAttention
    MeanVarianceNormalization MoE ParametricSoftplus QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QMoE
    QuickGelu RotaryEmbedding ScaledTanh ThresholdedRelu Trilu
"""
SAME = frozenset(_SAME.split())


def overrides(node: Any, opset: int) -> bool:
    """Return whether these tables answer for a node of the default domain, in this operator set."""
    is_undefined = node.op_type in IN_DEFAULT_DOMAIN or opset < _DEFINED_SINCE.get(node.op_type, 0)
    return is_undefined or node.op_type in _BODY_REJECTED


def infer_contrib(
    node: Any, inputs: _Inputs, delegate: _Delegate, constant: _Constant
) -> dict[str, ValueType]:
    """Result name -> type, for what the rules know. constant: name -> its tensor, None where unknown."""
    rule = RULES.get(node.op_type)
    results: _Results
    if node.domain in extensions.DOMAINS:
        results = [*extensions.results(node, inputs[0] if inputs else None)]
    elif rule is _group_query_attention:
        results = _group_query_attention(node, inputs, constant)
    elif rule is not None:
        results = rule(node, inputs)
    elif node.op_type in DELEGATES:
        results = _delegated(node, inputs, delegate)
    elif node.op_type in SAME:
        results = [inputs[0] if inputs else None]
    else:
        return {}
    return {
        name: value
        for name, value in zip(node.output, results, strict=False)
        if name
        and value is not None
        and all(isinstance(size, str) or size >= 0 for size in value.shape or ())
    }


def _delegated(node: Any, inputs: _Inputs, delegate: _Delegate) -> _Results:
    """Infer a contrib operator's results with ONNX's operator of the same shapes (`DELEGATES`)."""
    import onnx

    target, which = DELEGATES[node.op_type]
    names = list(node.input)
    chosen = names[which] if isinstance(which, slice) else [names[i] for i in which if i < len(names)]
    attributes = onnx.defs.get_schema(target).attributes
    stand_in = onnx.NodeProto(op_type=target, name=node.name, input=chosen, output=node.output[:1])
    stand_in.attribute.extend(attribute for attribute in node.attribute if attribute.name in attributes)
    result = delegate(stand_in).get(node.output[0])
    if result is None:
        return []
    dtype = result.dtype
    if node.op_type in _FLOAT_RESULTS:
        scale = next((item for item in inputs[2:] if item is not None), None)
        dtype = scale.dtype if scale is not None else "float32"
    return [ValueType(dtype, result.shape)]


def _integer(node: Any, name: str, default: int = 0) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)


def _integers(node: Any, name: str) -> tuple[int, ...]:
    return next((tuple(attribute.ints) for attribute in node.attribute if attribute.name == name), ())


def _shape(inputs: _Inputs, position: int) -> tuple[Dim, ...] | None:
    item = inputs[position] if position < len(inputs) else None
    return item.shape if item is not None else None


def _divided(size: Dim, by: int) -> Dim:
    return size // by if isinstance(size, int) and by else ""


def _plus(left: Dim, right: Dim) -> Dim:
    return left + right if isinstance(left, int) and isinstance(right, int) else ""


def _broadcast(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    return tuple(b if a == 1 else a if b in (1, a) else "" for a, b in zip(left, right, strict=True))


def _fused_matmul(node: Any, inputs: _Inputs) -> _Results:
    """MatMul with transA/transB (last two axes) and transBatchA/B (the first goes last but one)."""
    sides = []
    for position, side in enumerate("AB"):
        shape = _shape(inputs, position)
        if shape is None:
            return []
        if len(shape) >= 2 and _integer(node, f"transBatch{side}"):
            shape = (*shape[1:-1], shape[0], shape[-1])
        if len(shape) >= 2 and _integer(node, f"trans{side}"):
            shape = (*shape[:-2], shape[-1], shape[-2])
        sides.append(shape)
    a, b = sides
    first = inputs[0]
    if first is None or len(a) < 2 or len(b) < 2:
        return []
    return [ValueType(first.dtype, (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1]))]


def _matmul_n_bits(node: Any, inputs: _Inputs) -> _Results:
    """A[..., K] by a packed weight of N rows."""
    first = inputs[0]
    if first is None or not first.shape:
        return []
    return [ValueType(first.dtype, (*first.shape[:-1], _integer(node, "N")))]


def _skip_layer_norm(_node: Any, inputs: _Inputs) -> _Results:
    """Return the result, mean and inverse deviation of each row, and the sum of the inputs."""
    first = inputs[0]
    if first is None or first.shape is None:
        return []
    rows = ValueType("float32", (*first.shape[:-1], 1))
    return [first, rows, rows, first]


def _layer_norm(node: Any, inputs: _Inputs) -> _Results:
    """Mean and inverse deviation keep the dimensions before `axis`."""
    first = inputs[0]
    if first is None or first.shape is None:
        return []
    axis = _integer(node, "axis", -1) % len(first.shape) if first.shape else 0
    rows = ValueType("float32", (*first.shape[:axis], *(1,) * (len(first.shape) - axis)))
    return [first, rows, rows]


def _embed_layer_norm(_node: Any, inputs: _Inputs) -> _Results:
    """Ids [B, S], tables [rows, H]: [B, S, H], the mask index [B], and the sum of embeddings."""
    ids, table = _shape(inputs, 0), inputs[2] if len(inputs) > 2 else None
    if ids is None or table is None or not table.shape or len(ids) < 2:
        return []
    embedded = ValueType(table.dtype, (ids[0], ids[1], table.shape[-1]))
    return [embedded, ValueType("int32", (ids[0],)), embedded]


def _attention(node: Any, inputs: _Inputs) -> _Results:
    """Input [B, S, D], weight [D, Q+K+V]: [B, S, V]; present [2, B, heads, past + S, head size]."""
    first, weight = inputs[0], _shape(inputs, 1)
    if first is None or first.shape is None or not weight or len(first.shape) < 3:
        return []
    sizes = _integers(node, "qkv_hidden_sizes")
    value: Dim = sizes[2] if len(sizes) == 3 else _divided(weight[-1], 3)
    heads = _integer(node, "num_heads", 1)
    batch, length = first.shape[0], first.shape[1]
    dtype = first.dtype
    if node.op_type == "QAttention":
        scale = inputs[3] if len(inputs) > 3 else None
        dtype = scale.dtype if scale is not None else "float32"
    past = _shape(inputs, 8 if node.op_type == "QAttention" else 4)
    total: Dim = _plus(past[3], length) if past and len(past) == 5 else length
    present = ValueType(dtype, (2, batch, heads, total, _divided(value, heads)))
    return [ValueType(dtype, (batch, length, value)), present]


def _multi_head_attention(node: Any, inputs: _Inputs) -> _Results:
    """Query [B, S, D] or packed -> [B, S, V], present keys and values [B, heads, T, size]."""
    query = inputs[0]
    if query is None or query.shape is None or len(query.shape) < 3:
        return []
    heads = _integer(node, "num_heads", 1)
    key, value = _shape(inputs, 1), _shape(inputs, 2)
    hidden: Dim = query.shape[2]
    if len(query.shape) == 5:
        size = query.shape[4]
        hidden = heads * size if isinstance(size, int) else ""
    elif value is not None:
        hidden = (
            value[2]
            if len(value) == 3
            else (heads * value[3] if len(value) == 4 and isinstance(value[3], int) else "")
        )
    length: Dim = query.shape[1]
    if key is not None and len(key) >= 3:
        length = key[1] if len(key) != 4 else key[2]
    past = _shape(inputs, 6)
    total: Dim = _plus(past[2], length) if past and len(past) == 4 else length
    present = ValueType(query.dtype, (query.shape[0], heads, total, _divided(hidden, heads)))
    return [ValueType(query.dtype, (query.shape[0], query.shape[1], hidden)), present, present]


def _group_query_attention(node: Any, inputs: _Inputs, constant: _Constant = lambda _name: None) -> _Results:
    """Query [B, S, D], or packed with keys and values. Present is as long as the total length, or as past if
    that is longer (a buffer for all that comes): `max(total_sequence_length, past_sequence_length)`
    (`group_query_attention_helper.h`). A total length that nothing says is that of past and query. Raises
    NodeError, in its words, where ONNX Runtime refuses several tokens of several sequences with a past."""
    query = inputs[0]
    if query is None or query.shape is None or len(query.shape) < 3:
        return []
    heads, groups = _integer(node, "num_heads", 1), _integer(node, "kv_num_heads", 1)
    key = _shape(inputs, 1)
    hidden: Dim = query.shape[2]
    size = _divided(hidden, heads)
    if key is None:
        size = _divided(hidden, heads + 2 * groups)
        hidden = size * heads if isinstance(size, int) else ""
    past = _shape(inputs, 3)
    before: Dim = past[2] if past and len(past) == 4 else 0
    batch, rows = query.shape[:2]
    room: Dim = rows if before == 0 else before
    if isinstance(before, int) and isinstance(rows, int):
        value = constant(node.input[6])
        total = before + rows if value is None else int(value.max())
        if value is not None and batch not in (1, "") and rows not in (1, total):
            raise NodeError("batch_size must be 1 when sequence_length > 1 and past context is given")
        room = max(before, total)
    present = ValueType(query.dtype, (batch, groups, room, size))
    return [ValueType(query.dtype, (batch, rows, hidden)), present, present]


def _quantize(_node: Any, inputs: _Inputs) -> _Results:
    zero = inputs[2] if len(inputs) > 2 else None
    return [ValueType(zero.dtype if zero is not None else "uint8", _shape(inputs, 0))]


def _dequantize(_node: Any, inputs: _Inputs) -> _Results:
    scale = inputs[1] if len(inputs) > 1 else None
    return [ValueType(scale.dtype if scale is not None else "float32", _shape(inputs, 0))]


def _gather_block_quantized(node: Any, inputs: _Inputs) -> _Results:
    """Gather of a packed table: the last dimension unpacks, the result has the scales' type."""
    table, indices, scale = inputs[0], _shape(inputs, 1), inputs[2] if len(inputs) > 2 else None
    if table is None or table.shape is None or indices is None or scale is None:
        return []
    axis = _integer(node, "gather_axis") % max(1, len(table.shape))
    packed = 8 // _integer(node, "bits", 4) if table.dtype == "uint8" else 1
    last = table.shape[-1]
    shape = (*table.shape[:-1], last * packed if isinstance(last, int) else "")
    return [ValueType(scale.dtype, (*shape[:axis], *indices, *shape[axis + 1 :]))]


def _bias_split_gelu(_node: Any, inputs: _Inputs) -> _Results:
    first = inputs[0]
    if first is None or not first.shape:
        return []
    return [ValueType(first.dtype, (*first.shape[:-1], _divided(first.shape[-1], 2)))]


RULES: dict[str, Callable[[Any, _Inputs], _Results]] = {
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "MatMulNBits": _matmul_n_bits,
    "MatMulBnb4": _matmul_n_bits,
    "MatMulFpQ4": _matmul_n_bits,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_layer_norm,
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _layer_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
    "Attention": _attention,
    "QAttention": _attention,
    "MultiHeadAttention": _multi_head_attention,
    "GroupQueryAttention": _group_query_attention,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "GatherBlockQuantized": _gather_block_quantized,
    "BiasSplitGelu": _bias_split_gelu,
}
