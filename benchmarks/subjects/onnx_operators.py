"""Models of one operator each, of sizes at which a kernel's own memory shows, for `benchmarks/onnx/cuda.py`.

Attention, losses, Fourier transforms, recurrent layers, normalizations, deformable convolution; the operators of
quantised files; half precision, bfloat16 and 8-bit floats. Values are random, of a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_MS = "com.microsoft"
_RANDOM = np.random.default_rng(0)
F16, F32, BF16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
I8, U8, I32, I64 = (np.dtype(kind) for kind in (np.int8, np.uint8, np.int32, np.int64))
_SCALE = np.full((), 0.05, np.float32)
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)

Output = tuple[str, np.dtype[Any] | None]
Case = tuple[str, onnx.ModelProto, dict[str, Any]]


def _random(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        return _RANDOM.integers(0, 3, shape).astype(dtype)
    return (_RANDOM.standard_normal(shape) * 0.1).astype(np.float32).astype(dtype)


def _case(
    name: str, op: str, given: dict[str, Any], outputs: list[Output] | None = None, *, constants: dict[str, Any] | None = None,
    opset: int = 21, domain: str = "", order: list[str] | None = None, before: list[onnx.NodeProto] | None = None, **attributes: Any,
) -> Case:  # fmt: skip
    """A model of one operator; `order` names its inputs ("" for an absent one). What it makes passes through Identity: `outputs`,
    or Y, of the first input's type."""
    constants = constants or {}
    outputs = outputs or [("Y", next(iter(given.values())).dtype)]
    if any(value.dtype == BF16 for value in given.values()):
        opset = max(opset, 22)  # before, many operators were not defined for it
    names = order if order is not None else [*given, *constants]
    made = [f"{item}_made" if item else "" for item, _ in outputs]
    nodes = [*(before or []), helper.make_node(op, names, made, domain=domain, **attributes)]
    results = []
    for item, dtype in outputs:
        if item:
            nodes.append(helper.make_node("Identity", [f"{item}_made"], [item]))
            kind = helper.np_dtype_to_tensor_dtype(dtype) if dtype is not None else TensorProto.FLOAT
            results.append(helper.make_tensor_value_info(item, kind, None))
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for key, value in given.items()],
        results, [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(_MS, 1)]
    return name, helper.make_model(graph, opset_imports=imports, ir_version=10), given


def operators() -> Iterator[Case]:
    """(name, model, inputs) of each."""
    yield from _attention()
    yield from _losses()
    yield from _signals()
    yield from _recurrent()
    yield from _normalization()
    yield from _quantised()
    yield from _weights_only()
    yield from _half()
    yield from _long_attention()
    yield from _choosing()


def _attention() -> Iterator[Case]:
    for kind, dtype in (("f32", F32), ("f16", F16), ("bf16", BF16)):
        q = _random((2, 8, 256, 64), dtype)
        plain = {"Q": q, "K": q.copy(), "V": q.copy()}
        yield _case(f"attention_4d_{kind}", "Attention", plain, opset=23)
        yield _case(f"attention_causal_{kind}", "Attention", plain, opset=23, is_causal=1)
        mask = {"mask": _random((256, 256), dtype)}
        yield _case(f"attention_mask_{kind}", "Attention", {**plain, **mask}, opset=23)
        flat = _random((2, 256, 512), dtype)
        three = {"Q": flat, "K": flat.copy(), "V": flat.copy()}
        yield _case(f"attention_3d_{kind}", "Attention", three, opset=23, q_num_heads=8, kv_num_heads=8)
        few = _random((2, 2, 256, 64), dtype)
        yield _case(f"attention_grouped_{kind}", "Attention", {"Q": q, "K": few, "V": few.copy()}, opset=23)
        past = {"pk": _random((2, 8, 128, 64), dtype), "pv": _random((2, 8, 128, 64), dtype)}
        yield _case(
            f"attention_past_{kind}", "Attention", {**plain, **past}, [("Y", dtype), ("ok", dtype), ("ov", dtype)],
            order=["Q", "K", "V", "", "pk", "pv"], opset=23,
        )  # fmt: skip
        yield _case(
            f"attention_scores_{kind}", "Attention", plain, [("Y", dtype), ("", None), ("", None), ("S", dtype)], opset=23,
            qk_matmul_output_mode=0,
        )  # fmt: skip
        yield _case(f"attention_softcap_{kind}", "Attention", plain, opset=23, softcap=2.0)
        wide = {"X": flat}
        weights = {"W": _random((512, 1536), dtype), "B": _random((1536,), dtype)}
        if dtype is not BF16:
            yield _case(f"ms_attention_{kind}", "Attention", wide, constants=weights, domain=_MS, num_heads=8)
            yield _case(f"ms_multihead_{kind}", "MultiHeadAttention", three, domain=_MS, num_heads=8)


def _losses() -> Iterator[Case]:
    cross_entropy, likelihood = "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"
    for kind, dtype in (("f32", F32), ("f16", F16)):
        for name, shape in (("rows", (512, 1000)), ("pixels", (4, 21, 64, 64))):
            labels = _RANDOM.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int64)
            given = {"scores": _random(shape, dtype), "labels": labels}
            weight = {"w": np.ones((shape[1],), dtype)}
            for reduction in ("mean", "none"):
                told, by = f"{name}_{reduction}_{kind}", {"reduction": reduction, "opset": 13}
                yield _case(f"sce_{told}", cross_entropy, given, **by)
                outputs: list[Output] = [("Y", dtype), ("L", dtype)]
                yield _case(f"sce_log_{told}", cross_entropy, {**given, **weight}, outputs, **by)
                yield _case(f"nll_{told}", likelihood, given, **by)
            yield _case(f"nll_weight_{name}_{kind}", likelihood, {**given, **weight}, opset=13)


def _signals() -> Iterator[Case]:
    for length in (256, 300, 257):
        x = {"x": _random((4, 64, length, 1), F32)}
        along = {"constants": {"axis": np.array(2, np.int64)}, "order": ["x", "", "axis"], "opset": 20}
        yield _case(f"dft_{length}", "DFT", x, **along)
        yield _case(f"dft_one_sided_{length}", "DFT", x, **along, onesided=1)
        yield _case(f"dft17_{length}", "DFT", x, opset=17, axis=2)
    signal = {"x": _random((4, 8192, 1), F32)}
    yield _case(
        "stft", "STFT", signal, constants={"step": np.array(128, np.int64), "w": np.ones(512, np.float32)},
        order=["x", "step", "w"], opset=17,
    )  # fmt: skip
    for name, had, wanted in (("crop", (300, 300), [224, 224]), ("pad_center", (200, 400), [256, 256])):
        x = {"x": _random((4, 3, *had), F32)}
        yield _case(name, "CenterCropPad", x, constants={"s": np.array(wanted)}, axes=[2, 3])


def _recurrent() -> Iterator[Case]:
    size = {"hidden_size": 256, "opset": 14}
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for way, directions in (("forward", 1), ("bidirectional", 2)):
            for kind, dtype in (("f32", F32), ("f16", F16)):
                x = {"x": _random((64, 8, 128), dtype)}
                constants = {
                    "w": _random((directions, gates * 256, 128), dtype), "r": _random((directions, gates * 256, 256), dtype),
                    "b": _random((directions, 2 * gates * 256), dtype),
                }  # fmt: skip
                outputs: list[Output] = [("Y", dtype), ("Yh", dtype)]
                name = f"{op.lower()}_{way}_{kind}"
                yield _case(name, op, x, outputs, constants=constants, direction=way, **size)
        given = {
            "x": _random((64, 8, 128), F32),
            "w": _random((1, gates * 256, 128), F32),
            "r": _random((1, gates * 256, 256), F32),
        }
        yield _case(f"{op.lower()}_given", op, given, **size)
        lengths = {"x": _random((64, 8, 128), F32), "l": np.array([64, 60, 50, 40, 30, 20, 10, 5], np.int32)}
        constants = {"w": given["w"], "r": given["r"]}
        order = ["x", "w", "r", "", "l"]
        yield _case(f"{op.lower()}_lengths", op, lengths, constants=constants, order=order, **size)


def _normalization() -> Iterator[Case]:
    for kind, dtype in (("f32", F32), ("f16", F16), ("bf16", BF16)):
        x = {"x": _random((8, 64, 56, 56), dtype)}
        one = {"s": np.ones(64, dtype), "b": np.zeros(64, dtype)}
        yield _case(f"lrn_{kind}", "LRN", x, size=5, opset=13)
        yield _case(f"group_norm_{kind}", "GroupNormalization", x, constants=one, num_groups=8)
        yield _case(f"instance_norm_{kind}", "InstanceNormalization", x, constants=one)
        yield _case(
            f"batch_norm_{kind}",
            "BatchNormalization",
            x,
            constants={**one, "m": one["b"] + dtype.type(0), "v": one["s"] + dtype.type(0)},
            opset=15,
        )
        row = {"x": _random((8, 256, 512), dtype)}
        scale = {"s": np.ones(512, dtype)}
        shifted = {**scale, "b": np.zeros(512, dtype)}
        yield _case(f"layer_norm_{kind}", "LayerNormalization", row, constants=shifted)
        yield _case(f"rms_norm_{kind}", "RMSNormalization", row, constants=scale, opset=23)
        yield _case(f"mvn_{kind}", "MeanVarianceNormalization", x)
        names = "Softmax LogSoftmax Gelu Mish HardSwish Celu LpNormalization Hardmax Swish"
        for op in names.split():
            opset = {"Swish": 24, "LpNormalization": 22}.get(op, 21)
            yield _case(f"{op.lower()}_{kind}", op, row, opset=opset)
        yield _case(
            f"group_query_{kind}",
            "RotaryEmbedding",
            {
                "x": _random((2, 8, 256, 64), dtype),
                "c": _random((2, 256, 32), dtype),
                "s": _random((2, 256, 32), dtype),
            },
            opset=23,
        )
    deform = {
        "x": _random((2, 16, 32, 32), F32),
        "w": _random((32, 16, 3, 3), F32),
        "o": _random((2, 18, 30, 30), F32),
    }
    yield _case("deform_conv", "DeformConv", deform, opset=19)


def _quantised() -> Iterator[Case]:
    x = {"x": _random((4, 64, 56, 56), F32)}
    for kind, dtype in (("u8", U8), ("i8", I8), ("fp8", FP8)):
        zero = np.zeros((), dtype)
        made = {"q": _random((4, 64, 56, 56), dtype if dtype is not FP8 else F32).astype(dtype)}
        scale = {"s": _SCALE, "z": zero}
        yield _case(f"quantize_{kind}", "QuantizeLinear", x, [("Y", dtype)], constants=scale)
        yield _case(f"dequantize_{kind}", "DequantizeLinear", made, [("Y", F32)], constants=scale)
    yield _case("dynamic_quantize", "DynamicQuantizeLinear", x, [("Y", U8), ("s", F32), ("z", U8)])
    for kind, dtype in (("u8", U8), ("i8", I8)):
        q, zero = _random((4, 64, 56, 56), dtype), np.zeros((), dtype)
        w = _random((64, 64, 3, 3), dtype)
        around = {"xs": _SCALE, "xz": zero, "w": w, "ws": _SCALE, "wz": zero, "ys": _SCALE, "yz": zero}
        yield _case(f"qlinear_conv_{kind}", "QLinearConv", {"x": q}, constants=around, pads=[1, 1, 1, 1])
        whole: list[Output] = [("Y", I32)]
        zeros = {"w": w, "xz": zero, "wz": zero}
        yield _case(
            f"conv_integer_{kind}", "ConvInteger", {"x": q}, whole, constants=zeros, pads=[1, 1, 1, 1]
        )
        a, b = _random((4, 128, 512), dtype), _random((512, 1024), dtype)
        around = {"as": _SCALE, "az": zero, "b": b, "bs": _SCALE, "bz": zero, "ys": _SCALE, "yz": zero}
        yield _case(f"qlinear_matmul_{kind}", "QLinearMatMul", {"a": a}, constants=around)
        zeros = {"b": b, "az": zero, "bz": zero}
        yield _case(f"matmul_integer_{kind}", "MatMulInteger", {"a": a}, whole, constants=zeros)
        yield _case(f"matmul_integer_plain_{kind}", "MatMulInteger", {"a": a, "b": b}, whole)
        one = {"as": _SCALE, "az": zero, "cs": _SCALE, "cz": zero}
        two = {"as": _SCALE, "az": zero, "bs": _SCALE, "bz": zero, "cs": _SCALE, "cz": zero}
        order = ["a", "as", "az", "b", "bs", "bz", "cs", "cz"]
        for op in ("QLinearAdd", "QLinearMul"):
            given = {"a": q, "b": q.copy()}
            yield _case(f"{op.lower()}_{kind}", op, given, constants=two, order=order, domain=_MS)
        for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
            yield _case(f"{op.lower()}_{kind}", op, {"a": q}, constants=one, domain=_MS)
        pool = "QLinearGlobalAveragePool"
        yield _case(f"qlinear_pool_{kind}", pool, {"a": q}, constants=one, domain=_MS)
        yield _case(f"max_pool_{kind}", "MaxPool", {"a": q}, kernel_shape=[2, 2], strides=[2, 2], opset=12)
    a, b = _random((4, 128, 512), F32), _random((512, 1024), I8)
    weights = {"b": b, "bs": _SCALE, "bz": np.zeros((), I8)}
    yield _case("dynamic_matmul", "DynamicQuantizeMatMul", {"a": a}, constants=weights, domain=_MS)
    yield _case(
        "integer_to_float",
        "MatMulIntegerToFloat",
        {"a": _random((4, 128, 512), I8)},
        [("Y", F32)],
        constants={"b": b, "as": _SCALE, "bs": _SCALE, "az": np.zeros((), I8), "bz": np.zeros((), I8)},
        domain=_MS,
    )


def _weights_only() -> Iterator[Case]:
    for kind, dtype in (("f32", F32), ("f16", F16), ("bf16", BF16)):
        for bits in (4, 8):
            for rows in (1, 128):
                weights = {
                    "b": _RANDOM.integers(0, 255, (1024, 16, 32 * bits // 8)).astype(np.uint8),
                    "s": np.ones((1024 * 16,), dtype),
                }
                yield _case(
                    f"nbits{bits}_{rows}_{kind}", "MatMulNBits", {"a": _random((1, rows, 512), dtype)}, constants=weights,
                    domain=_MS, K=512, N=1024, bits=bits, block_size=32,
                )  # fmt: skip


def _half() -> Iterator[Case]:
    for kind, dtype in (("f16", F16), ("bf16", BF16)):
        a = {"a": _random((8, 128, 512), dtype)}
        square = {"b": _random((512, 1024), dtype)}
        yield _case(f"matmul_{kind}", "MatMul", a, constants=square, opset=13)
        rows, added = {"a": _random((128, 512), dtype)}, {**square, "c": _random((1024,), dtype)}
        yield _case(f"gemm_{kind}", "Gemm", rows, constants=added, opset=13)
        image = {"x": _random((4, 64, 56, 56), dtype)}
        filters = {"w": _random((64, 64, 3, 3), dtype)}
        yield _case(f"conv_{kind}", "Conv", image, constants=filters, pads=[1, 1, 1, 1])
        yield _case(f"add_{kind}", "Add", {**a, "b": a["a"].copy()}, opset=14)
        yield _case(f"reduce_{kind}", "ReduceMean", a, constants={"axes": np.array([1])}, opset=18)
        yield _case(f"pool_{kind}", "GlobalAveragePool", image)
        yield _case(f"average_{kind}", "AveragePool", image, kernel_shape=[2, 2], strides=[2, 2], opset=19)
        yield _case(f"max_{kind}", "MaxPool", image, kernel_shape=[2, 2], strides=[2, 2], opset=12)
        twice = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
        yield _case(f"resize_{kind}", "Resize", image, constants=twice, mode="linear", opset=19)
        yield _case(f"concat_{kind}", "Concat", {**image, "y": image["x"].copy()}, axis=1)
        yield _case(f"transpose_{kind}", "Transpose", image, perm=[0, 2, 3, 1])
        row, outputs = {"x": _random((8, 2000), dtype)}, [("Y", dtype), ("i", I64)]
        yield _case(f"topk_{kind}", "TopK", row, outputs, constants={"k": np.array([5])})
    both = {"a": _random((128, 512), FP8), "b": _random((1024, 512), FP8)}
    ones = {name: np.ones((1,), np.float32) for name in ("as", "bs", "ys")}
    yield _case(
        "gemm_fp8", "GemmFloat8", both, [("Y", F16)], constants=ones, order=["a", "b", "", "as", "bs", "ys"], domain=_MS, transB=1,
        dtype=10,
    )  # fmt: skip


def _long_attention() -> Iterator[Case]:
    """Many keys for few queries, caches, wide heads: where flash attention splits the keys and others sum in float32."""
    for kind, dtype in (("f32", F32), ("f16", F16), ("bf16", BF16)):
        shapes = {"long": ((1, 2, 512, 64), (1, 2, 4096, 64)), "decode": ((1, 8, 1, 128), (1, 8, 4096, 128))}
        for name, (query, key) in shapes.items():
            q, k = _random(query, dtype), _random(key, dtype)
            yield _case(f"attention_{name}_{kind}", "Attention", {"Q": q, "K": k, "V": k.copy()}, opset=23)
        for name, shared in (("cache", 8), ("cache_grouped", 2)):
            q, k = _random((1, 8, 1, 128), dtype), _random((1, shared, 1, 128), dtype)
            past = _random((1, shared, 4095, 128), dtype)
            given = {"Q": q, "K": k, "V": k.copy(), "pk": past, "pv": past.copy()}
            yield _case(
                f"attention_{name}_{kind}", "Attention", given, [("Y", dtype), ("ok", dtype), ("ov", dtype)],
                order=["Q", "K", "V", "", "pk", "pv"], opset=23,
            )  # fmt: skip
        wide = _random((1, 8, 256, 192), dtype)
        given = {"Q": wide, "K": wide.copy(), "V": wide.copy(), "mask": _random((256, 256), dtype)}
        yield _case(f"attention_wide_{kind}", "Attention", given, opset=23)


def _choosing() -> Iterator[Case]:
    """Operators that choose, copy or place elements."""
    for boxes, classes in ((4096, 1), (1000, 3)):
        corners = np.sort(_RANDOM.random((1, boxes, 2, 2)).astype(np.float32), axis=2).reshape(1, boxes, 4)
        given = {"boxes": corners, "scores": _RANDOM.random((1, classes, boxes)).astype(np.float32)}
        limits = {
            "most": np.array([100]),
            "overlap": np.array([0.5], np.float32),
            "least": np.array([0.1], np.float32),
        }
        yield _case(f"nms_{boxes}", "NonMaxSuppression", given, [("Y", I64)], constants=limits, opset=11)
    image = {"x": _random((1, 3, 512, 512), F32)}
    for mode in ("linear", "cubic"):
        yield _case(
            f"resize_antialias_{mode}", "Resize", image, constants={"scales": np.array([1, 1, 0.5, 0.5], np.float32)},
            order=["x", "", "scales"], opset=19, mode=mode, antialias=1,
        )  # fmt: skip
    places = {"i": _RANDOM.integers(0, 60, (4096, 2))}
    yield _case("gather_nd", "GatherND", {"x": _random((64, 64, 32), F32), **places})
    yield _case("matmul_vector", "MatMul", {"a": _random((64,), F32), "b": _random((1024, 64, 32), F32)})
    parts: list[Output] = [("a", F32), ("b", F32), ("c", F32)]
    for axis in (0, 1):
        sizes = {"sizes": np.array([100, 300, 112])}
        yield _case(
            f"split_three_{axis}", "Split", {"x": _random((512, 512), F32)}, parts, constants=sizes, axis=axis
        )
    limits = {"low": np.array(0.0, np.float32), "high": np.array(6.0, np.float32)}
    yield _case("clip", "Clip", {"x": _random((64, 1024), F32)}, constants=limits)
    scores = {"x": _random((2, 8, 256, 256), F32), "mask": _random((256, 256), F32)}
    masked = [helper.make_node("Add", ["x", "mask"], ["sum"])]
    yield _case("masked_softmax", "Softmax", scores, order=["sum"], before=masked, axis=-1)
