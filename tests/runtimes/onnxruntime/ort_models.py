"""Small ONNX models for checks against a real ONNX Runtime: name -> builder, each with random weights of fixed seed.

Builders return an `onnx.ModelProto`. Inputs named in `INTEGERS` are integer indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MODELS: dict[str, Callable[[], Any]] = {}
F32, F16, I64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL


def _model(builder: Callable[[], Any]) -> Callable[[], Any]:
    MODELS[builder.__name__] = builder
    return builder


def _info(name: str, kind: int, shape: list[Any] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _whole(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any], opset: int = 17
) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        outputs,
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _random(*shape: int, kind: Any = np.float32) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.1).astype(kind)


@_model
def dynamic_batch() -> Any:
    """Convolutions with a residual, the batch a name."""
    weights = {"w0": _random(16, 3, 3, 3), "w1": _random(16, 16, 3, 3), "w2": _random(10, 16)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="c0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="r0"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="c1", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"], name="add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], name="pool"),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="fc", transB=1),
    ]
    return _whole(nodes, [_info("x", F32, ["batch", 3, 32, 32])], [_info("y", F32, ["batch", 10])], weights)


@_model
def hard_coded_batch() -> Any:
    """The batch a number at the input, nothing that depends on it inside."""
    weights = {"w": _random(64, 128), "b": _random(128), "v": _random(128, 8)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="m0"),
        helper.make_node("Add", ["a", "b"], ["c"], name="a0"),
        helper.make_node("Sigmoid", ["c"], ["d"], name="s"),
        helper.make_node("MatMul", ["d", "v"], ["y"], name="m1"),
    ]
    return _whole(nodes, [_info("x", F32, [4, 64])], [_info("y", F32, [4, 8])], weights)


@_model
def shared_weights() -> Any:
    """One weight for several products: packed for each kernel, kept once for each kind of kernel and transposition."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="m0"),
        helper.make_node("Sin", ["a"], ["b"], name="s0"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="m1"),
        helper.make_node("Sin", ["c"], ["d"], name="s1"),
        helper.make_node("Gemm", ["d", "w"], ["e"], name="g0"),
        helper.make_node("Sin", ["e"], ["f"], name="s2"),
        helper.make_node("Gemm", ["f", "w"], ["g"], name="g1", transB=1),
        helper.make_node("Sin", ["g"], ["h"], name="s3"),
        helper.make_node("Gemm", ["h", "w"], ["y"], name="g2", transB=1),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 96])], [_info("y", F32, ["n", 96])], {"w": _random(96, 96)})


@_model
def half_precision() -> Any:
    """float16 throughout the elementwise part."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], name="down", to=F16),
        helper.make_node("Transpose", ["a"], ["b"], name="t", perm=[0, 2, 1]),
        helper.make_node("Concat", ["b", "b"], ["c"], name="cat", axis=1),
        helper.make_node("Cast", ["c"], ["d"], name="up", to=F32),
        helper.make_node("Softmax", ["d"], ["y"], name="soft", axis=-1),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 24, 40])], [_info("y", F32, ["n", 80, 24])], {})


@_model
def quantized() -> Any:
    """int8 quantize-dequantize pairs around a product."""
    weights = {
        "s": np.array(0.05, np.float32), "z": np.array(3, np.uint8), "ws": np.array(0.02, np.float32),
        "wz": np.array(0, np.int8), "w": np.arange(64 * 32, dtype=np.int64).reshape(64, 32).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["e"], name="e"),
        helper.make_node("MatMul", ["d", "e"], ["m"], name="m"),
        helper.make_node("Relu", ["m"], ["y"], name="r"),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 16, 64])], [_info("y", F32, ["n", 16, 32])], weights)


@_model
def four_bits() -> Any:
    """MatMulNBits with packed int4 weights."""
    weights = {"w": np.zeros((64, 4, 16), np.uint8), "s": np.ones(64 * 4, np.float32)}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="r"),
        helper.make_node(
            "MatMulNBits",
            ["a", "w", "s"],
            ["b"],
            name="n",
            domain="com.microsoft",
            K=128,
            N=64,
            bits=4,
            block_size=32,
        ),
        helper.make_node("Tanh", ["b"], ["y"], name="t"),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 8, 128])], [_info("y", F32, ["n", 8, 64])], weights)


@_model
def branches() -> Any:
    """An If whose branches need different memory; the condition is constant data, not known when planning."""

    def branch(name: str, copies: int) -> Any:
        nodes = [
            helper.make_node("Concat", ["a"] * copies, [f"{name}_c"], name=f"{name}_cat", axis=1),
            helper.make_node(
                "ReduceMean", [f"{name}_c"], [f"{name}_m"], name=f"{name}_mean", axes=[1], keepdims=1
            ),
            helper.make_node("Add", [f"{name}_m", "a"], [f"{name}_y"], name=f"{name}_add"),
        ]
        return helper.make_graph(nodes, name, [], [_info(f"{name}_y", F32, ["n", 32])])

    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="r"),
        helper.make_node("ReduceSum", ["x"], ["s"], name="sum", keepdims=0),
        helper.make_node("Greater", ["zero", "s"], ["less"], name="gt"),
        helper.make_node("Not", ["less"], ["more"], name="not"),
        helper.make_node("Or", ["less", "more"], ["c"], name="or"),
        helper.make_node(
            "If", ["c"], ["b"], name="if", then_branch=branch("then", 8), else_branch=branch("else", 2)
        ),
        helper.make_node("Exp", ["b"], ["y"], name="e"),
    ]
    return _whole(
        nodes,
        [_info("x", F32, ["n", 32])],
        [_info("y", F32, ["n", 32])],
        {"zero": np.array(0, np.float32)},
        13,
    )


@_model
def loop() -> Any:
    """A Loop of four trips with one carried value."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "w"], ["p"], name="product"),
            helper.make_node("Tanh", ["p"], ["next"], name="tanh"),
            helper.make_node("Identity", ["going"], ["still"], name="same"),
        ],
        "body",
        [_info("i", I64, []), _info("going", BOOL, []), _info("carried", F32, ["n", 64])],
        [_info("still", BOOL, []), _info("next", F32, ["n", 64])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="r"),
        helper.make_node("Loop", ["trips", "true", "a"], ["b"], name="loop", body=body),
        helper.make_node("Exp", ["b"], ["y"], name="e"),
    ]
    weights = {"trips": np.array(4, np.int64), "true": np.array(True), "w": _random(64, 64)}
    return _whole(nodes, [_info("x", F32, ["n", 64])], [_info("y", F32, ["n", 64])], weights)


@_model
def non_zero() -> Any:
    """A result whose size depends on data, bounded by the input's."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="exp"),
        helper.make_node("NonZero", ["a"], ["i"], name="nz"),
        helper.make_node("Transpose", ["i"], ["t"], name="t", perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], name="c", to=F32),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 16, 16])], [_info("y", F32, None)], {})


@_model
def suppression() -> Any:
    """NonMaxSuppression of boxes that do not overlap: at most the bound is kept."""
    weights = {
        "k": np.array([10], np.int64),
        "iou": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
    }
    nodes = [
        helper.make_node("Sigmoid", ["scores"], ["p"], name="sig"),
        helper.make_node("NonMaxSuppression", ["boxes", "p", "k", "iou", "least"], ["kept"], name="nms"),
        helper.make_node("Cast", ["kept"], ["y"], name="c", to=F32),
    ]
    inputs = [_info("boxes", F32, ["n", 20, 4]), _info("scores", F32, ["n", 2, 20])]
    return _whole(nodes, inputs, [_info("y", F32, None)], weights)


@_model
def attention() -> Any:
    """Scaled dot-product attention spelt out, with a mask and shape arithmetic."""
    weights = {
        "wq": _random(48, 48), "wk": 2 * _random(48, 48), "wv": 3 * _random(48, 48), "scale": np.array(0.25, np.float32),
        "shape": np.array([0, -1, 4, 12], np.int64), "back": np.array([0, -1, 48], np.int64), "g": np.ones(48, np.float32),
        "b": np.zeros(48, np.float32), "mask": _random(1, 1, 10, 10),
    }  # fmt: skip
    nodes = []
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], name=f"{name}_m"),
            helper.make_node("Reshape", [f"{name}0", "shape"], [f"{name}1"], name=f"{name}_r"),
            helper.make_node("Transpose", [f"{name}1"], [f"{name}2"], name=f"{name}_t", perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q2", "k2"], ["s0"], name="scores"),
        helper.make_node("Mul", ["s0", "scale"], ["s1"], name="mul"),
        helper.make_node("Add", ["s1", "mask"], ["s2"], name="mask_add"),
        helper.make_node("Softmax", ["s2"], ["s3"], name="soft", axis=-1),
        helper.make_node("MatMul", ["s3", "v2"], ["o0"], name="out"),
        helper.make_node("Transpose", ["o0"], ["o1"], name="o_t", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "back"], ["o2"], name="o_r"),
        helper.make_node("Add", ["o2", "x"], ["o3"], name="skip"),
        helper.make_node("LayerNormalization", ["o3", "g", "b"], ["y"], name="ln"),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 10, 48])], [_info("y", F32, ["n", 10, 48])], weights)


@_model
def spelt_out() -> Any:
    """Gelu, LayerNorm and shape arithmetic as old exporters write them; BatchNorm behind Conv; a dropped Dropout."""
    weights = {
        "w": _random(8, 3, 1, 1), "bs": np.ones(8, np.float32), "bb": _random(8), "bm": _random(8), "bv": np.ones(8, np.float32),
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "root": np.array(1.41421356, np.float32),
        "one": np.array(1, np.float32), "half": np.array(0.5, np.float32), "g": np.ones(36, np.float32),
        "b": np.zeros(36, np.float32), "zero": np.array(0, np.int64), "ax": np.array([0], np.int64),
        "rest": np.array([8, 36], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "bs", "bb", "bm", "bv"], ["n"], name="bn"),
        helper.make_node("Dropout", ["n"], ["d"], name="drop"),
        helper.make_node("Shape", ["d"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["s0"], name="first"),
        helper.make_node("Unsqueeze", ["s0", "ax"], ["s1"], name="un"),
        helper.make_node("Concat", ["s1", "rest"], ["s2"], name="cat", axis=0),
        helper.make_node("Reshape", ["d", "s2"], ["r"], name="view"),
        helper.make_node("ReduceMean", ["r"], ["m"], name="mean", axes=[-1]),
        helper.make_node("Sub", ["r", "m"], ["u"], name="sub"),
        helper.make_node("Pow", ["u", "two"], ["p"], name="pow"),
        helper.make_node("ReduceMean", ["p"], ["v"], name="var", axes=[-1]),
        helper.make_node("Add", ["v", "eps"], ["ve"], name="eps_add"),
        helper.make_node("Sqrt", ["ve"], ["sd"], name="sqrt"),
        helper.make_node("Div", ["u", "sd"], ["nn"], name="div"),
        helper.make_node("Mul", ["nn", "g"], ["ng"], name="scale"),
        helper.make_node("Add", ["ng", "b"], ["ln"], name="shift"),
        helper.make_node("Div", ["ln", "root"], ["e0"], name="g0"),
        helper.make_node("Erf", ["e0"], ["e1"], name="g1"),
        helper.make_node("Add", ["e1", "one"], ["e2"], name="g2"),
        helper.make_node("Mul", ["ln", "e2"], ["e3"], name="g3"),
        helper.make_node("Mul", ["e3", "half"], ["y"], name="g4"),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 3, 6, 6])], [_info("y", F32, ["n", 8, 36])], weights)


@_model
def slices() -> Any:
    """Every part of an axis sliced and gathered, then joined in another order; a Transpose that cancels."""
    weights = {
        "i0": np.array(0, np.int64), "i1": np.array(1, np.int64), "i2": np.array(2, np.int64),
        "a": np.array([0], np.int64), "m": np.array([12], np.int64), "e": np.array([32], np.int64), "ax": np.array([2], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Exp", ["x"], ["a0"], name="exp"),
        *[
            helper.make_node("Gather", ["a0", f"i{k}"], [f"g{k}"], name=f"gather{k}", axis=1)
            for k in range(3)
        ],
        helper.make_node("Add", ["g0", "g1"], ["h"], name="add"),
        helper.make_node("Mul", ["h", "g2"], ["k"], name="mul"),
        helper.make_node("Transpose", ["k"], ["t"], name="t0", perm=[0, 2, 1]),
        helper.make_node("Sqrt", ["t"], ["q"], name="sqrt"),
        helper.make_node("Transpose", ["q"], ["u"], name="t1", perm=[0, 2, 1]),
        helper.make_node("Slice", ["u", "a", "m", "ax"], ["left"], name="s0"),
        helper.make_node("Slice", ["u", "m", "e", "ax"], ["right"], name="s1"),
        helper.make_node("Concat", ["right", "left"], ["y"], name="cat", axis=2),
    ]
    return _whole(nodes, [_info("x", F32, ["n", 3, 20, 32])], [_info("y", F32, ["n", 20, 32])], weights)
