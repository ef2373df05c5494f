"""ONNX graphs lowered to PyTorch: the same values as ONNX Runtime computes, the same memory as the model in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import numpy_helper, parser

import analyzer
from analyzer.capture.lowering.call import FUNCTIONS
from analyzer.capture.lowering.module import OnnxModule, lower
from analyzer.errors import AnalyzerError, InputError
from analyzer.spec import TensorSpec
from tests.paths import MODELS

HEADER = '<ir_version: 9, opset_import: ["":20, "com.microsoft":1, "my.domain":1]>\n'
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def numbers(*values: int) -> np.ndarray:
    return np.array(values)


def saved(tmp_path: Path, text: str, constants: dict[str, np.ndarray]) -> Path:
    model = parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def materialized(path: Path, batch: int) -> OnnxModule:
    """The lowered module with the file's weights."""
    module = lower(path, batch=batch).module
    assert isinstance(module, OnnxModule)
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for name, key in module._held.items():
        if name in tensors:
            value = torch.tensor(tensors[name])
            if key in module._parameters:
                module._parameters[key] = torch.nn.Parameter(value)
            else:
                module._buffers[key] = value
    return module


X = "float[batch,6,8] x"
IMAGE = "float[batch,4,9,9] x"
F32 = "float32"
CASES: dict[str, tuple[str, str, dict[str, np.ndarray]]] = {
    "unary": (
        X,
        "a = Sigmoid(x)  b = Tanh(a)  c = Erf(b)  d = Exp(c)  e = Sqrt(d)  f = Log(e)  y = Neg(f)",
        {},
    ),
    "activations": (
        X,
        "a = LeakyRelu<alpha=0.2>(x)  b = Elu(a)  c = Selu(b)  d = HardSigmoid<alpha=0.1666667>(c)  e = HardSwish(d)"
        "  f = Softplus(e)  g = Mish(f)  h = Softsign(g)  i = ThresholdedRelu<alpha=0.1>(h)  y = PRelu(i, s)",
        {"s": floats(8)},
    ),
    "gelu": (X, 'a = Gelu(x)  y = Gelu<approximate="tanh">(a)', {}),
    "contrib gelu": (
        X,
        "a = com.microsoft.Gelu(x)  b = com.microsoft.BiasGelu(a, c)  d = com.microsoft.QuickGelu(b)"
        "  y = com.microsoft.FastGelu(d, c)",
        {"c": floats(8)},
    ),
    "binary": (
        X,
        "a = Add(x, c)  b = Sub(a, c)  d = Mul(b, c)  e = Max(d, c)  f = Min(e, x, c)  y = Pow(f, two)",
        {"c": floats(6, 8), "two": np.array(2, F32)},
    ),
    "where": (X, "m = Greater(x, zero)  n = Not(m)  y = Where(n, x, zero)", {"zero": np.array(0, F32)}),
    "softmax": (X, "a = Softmax<axis=1>(x)  y = LogSoftmax(a)", {}),
    "clip and cast": (
        X,
        "a = Clip(x, low, high)  b = Cast<to=10>(a)  y = Cast<to=1>(b)",
        {"low": np.array(-0.5, F32), "high": np.array(0.5, F32)},
    ),
    "reshape family": (
        X,
        "a = Flatten(x)  b = Reshape(a, s)  c = Unsqueeze(b, one)  d = Squeeze(c, one)  y = Transpose<perm=[0,2,1]>(d)",
        {"s": numbers(0, 8, 6), "one": numbers(1)},
    ),
    "expand and tile": (
        X,
        "a = Unsqueeze(x, one)  b = Expand(a, s)  y = Tile(b, t)",
        {"one": numbers(1), "s": numbers(1, 3, 1, 1), "t": numbers(1, 1, 2, 1)},
    ),
    "matmul": (
        X,
        "a = MatMul(x, w)  b = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(a, a)  y = MatMul(b, x)",
        {"w": floats(8, 5)},
    ),
    "gemm": (
        "float[batch,8] x",
        "a = Gemm<transB=1>(x, w, b)  y = Gemm<alpha=0.5, beta=2.0>(a, v, c)",
        {"w": floats(5, 8), "b": floats(5), "v": floats(5, 3), "c": floats(3)},
    ),
    "einsum": (X, 'y = Einsum<equation="bij,jk->bik">(x, w)', {"w": floats(8, 5)}),
    "concat and split": (X, "a, b = Split<axis=2>(x, s)  y = Concat<axis=2>(b, a, b)", {"s": numbers(3, 5)}),
    "slice": (
        X,
        "a = Slice(x, s, e, ax, st)  y = Slice(a, s2, e2, ax2, st2)",
        {
            "s": numbers(1, 0),
            "e": numbers(6, 8),
            "ax": numbers(1, 2),
            "st": numbers(2, 1),
            "s2": numbers(-1),
            "e2": numbers(-99),
            "ax2": numbers(2),
            "st2": numbers(-1),
        },
    ),
    "gather": (
        X,
        "a = Gather<axis=1>(x, i)  b = Gather<axis=2>(a, j)  y = Unsqueeze(b, one)",
        {"i": numbers(4, 1, 0), "j": np.array(3), "one": numbers(1)},
    ),
    "gather elements": (X, "y = GatherElements<axis=2>(x, i)", {"i": RANDOM.integers(0, 8, (2, 6, 3))}),
    "reductions": (
        X,
        "a = ReduceMean(x, two)  b = ReduceMax(x, two)  c = ReduceSum<keepdims=1>(x, two)  d = ReduceL2(x, two)"
        "  e = ReduceMin(x, two)  f = ReduceLogSumExp(x, two)  g = ReduceProd(x, two)  y = Concat<axis=2>(a, b, c, d, e, f, g)",
        {"two": numbers(2)},
    ),
    "arg and sums": (X, "i = ArgMax<axis=2, keepdims=0>(x)  y = CumSum(x, one)", {"one": np.array(1)}),
    "top": (X, "y, i = TopK(x, k)", {"k": numbers(3)}),
    "trilu": (X, "y = Trilu<upper=0>(x)", {}),
    "pad": (
        IMAGE,
        'a = Pad(x, p)  y = Pad<mode="reflect">(a, q)',
        {"p": numbers(0, 1, 0, 2, 0, 0, 1, 0), "q": numbers(0, 0, 1, 1, 0, 0, 1, 2)},
    ),
    "convolutions": (
        IMAGE,
        "a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b)  c = Conv<pads=[0,1,2,1], dilations=[2,1]>(x, w)"
        '  d = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)  e = Add(a, d)  y = ConvTranspose<strides=[2,2], output_padding=[1,1], pads=[1,1,1,1]>(e, t)',
        {"w": floats(6, 4, 3, 3), "b": floats(6), "t": floats(6, 2, 3, 3)},
    ),
    "depthwise": (IMAGE, "y = Conv<group=4>(x, w)", {"w": floats(8, 1, 3, 3)}),
    "pooling": (
        IMAGE,
        "a = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)  b = AveragePool<kernel_shape=[2,2], strides=[2,2]>(a)"
        "  c = GlobalAveragePool(b)  d = GlobalMaxPool(b)  y = Add(c, d)",
        {},
    ),
    "layer norm": (X, "y = LayerNormalization<axis=-1>(x, g, b)", {"g": floats(8), "b": floats(8)}),
    "rms norm": (X, "y = SimplifiedLayerNormalization<axis=-1, epsilon=0.001>(x, g)", {"g": floats(8)}),
    "skip layer norm": (
        X,
        "y, , , s = com.microsoft.SkipLayerNormalization(x, x, g, b)",
        {"g": floats(8), "b": floats(8)},
    ),
    "instance norm": (IMAGE, "y = InstanceNormalization(x, g, b)", {"g": floats(4), "b": floats(4)}),
    "resize": (
        IMAGE,
        'a = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , s)'
        '  y = Resize<mode="linear">(a, , s)',
        {"s": np.array([1, 1, 2, 2], F32)},
    ),
    "scatter": (X, "y = ScatterND(x, i, u)", {"i": RANDOM.permutation(2)[:, None], "u": floats(2, 6, 8)}),
    "embedding": ("int64[batch,5] x", "y = Gather(w, x)", {"w": floats(9, 7)}),
    "lstm": (
        "float[5,batch,8] x",
        "y, h, c = LSTM<hidden_size=6>(x, w, r, b)",
        {"w": floats(1, 24, 8), "r": floats(1, 24, 6), "b": floats(1, 48)},
    ),
    "positions": (
        X,
        "s = Shape(x)  n = Gather(s, one)  r = Range(zero, n, one)  t = Gather(w, r)  y = Add(x, t)",
        {"one": np.array(1), "zero": np.array(0), "w": floats(10, 8)},
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_lowered_operators_compute_what_onnx_runtime_computes(name: str, tmp_path: Path) -> None:
    given, text, constants = CASES[name]
    path = saved(tmp_path, f"g ({given}) => (y) {{ {text} }}", constants)
    lowered = lower(path, batch=2)
    assert lowered.notes == ()
    shape = tuple(lowered.inputs[0].shape)
    x = RANDOM.integers(0, 9, shape) if "int64" in given else floats(*shape)
    (real,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["y"], {"x": x})
    module = materialized(path, 2)
    got = module(torch.tensor(x)).detach().numpy()
    assert (got.dtype, got.shape) == (real.dtype, real.shape)
    if name != "lstm":  # ONNX orders the gates differently; only sizes matter here
        np.testing.assert_allclose(got, real, rtol=2e-3, atol=1e-3)


def test_every_function_is_an_operator_somebody_defines() -> None:
    for domain, name in FUNCTIONS:
        if not domain and name != "SimplifiedLayerNormalization":
            assert onnx.defs.has(name)


def train(path: Path, **options: Any) -> analyzer.Estimate:
    return analyzer.analyze(path, mode="train", device="h200", **options)


def test_the_documents_cnn_trains_alike_from_onnx_and_from_pytorch() -> None:
    labels = (TensorSpec((16, 10)),)
    from_onnx = train(MODELS / "cnn.onnx", batch=16, optimizer="adam", loss="sum", targets=labels)
    from_torch = analyzer.analyze(
        MODELS / "cnn.py", batch=16, mode="train", optimizer="adam", loss="sum", device="h200"
    )
    for figure in ("peak_allocated", "peak_reserved", "saved_for_backward", "graph_peak"):
        assert getattr(from_onnx, figure) == getattr(from_torch, figure), figure
    assert from_onnx.breakdown == from_torch.breakdown
    assert (from_onnx.framework, from_onnx.mode, from_onnx.batch) == ("onnx", "train", 16)


def test_training_has_gradients_and_optimizer_state(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        "g (float[batch,256] x) => (y) { y = Gemm<transB=1>(x, w, b) }",
        {"w": floats(250, 256), "b": floats(250)},
    )
    estimate = train(path, batch=4, optimizer="adam", loss="sum")
    parameters = 250 * 256 * 4 + 1024  # the bias in 512-byte steps
    assert estimate.breakdown["parameters"] == parameters
    assert estimate.breakdown["optimizer state"] == 2 * parameters
    assert estimate.naive.weights == (250 * 256 + 250) * 4


def test_unknown_operators_are_named_and_bounded(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        "g (float[batch,64] x) => (y) <float[batch,32] a> { h = MatMul(x, w)  a = my.domain.Magic(h)  y = MatMul(a, v) }",
        {"w": floats(64, 64), "v": floats(32, 8)},
    )
    lowered = lower(path, batch=1024)
    assert "my.domain.Magic (1)" in lowered.notes[-1]
    estimate = train(path, batch=1024, loss="sum")
    assert any("my.domain.Magic" in note for note in estimate.notes)
    assert estimate.saved_for_backward >= 1024 * (64 + 32) * 4  # its input and its result


def test_an_if_is_bounded(tmp_path: Path) -> None:
    text = """g (float[batch,4] x, bool c) => (y) {
      h = MatMul(x, w)  y = If(c) <then_branch = a () => (y1) { y1 = Relu(h) }, else_branch = b () => (y2) { y2 = Neg(h) }> }"""
    path = saved(tmp_path, text, {"w": floats(4, 4)})
    assert "If (1)" in lower(path, batch=3).notes[-1]
    assert train(path, batch=3, loss="sum").peak_allocated > 0


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16", "bert"])
def test_models_train(name: str) -> None:
    estimate = train(MODELS / f"{name}.onnx", batch=2, optimizer="sgd", loss="sum")
    assert estimate.breakdown["parameters"] > 80 * 2**20
    assert estimate.saved_for_backward > 0
    assert not any("bounded in training" in note for note in estimate.notes)
    assert [row.event for row in estimate.marks][-1].endswith("step")


def test_bad_training_requests(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="by name"):
        train(MODELS / "cnn.onnx", batch=2, inputs=[torch.zeros(1)])
    with pytest.raises(InputError):
        train(MODELS / "cnn.onnx", batch=10**12)
    with pytest.raises(InputError, match="axis 0"):
        train(MODELS / "cnn.onnx")
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(AnalyzerError):
        lower(tmp_path / "empty.onnx", batch=1)
