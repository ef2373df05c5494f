"""Small models to be damaged: one for each thing an ONNX file can hold, and the converted ones the onnx package carries.

All of them are sound. They are small, so that a damaged one takes milliseconds: what goes wrong is in what a file says, not
in how much of it there is.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, parser

from analyzer.graph import nbytes_of
from analyzer.onnx.types import DTYPES

_LARGEST_BYTES = 5_000
WEIGHTS = "weights.bin"  # the file of external data beside every model
# A weight of 16 numbers, and the shape [-1, 2, 2].
WEIGHTS_DATA = bytes(64) + b"\xff" * 8 + b"\2\0\0\0\0\0\0\0" * 2

# Name -> (operator sets, text of a graph and of the functions it calls).
_TEXTS = {
    "convolutions": (18, "g (float[N,3,8,8] x) => (float[N,16] y) <float[4,3,3,3] w = {1}, float[4] b, int64[2] s = {0,-1}>"
        " { c = Conv<kernel_shape=[3,3]>(x, w, b) r = Relu(c) p = MaxPool<kernel_shape=[3,3],strides=[3,3]>(r)"
        " y = Reshape(p, s) }"),
    "normalised": (15, "g (float[N,4,8,8] x) => (float[N,4,8,8] y) <float[4,4,1,1] w, float[4] s, float[4] b, float[4] m,"
        " float[4] v, float[4,1,1] k> { c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) a = Add(n, k) d = Add(a, x)"
        " t = Transpose<perm=[0,2,3,1]>(d) u = Transpose<perm=[0,3,1,2]>(t) y = Relu(u) }"),
    "shapes": (17, "g (float[N,5,8] x) => (float[A,B,2,4] y) <int64 z = {0}, int64 o = {1}, int64[1] zero = {0}, int64[2] twice = {1, 2},"
        " int64[1] two = {2}, int64[1] four = {4}, int64[1] one = {1}> { s = Shape(x) n = Gather<axis=0>(s, z)"
        " l = Gather<axis=0>(s, o) a = Unsqueeze(n, zero) b = Unsqueeze(l, zero) t = Concat<axis=0>(a, b, two, four)"
        " h = Reshape(x, t) m = Slice(s, zero, two) e = Expand(one, m) f = ConstantOfShape(m) q = Tile(f, twice)"
        " y = Identity(h) }"),
    "attention": (17, "g (float[N,5,8] x) => (float[N,5,8] y) <float[8,8] q, float[8,8] k, float[8,8] v, float[8] g,"
        " float[8] b, float d> { n = LayerNormalization(x, g, b) qq = MatMul(n, q) kk = MatMul(n, k) vv = MatMul(n, v)"
        " t = Transpose<perm=[0,2,1]>(kk) s = MatMul(qq, t) r = Div(s, d) p = Softmax(r) o = MatMul(p, vv) a = Add(o, b)"
        " y = Add(a, x) }"),
    "branches": (18, "g (float[N,4] x, bool c) => (float[N,4] y) <float[4,4] w> { m = MatMul(x, w) y = If(c) <"
        "then_branch = t () => (float[N,4] a) { a = Relu(m) }, else_branch = e () => (float[N,4] b) <float[4] k>"
        " { d = Add(m, k) b = Tanh(d) }> }"),
    "known_branch": (13, "g (float[N,4] x) => (y) <int64 z = {0}, int64 o = {1}, int64[1] a = {0}> { s = Shape(x)"
        " d = Gather(s, z) c = Equal(d, o) y = If(c) <then_branch = t () => (u) { u = Squeeze(x, a) },"
        " else_branch = e () => (v) { v = Identity(x) }> }"),
    "loop": (18, "g (float[N,4] x, int64 n) => (float[N,4] y, float[M,N,4] all) <bool c = {1}> { y, all = Loop(n, c, x) <"
        "body = b (int64 i, bool go, float[N,4] s) => (bool on, float[N,4] t, float[N,4] o) { on = Identity(go)"
        " t = Add(s, x) o = Relu(t) }> }"),
    "scan": (18, "g (float[N,4] i, float[5,N,4] x) => (float[N,4] f, float[5,N,4] y) { f, y = Scan(i, x) <"
        "num_scan_inputs = 1, body = b (float[N,4] s, float[N,4] e) => (float[N,4] t, float[N,4] o) { t = Add(s, e) o = Identity(t) }> }"),
    "nested": (18, "g (float[2,4] x, int64 n, bool c) => (float[2,4] y) <bool k = {1}> { y = Loop(n, k, x) <body = b"
        " (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t) { on = Identity(go) t = If(c) <then_branch = h ()"
        " => (float[2,4] p) { p = Add(s, x) }, else_branch = e () => (float[2,4] q) { q = Identity(s) }> }> }"),
    "functions": (18, "g (float[N,4] x) => (float[N,4] y) <float[4,4] w> { h = local.block<k = 0>(x, w)"
        " y = local.block<k = 1>(h, w) } <domain: \"local\", opset_import: [\"\" : 18]> block <k> (a, b) => (c)"
        " { d = MatMul(a, b) c = Softmax<axis: int = @k>(d) }"),
    "qdq": (18, "g (float[N,3,8,8] x) => (float[N,4,8,8] y) <int8[4,3,1,1] w, float s = {0.1}, int8 z = {0}>"
        " { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) c = Conv(d, v)"
        " p = QuantizeLinear(c, s, z) y = DequantizeLinear(p, s, z) }"),
    "integers": (18, "g (float[N,8] x, uint8[N,3,8,8] i) => (float[N,8] y, uint8[N,4,8,8] o) <uint8[8,8] w, uint8 z,"
        " uint8[4,3,1,1] v, float s> { q, qs, qz = DynamicQuantizeLinear(x) m = MatMulInteger(q, w, qz, z)"
        " f = Cast<to = 1>(m) t = Mul(qs, s) y = Mul(f, t) o = QLinearConv(i, s, z, v, s, z, s, z) }"),
    "contrib": (18, "g (int32[N,6] ids, float[N,3,8,8] image, float[6,N,8] steps) => (float[N,6,8] y, float z, float u,"
        " float v) <float[10,8] words, float[16,8] places, float[8] gamma, float[8] beta, float[8,24] wq, float[24] bq,"
        " float[8,8] w, uint8[8,1,8] packed, float[8] scales, float[1,16,8] lw, float[1,16,4] lr, float[3,4,2,2] cw,"
        " int64[1] k = {1}> { e, mask = com.microsoft.EmbedLayerNormalization(ids, , words, places, , gamma, beta)"
        " a = com.microsoft.Attention<num_heads = 2>(e, wq, bq) s = com.microsoft.SkipLayerNormalization(a, e, gamma)"
        " h = com.microsoft.MultiHeadAttention<num_heads = 2>(s, s, s) f = com.microsoft.FusedMatMul<transB = 1>(h, w)"
        " b = com.microsoft.BiasGelu(f, beta) n = com.microsoft.MatMulNBits<K = 8, N = 8, bits = 4, block_size = 16>(b,"
        " packed, scales) p, q = Split<axis = 2, num_outputs = 2>(n) c = Concat<axis = 2>(p, q)"
        " t = Transpose<perm = [0, 2, 1]>(c) y = Einsum<equation = \"bij,bjk->bik\">(c, t) best, where = TopK(y, k)"
        " z = ReduceMean<keepdims = 0>(best) u = ConvTranspose<strides = [2, 2]>(image, cw)"
        " v = LSTM<hidden_size = 4>(steps, lw, lr) found = NonZero(ids) }"),
    "recurrent": (14, "g (float[5,N,4] x) => (float[5,1,N,3] y, float[5,1,N,3] z, float[5,1,N,3] u) <float[1,12,4] lw,"
        " float[1,12,3] lr, float[1,9,4] gw, float[1,9,3] gr, float[1,3,4] rw, float[1,3,3] rr> { y = LSTM<hidden_size=3>(x, lw,"
        " lr) z = GRU<hidden_size=3>(x, gw, gr) u = RNN<hidden_size=3>(x, rw, rr) }"),
    "by_data": (17, "g (float[1,6,4] boxes, float[1,2,6] scores, float[N] x) => (int64[M,3] y, float[U] u, int64[R,P] z)"
        " <int64 n = {10}, float t = {0.5}> { y = NonMaxSuppression(boxes, scores, n, t, t) u = Unique(x) z = NonZero(x)"
        " b = Cast<to = 9>(x) c = Compress(x, b) }"),
    "resized": (18, "g (float[N,3,8,8] x) => (float[N,3,16,16] y, float[N,3,8,12] p) <float[0] roi, float[4] s ="
        " {1, 1, 2, 2}, int64[8] pads = {0,0,0,2,0,0,0,2}, int64[4] sizes = {1,3,16,16}> { y = Resize<mode=\"nearest\">(x, roi,"
        " s) p = Pad(x, pads) d = DepthToSpace<blocksize=1>(x) q = Resize(x, , , sizes) }"),
    "sequences": (18, "g (float[3,4] x, seq(float[3,4]) s) => (float[M,4] y, seq(float[N,4]) o) <int64 z = {0}> {"
        " o = SequenceInsert(s, x) a = SequenceAt(o, z) k = SequenceConstruct(a, x) y = ConcatFromSequence<axis=0>(k)"
        " w = SplitToSequence<axis=1>(x) n = SequenceLength(w) }"),
    "optional": (18, "g (float[N,4] x) => (float[N,4] y) { s = Optional(x) h = OptionalHasElement(s) y = OptionalGetElement(s) }"),
    "strings": (20, "g (string[N] s) => (string[N] y, string[N,M] p) { y = StringConcat(s, s)"
        " p, n = StringSplit<delimiter=\" \">(s) }"),
    "half": (18, "g (float16[N,8] x, bfloat16[N,8] b) => (float16[N,8] y, float[N,8] z) <float16[8,8] w, float16[8] k> {"
        " m = Gemm(x, w, k) y = Softmax(m) z = Cast<to = 1>(b) }"),
    "narrow": (21, "g (float[N,8] x) => (float[N,8] y, float8e4m3fn[N,8] e) <int4[8,8] w, float[8] s, float8e4m3fn z, float"
        " t> { d = DequantizeLinear<axis = 1>(w, s) y = MatMul(x, d) e = QuantizeLinear(x, t, z) }"),
    "trained": (15, "g (float[N,4,2] x, int64[N,2] l) => (float y, float[N,4,2] p) <float[4] s, float[4] b, float[4] m,"
        " float[4] v> { n, a, c = BatchNormalization<training_mode = 1>(x, s, b, m, v) d, k = Dropout(n)"
        " y, p = SoftmaxCrossEntropyLoss(d, l) }"),
    "custom": (17, "g (float[N,4] x) => (float[N,16] y) { a = my.Thing<k = 1>(x) b = ai.onnx.contrib.Tokens(x)"
        " c = ai.onnx.ml.Scaler(x) y = Identity(a) }"),
    "fresh": (22, "g (float[N,2,4,8] q, float[N,2,4,8] k) => (float[N,2,4,8] y) <float[8] g> { n = RMSNormalization(q, g)"
        " m = Gelu(n) s = Constant<value = float[2] {1, 1}>() a = GroupNormalization<num_groups = 1>(q, s, s) y = Mish(m) }"),
}  # fmt: skip
_IMPORTS = ("local", "my", "com.microsoft", "ai.onnx.contrib", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Base:
    """A sound model: its name and its bytes."""

    name: str
    data: bytes

    def model(self) -> Any:
        """A fresh `onnx.ModelProto` of it."""
        return onnx.ModelProto.FromString(self.data)


@cache
def bases() -> tuple[Base, ...]:
    """Every model to start from, in a fixed order."""
    found = [Base(name, _text(*text).SerializeToString()) for name, text in _TEXTS.items()]
    found += [Base("old", _old().SerializeToString()), Base("external", _external().SerializeToString())]
    found.append(Base("sparse", _sparse().SerializeToString()))
    carried = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for path in sorted((carried / kind).glob("*/model.onnx")):
            if path.stat().st_size <= _LARGEST_BYTES:
                found.append(Base(path.parent.name, path.read_bytes()))
    return tuple(found)


def digest() -> str:
    """Which models these are: another onnx package may carry others, and then the same seed is another file."""
    return hashlib.sha256(b"".join(base.data for base in bases())).hexdigest()[:16]


def _text(opset: int, text: str) -> Any:
    imports = ", ".join(f'"{domain}" : 1' for domain in _IMPORTS)
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, {imports}]> {text}')
    _weighted(model.graph)
    return model


def _weighted(graph: Any) -> None:
    """What the text names between <> without a value is a weight of zeros."""
    made = {name for node in graph.node for name in node.output}
    for info in [item for item in graph.value_info if item.name not in made]:
        kind = info.type.tensor_type.elem_type
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        tensor = graph.initializer.add(name=info.name, data_type=kind, dims=dims)
        tensor.raw_data = bytes(nbytes_of(math.prod(dims), DTYPES[kind]))
        graph.value_info.remove(info)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _weighted(attribute.g)


def _old() -> Any:
    """A file of 2018: IR version 3, every weight an input as well."""
    model = _text(8, _TEXTS["normalised"][1])
    model.ir_version = 3
    del model.opset_import[1:]
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    return model


def _external() -> Any:
    """Weights, and a shape, in a file beside the model."""
    model = _text(
        18,
        "g (float[N,4] x) => (float[N,2,2] y) <float[4,4] w> { m = MatMul(x, w) y = Reshape(m, s) }",
    )
    del model.graph.initializer[:]
    place = 0
    for name, kind, dims, length in (("w", TensorProto.FLOAT, [4, 4], 64), ("s", TensorProto.INT64, [3], 24)):
        tensor = model.graph.initializer.add(name=name, data_type=kind, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS), ("offset", place), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        place += length
    return model


def _sparse() -> Any:
    """A weight of which only some values are stored."""
    model = _text(18, "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }")
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("w_indices", TensorProto.INT64, [2], [1, 6])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    return model
