"""The graph that runs, rewritten by the analyzer and by a real ONNX Runtime, node by node: small graphs around one rewrite each,
and random chains of Transposes and Reshapes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from analyzer.releases import Release
from tests.runtimes.onnxruntime.rewritten import mine, theirs


def model(text: str, constants: Mapping[str, Any], opset: int = 18) -> onnx.ModelProto:
    """A graph in ONNX's text form with these constants."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    return made


def one_behind_the_other(
    shape: list[int], perm: list[int], target: list[int], after: str = ""
) -> onnx.ModelProto:
    """A Reshape behind a Transpose, and an Exp behind that; `after`: another operator that reads the Transpose."""
    sizes, order = ",".join(map(str, shape)), ",".join(map(str, perm))
    outputs, more = ("y", "") if not after else ("y, z", f"z = {after}(t)")
    result = ", ".join(f"float[{name}] {out}" for name, out in zip("ab", outputs.split(", "), strict=False))
    return model(
        f"g (float[{sizes}] x) => ({result}) {{ t = Transpose<perm=[{order}]>(x) r = Reshape(t, s) y = Exp(r) {more} }}",
        {"s": np.array(target)},
    )


@pytest.mark.parametrize(
    ("shape", "perm", "target"),
    [
        # An axis, or several, in parts that follow each other.
        ([1, 12, 20, 24], [0, 3, 1, 2], [1, 3, 8, 12, 20]), ([17, 8, 16], [1, 0, 2], [2, 4, 17, 16]),
        ([2, 32, 4, 16], [0, 2, 1, 3], [2, -1, 32, 2, 8]), ([2, 32, 4, 16], [0, 2, 1, 3], [0, -1, 32, 2, 8]),
        ([2, 3, 4, 6], [2, 3, 0, 1], [4, 2, 3, 2, 3]), ([2, 32, 4, 16], [0, 2, 1, 3], [2, 4, 1, 32, 4, 4]),
        # Sizes of 1 belong to the axis behind them; one at the end, or one that goes, is no part of any.
        ([2, 32, 4, 16], [0, 2, 1, 3], [2, 4, 32, 1, 16]), ([2, 32, 4, 16], [0, 2, 1, 3], [1, 2, 4, 32, 16]),
        ([2, 32, 4, 16], [0, 2, 1, 3], [2, 4, 32, 16, 1]), ([1, 32, 4, 16], [2, 0, 1, 3], [4, 1, 8, 4, 16]),
        ([1, 32, 4, 16], [2, 0, 1, 3], [4, 8, 4, 16]), ([1, 32, 4, 16], [0, 2, 1, 3], [2, 2, 32, 16]),
        # Joined axes.
        ([1, 40, 40, 80], [0, 3, 1, 2], [1, 80, 1600]), ([2, 32, 4, 16], [0, 2, 1, 3], [8, 32, 16]),
        ([2, 3, 4, 5], [2, 3, 0, 1], [20, 6]), ([2, 3, 4, 6], [2, 3, 0, 1], [4, 2, 3, 6]), ([1, 32, 4, 16], [0, 2, 1, 3], [4, 32, 16]),
        # A Reshape that is a Transpose.
        ([1, 512, 4, 1], [0, 3, 1, 2], [1, 512, 4, 1]), ([1, 1, 512, 4], [0, 2, 3, 1], [512, 4, 1, 1]),
        ([2, 3, 4, 5], [0, 3, 1, 2], [2, 5, 3, 4]), ([2, 1, 3], [1, 0, 2], [2, 1, 3]),
    ],
)  # fmt: skip
def test_a_reshape_behind_a_transpose(
    shape: list[int], perm: list[int], target: list[int], tmp_path: Path
) -> None:
    proto = one_behind_the_other(shape, perm, target)
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)


@pytest.mark.parametrize("after", ["Relu", "Softmax", "GlobalAveragePool"])
def test_a_transpose_others_read_too(after: str, tmp_path: Path) -> None:
    proto = one_behind_the_other([2, 32, 4, 16], [0, 2, 1, 3], [2, 4, 4, 8, 16], after)
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)


def chain(seed: int) -> onnx.ModelProto:
    """Two to seven operators in a row: Transposes, Reshapes that split, join and keep axes, and what lets a Transpose pass."""
    rng = random.Random(seed)
    dims = [rng.choice([1, 2, 3, 4, 6, 8]) for _ in range(rng.randint(2, 5))]
    nodes, constants, current, shape = [], [], "x", list(dims)
    for place in range(rng.randint(2, 7)):
        kind, out = rng.choice("TTRRUES"), f"v{place}"
        if kind == "T":
            perm = rng.sample(range(len(shape)), len(shape))
            nodes.append(onnx.helper.make_node("Transpose", [current], [out], perm=perm))
            shape = [shape[axis] for axis in perm]
        elif kind == "R":
            shape = _another(rng, shape)
            constants.append(onnx.numpy_helper.from_array(np.array(shape), f"c{place}"))
            nodes.append(onnx.helper.make_node("Reshape", [current, f"c{place}"], [out]))
        elif kind == "U":
            axis = rng.randint(0, len(shape))
            constants.append(onnx.numpy_helper.from_array(np.array([axis]), f"c{place}"))
            nodes.append(onnx.helper.make_node("Unsqueeze", [current, f"c{place}"], [out]))
            shape.insert(axis, 1)
        else:
            nodes.append(onnx.helper.make_node({"E": "Exp", "S": "Softmax"}[kind], [current], [out]))
        current = out
    outputs = {current: None, **({rng.choice(nodes).output[0]: None} if rng.random() < 0.3 else {})}
    graph = onnx.helper.make_graph(
        nodes, "chain", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)],
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs], constants,
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


def _another(rng: random.Random, shape: list[int]) -> list[int]:
    """Some axes halved, some with a 1 before them, sometimes two joined, or the 1s gone."""
    sizes: list[int] = []
    for size in shape:
        chance = rng.random()
        sizes += [2, size // 2] if chance < 0.5 and size % 2 == 0 else [1, size] if chance > 0.85 else [size]
    chance = rng.random()
    if chance < 0.3 and len(sizes) > 1:
        at = rng.randrange(len(sizes) - 1)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif chance > 0.85:
        sizes = [size for size in sizes if size != 1] or [1]
    return sizes if len(sizes) < 8 else shape


@pytest.mark.parametrize("level", [1, 2])
def test_random_chains(level: int, tmp_path: Path) -> None:
    found = [seed for seed in range(120) if mine(chain(seed), level) != theirs(chain(seed), level, tmp_path)]
    assert found == []


AXIS, ZERO = np.array([0]), np.array(0)
SIZES = {"s": np.array([6, 8]), "t": np.array([3, 16]), "u": np.array([2, 24]), "ax": AXIS}
PARTS = {"i0": ZERO, "i1": np.array(1), "last": np.array(-1), "v0": AXIS, "v1": np.array([1]), "ax": AXIS, "m1": np.array([-1]),
         "c24": np.array([24])}  # fmt: skip
SHAPE = "s = Shape({x}) k = Gather(s, {i}) u = Unsqueeze(k, ax) c = Concat<axis=0>({parts}) y = Reshape({root}, c)"
LEVELS = pytest.mark.parametrize("level", [1, 2])


@pytest.mark.parametrize(
    "text",
    [
        "r = Reshape(x, s) y = Unsqueeze(r, ax)", "r = Reshape(x, s) q = Unsqueeze(r, ax) y = Squeeze(q, ax)",
        "r = Unsqueeze(x, ax) y = Reshape(r, s)", "r = Reshape(x, s) y = Reshape(r, t)",
        "r = Reshape(x, s) y = Reshape<allowzero=1>(r, t)", "r = Reshape<allowzero=1>(x, s) y = Reshape(r, t)",
        "r = Reshape(x, s) q = Reshape<allowzero=1>(r, t) y = Reshape(q, u)",
        "r = Reshape(x, s) q = Unsqueeze(r, ax) y = Reshape<allowzero=1>(q, u)",
    ],
)  # fmt: skip
@LEVELS
def test_reshapes_in_a_row(text: str, level: int, tmp_path: Path) -> None:
    proto = model(f"g (float[2,3,8] x) => (float[] y) {{ {text} }}", SIZES)
    assert mine(proto, level)[0] == theirs(proto, level, tmp_path)[0]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ("float[b,3,8] x", SHAPE.format(x="x", i="i0", parts="u, c24", root="x")),
        ("float[b,3,8] x", SHAPE.format(x="x", i="i0", parts="u, m1", root="x")),
        ("float[3,b,8] x", SHAPE.format(x="x", i="i1", parts="u, c24", root="x")),
        ("float[3,8,b] x", SHAPE.format(x="x", i="last", parts="c24, u", root="x")),
        ("float[b,3,8] x, float[b,3,8] z", SHAPE.format(x="z", i="i0", parts="u, m1", root="x")),
        ("float[b,5] z, float[b,3,8] x", SHAPE.format(x="z", i="i0", parts="u, m1", root="x")),
        ("float[4,b] z, float[4,b,8] x", SHAPE.format(x="z", i="i0", parts="u, m1", root="x")),
        ("float[b,3,8] x", "r = Relu(x) " + SHAPE.format(x="x", i="i0", parts="u, m1", root="r")),
        ("float[b,3,8,8] x", "r = GlobalAveragePool(x) " + SHAPE.format(x="x", i="i0", parts="u, m1", root="r")),
        ("float[b,3,8] x", "s = Shape(x) k = Gather(s, v0) c = Concat<axis=0>(k, c24) y = Reshape(x, c)"),
        ("float[b,3,8] x", "s = Shape(x) k = Slice(s, v0, v1) c = Concat<axis=0>(k, c24) y = Reshape(x, c)"),
        ("float[b,3,8] x", "s = Shape<start=0, end=1>(x) c = Concat<axis=0>(s, c24) y = Reshape(x, c)"),
        ("float[b,3,8] x", "s = Shape<start=0, end=1>(x) c = Concat<axis=0>(s, c24) y = Reshape<allowzero=1>(x, c)"),
        ("float[b,3,b] x", "s = Shape<start=0, end=1>(x) c = Concat<axis=0>(s, m1) y = Reshape(x, c)"),
    ],
)  # fmt: skip
def test_targets_put_together(inputs: str, text: str, tmp_path: Path) -> None:
    proto = model(f"g ({inputs}) => (float[] y) {{ {text} }}", PARTS)
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)


NUMBERS = {"one": np.float32(1), "two": np.float32(2), "low": np.float32(-1), "high": np.float32(6), "eps": np.float32(1e-5),
           "w": np.ones(3, np.float32), "last": np.array([-1])}  # fmt: skip
RMS = "p = Pow(x, two) m = ReduceMean(p, last) a = Add(m, eps) s = Sqrt(a) "


@pytest.mark.parametrize(
    "text",
    [
        "d = Div(one, x) y = Mul(d, z)", "d = Div(one, x) y = Mul(z, d)", "d = Div(two, x) y = Mul(d, z)", "d = Div(one, x) y = Mul(d, d)",
        "n = Not(c) y = Where(n, x, z)", "n = Not(c) q = Where(n, x, z) r = Where(n, z, x) y = Sub(q, r)",
        "n = Not(c) q = Where(n, x, z) k = Cast<to=1>(n) y = Add(q, k)",
        "r = Relu(x) y = Clip(r, low, high)", "r = Relu(x) y = Clip(r, one, high)", "r = Relu(x) y = Clip(r)", "r = Relu(x) y = Clip(r, , high)",
        f"{RMS} d = Div(x, s) y = Mul(d, w)", f"{RMS} d = Reciprocal(s) q = Mul(x, d) y = Mul(w, q)",
        f"{RMS} d = Div(one, s) q = Mul(x, d) y = Mul(w, q)", f"{RMS} d = Div(z, s) y = Mul(d, w)",
    ],
)  # fmt: skip
@LEVELS
def test_pairs_of_elementwise_operators(text: str, level: int, tmp_path: Path) -> None:
    proto = model(f"g (float[2,3] x, float[2,3] z, bool[2,3] c) => (float[] y) {{ {text} }}", NUMBERS)
    assert mine(proto, level) == theirs(proto, level, tmp_path)


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 2), (8,), (9,), (3, 3), (16,)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_equal_constants(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    """Two constants of the same elements: one of up to eight, two of more."""
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype) + 1
    kind, sizes = {"float32": "float", "int64": "int64"}[dtype], ",".join(map(str, shape))
    proto = model(
        f"g ({kind}[5,{sizes}] x) => ({kind}[] y) {{ a = Add(x, p) y = Mul(a, q) }}",
        {"p": data, "q": data.copy()},
    )
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)
    assert len(mine(proto, 1)[1]) == (1 if data.size <= 8 else 2)


@pytest.mark.parametrize(
    "perm", [[0, 1, 2, 3], [0, 1, 3, 2], [1, 2, 0, 3], [1, 2, 3, 0], [0, 2, 1, 3], [3, 0, 1, 2]]
)
@pytest.mark.parametrize("side", [0, 1])
def test_transposes_of_matrices(perm: list[int], side: int, tmp_path: Path) -> None:
    operands = ("t, z", "z, t")[side]
    text = f"t = Transpose<perm={perm}>(x) y = MatMul({operands})"
    proto = model(f"g (float[4,4,4,4] x, float[4,4,4,4] z) => (float[] y) {{ {text} }}", {})
    assert mine(proto, 2) == theirs(proto, 2, tmp_path)


AMOUNTS = {
    "edge": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "deep": np.array([0, 1, 1, 1, 0, 0, 1, 1]), "less": np.array([0, 0, -1, 1, 0, 0, 1, 1]),
    "nil": np.float32(0), "half": np.float32(0.5), "k": np.ones((4, 3, 3, 3), np.float32), "d": np.ones((4, 4, 3, 3), np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "p = Pad(x, edge) y = Conv(p, k)", "p = Pad(x, edge, nil) y = Conv<pads=[1,1,1,1]>(p, k)", "p = Pad(x, edge, half) y = Conv(p, k)",
        "p = Pad(x, deep) y = Conv(p, d)", "p = Pad(x, less) y = Conv(p, k)", 'p = Pad<mode="edge">(x, edge) y = Conv(p, k)',
        'p = Pad(x, edge) y = Conv<auto_pad="SAME_UPPER">(p, k)', "p = Pad(x, edge) y = MaxPool<kernel_shape=[3,3]>(p)",
        "p = Pad(x, edge) y = AveragePool<kernel_shape=[3,3]>(p)",
        "p = Pad(x, edge) y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=0>(p)",
        "p = Pad(x, edge) c = Cast<to=11>(p) q = Cast<to=1>(c) y = Conv(q, k)", "p = Pad(x, edge) q = Conv(p, k) r = Exp(p) y = Mul(q, half)",
    ],
)  # fmt: skip
def test_padding_before_convolutions_and_pools(text: str, tmp_path: Path) -> None:
    proto = model(f"g (float[1,3,8,8] x) => (float[] y) {{ {text} }}", AMOUNTS)
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)


@pytest.mark.parametrize(
    ("release", "text", "operators"),
    [
        ((1, 31), "p = Pad(x, edge) y = MaxPool<kernel_shape=[3,3]>(p)", ["MaxPool"]),
        ((1, 32), "p = Pad(x, edge) y = MaxPool<kernel_shape=[3,3]>(p)", ["MaxPool", "Pad"]),
        ((1, 32), "p = Pad(x, edge) y = Conv(p, k)", ["Conv"]),
    ],
)
def test_what_a_release_joins(release: Release, text: str, operators: list[str]) -> None:
    """As the releases themselves do, which the test before this one asks where they are installed."""
    proto = model(f"g (float[1,3,8,8] x) => (float[] y) {{ {text} }}", AMOUNTS)
    assert sorted(name.partition("[")[0] for name in mine(proto, 1, release)[0]) == operators


@pytest.mark.parametrize(
    "text",
    [
        "t = Transpose<perm=[1,0]>(x) y = Gemm(t, z)", "t = Transpose<perm=[1,0]>(z) y = Gemm<transA=1>(x, t)",
        "t = Gemm(x, z) y = Transpose<perm=[1,0]>(t)", "t = Gemm(x, z, row) y = Transpose<perm=[1,0]>(t)",
        "t = Transpose<perm=[1,0]>(x) q = Gemm(t, z) r = Gemm(t, z, row) y = Sub(q, r)",
        "t = Transpose<perm=[1,0]>(x) q = Gemm(t, z) r = Exp(t) y = Sub(q, r)", "t = Gemm(x, z) y = Sum(t, row)",
        "t = Gemm(x, z) y = Sum(col, t)", "t = Gemm(x, z) y = Sum(t, row, col)", "t = Gemm(x, z, row) y = Sum(t, col)",
        "t = MatMul(x, z) y = Add(t, col)", "t = MatMul(x, z) y = Add(row, t)", "t = MatMul(x, z) y = Add(t, cube)",
    ],
)  # fmt: skip
@LEVELS
def test_what_stands_around_a_matrix_product(text: str, level: int, tmp_path: Path) -> None:
    ones = {"row": (6,), "col": (6, 1), "cube": (1, 6, 6)}
    constants = {name: np.ones(shape, np.float32) for name, shape in ones.items()}
    proto = model(f"g (float[6,6] x, float[6,6] z) => (float[] y) {{ {text} }}", constants)
    assert mine(proto, level)[0] == theirs(proto, level, tmp_path)[0]


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    "text",
    [
        "r = Range(i0, n, i1) k = Gather<axis=1>(x, r) y = Exp(k)", "r = Range(i0, n, i1) k = Gather(x, r) q = Cast<to=1>(r) y = Sub(k, q)",
        "c = Cast<to=11>(x) s = Shape(c) y = Cast<to=1>(s)", "c = Cast<to=11>(x) s = Shape(c) k = ReduceMax<keepdims=0>(c) e = Cast<to=7>(k) q = Sub(s, e) y = Cast<to=1>(q)",
    ],
)  # fmt: skip
def test_ranges_and_shapes(text: str, opset: int, tmp_path: Path) -> None:
    proto = model(
        f"g (float[8,b] x, int64 n) => (float[] y) {{ {text} }}", {"i0": ZERO, "i1": np.array(1)}, opset
    )
    for level in (1, 2):
        assert mine(proto, level) == theirs(proto, level, tmp_path)


NORM = {name: np.ones(4, np.float32) for name in ("scale", "bias", "mean", "variance")}


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("ConvTranspose(x, w)", (4, 4, 2, 2)), ("ConvTranspose<group=2>(x, w)", (4, 2, 2, 2)), ("ConvTranspose(x, w, bias)", (4, 4, 2, 2)),
        ("Conv(x, w)", (4, 4, 2, 2)), ("Conv<group=4>(x, w, bias)", (4, 1, 2, 2)), ("Conv(x, w, z)", (4, 4, 2, 2)),
    ],
)  # fmt: skip
def test_normalization_behind_convolutions(text: str, weights: tuple[int, ...], tmp_path: Path) -> None:
    behind = f"p = {text} y = BatchNormalization(p, scale, bias, mean, variance)"
    proto = model(
        f"g (float[1,4,8,8] x, float[4] z) => (float[] y) {{ {behind} }}",
        {**NORM, "w": np.ones(weights, np.float32)},
    )
    assert mine(proto, 1) == theirs(proto, 1, tmp_path)


GELU = {
    "c": np.float32(0.044715),
    "k": np.float32(0.79788456),
    "h": np.float32(0.5),
    "one": np.float32(1),
    "three": np.float32(3),
}
TANH = "t = Tanh(f) q = Add(t, one) s = Mul(x, h) "
PRODUCTS = "x = Exp(z) a = Mul(x, c) b = Mul(a, x) d = Add(b, one) e = Mul(x, k) f = Mul(e, d) "
POWER = "x = Exp(z) a = Pow(x, three) b = Mul(a, c) d = Add(b, x) f = Mul(d, k) "


@pytest.mark.parametrize(
    "text",
    [
        PRODUCTS + TANH + "r = Mul(s, q) y = Exp(r)", PRODUCTS + TANH + "r = Mul(q, s) y = Exp(r)", POWER + TANH + "r = Mul(s, q) y = Exp(r)",
        PRODUCTS + TANH + "y = Mul(s, q)", POWER + TANH + "y = Mul(s, q)",
        PRODUCTS.replace("Mul(a, x)", "Mul(a, z)") + TANH + "r = Mul(s, q) y = Exp(r)",
        PRODUCTS.replace("Mul(x, k)", "Mul(z, k)") + TANH + "r = Mul(s, q) y = Exp(r)",
        PRODUCTS.replace("Add(b, one)", "Add(b, h)") + TANH + "r = Mul(s, q) y = Exp(r)",
    ],
)  # fmt: skip
def test_gelu_by_tanh(text: str, tmp_path: Path) -> None:
    proto = model(f"g (float[2,8] z) => (float[] y) {{ {text} }}", GELU)
    assert mine(proto, 2) == theirs(proto, 2, tmp_path)
