"""Every value's type and shape against a real ONNX Runtime (CPU provider, optimizations off) on small models.

Each intermediate value is made an output of the model that runs, so nothing is compared by name alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from analyzer.capture.onnx import REGION, capture_onnx
from analyzer.graph import Category, Graph, TensorMeta, nbytes_of

HEADER = '<ir_version: 9, opset_import: ["":19, "com.microsoft":1]>\n'
RANDOM = np.random.default_rng(0)


def run(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path | None = None) -> dict[str, np.ndarray]:
    """Every value of the main graph, as ONNX Runtime computes it."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    listed = {item.name for item in whole.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in listed:
                whole.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    source: Any = whole.SerializeToString()
    if folder is not None:
        source = str(folder / "all.onnx")
        Path(source).write_bytes(whole.SerializeToString())
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def values(graph: Graph) -> dict[str, TensorMeta]:
    """The main graph's results by name."""
    return {
        graph.storages[out.storage].name: out
        for op in graph.operators
        if REGION not in op.keywords
        for out in op.outputs
        if out is not None
    }


def compare(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], batch: int, *, bounds: tuple[str, ...] = ()
) -> Graph:
    graph = capture_onnx(model, batch=batch)
    predicted = values(graph)
    real = run(model, feeds)
    assert predicted.keys() == real.keys()
    for name, array in real.items():
        out = predicted[name]
        if name in bounds:
            assert out.dtype == str(array.dtype)
            assert len(out.shape) == array.ndim
            assert all(have <= most for have, most in zip(array.shape, out.shape, strict=True)), name
        else:
            assert (out.dtype, out.shape) == (str(array.dtype), array.shape), name
            assert graph.storages[out.storage].nbytes == array.nbytes
    return graph


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def model_of(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX's text form, with further initializers."""
    model = parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


CONVOLUTIONS = """g (float[batch,3,16,16] x) => (float[batch,10] y) {
  c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, w)
  r = Relu(c)
  p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(r)
  t = ConvTranspose<strides=[2,2]>(p, wt)
  m = ReduceMean(t, axes)
  s = Shape(m)
  n = Gather(s, zero)
  nu = Unsqueeze(n, first)
  target = Concat<axis=0>(nu, rest)
  f = Reshape(m, target)
  y = Gemm<transB=1>(f, wl, bl)
}"""


def convolutions() -> onnx.ModelProto:
    return model_of(
        CONVOLUTIONS,
        w=floats(8, 3, 3, 3),
        wt=floats(8, 4, 2, 2),
        axes=np.array([3]),
        zero=np.array(0),
        first=np.array([0]),
        rest=np.array([-1]),
        wl=floats(10, 32),
        bl=floats(10),
    )


@pytest.mark.parametrize("batch", [1, 7])
def test_dynamic_batch(batch: int) -> None:
    graph = compare(convolutions(), {"x": floats(batch, 3, 16, 16)}, batch)
    assert graph.notes == ()


@pytest.mark.parametrize("name", ["batch", "N", "batch_size", "s0", "unk__7", ""])
def test_batch_by_any_name(name: str) -> None:
    model = convolutions()
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    dim.Clear()
    if name:
        dim.dim_param = name
    compare(model, {"x": floats(5, 3, 16, 16)}, 5)


def test_negative_batch_in_the_file_means_dynamic() -> None:
    model = convolutions()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert values(capture_onnx(model, batch=5))["y"].shape == (5, 10)


def test_hard_coded_batch_is_rebound_and_said() -> None:
    model = convolutions()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    graph = capture_onnx(model, batch=6)
    real = run(convolutions(), {"x": floats(6, 3, 16, 16)})
    assert {name: out.shape for name, out in values(graph).items()} == {n: a.shape for n, a in real.items()}
    assert "hard-coded batch of 1" in graph.notes[0]
    assert capture_onnx(model, batch=1).notes == ()


def test_half_precision() -> None:
    for code, dtype in ((TensorProto.FLOAT16, "float16"), (TensorProto.DOUBLE, "float64")):
        model = model_of(
            "g (float[batch,12] x) => (y) { a = MatMul(x, w)  b = Softmax(a)  c = Add(b, bias)  y = Cast<to=1>(c) }",
            w=floats(12, 20, dtype=dtype),
            bias=floats(20, dtype=dtype),
        )
        model.graph.input[0].type.tensor_type.elem_type = code
        compare(model, {"x": floats(3, 12, dtype=dtype)}, 3)


def test_bfloat16_float8_and_int4_weights_are_packed() -> None:
    tensors = [
        helper.make_tensor("a", TensorProto.BFLOAT16, [3, 5], b"\0" * 30, raw=True),
        helper.make_tensor("b", TensorProto.FLOAT8E4M3FN, [3, 5], b"\0" * 15, raw=True),
        helper.make_tensor("c", TensorProto.INT4, [3, 5], b"\0" * 8, raw=True),
        helper.make_tensor("d", TensorProto.UINT4, [3, 5], b"\0" * 8, raw=True),
        helper.make_tensor("e", TensorProto.FLOAT4E2M1, [3, 5], b"\0" * 8, raw=True),
        helper.make_tensor("f", TensorProto.INT2, [3, 5], b"\0" * 4, raw=True),
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", [t.name], [t.name + "o"]) for t in tensors],
        "g",
        [],
        [helper.make_tensor_value_info(t.name + "o", t.data_type, [3, 5]) for t in tensors],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    sizes = {s.name: s.nbytes for s in capture_onnx(model).storages}
    assert [sizes[name] for name in "abcdef"] == [30, 15, 8, 8, 8, 4]
    assert [sizes[name + "o"] for name in "abcdef"] == [30, 15, 8, 8, 8, 4]


def test_quantized_weights_and_activations() -> None:
    model = model_of(
        """g (float[batch,3,8,8] x) => (y) {
          q = QuantizeLinear(x, s, z)
          d = DequantizeLinear(q, s, z)
          wd = DequantizeLinear(w, s, wz)
          c = Conv(d, wd)
          cq = QuantizeLinear(c, s, z)
          y = DequantizeLinear(cq, s, z)
        }""",
        s=np.array(0.1, "float32"),
        z=np.array(128, "uint8"),
        w=RANDOM.integers(-128, 127, (4, 3, 3, 3)).astype("int8"),
        wz=np.array(0, "int8"),
    )
    compare(model, {"x": floats(2, 3, 8, 8)}, 2)


def test_four_bit_weights() -> None:
    model = model_of(
        "g (float[batch,5,64] x) => (y) { m = com.microsoft.MatMulNBits<K=64,N=24,bits=4,block_size=32>(x, w, s)  y = Relu(m) }",
        w=RANDOM.integers(0, 255, (24, 2, 16)).astype("uint8"),
        s=floats(48),
    )
    graph = compare(model, {"x": floats(3, 5, 64)}, 3)
    assert [s.nbytes for s in graph.storages if s.category is Category.PARAMETER] == [24 * 32, 48 * 4]


def test_more_than_two_gigabytes_of_external_data(tmp_path: Path) -> None:
    """A table of 2.1 GB in a sparse file: declared, mapped by ONNX Runtime, never read here."""
    rows, columns = 1 << 16, 8400
    model = parser.parse_model(
        HEADER + "g (int64[batch,4] i) => (y) { e = Gather(table, i)  y = ReduceSum(e, axes) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    table = TensorProto(
        name="table", data_type=TensorProto.FLOAT, dims=[rows, columns], data_location=TensorProto.EXTERNAL
    )
    table.external_data.add(key="location", value="weights.bin")
    model.graph.initializer.append(table)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    absent = capture_onnx(path, batch=2)
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(rows * columns * 4)
    real = run(model, {"i": np.zeros((2, 4), "int64")}, tmp_path)
    assert {name: out.shape for name, out in values(absent).items()} == {n: a.shape for n, a in real.items()}
    assert max(s.nbytes for s in absent.storages) == rows * columns * 4 > 2 << 30


def test_branches() -> None:
    model = model_of(
        """g (float[batch,4] x, bool c) => (y) {
          y = If(c) <then_branch = a () => (y1) { t = MatMul(x, w)  y1 = Relu(t) },
                     else_branch = b () => (y2) { y2 = Concat<axis=1>(x, x) }>
        }""",
        w=floats(4, 6),
    )
    for condition in (True, False):
        feeds = {"x": floats(3, 4), "c": np.array(condition)}
        graph = compare(model, feeds, 3, bounds=("y",))
        assert values(graph)["y"].shape == (3, 8)
    assert [op.module.split("/")[1] for op in graph.operators if REGION in op.keywords] == ["then_branch"] * 2
    assert "'y'" in graph.notes[0]


def test_branch_chosen_by_a_constant() -> None:
    model = model_of(
        """g (float[batch,4] x) => (y) {
          n = Size(s)  c = Greater(n, one)
          y = If(c) <then_branch = a () => (y1) { y1 = Concat<axis=1>(x, x, x) },
                     else_branch = b () => (y2) { y2 = Relu(x) }>
        }""",
        s=np.array([1]),
        one=np.array(1),
    )
    assert compare(model, {"x": floats(3, 4)}, 3).notes == ()


def test_loop() -> None:
    model = model_of(
        """g (float[batch,4] x) => (y, s) {
          y, s = Loop(m, c, x) <body = b (int64 i, bool ci, float[batch,4] v) => (bool co, float[batch,4] vo, sc) {
            co = Identity(ci)  vo = Add(v, x)  sc = Transpose(vo)
          }>
        }""",
        m=np.array(5),
        c=np.array(True),
    )
    graph = compare(model, {"x": floats(3, 4)}, 3)
    assert [op.name for op in graph.operators] == ["Identity", "Add", "Transpose", "Loop"]
    assert values(graph)["s"].shape == (5, 4, 3)


def test_loop_that_grows() -> None:
    model = model_of(
        """g (float[batch,4] x) => (y) {
          y = Loop(m, c, x) <body = b (int64 i, bool ci, float[k,4] v) => (bool co, float[l,4] vo) {
            co = Identity(ci)  vo = Concat<axis=0>(v, x)
          }>
        }""",
        m=np.array(6),
        c=np.array(True),
    )
    graph = compare(model, {"x": floats(3, 4)}, 3)
    assert values(graph)["y"].shape == (21, 4)
    assert "changes its shape" in graph.notes[0]


def test_loop_of_unknown_length_is_said() -> None:
    model = model_of(
        """g (float[batch,4] x, int64 m) => (y, s) {
          y, s = Loop(m, , x) <body = b (int64 i, bool ci, float[batch,4] v) => (bool co, float[batch,4] vo, float[batch,4] sc) {
            co = Identity(ci)  vo = Relu(v)  sc = Neg(v)
          }>
        }"""
    )
    graph = capture_onnx(model, batch=3)
    assert "number of iterations is not constant" in graph.notes[0]
    assert "no bound" in graph.notes[0]


def test_scan() -> None:
    model = model_of(
        """g (float[batch,4] x, float[7,batch,4] q) => (f, z) {
          f, z = Scan<num_scan_inputs=1, body = b (float[batch,4] a, float[batch,4] e) => (float[batch,4] ao, float[4,batch] o) {
            ao = Add(a, e)  o = Transpose(ao)
          }>(x, q)
        }"""
    )
    compare(model, {"x": floats(3, 4), "q": floats(7, 3, 4)}, 3)


def test_non_zero_is_bounded() -> None:
    model = model_of("g (float[batch,4] x) => (i) { i = NonZero(x)  t = Transpose(i)  g = GatherND(x, t) }")
    graph = compare(model, {"x": (floats(3, 4) > 0).astype("float32")}, 3, bounds=("i", "t", "g"))
    assert values(graph)["i"].shape == (2, 12)
    assert "depends on data" in graph.notes[0]


def test_non_max_suppression_is_bounded() -> None:
    model = model_of(
        "g (float[batch,50,4] b, float[batch,3,50] s) => (n) { n = NonMaxSuppression(b, s, most, iou, score) }",
        most=np.array(10),
        iou=np.array(0.5, "float32"),
        score=np.array(0.1, "float32"),
    )
    feeds = {"b": floats(2, 50, 4), "s": abs(floats(2, 3, 50))}
    graph = compare(model, feeds, 2, bounds=("n",))
    assert values(graph)["n"].shape == (2 * 3 * 10, 3)


def test_other_results_that_depend_on_data() -> None:
    model = model_of(
        """g (float[batch,6] x, int64 k) => (u) {
          u, ui, inv, cnt = Unique(x)
          m = Greater(x, zero)  f = Reshape(m, flat)  xf = Reshape(x, flat)  c = Compress(xf, f)
          k1 = Reshape(k, flat)  tv, ti = TopK(x, k1)
        }""",
        zero=np.array(0, "float32"),
        flat=np.array([-1]),
    )
    feeds = {"x": floats(3, 6), "k": np.array(2)}
    bounds = ("u", "ui", "cnt", "c", "tv", "ti")
    graph = compare(model, feeds, 3, bounds=bounds)
    assert len(graph.notes) == len(bounds)


def test_shape_arithmetic_beyond_onnx_inference() -> None:
    """Range, CumSum and masks over a computed length, as exporters of language models write them."""
    model = model_of(
        """g (int64[batch,9] x) => (y) {
          s = Shape(x)  n = Gather(s, one)  r = Range(zero, n, one)  u = Unsqueeze(r, axis)
          l = Less(u, half)  w = Where(l, u, half)  m = ReduceMax<keepdims=0>(w)  m1 = Reshape(m, flat)
          sh = Concat<axis=0>(m1, two)  z = ConstantOfShape(sh)  y = Identity(z)
        }""",
        zero=np.array(0),
        one=np.array(1),
        axis=np.array([0]),
        half=np.array(5),
        flat=np.array([-1]),
        two=np.array([2]),
    )
    graph = compare(model, {"x": np.zeros((3, 9), "int64")}, 3)
    assert values(graph)["y"].shape == (5, 2)
    assert graph.notes == ()


H = 16  # hidden size of the contrib models; 4 heads
CONTRIB: dict[str, tuple[str, dict[str, Any]]] = {
    "Gelu": ("y = com.microsoft.Gelu(x)", {}),
    "BiasGelu": ("y = com.microsoft.BiasGelu(x, b)", {"b": floats(H)}),
    "FastGelu": ("y = com.microsoft.FastGelu(x, b)", {"b": floats(H)}),
    "QuickGelu": ("y = com.microsoft.QuickGelu(x)", {}),
    "FusedMatMul": ("y = com.microsoft.FusedMatMul<transB=1>(x, w)", {"w": floats(5, H)}),
    "FusedMatMul both": ("y = com.microsoft.FusedMatMul<transA=1>(x, x)", {}),
    "SkipLayerNormalization": (
        "y, , , sum = com.microsoft.SkipLayerNormalization(x, x, g, b)",
        {"g": floats(H), "b": floats(H)},
    ),
    "SkipSimplifiedLayerNormalization": (
        "y, , , sum = com.microsoft.SkipSimplifiedLayerNormalization(x, x, g)",
        {"g": floats(H)},
    ),
    "SimplifiedLayerNormalization": ("y = SimplifiedLayerNormalization<axis=-1>(x, g)", {"g": floats(H)}),
    "Attention": (
        "y = com.microsoft.Attention<num_heads=4>(x, w, b)",
        {"w": floats(H, 3 * H), "b": floats(3 * H)},
    ),
    "MultiHeadAttention": ("y, k, v = com.microsoft.MultiHeadAttention<num_heads=4>(x, x, x)", {}),
    "QuantizeLinear": (
        "y = com.microsoft.QuantizeLinear(x, s, z)  d = com.microsoft.DequantizeLinear(y, s, z)",
        {"s": np.array(0.1, "float32"), "z": np.array(0, "int8")},
    ),
    "QLinearAdd": (
        "q = QuantizeLinear(x, s, z)  a = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)"
        "  y = com.microsoft.QLinearMul(a, s, z, c, s, z, s, z)  g = com.microsoft.QLinearSigmoid(y, s, z, s, z)"
        "  l = com.microsoft.QLinearLeakyRelu<alpha=0.1>(g, s, z, s, z)",
        {
            "s": np.array(0.1, "float32"),
            "z": np.array(0, "uint8"),
            "c": RANDOM.integers(0, 9, (1, H)).astype("uint8"),
        },
    ),
    "QLinearConcat": (
        "q = QuantizeLinear(x, s, z)  y = com.microsoft.QLinearConcat<axis=1>(s, z, q, s, z, q, s, z)",
        {"s": np.array(0.1, "float32"), "z": np.array(0, "uint8")},
    ),
    "DynamicQuantizeMatMul": (
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z)",
        {
            "w": RANDOM.integers(0, 9, (H, 5)).astype("uint8"),
            "s": np.array(0.1, "float32"),
            "z": np.array(0, "uint8"),
        },
    ),
    "MatMulIntegerToFloat": (
        "q = QuantizeLinear(x, s, z)  y = com.microsoft.MatMulIntegerToFloat(q, w, s, s)",
        {
            "w": RANDOM.integers(0, 9, (H, 5)).astype("uint8"),
            "s": np.array(0.1, "float32"),
            "z": np.array(0, "uint8"),
        },
    ),
    "downstream of contrib": (
        "q = com.microsoft.Gelu(x)  s = Shape(q)  r = Reshape(q, s)  f = Flatten(r)  t = Transpose(f)  y = MatMul(f, t)",
        {},
    ),
}


@pytest.mark.parametrize("name", sorted(CONTRIB))
def test_contrib_operators(name: str) -> None:
    text, constants = CONTRIB[name]
    model = model_of(f"g (float[batch,6,{H}] x) => (y) {{ {text} }}", **constants)
    graph = compare(model, {"x": floats(3, 6, H)}, 3)
    assert graph.notes == ()


def test_contrib_convolution_and_gemm() -> None:
    model = model_of(
        """g (float[batch,3,9,9] x) => (y) {
          c = com.microsoft.FusedConv<activation="Relu",pads=[1,1,1,1]>(x, w)
          q = QuantizeLinear(c, s, z)
          p = com.microsoft.QLinearAveragePool<kernel_shape=[2,2],strides=[2,2]>(q, s, z, s, z)
          m = com.microsoft.QLinearGlobalAveragePool(p, s, z, s, z)
          f = Flatten(m)
          d = DequantizeLinear(f, s, z)
          y = com.microsoft.FusedGemm<activation="Relu">(d, v, b)
        }""",
        w=floats(4, 3, 3, 3),
        s=np.array(0.1, "float32"),
        z=np.array(0, "uint8"),
        v=floats(4, 7),
        b=floats(7),
    )
    compare(model, {"x": floats(2, 3, 9, 9)}, 2)


def test_embedding_layer_normalization() -> None:
    model = model_of(
        "g (int32[batch,6] i, int32[batch,6] m) => (y) "
        "{ y, mask = com.microsoft.EmbedLayerNormalization(i, , words, places, , g, b, m) }",
        words=floats(30, H),
        places=floats(8, H),
        g=floats(H),
        b=floats(H),
    )
    feeds = {"i": np.zeros((3, 6), "int32"), "m": np.ones((3, 6), "int32")}
    compare(model, feeds, 3)


def test_sequences_hold_what_is_put_into_them() -> None:
    model = model_of(
        """g (float[batch,4] x) => (y) {
          s = SequenceConstruct(x, x, x)
          a = SequenceAt(s, zero)
          c = ConcatFromSequence<axis=0>(s)
          p = SplitToSequence<axis=1>(x, one)
          n = SequenceLength(p)
          y = Add(a, x)
        }""",
        zero=np.array(0),
        one=np.array(1),
    )
    graph = capture_onnx(model, batch=3)
    found = values(graph)
    real = run(model, {"x": floats(3, 4)})
    for name in ("a", "n", "y"):
        assert found[name].shape == real[name].shape
    for name in ("s", "p"):
        assert graph.storages[found[name].storage].nbytes == sum(part.nbytes for part in real[name])
    assert graph.storages[found["c"].storage].nbytes >= real["c"].nbytes


def test_strings_count_their_headers() -> None:
    model = parser.parse_model(HEADER + "g (string[batch,4] x) => (y) { y = Identity(x) }")
    assert {s.nbytes for s in capture_onnx(model, batch=3).storages} == {nbytes_of(12, "string")}


def test_local_functions_are_inlined() -> None:
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["":19, "local":1]>
        g (float[batch,4] x) => (y) { h = local.twice(x)  y = Relu(h) }
        <opset_import: ["":19], domain: "local"> twice (a) => (b) { t = Add(a, a)  b = Concat<axis=1>(t, t) }"""
    )
    graph = capture_onnx(model, batch=3)
    assert [op.name for op in graph.operators] == ["Add", "Concat", "Relu"]
    assert values(graph)["y"].shape == run(model, {"x": floats(3, 4)})["y"].shape
