"""Quantized graphs: what ONNX Runtime makes of DequantizeLinear, an operator, QuantizeLinear; what the kernels take.

Graphs by hand. In them q quantizes, d dequantizes; s is a scale, z and u are zero points of int8 and uint8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analyzer import devices
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.declined import declines
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, scratch
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.integer import dynamic_matmul, integer_to_float
from analyzer.runtimes.onnxruntime.rewrite.fusions.matmul import nbits_bias
from analyzer.runtimes.onnxruntime.rewrite.quantized import groups, remains, spreading
from tests.runtimes.onnxruntime.graphs import build, shown

CPU = KernelSettings("cpu", "EXHAUSTIVE", devices.load("h200"))
CUDA = KernelSettings("cuda", "EXHAUSTIVE", devices.load("h200"))
Q, D = "QuantizeLinear", "DequantizeLinear"
NUMBERS: dict[str, Any] = {
    "s": np.float32(0.5), "t": np.float32(0.25), "u": np.uint8(0), "v": np.uint8(128), "z": np.int8(0), "low": np.int8(-128),
}  # fmt: skip
KINDS = {"u": "uint8", "v": "uint8", "z": "int8", "low": "int8", "w": "int8", "b": "int32"}


def graph(
    text: str, shapes: dict[str, Any] | None = None, integers: dict[str, str] | None = None, **kwargs: Any
) -> RuntimeGraph:
    """Shapes of [2, 4] unless said; `integers`: the types of quantized values."""
    constants = {**NUMBERS, **kwargs.pop("constants", {})}
    kinds = {**KINDS, **(integers or {})}
    return build(
        text,
        {"x": (2, 4), **(shapes or {})},
        constants,
        dtypes=kinds,
        provider=kwargs.pop("provider", "cpu"),
        **kwargs,
    )


def after(step: Any, made: RuntimeGraph) -> list[str]:
    """The nodes after a step, in execution order."""
    step(Editor(made))
    return shown(made)


# Spreading


def test_two_pairs_in_a_chain_become_one() -> None:
    text = f"{Q} x s u -> a; {D} a s u -> b; {Q} b s u -> c; {D} c s u -> y"
    made = graph(text, integers={"a": "uint8", "c": "uint8"}, dtype="float32")
    made.values["b"].dtype = made.values["y"].dtype = "float32"
    assert after(spreading.remove_double_pairs, made) == [f"{Q} x s u -> a", f"{D} a s u -> y"]


def test_two_pairs_of_other_ranges_get_what_both_hold() -> None:
    """[0, 127.5] and [-32, 31.75] share [0, 31.75]: a scale of 31.75/255 and zero point 0."""
    text = f"{Q} x s u -> a; {D} a s u -> b; {Q} b t v -> c; {D} c t v -> y"
    made = graph(text, integers={"a": "uint8", "c": "uint8"})
    made.values["b"].dtype = made.values["y"].dtype = "float32"
    after(spreading.remove_double_pairs, made)
    (first,) = [node for node in made.nodes.values() if node.op == Q]
    scale, zero = (made.constant(name) for name in first.inputs[1:])
    assert scale is not None and zero is not None
    assert float(scale[0]) == pytest.approx(31.75 / 255) and int(zero[0]) == 0


def test_quantization_passes_what_only_moves_elements() -> None:
    """Behind a DQ a pair is put after the Reshape; before a Q one before it."""
    made = graph(f"{D} q s u -> d; Reshape d shape -> r; Exp r -> y", {"q": (2, 4), "d": (2, 4), "r": (8,)}, {"q": "uint8"},
                 constants={"shape": np.array([8])})  # fmt: skip
    assert after(spreading.propagate, made) == [
        f"{D} q s u -> d", "Reshape d shape -> r", f"{Q} r s u -> r_q_to_dq", f"{D} r_q_to_dq s u -> r_post_dq", "Exp r_post_dq -> y",
    ]  # fmt: skip
    back = graph(f"Exp x -> e; Transpose e -> r; {Q} r s u -> y", {"y": (2, 4)}, {"y": "uint8"})
    assert [line.split()[0] for line in after(spreading.propagate, back)] == ["Exp", Q, D, "Transpose", Q]
    stays = graph(f"{D} q s u -> d; Exp d -> r; Neg r -> y", {"q": (2, 4), "d": (2, 4)}, {"q": "uint8"})
    assert len(after(spreading.propagate, stays)) == 3


def test_every_reader_gets_a_dequantization_of_its_own() -> None:
    made = graph(
        f"{D} q s u -> d; Exp d -> a; Neg d -> b; Add a b -> y", {"q": (2, 4), "d": (2, 4)}, {"q": "uint8"}
    )
    found = after(spreading.one_reader_each, made)
    assert sum(line.startswith(D) for line in found) == 2 and "Exp d -> a" in found
    assert after(spreading.one_reader_each, made) == found


def test_float_weights_behind_a_dequantized_operand_are_quantized() -> None:
    """Q and DQ for the weights; Mul, Div, Round, Cast and DQ for the bias. Without a Q behind it nothing happens."""
    shapes = {"q": (1, 4, 8, 8), "d": (1, 4, 8, 8), "c": (1, 8, 8, 8), "y": (1, 8, 8, 8)}
    constants = {"f": np.ones((8, 4, 1, 1), np.float32), "g": np.ones(8, np.float32)}
    text = f"{D} q s u -> d; Conv d f g -> c; {Q} c s u -> y"
    made = graph(text, shapes, {"q": "uint8", "y": "uint8"}, constants=constants)
    operators = [line.split()[0] for line in after(spreading.quantize_weights, made)]
    assert sorted(operators) == sorted([D, Q, D, "Mul", "Div", "Round", "Cast", D, "Conv", Q])
    plain = graph(f"{D} q s u -> d; Conv d f g -> y", shapes, {"q": "uint8"}, constants=constants)
    plain.values["y"].dtype = "float32"
    assert len(after(spreading.quantize_weights, plain)) == 2


# Groups

SHAPES = {"p": (2, 4), "q": (2, 4), "d": (2, 4), "e": (2, 4), "a": (2, 4), "y": (2, 4)}
UNSIGNED = {"p": "uint8", "q": "uint8", "y": "uint8"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{D} q s u -> d; Sigmoid d -> a; {Q} a s u -> y", "com.microsoft.QLinearSigmoid q s u s u -> y"),
        (
            f"{D} p s u -> d; {D} q s u -> e; Add d e -> a; {Q} a s u -> y",
            "com.microsoft.QLinearAdd p s u q s u s u -> y",
        ),
        (
            f"{D} p s u -> d; {D} q s u -> e; Concat d e -> a; {Q} a s u -> y",
            "com.microsoft.QLinearConcat s u p s u q s u -> y",
        ),
        (
            f"{D} p s u -> d; {D} q s u -> e; MatMul d e -> a; {Q} a s u -> y",
            "QLinearMatMul p s u q s u s u -> y",
        ),
        (
            f"{D} p s u -> d; {D} q s u -> e; Gemm d e -> a; {Q} a s u -> y",
            "com.microsoft.QGemm p s u q s u _ s u -> y",
        ),
        (f"{D} q s u -> d; Transpose d -> a; {Q} a s u -> y", "Transpose q -> y"),
        (f"{D} q s u -> d; MaxPool d -> a; {Q} a s u -> y", "MaxPool q -> y"),
        (
            f"{D} q s u -> d; Sigmoid d -> e; Relu e -> a; {Q} a s u -> y",
            "com.microsoft.QLinearSigmoid q s u s u -> y",
        ),
    ],
)
def test_a_group_becomes_one_operator_on_integers(text: str, expected: str) -> None:
    """The Relu before the last is made redundant by a zero point of 0 in uint8."""
    made = graph(text, SHAPES, UNSIGNED)
    assert after(groups.to_integers, made) == [expected]
    elsewhere = graph(text, SHAPES, UNSIGNED, provider="cuda")
    assert len(after(groups.to_integers, elsewhere)) == len(text.split(";"))


@pytest.mark.parametrize(
    ("text", "integers"),
    [
        (f"{D} q s u -> d; Transpose d -> a; {Q} a t u -> y", UNSIGNED),  # another scale
        (f"{D} q s u -> d; Sigmoid d -> a; {Q} a s z -> y", {"q": "uint8", "y": "int8"}),  # another type
        (
            f"{D} q s z -> d; {D} w s z -> e; Conv d e -> a; {Q} a s z -> y",
            {"q": "int8", "y": "int8"},
        ),  # int8 on x86
        (
            f"{D} q s u -> d; Sigmoid d -> a; {Q} a s u -> y; Neg d -> e",
            UNSIGNED,
        ),  # the DQ has another reader
        (f"{D} q s v -> d; Sigmoid d -> e; Relu e -> a; {Q} a s v -> y", UNSIGNED),  # the Relu does something
        (f"{D} q s u -> d; Exp d -> a; {Q} a s u -> y", UNSIGNED),  # no such kernel
    ],
)
def test_groups_that_stay_float(text: str, integers: dict[str, str]) -> None:
    made = graph(text, {**SHAPES, "w": (2, 4)}, integers)
    before = shown(made)
    assert after(groups.to_integers, made) == before


def test_a_convolution_takes_its_bias_as_integers() -> None:
    shapes = {
        "q": (1, 4, 8, 8),
        "d": (1, 4, 8, 8),
        "e": (8, 4, 1, 1),
        "f": (8,),
        "a": (1, 8, 8, 8),
        "y": (1, 8, 8, 8),
    }
    constants = {"w": (8, 4, 1, 1), "b": (8,)}
    text = f"{D} q s u -> d; {D} w s z -> e; {D} b s -> f; Conv d e f -> a; {Q} a s u -> y"
    made = graph(text, shapes, {"q": "uint8", "y": "uint8"}, constants=constants)
    assert after(groups.to_integers, made) == ["QLinearConv q s u w s z s u b -> y"]


def test_products_without_a_result_to_quantize_become_float() -> None:
    text = f"{D} p s u -> d; {D} q s u -> e; MatMul d e -> y"
    made = graph(text, SHAPES, {"p": "uint8", "q": "uint8"})
    assert after(groups.to_integers, made) == ["com.microsoft.MatMulIntegerToFloat p q s s u u -> y"]


def test_signed_pairs_become_unsigned_on_x86() -> None:
    made = graph(f"{Q} x s z -> q; {D} q s z -> y", {"q": (2, 4), "y": (2, 4)}, {"q": "int8", "y": "float32"})
    after(groups.signed_to_unsigned, made)
    assert made.values["q"].dtype == "uint8"
    (quantize, _) = (made.nodes[0], made.nodes[1])
    zero = made.constant(quantize.inputs[2])
    assert zero is not None and int(zero) == 128


@pytest.mark.parametrize(
    ("provider", "block", "fused"),
    [("cpu", 16, True), ("cuda", 16, True), ("cpu", 8, False), ("cpu", 24, False)],
)
def test_weights_in_blocks_of_four_bits(provider: str, block: int, fused: bool) -> None:
    """[48, 8] in blocks of 16 rows: MatMulNBits with [8, 3, 8] bytes and 24 scales."""
    rows = 2 * block if block != 16 else 48
    constants = {"w": (rows, 8), "scales": (-(-rows // block), 8)}
    made = graph(
        f"{D} w scales -> d; MatMul x d -> y", {"x": (2, rows), "d": (rows, 8), "y": (2, 8)}, {"w": "int4"}, constants=constants,
        attributes={"d": {"axis": 0, "block_size": block}}, provider=provider,
    )  # fmt: skip
    found = after(groups.to_integers, made)
    assert (found == ["com.microsoft.MatMulNBits x w_T scales_T -> y"]) == fused
    if fused:
        assert (made.values["w_T"].shape, made.values["scales_T"].shape) == ((8, 3, 8), (24,))


# What remains


@pytest.mark.parametrize(("zero", "goes"), [("u", True), ("v", False), ("low", True), ("z", False)])
def test_a_relu_that_the_range_makes_redundant(zero: str, goes: bool) -> None:
    made = graph(f"Relu x -> a; {Q} a s {zero} -> y", {"y": (2, 4)}, {"y": KINDS[zero]})
    assert (len(after(remains.drop_activations, made)) == 1) == goes


@pytest.mark.parametrize(("most", "goes"), [(127.5, True), (200.0, True), (6.0, False)])
def test_a_clip_beyond_the_range(most: float, goes: bool) -> None:
    """uint8 by a scale of 0.5 holds 0 to 127.5."""
    constants = {"least": np.float32(0), "most": np.float32(most)}
    made = graph(
        f"Clip x least most -> a; {Q} a s u -> y", {"y": (2, 4)}, {"y": "uint8"}, constants=constants
    )
    assert (len(after(remains.drop_activations, made)) == 1) == goes


def test_a_dequantization_and_its_way_back_go() -> None:
    made = graph(
        f"Exp x -> q; {D} q s u -> d; {Q} d s u -> c; Neg c -> y", SHAPES, {"q": "uint8", "c": "uint8"}
    )
    assert after(remains.clean_up, made) == ["Exp x -> q", "Neg q -> y"]
    result = graph(f"Exp x -> q; {D} q s u -> d; {Q} d s u -> y", SHAPES, {"q": "uint8", "y": "uint8"})
    assert after(remains.clean_up, result) == ["Exp x -> y"]
    given = graph(f"{D} q s u -> d; {Q} d s u -> y", SHAPES, UNSIGNED)
    assert after(remains.clean_up, given) == ["Identity q -> y"]


# Fusions


def test_a_product_that_quantizes_its_operand_itself() -> None:
    text = "DynamicQuantizeLinear x -> q r t2; MatMulInteger q w t2 z -> a; Cast a -> b; Mul r s -> c; Mul b c -> d; Add d g -> y"
    shapes = {
        "x": (2, 4),
        "q": (2, 4),
        "r": (),
        "t2": (),
        "a": (2, 3),
        "b": (2, 3),
        "c": (),
        "d": (2, 3),
        "y": (2, 3),
    }
    constants = {"w": (4, 3), "g": np.ones(3, np.float32)}
    made = graph(text, shapes, {"q": "uint8", "t2": "uint8", "a": "int32"}, constants=constants)
    assert after(integer_to_float.apply, made) == [
        "DynamicQuantizeLinear x -> q r t2", "com.microsoft.MatMulIntegerToFloat q w r s t2 z g -> y",
    ]  # fmt: skip
    assert after(dynamic_matmul.apply, made) == ["com.microsoft.DynamicQuantizeMatMul x w s z g -> y"]


@pytest.mark.parametrize(("width", "fused"), [(3, True), (1, False)])
def test_the_bias_of_packed_products(width: int, fused: bool) -> None:
    made = graph(
        "com.microsoft.MatMulNBits x w s -> a; Add a g -> y", {"a": (2, 3), "y": (2, 3)},
        constants={"w": (3, 1, 8), "g": np.ones(width, np.float32)}, attributes={"a": {"N": 3}},
    )  # fmt: skip
    assert (after(nbits_bias.apply, made) == ["com.microsoft.MatMulNBits x w s _ _ g -> y"]) == fused


# What kernels take


def _convolution(kind: str, filters: tuple[int, ...], weights: str, **attributes: Any) -> RuntimeGraph:
    x = (2, filters[1] * int(attributes.get("group", 1)), 8, 8)
    zero = {"uint8": "u", "int8": "z"}
    return graph(
        f"QLinearConv x s {zero[kind]} w s {zero[weights]} s {zero[kind]} -> y",
        {"x": x, "y": (2, filters[0], 8, 8)}, {"x": kind, "y": kind, "w": weights}, constants={"w": filters},
        attributes={"y": attributes},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "filters", "weights", "attributes", "kept", "taken"),
    [
        # unsigned by signed, channels in fours: symmetric, filters in sixteens; pointers for 9 taps at 64 positions
        ("uint8", (20, 4, 3, 3), "int8", {"pads": (1, 1, 1, 1)}, [32 * 36], [4 * 64, 20 * 64, 8 * 9 * 64]),
        # unsigned by unsigned: sums, both images, columns; packed with a sum a column, beside one group's filters
        (
            "uint8",
            (20, 4, 3, 3),
            "uint8",
            {"pads": (1, 1, 1, 1)},
            [1280, 720],
            [4 * 20 * 64, 4 * 64, 20 * 64, 36 * 64],
        ),
        # signed data: reordered only
        ("int8", (20, 4, 1, 1), "int8", {}, [80], [4 * 20 * 64, 4 * 64, 20 * 64]),
        # depthwise, groups not in sixteens
        (
            "uint8",
            (8, 1, 3, 3),
            "int8",
            {"group": 8, "pads": (1, 1, 1, 1)},
            [72],
            [4 * 8 * 64, 8 * 64, 8 * 64, 8 * 9 * 64],
        ),
    ],
)
def test_quantized_convolutions(
    kind: str,
    filters: tuple[int, ...],
    weights: str,
    attributes: dict[str, Any],
    kept: list[int],
    taken: list[int],
) -> None:
    made = _convolution(kind, filters, weights, **attributes)
    if kind == "uint8" and weights == "uint8":
        kept = [-(-(32 * (4 + 36)) // 64) * 64, 720]
    assert [buffer.nbytes for buffer in packing.packed(made.nodes[0], made)] == kept
    assert [nbytes for nbytes, _ in scratch(made.nodes[0], made, CPU)] == taken


@pytest.mark.parametrize(
    ("kind", "transposed", "expected"),
    [
        ("uint8", 0, [(16 * (4 + 8), True)]),
        ("uint8", 1, [(6 * 10, False), (16 * (4 + 8), True)]),
        ("int8", 0, []),
    ],
)
def test_integer_weights_are_packed_with_a_sum_a_column(
    kind: str, transposed: int, expected: list[Any]
) -> None:
    """[6, 10]: ten columns in one panel of 16, six rows in eight; transposed, laid out the other way first."""
    shape = (10, 6) if transposed else (6, 10)
    made = graph(
        "com.microsoft.QGemm x s u w s z -> y", {"x": (2, 6), "y": (2, 10)}, {"x": kind, "w": "int8"}, constants={"w": shape},
        attributes={"y": {"transB": transposed}},
    )  # fmt: skip
    assert [(buffer.nbytes, buffer.kept) for buffer in packing.packed(made.nodes[0], made)] == expected


def test_pooling_integers_on_cuda_takes_floats() -> None:
    made = graph(
        "MaxPool x -> y", {"x": (1, 2, 4, 4), "y": (1, 2, 2, 2)}, {"x": "int8", "y": "int8"}, provider="cuda"
    )
    assert scratch(made.nodes[0], made, CUDA) == [(128, "exact"), (32, "exact")]


@pytest.mark.parametrize(
    ("text", "attributes", "left"),
    [
        ("GRU x w r -> y", {}, True),
        ("GRU x w r -> y", {"linear_before_reset": 1}, False),
        ("ConvTranspose x w -> y", {"auto_pad": "SAME_UPPER"}, True),
        ("ConvTranspose x w -> y", {"auto_pad": "VALID"}, False),
        ("ConvTranspose x w -> y", {"pads": (1, 0, 1, 1)}, True),
        ("ConvTranspose x w -> y", {"pads": (1, 2, 1, 2)}, False),
        ("LSTM x w r -> y", {}, False),
        ("LSTM x w r _ _ _ _ p -> y", {}, True),
        ("LSTM x w r -> y", {"activations": ("Sigmoid", "Tanh", "Tanh")}, False),
        ("LSTM x w r -> y", {"activations": ("Sigmoid", "Relu", "Tanh")}, True),
        ("RNN x w r -> y", {"clip": 1.0}, True),
        ("ArgMax x -> y", {"select_last_index": 1}, True),
        ("Exp x -> y", {"clip": 1.0}, False),
    ],
)
def test_what_the_cuda_provider_leaves_to_the_cpu(text: str, attributes: dict[str, Any], left: bool) -> None:
    made = build(text, dict.fromkeys(("x", "w", "r", "p"), (1,)), attributes={"y": attributes})
    assert declines(made.nodes[0]) == left
