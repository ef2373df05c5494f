"""Every fusion on graphs small enough to do by hand: what it joins, and what keeps it from joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions import BASIC, EXTENDED, ORDER, fuse
from analyzer.runtimes.onnxruntime.rewrite.fusions.activation import bias_gelu, fast_gelu, gelu, quick_gelu
from analyzer.runtimes.onnxruntime.rewrite.fusions.convolution import conv_activation, conv_batch_norm
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import Fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matmul import (
    gemm_activation,
    matmul_add,
    matmul_add_rest,
    matmul_scale,
    matmul_transpose,
)
from analyzer.runtimes.onnxruntime.rewrite.fusions.normalization import layer_norm, rms_norm, skip_layer_norm
from analyzer.runtimes.onnxruntime.rewrite.fusions.shapes import gather_slice_to_split, reshape
from analyzer.runtimes.onnxruntime.rewrite.fusions.softmax import bias_softmax
from tests.runtimes.onnxruntime.graphs import build, made, shown


def after(fusion: Fusion, graph: RuntimeGraph) -> list[str]:
    """The graph's nodes once the fusion has run; the editor's books are checked against the graph."""
    editor = Editor(graph)
    fusion.apply(editor)
    fresh = Editor(graph)
    assert {name: users for name, users in editor.readers.items() if users} == fresh.readers
    assert {name: node.index for name, node in editor.maker.items()} == {
        name: node.index for name, node in fresh.maker.items()
    }
    return shown(graph)


def unchanged(fusion: Fusion, graph: RuntimeGraph) -> bool:
    before = shown(graph)
    return after(fusion, graph) == before


# MatMul + Add


def gemm(bias: Any = (8,), **more: Any) -> RuntimeGraph:
    given = {"x": ("n", 6), "a": ("n", 8), "y": ("n", 8), **more.pop("shapes", {})}
    text = more.pop("text", "MatMul x w -> a; Add a b -> y")
    return build(text, given, {"w": (6, 8), "b": bias}, **more)


@pytest.mark.parametrize("bias", [(8,), (1, 8)])
def test_a_product_of_matrices_and_a_bias_are_a_gemm(bias: tuple[int, ...]) -> None:
    graph = gemm(bias)
    assert after(matmul_add, graph) == ["Gemm x w b -> y"]
    assert (made(graph, "y").name, made(graph, "y").index) == ("n0/MatMulAddFusion/", 2)
    assert made(graph, "y").provider == "cuda"


def test_a_stack_of_matrices_of_known_shape_is_a_gemm_between_two_reshapes() -> None:
    """`matmul_add_fusion.cc`, need_reshape: [2, 3, 6] x [6, 8] + [8]; with a name in the shape, or another bias, it stays."""
    text, shapes = "MatMul x w -> a; Add a b -> y", {"x": (2, 3, 6), "a": (2, 3, 8), "y": (2, 3, 8)}
    graph = build(text, shapes, {"w": (6, 8), "b": (8,)})
    assert [entry.split()[0] for entry in after(matmul_add, graph)] == ["Reshape", "Gemm", "Reshape"]
    (product,) = [node for node in graph.nodes.values() if node.op == "Gemm"]
    assert [graph.values[name].shape for name in (*product.inputs, *product.outputs)] == [
        (6, 6),
        (6, 8),
        (8,),
        (6, 8),
    ]
    assert made(graph, "y").op == "Reshape"
    for batch, bias in (("n", (8,)), (2, (1, 8)), (2, (3, 8))):
        other = {"x": (batch, 3, 6), "a": (batch, 3, 8), "y": (batch, 3, 8)}
        assert unchanged(matmul_add, build(text, other, {"w": (6, 8), "b": bias}))


def test_reshapes_that_follow_each_other_are_one() -> None:
    graph = build("Reshape x s -> a; Reshape a t -> b; Exp b -> y", {"x": (4, 6), "a": (24,), "b": (3, 8), "y": (3, 8)},
                  {"s": (1,), "t": (2,)})  # fmt: skip
    assert [entry.split()[0] for entry in after(reshape, graph)] == ["Reshape", "Exp"]
    apart = build("Reshape x s -> a; Reshape a t -> b; Exp a -> y", {"x": (4, 6), "a": (24,), "b": (3, 8), "y": (24,)},
                  {"s": (1,), "t": (2,)}, outputs=("b", "y"))  # fmt: skip
    assert unchanged(reshape, apart)


def test_projections_of_attention_wait_for_its_fusion() -> None:
    """Three products and a sum read one LayerNormalization; the sum's other operand is the fourth product with its bias."""
    parts = "; ".join(f"MatMul l w -> {n}m; Add {n}m b -> {n}" for n in "qkv")
    text = f"LayerNormalization x b b -> l; {parts}; Sum q k v -> s; MatMul s w -> om; Add om b -> o; Add o l -> y"
    names = ("x", "l", "s", "om", "o", "y", *(f"{n}{m}" for n in "qkv" for m in ("m", "")))
    graph = build(text, dict.fromkeys(names, (2, 3, 8)), {"w": (8, 8), "b": (8,)})
    assert unchanged(matmul_add, graph)
    after(matmul_add_rest, graph)
    assert sum(node.op == "Gemm" for node in graph.nodes.values()) == 4


def test_the_bias_may_stand_first_and_may_be_a_whole_matrix() -> None:
    assert after(matmul_add, gemm(text="MatMul x w -> a; Add b a -> y")) == ["Gemm x w b -> y"]
    whole = gemm(text="MatMul x w -> a; Add a c -> y", shapes={"c": ("n", 8)})
    assert after(matmul_add, whole) == ["Gemm x w c -> y"]


@pytest.mark.parametrize("bias", [(1,), (8, 1), (7,), (), (1, 1, 8)])
def test_other_biases_are_added_apart(bias: tuple[int, ...]) -> None:
    assert unchanged(matmul_add, gemm(bias))


@pytest.mark.parametrize(
    "graph",
    [
        gemm(dtype="int32"),
        gemm(text="MatMul x w -> a; Add a b -> y; Exp a -> z", outputs=("y", "z")),
        gemm(outputs=("y", "a")),
        gemm(text="MatMul x w -> a; Sub a b -> y"),
        gemm(text="MatMul x w -> a; mine.Add a b -> y"),
        gemm(text="mine.MatMul x w -> a; Add a b -> y"),
        gemm(text="MatMul x w -> a; Add a a -> y"),
        gemm(shapes={"x": (2, "n", 6), "a": (2, "n", 8), "y": (2, "n", 8)}),
        gemm(shapes={"x": None}),
        build("MatMul x w -> a; Add a b -> y", {"x": (4, 6), "w": (2, 6, 8), "a": (2, 4, 8)}, {"b": (8,)}),
        build("MatMul x w -> a; Add a b -> y", {"x": (4, 6), "w": (6, ""), "b": ("",), "a": (4, "")}),
        build("MatMul x w -> a; Add a b -> y", {"x": (4, 6), "w": None, "b": (8,), "a": (4, 8)}),
        build("MatMul x w -> a; Add a b -> y", {"x": (4, 6), "w": (6, 8), "b": None, "a": (4, 8)}),
    ],
)
def test_what_is_no_gemm(graph: RuntimeGraph) -> None:
    """Type, a second reader, a graph output, other operators and domains, stacks, unknown shapes."""
    assert unchanged(matmul_add, graph)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_gemm_types(dtype: str) -> None:
    assert after(matmul_add, gemm(dtype=dtype)) == ["Gemm x w b -> y"]


# Transposes and scales around products


def test_a_transpose_of_the_last_two_axes_is_an_attribute() -> None:
    graph = build(
        "Transpose k -> t; MatMul x t -> y",
        {"x": (2, 4, 6), "k": (2, 8, 6), "t": (2, 6, 8), "y": (2, 4, 8)},
        attributes={"t": {"perm": (0, 2, 1)}},
    )
    assert after(matmul_transpose, graph) == ["com.microsoft.FusedMatMul x k -> y"]
    node = made(graph, "y")
    assert (node.attributes, node.name) == ({"transB": 1}, "n1/MatmulTransposeFusion/")


def test_both_sides_and_a_product_that_is_fused_already() -> None:
    graph = build(
        "Transpose x -> s; Transpose k -> t; com.microsoft.FusedMatMul s t -> y",
        {"x": (6, 4), "s": (4, 6), "k": (8, 6), "t": (6, 8), "y": (4, 8)},
        attributes={"s": {"perm": (1, 0)}, "t": {"perm": (1, 0)}, "y": {"alpha": 0.5}},
    )
    assert after(matmul_transpose, graph) == ["com.microsoft.FusedMatMul x k -> y"]
    assert made(graph, "y").attributes == {"alpha": 0.5, "transA": 1, "transB": 1}
    again = build(
        "Transpose k -> t; com.microsoft.FusedMatMul x t -> y",
        {"x": (4, 6), "k": (6, 8), "t": (8, 6), "y": (4, 8)},
        attributes={"t": {"perm": (1, 0)}, "y": {"transB": 1}},
    )
    assert after(matmul_transpose, again) == ["com.microsoft.FusedMatMul x k -> y"]
    assert made(again, "y").attributes == {"transB": 0}


def test_a_transpose_others_read_stays_beside_the_product() -> None:
    graph = build(
        "Transpose k -> t; MatMul x t -> y; Exp t -> z",
        {"x": (4, 6), "k": (8, 6), "t": (6, 8), "y": (4, 8)},
        attributes={"t": {"perm": (1, 0)}},
        outputs=("y", "z"),
    )
    assert sorted(after(matmul_transpose, graph)) == sorted(
        ["Transpose k -> t", "Exp t -> z", "com.microsoft.FusedMatMul x k -> y"]
    )
    final = build(
        "Transpose k -> t; MatMul x t -> y",
        {"x": (4, 6), "k": (8, 6), "t": (6, 8), "y": (4, 8)},
        attributes={"t": {"perm": (1, 0)}},
        outputs=("y", "t"),
    )
    assert unchanged(matmul_transpose, final)


def test_a_value_multiplied_by_itself_keeps_its_transpose() -> None:
    """issue 24341 of microsoft/onnxruntime."""
    graph = build("Transpose x -> t; MatMul t t -> y", {"x": (4, 4)}, attributes={"t": {"perm": (1, 0)}})
    assert unchanged(matmul_transpose, graph)


@pytest.mark.parametrize(
    ("perm", "attributes"),
    [
        ((0, 1, 2, 3), {}),
        ((0, 1, 3, 2), {"transB": 1}),
        ((1, 2, 0, 3), {"transBatchB": 1}),
        ((1, 2, 3, 0), {"transB": 1, "transBatchB": 1}),
        ((0, 2, 1, 3), None),
        ((3, 0, 1, 2), None),
        ((2, 0, 1, 3), None),
    ],
)
def test_the_first_axis_may_go_behind_the_batch(
    perm: tuple[int, ...], attributes: dict[str, int] | None
) -> None:
    """The batch's axes keep their order, and both operands have as many axes (`GetTransposeNodeFromOutput`)."""
    text, shapes = (
        "Transpose k -> t; MatMul x t -> y",
        {"x": (4, 4, 4, 4), "k": (4, 4, 4, 4), "t": (4, 4, 4, 4)},
    )
    graph = build(text, shapes, attributes={"t": {"perm": perm}})
    if attributes is None:
        assert unchanged(matmul_transpose, graph)
        return
    assert after(matmul_transpose, graph) == ["com.microsoft.FusedMatMul x k -> y"]
    assert made(graph, "y").attributes == attributes
    fewer = build(text, {**shapes, "x": (4, 4)}, attributes={"t": {"perm": perm}})
    assert unchanged(matmul_transpose, fewer) == ("transBatchB" in attributes)


@pytest.mark.parametrize(
    ("perm", "dtype", "attributes"),
    [
        ((2, 0, 1), "float32", {}),
        ((0, 2, 1), "int32", {}),
        ((1, 0, 2), "float32", {"transBatchB": 1}),
        ((), "float32", {}),
        ((0,), "float32", {}),
    ],
)
def test_transposes_that_stay_before_the_product(
    perm: tuple[int, ...], dtype: str, attributes: dict[str, int]
) -> None:
    graph = build(
        "Transpose k -> t; com.microsoft.FusedMatMul x t -> y",
        {"x": (2, 4, 6), "k": (2, 6, 6), "t": (2, 6, 6), "y": (2, 4, 6)},
        attributes={"t": {"perm": perm}, "y": attributes},
        dtype=dtype,
    )
    assert unchanged(matmul_transpose, graph)


@pytest.mark.parametrize(
    "text",
    [
        "Mul x s -> a; MatMul a w -> y",
        "Mul s x -> a; MatMul a w -> y",
        "Div x s -> a; MatMul a w -> y",
        "MatMul x w -> a; Mul a s -> y",
        "MatMul x w -> a; Div a s -> y",
        "Mul x s -> a; Div a s -> b; MatMul b w -> c; Mul s c -> y",
    ],
)
def test_scales_by_one_number_go_into_the_product(text: str) -> None:
    graph = build(text, {"x": (4, 6), "w": (6, 6)}, {"s": np.array(0.5)})
    assert after(matmul_scale, graph) == ["com.microsoft.FusedMatMul x w -> y"]
    node = made(graph, "y")
    assert node.provider == "cuda" and node.name.endswith("/MatMulScaleFusion/")


def test_the_right_operand_is_scaled_too() -> None:
    graph = build("Mul w s -> a; MatMul x a -> y", {"x": (4, 6), "w": (6, 6)}, {"s": np.array([2.0])})
    assert after(matmul_scale, graph) == ["com.microsoft.FusedMatMul x w -> y"]


@pytest.mark.parametrize(
    ("text", "scale", "dtype"),
    [
        ("Div s x -> a; MatMul a w -> y", 0.5, "float32"),
        ("Mul x s -> a; MatMul a w -> y", [[0.5]], "float32"),
        ("Mul x s -> a; MatMul a w -> y", [0.5] * 6, "float32"),
        ("Mul x x -> a; MatMul a w -> y", 0.5, "float32"),
        ("Mul x m -> a; MatMul a w -> y", 0.5, "float32"),
        ("Add x s -> a; MatMul a w -> y", 0.5, "float32"),
        ("Mul x s -> a; MatMul a w -> y", 0.5, "int32"),
        ("Mul x s -> a; MatMul a a -> y", 0.5, "float32"),
        ("Mul x s -> a; MatMul a w -> b; Exp a -> c; Add b c -> y", 0.5, "float32"),
        ("MatMul x w -> a; Mul a s -> b; Add a b -> y", 0.5, "float32"),
    ],
)
def test_scales_that_stay(text: str, scale: Any, dtype: str) -> None:
    graph = build(text, {"x": (6, 6), "w": (6, 6), "m": ()}, {"s": np.array(scale)}, dtype=dtype)
    assert unchanged(matmul_scale, graph)


# Activations on the CPU


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Selu"])
def test_gemm_takes_up_its_activation(op: str) -> None:
    graph = build(f"Gemm x w -> a; {op} a -> y", {"x": (4, 6), "w": (6, 6)}, attributes={"a": {"transB": 1}})
    assert after(gemm_activation, graph) == ["com.microsoft.FusedGemm x w -> y"]
    assert (made(graph, "y").name, made(graph, "y").attributes) == ("fused n0", {"transB": 1})


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"])
def test_conv_takes_up_its_activation(op: str) -> None:
    graph = build(
        f"Conv x w -> a; {op} a -> y",
        {"x": (1, 3, 8, 8)},
        {"w": (3, 3, 1, 1)},
        attributes={"a": {"group": 1}},
    )
    assert after(conv_activation, graph) == ["com.microsoft.FusedConv x w -> y"]
    assert (made(graph, "y").name, made(graph, "y").attributes) == ("n0", {"group": 1})


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Gemm x w -> a; Relu a -> y", "float16"),
        ("Gemm x w -> a; Exp a -> y", "float32"),
        ("MatMul x w -> a; Relu a -> y", "float32"),
        ("Gemm x w -> a; Relu a -> b; Add a b -> y", "float32"),
    ],
)
def test_activations_that_stay_behind_gemm(text: str, dtype: str) -> None:
    assert unchanged(gemm_activation, build(text, {"x": (6, 6), "w": (6, 6)}, dtype=dtype))


@pytest.mark.parametrize(
    ("text", "dtype", "fused"),
    [
        ("Conv x w -> a; Clip a l h -> y", "float32", True),
        ("Conv x w -> a; Clip a _ h -> y", "float32", True),
        ("Conv x w -> a; Clip a -> y", "float32", True),
        ("Conv x w -> a; Clip a l m -> y", "float32", False),
        ("Conv x w -> a; Clip a l h -> y", "float16", False),
        ("Conv x w -> a; Elu a -> y", "float32", False),
        ("ConvTranspose x w -> a; Relu a -> y", "float32", False),
    ],
)
def test_clip_needs_constant_bounds(text: str, dtype: str, fused: bool) -> None:
    graph = build(
        text,
        {"x": (1, 3, 8, 8), "m": ()},
        {"w": (3, 3, 1, 1), "l": np.array(0.0), "h": np.array(6.0)},
        dtype=dtype,
    )
    assert unchanged(conv_activation, graph) != fused


# BatchNormalization


NORM = {"w": (8, 3, 1, 1), "b": (8,), "s": (8,), "o": (8,), "m": (8,), "v": (8,)}


def test_batch_normalization_is_folded_into_the_weights_before_it() -> None:
    """Weights and bias are new constants of the same shapes, made of those of the Conv and of the normalization."""
    graph = build(
        "Conv x w -> a; BatchNormalization a s o m v -> y",
        {"x": (1, 3, 4, 4), "a": (1, 8, 4, 4), "y": (1, 8, 4, 4)},
        NORM,
    )
    assert after(conv_batch_norm, graph) == ["Conv x w_token_1 o_token_2 -> y"]
    assert graph.values["w_token_1"].shape == (8, 3, 1, 1)
    assert graph.values["o_token_2"].shape == (8,)
    assert {"w_token_1", "o_token_2"} <= set(graph.initializers)


def test_a_convolution_with_a_bias_gets_another() -> None:
    graph = build("Conv x w b -> a; BatchNormalization a s o m v -> y", {"x": (1, 8, 4, 4)}, NORM)
    assert after(conv_batch_norm, graph) == ["Conv x w_token_1 b_token_2 -> y"]


@pytest.mark.parametrize(
    ("text", "given", "attributes"),
    [
        ("Conv x w -> a; BatchNormalization a s o m v -> y", {}, {"training_mode": 1}),
        ("Conv x w -> a; BatchNormalization a s o m v -> y p q", {}, {}),
        ("Conv x w -> a; BatchNormalization a s o m d -> y", {"d": (8,)}, {}),
        ("Conv x w -> a; BatchNormalization a d o m v -> y", {"d": (8,)}, {}),
        ("Conv x d -> a; BatchNormalization a s o m v -> y", {"d": (8, 3, 1, 1)}, {}),
        ("Conv x w d -> a; BatchNormalization a s o m v -> y", {"d": (8,)}, {}),
        ("Conv x w -> a; BatchNormalization a s o m v -> b; Add a b -> y", {}, {}),
        ("Conv x w -> a; InstanceNormalization a s o -> y", {}, {}),
    ],
)
def test_batch_normalization_that_stays(text: str, given: dict[str, Any], attributes: dict[str, Any]) -> None:
    graph = build(text, {"x": (1, 3, 4, 4), **given}, NORM, attributes={"y": attributes})
    assert unchanged(conv_batch_norm, graph)


# Gelu


HALVES = {
    "root": np.array(2**0.5),
    "inverse": np.array(0.5**0.5),
    "one": np.array(1.0),
    "half": np.array(0.5),
    "two": np.array(2.0),
    "three": np.array(3.0),
    "c": np.array(0.044715),
    "k": np.array(0.7978845608),
    "v": (2,),
}
GELU = "Div x root -> a; Erf a -> b; Add b one -> c1; Mul x c1 -> d; Mul d half -> y"


def gelu_graph(text: str = GELU, **more: Any) -> RuntimeGraph:
    return build(text, {"x": ("n", 6)}, HALVES, **more)


@pytest.mark.parametrize(
    "text",
    [
        GELU,
        "Mul x inverse -> a; Erf a -> b; Add one b -> c1; Mul c1 x -> d; Mul half d -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul x half -> h; Mul h c1 -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul half x -> h; Mul c1 h -> y",
    ],
)
@pytest.mark.parametrize(("opset", "operator"), [(19, "com.microsoft.Gelu"), (20, "Gelu")])
def test_gelu_is_recognised_in_any_order(text: str, opset: int, operator: str) -> None:
    graph = gelu_graph(text, opset=opset)
    assert after(gelu, graph) == [f"{operator} x -> y"]
    assert made(graph, "y").name == "Gelu"


@pytest.mark.parametrize(
    "text",
    [
        GELU.replace("root", "two"),
        GELU.replace("one", "two"),
        GELU.replace("half", "two"),
        GELU.replace("Erf", "Tanh"),
        GELU.replace("Div", "Mul"),
        GELU.replace("Mul x c1", "Mul z c1"),
        GELU.replace("-> y", "-> e; Add e d -> y"),
        GELU.replace("-> y", "-> e; Add e b -> y"),
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul z half -> h; Mul h c1 -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul x two -> h; Mul h c1 -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Add x half -> h; Mul h c1 -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul half z -> h; Mul h c1 -> y",
        "Div x root -> a; Erf a -> b; Add b one -> c1; Mul x half -> h; Mul h c1 -> e; Add e h -> y",
        "Div x v -> a; Erf a -> b; Add b one -> c1; Mul x c1 -> d; Mul d half -> y",
    ],
)
def test_what_is_no_gelu(text: str) -> None:
    graph = build(text, {"x": ("n", 2), "z": ("n", 2)}, HALVES)
    assert unchanged(gelu, graph)


FAST = (
    "Pow x three -> p; Mul p c -> q; Add x q -> r; Mul r k -> s; Tanh s -> t; Add t one -> u; "
    "Mul x half -> h; Mul h u -> w; Exp w -> y"
)


@pytest.mark.parametrize(
    "text", [FAST, FAST.replace("Mul p c", "Mul c p").replace("Mul h u", "Mul u h").replace("Add t", "Add t")]
)
def test_gelu_by_tanh_is_fast_gelu(text: str) -> None:
    graph = gelu_graph(text)
    assert after(fast_gelu, graph) == ["com.microsoft.FastGelu x -> w", "Exp w -> y"]
    assert made(graph, "w").name == "GPT2Gelu"


@pytest.mark.parametrize(
    "text",
    [
        FAST.replace("-> w; Exp w -> y", "-> y"),
        FAST.replace("three", "two"),
        FAST.replace("Mul p c", "Mul p k"),
        FAST.replace("Mul r k", "Mul r c"),
        FAST.replace("one", "two"),
        FAST.replace("half", "two"),
        FAST.replace("Add x q", "Add z q"),
        FAST.replace("Mul x half", "Mul z half"),
        FAST.replace("Mul x half", "Div x half"),
        FAST.replace("Mul x half", "Mul half z"),
        FAST.replace("Tanh", "Erf"),
        FAST.replace("-> y", "-> e; Add e h -> y"),
        FAST.replace("-> y", "-> e; Add e t -> y"),
    ],
)
def test_what_is_no_fast_gelu(text: str) -> None:
    assert unchanged(fast_gelu, build(text, {"x": ("n", 6), "z": ("n", 6)}, HALVES))


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("Add x b -> a; Gelu a -> y", {}, "com.microsoft.BiasGelu x b -> y"),
        ("Add b x -> a; Gelu a -> y", {}, "com.microsoft.BiasGelu x b -> y"),
        ("Add x b -> a; com.microsoft.Gelu a -> y", {}, "com.microsoft.BiasGelu x b -> y"),
        ("Add x b -> a; Gelu a -> y", {"approximate": "none"}, "com.microsoft.BiasGelu x b -> y"),
        ("Add x b -> a; Gelu a -> y", {"approximate": "tanh"}, "com.microsoft.FastGelu x b -> y"),
        ("Add x b -> a; com.microsoft.FastGelu a -> y", {}, "com.microsoft.FastGelu x b -> y"),
    ],
)
def test_a_bias_joins_the_gelu_behind_it(text: str, attributes: dict[str, str], expected: str) -> None:
    graph = build(text, {"x": ("n", 6), "a": ("n", 6)}, {"b": (6,)}, attributes={"y": attributes})
    assert after(bias_gelu, graph) == [expected]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("Add x b -> a; Gelu a -> y", {"b": (1, 6)}),
        ("Add x b -> a; Gelu a -> y", {"b": (1,)}),
        ("Add b x -> a; Gelu a -> y", {"b": (1,), "a": ("n", 6)}),
        ("Add b x -> a; Gelu a -> y", {"b": (1, 6), "a": ("n", 6)}),
        ("Add x b -> a; Gelu a -> y", {"b": None}),
        ("Add x b -> a; Gelu a -> y", {"b": ()}),
        ("Add b x -> a; Gelu a -> y", {"b": (), "a": ("n", 6)}),
        ("Add b x -> a; Gelu a -> y", {"b": None, "a": ("n", 6)}),
        ("Add x b -> a; Gelu a -> y", {"x": ("n", "m"), "b": ("m",)}),
        ("Add b x -> a; Gelu a -> y", {"x": ("n", "m"), "b": ("m",), "a": ("n", "m")}),
        ("Add x b -> a; Relu a -> y", {"b": (6,)}),
        ("Add x b -> a; mine.Gelu a -> y", {"b": (6,)}),
        ("Add x b -> a; com.microsoft.FastGelu a b -> y", {"b": (6,)}),
        ("Add x b -> a; Gelu a -> c; Add a c -> y", {"b": (6,)}),
        ("Sub x b -> a; Gelu a -> y", {"b": (6,)}),
    ],
)
def test_biases_that_stay_before_gelu(text: str, shapes: dict[str, Any]) -> None:
    assert unchanged(bias_gelu, build(text, {"x": ("n", 6), **shapes}))


@pytest.mark.parametrize(
    "text",
    [
        "Sigmoid x -> s; Mul x s -> y",
        "Sigmoid x -> s; Mul s x -> y",
        "Mul x two -> a; Sigmoid a -> s; Mul x s -> y",
        "Mul two x -> a; Sigmoid a -> s; Mul s x -> y",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_x_times_its_sigmoid_is_quick_gelu(text: str, dtype: str) -> None:
    assert after(quick_gelu, gelu_graph(text, dtype=dtype)) == ["com.microsoft.QuickGelu x -> y"]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Sigmoid x -> s; Mul x s -> y", "float64"),
        ("Sigmoid x -> s; Mul z s -> y", "float32"),
        ("Sigmoid x -> s; Add x s -> y", "float32"),
        ("Tanh x -> s; Mul x s -> y", "float32"),
        ("Mul x z -> a; Sigmoid a -> s; Mul x s -> y", "float32"),
        ("Mul x v -> a; Sigmoid a -> s; Mul x s -> y", "float32"),
        ("Mul z two -> a; Sigmoid a -> s; Mul x s -> y", "float32"),
        ("Mul two z -> a; Sigmoid a -> s; Mul x s -> y", "float32"),
        ("Add x two -> a; Sigmoid a -> s; Mul x s -> y", "float32"),
        ("Mul x two -> a; Sigmoid a -> s; Mul x s -> b; Add a b -> y", "float32"),
        ("Sigmoid x -> s; Mul x s -> b; Add b s -> y", "float32"),
    ],
)
def test_what_is_no_quick_gelu(text: str, dtype: str) -> None:
    assert unchanged(quick_gelu, build(text, {"x": ("n", 2), "z": ("n", 2)}, HALVES, dtype=dtype))


def test_fusions_stay_on_one_provider() -> None:
    """Sigmoid on the host, its product on the device: two kernels."""
    graph = gelu_graph("Sigmoid x -> s; Mul x s -> y")
    graph.nodes[0].provider = "cpu"
    assert unchanged(quick_gelu, graph)
    masked = build("Add x b -> a; Softmax a -> y", {"x": (2, 3), "b": (2, 3)})
    masked.nodes[0].provider = "cpu"
    assert unchanged(bias_softmax, masked)
    skip = build("Add x z -> a; LayerNormalization a g -> y", {"x": (2, 3, 8), "z": (2, 3, 8)}, {"g": (8,)})
    skip.nodes[0].provider = "cpu"
    assert unchanged(skip_layer_norm, skip)


# Layer normalization


LAYER = (
    "ReduceMean x -> m; Sub x m -> d; Pow d two -> p; ReduceMean p -> v; Add v eps -> e; Sqrt e -> r; "
    "Div d r -> q; Mul q g -> s; Add s b -> y"
)
PARTS = {
    "two": np.array(2.0),
    "eps": np.array(1e-5),
    "g": (8,),
    "b": (8,),
    "one": np.array(1.0),
    "g2": (1, 8),
    "g9": (9,),
}


def layers(text: str, axes: Sequence[int] | None = (-1,), **more: Any) -> RuntimeGraph:
    """Means over these axes; None: over all of them."""
    own = {} if axes is None else {"axes": tuple(axes)}
    return build(text, {"x": ("n", 8), "z": ("n", 8)}, PARTS, attributes={"m": own, "v": own}, **more)


@pytest.mark.parametrize(
    "text",
    [
        LAYER,
        LAYER.replace("Mul q g", "Mul g q").replace("Add s b", "Add b s"),
        LAYER.replace("Pow d two", "Pow d2 two").replace("Sub x m -> d;", "Sub x m -> d; Sub x m -> d2;"),
    ],
)
def test_layer_normalization_is_recognised(text: str) -> None:
    assert after(layer_norm, layers(text)) == ["LayerNormalization x g b -> y"]


@pytest.mark.parametrize(
    "text",
    [
        LAYER.replace("Mul q g", "Mul q z"),
        LAYER.replace("Add s b", "Add s z"),
        LAYER.replace("Sub x m", "Sub z m"),
        LAYER.replace("Pow", "Max"),
        LAYER.replace("Pow d two", "Mul d d"),
        LAYER.replace("Mul q g", "Mul q g2"),
        LAYER.replace("Add s b", "Add s g9"),
        LAYER.replace("Div d r", "Div r d"),
        LAYER.replace("Div d r", "Div z r"),
        LAYER.replace("ReduceMean x", "ReduceSum x"),
        LAYER.replace("-> y", "-> f; Add f v -> y"),
        LAYER.replace("Add s b -> y", "Sub s b -> y"),
        LAYER.replace("ReduceMean p -> v", "ReduceMean p -> v; Exp m -> other").replace(
            "-> y", "-> f; Add f other -> y"
        ),
        LAYER.replace("Sub x m -> d;", "Sub x m -> d; Sub x m -> d2; Sub x m -> d3;").replace(
            "-> y", "-> f; Add d2 d3 -> g3; Add f g3 -> y"
        ),
    ],
)
def test_what_is_no_layer_normalization(text: str) -> None:
    assert unchanged(layer_norm, layers(text))


@pytest.mark.parametrize(
    ("axes", "joined"), [((-1,), True), ((1,), True), ((0,), False), ((0, 1), False), (None, False)]
)
def test_normalizations_are_over_the_last_axis_alone(axes: tuple[int, ...] | None, joined: bool) -> None:
    assert unchanged(layer_norm, layers(LAYER, axes)) != joined
    assert unchanged(rms_norm, layers(RMS, axes)) != joined


def test_scale_and_bias_need_not_be_constants() -> None:
    graph = build(LAYER, {"x": ("n", 8), "g": (8,), "b": (8,)}, {"two": np.array(2.0), "eps": np.array(1e-5)},
                  attributes={"m": {"axes": (-1,)}, "v": {"axes": (-1,)}})  # fmt: skip
    assert after(layer_norm, graph) == ["LayerNormalization x g b -> y"]


RMS = "Pow x two -> p; ReduceMean p -> v; Add v eps -> e; Sqrt e -> r; Div x r -> q; Mul q g -> y"


@pytest.mark.parametrize(
    "text",
    [
        RMS,
        RMS.replace("Mul q g", "Mul g q"),
    ],
)
def test_root_mean_square_normalization_is_recognised(text: str) -> None:
    assert after(rms_norm, layers(text)) == ["SimplifiedLayerNormalization x g -> y"]


@pytest.mark.parametrize(
    "text",
    [
        RMS.replace("Mul q g", "Mul q z"),
        RMS.replace("Mul q g", "Mul q g2"),
        RMS.replace("Mul q g", "Add q g"),
        RMS.replace("Div x r", "Div z r"),
        RMS.replace("Div x r", "Mul x r"),
        RMS.replace("Div x r -> q", "Div one r -> i; Mul i x -> q"),
        RMS.replace("Div x r -> q", "Reciprocal r -> i; Mul x i -> q"),
        RMS.replace("Add v eps", "Sub v eps"),
        RMS.replace("-> y", "-> f; Add f q -> y"),
        RMS.replace("-> y", "-> f; Add f r -> y"),
    ],
)
def test_what_is_no_root_mean_square_normalization(text: str) -> None:
    assert unchanged(rms_norm, layers(text))


SKIP = {"x": ("n", 3, 8), "z": ("n", 3, 8), "a": ("n", 3, 8), "w": ("n", 3, 8)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add x z -> a; LayerNormalization a g b -> y", "x z g b"),
        ("Add x z -> a; LayerNormalization a g -> y", "x z g _"),
        ("Add x b -> w; Add w z -> a; LayerNormalization a g b -> y", "x z g b b"),
        ("Add x b -> w; Add z w -> a; LayerNormalization a g b -> y", "z x g b b"),
        ("Add x z2 -> w; Add w z -> a; LayerNormalization a g b -> y", None),
    ],
)
def test_a_sum_joins_the_layer_normalization_behind_it(text: str, expected: str | None) -> None:
    graph = build(text, {**SKIP, "z2": (8,)}, {"g": (8,), "b": (8,)})
    found = after(skip_layer_norm, graph)
    if expected is None:
        assert found == ["Add x z2 -> w", "com.microsoft.SkipLayerNormalization w z g b -> y"]
    else:
        assert found == [f"com.microsoft.SkipLayerNormalization {expected} -> y"]


@pytest.mark.parametrize(
    ("shapes", "dtype", "text"),
    [
        ({"x": (3, 8), "z": (3, 8)}, "float32", None),
        ({"x": (2, 2, 3, 8), "z": (2, 2, 3, 8)}, "float32", None),
        ({"x": ("n", 3, 8), "z": (1, 3, 8)}, "float32", None),
        ({"x": ("", 3, 8), "z": ("", 3, 8)}, "float32", None),
        ({"x": None, "z": None}, "float32", None),
        ({}, "float64", None),
        ({}, "float32", "Sub x z -> a; LayerNormalization a g b -> y"),
        ({}, "float32", "Add x z -> a; LayerNormalization a g b -> c; Add a c -> y"),
        ({}, "float32", "LayerNormalization x g b -> y"),
    ],
)
def test_sums_that_stay_before_layer_normalization(
    shapes: dict[str, Any], dtype: str, text: str | None
) -> None:
    text = text or "Add x z -> a; LayerNormalization a g b -> y"
    graph = build(text, {"x": ("n", 3, 8), "z": ("n", 3, 8), **shapes}, {"g": (8,), "b": (8,)}, dtype=dtype)
    assert unchanged(skip_layer_norm, graph)


def test_a_bias_as_long_as_a_dimension_without_a_number_is_added_apart() -> None:
    graph = build(
        "Add x c -> w; Add w z -> a; LayerNormalization a g b -> y",
        {"x": ("n", 3, "m"), "z": ("n", 3, "m")},
        {"g": (5,), "b": (5,), "c": (5,)},
    )
    graph.values["c"].symbols = ("m",)
    assert after(skip_layer_norm, graph)[0] == "Add x c -> w"


@pytest.mark.parametrize("bias", [(1, 8), (1,), (3, 8)])
def test_a_bias_of_another_shape_is_added_apart(bias: tuple[int, ...]) -> None:
    graph = build(
        "Add x c -> w; Add w z -> a; LayerNormalization a g b -> y",
        SKIP,
        {"g": (8,), "b": (8,), "c": bias},
    )
    assert after(skip_layer_norm, graph)[0] == "Add x c -> w"


# Softmax


@pytest.mark.parametrize(
    ("left", "right", "axis", "opset", "expected"),
    [
        ((2, 4, 3, 3), (2, 1, 1, 3), 3, 17, "x z"),
        ((2, 4, 3, 3), (1, 1, 3, 3), 3, 17, "x z"),
        ((2, 4, 3, 3), (2, 4, 3, 3), 3, 17, "x z"),
        ((2, 1, 1, 3), (2, 4, 3, 3), 3, 17, "z x"),
        ((2, 4, 3, 3), (2, 1, 3, 3), 3, 17, None),
        ((2, 4, 3, 3), (1, 4, 1, 3), 3, 17, None),
        ((2, 4, 3, 3), (1, 4, 3, 1), 3, 17, None),
        ((2, 4, 3, 3), (2, 1, 1, 3), 2, 17, None),
        ((2, 4, 3, 3), (2, 1, 3, 3), 2, 17, "x z"),
        ((2, 4, 3, 3), (4, 3, 3), 3, 17, "x z"),
        ((2, 4, "", 3), (2, 4, "", 3), 3, 17, None),
        ((2, 4, 3), (2, 1, 3), None, 13, "x z"),
        ((2, 4, 3), (2, 1, 3), None, 12, None),
        ((2, 4, 3), (1, 4, 3), None, 12, "x z"),
        ((2, 4, "", 3), (2, 1, 1, 3), 3, 17, None),
        ((2, 4, 5, 3), (5, 3), 3, 17, "x z"),  # axes it does not have are ones
        ((2, 4, 5, 3), (2, 1, 5, 3), 3, 17, None),
        ((1, 4, 5, 3), (1, 1, 5, 3), 3, 17, "x z"),  # one on both sides is either
        ((2, 4, 1, 3), (2, 1, 1, 3), 3, 17, "x z"),
        ((2, 1, 1, 3), (2, 4, "", 3), 3, 17, None),
        ((2, 4, 3), None, 2, 17, None),
        (None, (2, 4, 3), 2, 17, None),
        ((2, 1, 3, 3), (2, 4, 3, 3), 3, 17, None),
        ((1, 1, 3, 3), (2, 4, 3, 3), 3, 17, "z x"),
    ],
)
def test_a_mask_joins_the_softmax_behind_it(
    left: Any, right: Any, axis: int | None, opset: int, expected: str | None
) -> None:
    shapes = [shape for shape in (left, right) if shape]
    whole = max(shapes, key=lambda s: (len(s), [1 if v == "" else v for v in s]))
    graph = build(
        "Add x z -> a; Softmax a -> y",
        {"x": left, "z": right, "a": whole},
        attributes={"y": {} if axis is None else {"axis": axis}},
        opset=opset,
    )
    if expected is None:
        assert unchanged(bias_softmax, graph)
        return
    assert after(bias_softmax, graph) == [f"com.microsoft.BiasSoftmax {expected} -> y"]
    last = len(whole) - 1
    assert made(graph, "y").attributes == {"axis": axis if axis is not None else (last if opset >= 13 else 1)}


@pytest.mark.parametrize(
    "text",
    [
        "Sub x z -> a; Softmax a -> y",
        "Add x z -> a; LogSoftmax a -> y",
        "Add x z -> a; Softmax a -> b; Add a b -> y",
    ],
)
def test_what_is_no_masked_softmax(text: str) -> None:
    assert unchanged(bias_softmax, build(text, {"x": (2, 3), "z": (2, 3)}))


# Shapes


SIZES = {
    "i0": np.array(0),
    "i1": np.array(1),
    "ax": np.array([0]),
    "c": np.array([8]),
    "two": np.array([3, 8]),
}
TARGET = "Shape x -> s; Gather s i0 -> g; Unsqueeze g ax -> u; Concat u c -> t; Reshape x t -> y"


def targets(text: str, **more: Any) -> RuntimeGraph:
    shapes = {
        "x": ("n", 2, 4),
        "z": ("n", 2),
        "other": ("m", 2, 4),
        "s": (3,),
        "g": (),
        "u": (1,),
        "t": (2,),
        "y": ("n", 8),
    }
    return build(text, {**shapes, "h": (), "w": (1,), "q": (3,)}, SIZES, **more)


def target_of(graph: RuntimeGraph) -> list[int]:
    data = graph.constant(made(graph, "y").inputs[1])
    assert data is not None
    return [int(size) for size in data]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TARGET, [0, 8]),
        (TARGET.replace("Concat u c", "Concat u two"), [0, 3, 8]),
        (TARGET.replace("Concat u c", "Concat c u"), [8, -1]),
        (TARGET.replace("s i0", "s i1"), [-1, 8]),
        (TARGET.replace("Shape x", "Shape z"), [0, 8]),
        (TARGET.replace("Shape x", "Shape other"), [-1, 8]),
        (TARGET.replace("Gather", "GatherND"), [-1, 8]),
        (TARGET.replace("Shape", "Size"), [-1, 8]),
        (TARGET.replace("Unsqueeze g ax", "Squeeze g ax"), [-1, 8]),
        (
            TARGET.replace(
                "Unsqueeze g ax -> u;", "Unsqueeze g ax -> u; Gather s i1 -> h; Unsqueeze h ax -> w;"
            ).replace("Concat u c", "Concat u w c"),
            [0, 0, 8],
        ),
    ],
)
def test_a_target_of_known_sizes_is_a_constant(text: str, expected: list[int]) -> None:
    graph = targets(text)
    found = after(reshape, graph)
    assert target_of(graph) == expected
    assert [entry.split()[0] for entry in found] == ["Reshape"]


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        (TARGET, {"y": {"allowzero": 1}}),
        (TARGET.replace("Concat", "Sum"), {}),
        (TARGET.replace("Concat u c", "Concat q c"), {}),
        (TARGET.replace("Shape x", "Shape other").replace("Concat u c", "Concat u u"), {}),
        (TARGET.replace("-> y", "-> f; Reshape other t -> v; Add f v -> y"), {}),
        ("Reshape x q -> y", {}),
    ],
)
def test_targets_that_are_computed(text: str, attributes: dict[str, dict[str, int]]) -> None:
    assert unchanged(reshape, targets(text, attributes=attributes))


def test_shape_arithmetic_others_need_stays() -> None:
    graph = targets(TARGET.replace("-> y", "-> y; Cast g -> k"), outputs=("y", "k"))
    found = after(reshape, graph)
    assert sorted(entry.split()[0] for entry in found) == ["Cast", "Gather", "Reshape", "Shape"]
    assert target_of(graph) == [0, 8]


PARTS_OF = {
    "i0": np.array(0), "i1": np.array(1), "i2": np.array(2), "last": np.array(-1), "v0": np.array([0]), "v2": np.array([2]),
    "v4": np.array([4]), "v6": np.array([6]), "a1": np.array([1]), "end": np.array([2**31]), "m2": np.array([-2]),
    "s1": np.array([1]), "s2": np.array([2]), "both": np.array([0, 1]),
}  # fmt: skip


def parts(text: str, size: int | str = 3, **more: Any) -> RuntimeGraph:
    shapes = {"x": ("n", size, 5), "a": ("n", size, 5), "p": ("n", 5), "q": ("n", 5), "r": ("n", 5)}
    sliced = dict.fromkeys(("u", "v", "w"), ("n", 2, 5))
    attributes = {name: {"axis": 1} for name in ("p", "q", "r")}
    return build(text, {**shapes, **sliced}, PARTS_OF, attributes=attributes, **more)


GATHERS = "Exp x -> a; Gather a i0 -> p; Gather a i1 -> q; Gather a i2 -> r; Sum p q r -> y"


def test_gathers_of_every_part_are_one_split() -> None:
    """Parts are squeezed where the index is a scalar; the Split takes the last part's name."""
    graph = parts(GATHERS)
    found = after(gather_slice_to_split, graph)
    (split,) = [node for node in graph.nodes.values() if node.op == "Split"]
    assert (split.name, split.attributes, split.provider) == (
        "n3/GatherSliceToSplitFusion",
        {"axis": 1},
        "cuda",
    )
    assert list(graph.constant(split.inputs[1])) == [1, 1, 1]  # type: ignore[arg-type]
    assert [graph.values[name].shape for name in split.outputs] == [(4, 1, 5)] * 3
    assert [graph.values[name].symbols for name in split.outputs] == [("n", 1, 5)] * 3
    squeezes = [node for node in graph.nodes.values() if node.op == "Squeeze"]
    assert [node.outputs for node in squeezes] == [["p"], ["q"], ["r"]]
    assert [list(graph.constant(node.inputs[1])) for node in squeezes] == [[1]] * 3  # type: ignore[arg-type]
    assert len(found) == 6


def test_an_index_from_behind_and_another_order() -> None:
    graph = parts("Exp x -> a; Gather a last -> r; Gather a i1 -> q; Gather a i0 -> p; Sum p q r -> y")
    after(gather_slice_to_split, graph)
    (split,) = [node for node in graph.nodes.values() if node.op == "Split"]
    assert [made(graph, name).inputs[0] for name in "pqr"] == split.outputs
    assert split.name == "n1/GatherSliceToSplitFusion"


SLICES = "Exp x -> a; Slice a v0 v2 a1 -> u; Slice a v2 v4 a1 -> v; Slice a v4 end a1 -> w; Sum u v w -> y"


def test_slices_of_every_part_are_one_split() -> None:
    graph = parts(SLICES, 6)
    found = after(gather_slice_to_split, graph)
    assert [entry.split()[0] for entry in found] == ["Exp", "Split", "Sum"]
    (split,) = [node for node in graph.nodes.values() if node.op == "Split"]
    assert split.outputs == ["u", "v", "w"]
    assert list(graph.constant(split.inputs[1])) == [2, 2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        SLICES.replace("v0 v2 a1", "v0 v2 a1 s1"),
        SLICES.replace("Slice a v4 end", "Slice a m2 end"),
        SLICES.replace("Slice a v4 end", "Slice a v4 v6"),
        SLICES.replace("Slice a v2 v4", "Slice a v2 m2"),
    ],
)
def test_the_same_slices_written_otherwise(text: str) -> None:
    graph = parts(text, 6)
    after(gather_slice_to_split, graph)
    (split,) = [node for node in graph.nodes.values() if node.op == "Split"]
    assert list(graph.constant(split.inputs[1])) == [2, 2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size", "opset"),
    [
        (GATHERS, 3, 12),
        (GATHERS, 4, 17),
        (GATHERS, "m", 17),
        (GATHERS.replace("a i2", "a i1"), 3, 17),
        (GATHERS.replace("a i0", "a i2"), 3, 17),
        (GATHERS.replace("Gather a i2 -> r; Sum p q r", "Sum p q"), 2, 12),
        ("Exp x -> a; Gather a i0 -> p; Exp p -> y", 1, 17),
        (SLICES, 6, 12),
        (SLICES.replace("v0 v2 a1", "v0 v2 a1 s2"), 6, 17),
        (SLICES.replace("v2 v4 a1", "v2 v2 a1"), 6, 17),
        (SLICES.replace("v4 end a1", "v6 end a1"), 6, 17),
        (SLICES.replace("v0 v2 a1", "both v2 a1"), 6, 17),
        (SLICES.replace("v0 v2 a1", "v0 both a1"), 6, 17),
        (SLICES.replace("v0 v2 a1", "v0 v2 v0"), 6, 17),
        (SLICES.replace("v0 v2 a1", "v0 v2 both"), 6, 17),
        (SLICES.replace(" a1", " both"), 6, 17),
        ("Shape x -> a; Gather a i0 -> p; Gather a i1 -> q; Gather a i2 -> r; Sum p q r -> y", 3, 17),
    ],
)
def test_parts_that_stay_apart(text: str, size: int | str, opset: int) -> None:
    assert unchanged(gather_slice_to_split, parts(text, size, opset=opset))


def test_slices_without_axes_begin_at_the_first() -> None:
    graph = build(
        "Exp x -> a; Slice a v0 v2 -> u; Slice a v2 v4 -> v; Add u v -> y",
        {"x": (4, 5), "u": (2, 5), "v": (2, 5)},
        PARTS_OF,
    )
    after(gather_slice_to_split, graph)
    (split,) = [node for node in graph.nodes.values() if node.op == "Split"]
    assert split.attributes == {"axis": 0}
    twice = build(
        "Exp x -> a; Slice a both both -> u; Slice a v2 v4 -> v; Add u v -> y",
        {"x": (4, 5), "u": (2, 5), "v": (2, 5)},
        PARTS_OF,
    )
    assert unchanged(gather_slice_to_split, twice)


def test_nodes_that_read_nothing_are_passed_over() -> None:
    graph = build(
        "RandomNormal -> a; Gather a i0 -> p; Gather a i1 -> q; Add p q -> y",
        {"a": (2, 5), "p": (5,), "q": (5,)},
        PARTS_OF,
    )
    found = after(gather_slice_to_split, graph)
    assert [entry.split()[0] for entry in found] == ["RandomNormal", "Split", "Squeeze", "Squeeze", "Add"]


def test_parts_of_a_shape_stay_apart() -> None:
    """Shape arithmetic is quick and lives on the host."""
    graph = build(
        "Shape x -> s; Gather s both -> a; Gather a i0 -> p; Gather a i1 -> q; Add p q -> y",
        {"x": (4, 5), "s": (2,), "a": (2,), "p": (), "q": ()},
        PARTS_OF,
    )
    assert unchanged(gather_slice_to_split, graph)


def test_a_graph_input_is_split_too() -> None:
    graph = build(
        "Slice x v0 v2 a1 -> u; Slice x v2 v4 a1 -> v; Add u v -> y",
        {"x": ("n", 4), "u": ("n", 2), "v": ("n", 2)},
        PARTS_OF,
    )
    assert [entry.split()[0] for entry in after(gather_slice_to_split, graph)] == ["Split", "Add"]


# The table


def test_the_order_is_onnx_runtimes() -> None:
    """`GenerateTransformers`: names of the transformers, level by level, and who gets them."""
    basic = [turn.fusion.name for turn in ORDER if turn.level == BASIC]
    assert basic == [
        "DivMulFusion", "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
        "ConvBNFusion", "PadFusion", "MatMulAddFusion", "ReshapeFusion", "GeluFusion", "LayerNormFusion",
    ]  # fmt: skip
    extended = [turn.fusion.name for turn in ORDER if turn.level == EXTENDED and "cuda" in turn.providers]
    assert extended == [
        "GemmTransposeFusion", "GeluFusion", "LayerNormFusion", "SimplifiedLayerNormFusion", "GatherSliceToSplitFusion",
        "GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "MatMulAddFusion", "SkipLayerNormFusion", "FastGeluFusion", "QuickGeluFusion", "BiasSoftmaxFusion",
        "MatMulScaleFusion", "MatMulNBitsFusion",
    ]  # fmt: skip
    assert [turn.fusion.name for turn in ORDER if turn.providers == ("cpu",)] == [
        "GemmActivationFusion",
        "MatMulIntegerToFloatFusion",
        "DynamicQuantizeMatMulFusion",
        "ConvActivationFusion",
    ]
    assert all(turn.fusion.source.endswith(("_fusion.cc", "matmul_integer_to_float.cc")) for turn in ORDER)


@pytest.mark.parametrize(
    ("opset", "level", "fused"),
    [(19, BASIC, False), (20, BASIC, True), (19, EXTENDED, True), (20, EXTENDED, False)],
)
def test_basic_optimization_introduces_no_operator_of_onnx_runtimes_own(
    opset: int, level: int, fused: bool
) -> None:
    graph = gelu_graph(opset=opset)
    fuse(Editor(graph), level, "cuda")
    assert (len(graph.nodes) == 1) == fused


@pytest.mark.parametrize(("provider", "operators"), [("cpu", ["FusedGemm"]), ("cuda", ["Gemm", "Relu"])])
def test_activations_join_on_the_cpu_only(provider: str, operators: list[str]) -> None:
    graph = build("Gemm x w -> a; Relu a -> y", {"x": (6, 6), "w": (6, 6)}, provider=provider)
    fuse(Editor(graph), BASIC, provider)
    assert len(graph.nodes) == 2
    fuse(Editor(graph), EXTENDED, provider)
    assert sorted(node.op for node in graph.nodes.values()) == operators
