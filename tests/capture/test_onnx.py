"""The captured Graph on hand-written models: order, lifetimes, names, bindings, errors, speed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser

from analyzer.capture.onnx import CAPTURED, REGION, capture_onnx
from analyzer.errors import AnalyzerError, InputError, TargetError
from analyzer.graph import Birth, Category, Death, Graph, Mark, Run

HEADER = '<ir_version: 9, opset_import: ["":18, "com.microsoft":1, "my.domain":1]>\n'
CHAIN = (
    "g (float[N,4] x) => (float[N,8] y) <float[4,8] w = {1}> { a = Relu(x)  b = MatMul(a, w)  y = Exp(b) }"
)


def capture(text: str, **arguments: object) -> Graph:
    return capture_onnx(parser.parse_model(HEADER + text), **arguments)  # type: ignore[arg-type]


def in_words(graph: Graph) -> list[str]:
    """The program in words."""
    words = []
    for moment in graph.program:
        match moment:
            case Birth(storage):
                words.append(f"+{graph.storages[storage].name}")
            case Death(storage):
                words.append(f"-{graph.storages[storage].name}")
            case Run(operator):
                words.append(graph.operators[operator].name)
            case Mark(name):
                words.append(f"[{name}]")
    return words


def test_the_program_of_a_chain() -> None:
    graph = capture(CHAIN, batch=3)
    assert in_words(graph) == [
        "+w",
        "[model]",
        "+x",
        "[0.input]",
        "Relu",
        "MatMul",
        "-a",
        "Exp",
        "-b",
        "[0.forward]",
    ]
    assert [(s.name, s.nbytes, s.category) for s in graph.storages] == [
        ("w", 128, Category.PARAMETER),
        ("x", 48, Category.INPUT),
        ("a", 48, Category.ACTIVATION),
        ("b", 96, Category.ACTIVATION),
        ("y", 96, Category.ACTIVATION),
    ]
    assert (graph.framework, graph.batch, graph.notes) == ("onnx", 3, ())


def test_symbols_are_what_a_session_knows() -> None:
    graph = capture(
        "g (float[N,4] x) => (y) { s = Shape(x)  z = ConstantOfShape(s)  c = Concat<axis=0>(x, x)  y = Add(x, x) }",
        batch=3,
    )
    seen = {op.name: op.outputs[0].symbols for op in graph.operators if op.outputs[0] is not None}
    assert seen == {"Shape": (), "ConstantOfShape": ("", ""), "Concat": ("", 4), "Add": ("N", 4)}


def test_unread_results_die_at_once_and_absent_ones_are_none() -> None:
    graph = capture(
        "g (float[N,8] x) => (y) <int64[1] k = {2}> { y, i = TopK(x, k)  d, m = Dropout(x) }", batch=2
    )
    assert in_words(graph) == [
        "+k",
        "[model]",
        "+x",
        "[0.input]",
        "TopK",
        "-i",
        "Dropout",
        "-d",
        "-m",
        "[0.forward]",
    ]
    resize = capture(
        "g (float[N,1,2,2] x) => (y) <float[4] s = {1.0,1.0,2.0,2.0}> { y = Resize(x, , s) }", batch=2
    ).operators[0]
    assert resize.arguments[1] is None
    assert resize.outputs[0] is not None
    assert resize.outputs[0].shape == (2, 1, 4, 4)


def test_nodes_out_of_order_are_sorted() -> None:
    graph = capture("g (float[N,4] x) => (y) { y = Exp(b)  b = Neg(a)  a = Relu(x) }", batch=2)
    assert [op.name for op in graph.operators] == ["Relu", "Neg", "Exp"]


def test_attributes_are_plain_values() -> None:
    operator = capture(
        'g (float[N,3,8,8] x) => (y) <float[4,3,3,3] w = {1}> { y = Conv<auto_pad="SAME_UPPER", strides=[2,2], group=1>(x, w) }',
        batch=2,
    ).operators[0]
    assert operator.keywords == {"auto_pad": "SAME_UPPER", "strides": (2, 2), "group": 1}
    assert operator.domain == ""


def test_constants_are_parameters_and_unused_ones_are_left_out() -> None:
    graph = capture(
        "g (float[N,4] x) => (y) <float[1000] unused = {0}> { c = Constant<value = float[4] {1,2,3,4}>()  y = Add(x, c) }",
        batch=2,
    )
    assert [(s.name, s.nbytes) for s in graph.storages if s.category is Category.PARAMETER] == [("c", 16)]
    assert "1 initializers (4000 bytes)" in graph.notes[0]


def test_initializers_listed_as_inputs_are_parameters() -> None:
    graph = capture("g (float[N,4] x, float[4] w) => (y) <float[4] w = {1,2,3,4}> { y = Add(x, w) }", batch=2)
    assert [s.category for s in graph.storages] == [Category.PARAMETER, Category.INPUT, Category.ACTIVATION]


def test_subgraphs_run_before_their_owner_under_its_name() -> None:
    model = parser.parse_model(
        HEADER
        + """g (float[N,4] x, bool c) => (y) {
          a = Relu(x)
          y = If(c) <then_branch = t () => (y1) { k = Exp(a)  y1 = Neg(k) }, else_branch = e () => (y2) { y2 = Neg(a) }>
        }"""
    )
    model.graph.node[1].name = "if_3"
    graph = capture_onnx(model, batch=2)
    assert in_words(graph) == [
        "[model]",
        "+x",
        "+c",
        "[0.input]",
        "Relu",
        "Exp",
        "Neg",
        "-k",
        "If",
        "-a",
        "[0.forward]",
    ]
    inner = graph.operators[1]
    assert inner.keywords[REGION] == "if_3/then_branch"
    owner = graph.operators[3]
    assert isinstance(owner.keywords[CAPTURED], tuple)
    branch_result, result = graph.operators[2].outputs[0], owner.outputs[0]
    assert branch_result is not None
    assert result is not None
    assert branch_result.storage == result.storage


def test_operators_that_only_change_the_shape_have_a_result_of_their_own() -> None:
    for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"):
        extra = {"Reshape": ", f", "Unsqueeze": ", u", "Squeeze": ", u"}.get(name, "")
        text = (
            f"g (float[N,1,4] x) => (y) <int64[1] f = {{-1}}, int64[1] u = {{1}}> {{ y = {name}(x{extra}) }}"
        )
        graph = capture(text, batch=2)
        assert graph.storages[-1].nbytes == 32


# -- what a file can get wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g (float[N,4] x) => (y) { a = Add(x, b)  b = Relu(a)  y = Exp(a) }", ["cycle", "'a'", "'b'"]),
        ("g (float[N,4] x) => (y) { y = Relu(nothing) }", ["'nothing'", "nothing makes"]),
        ("g (float[N,4] x) => (z) { y = Relu(x) }", ["output 'z'"]),
        ("g (float[N,4] x) => (y) { y = Relu(x)  y = Exp(x) }", ["'y'", "twice", "Relu", "Exp"]),
        ("g (float[N,4] x) => (y) { x = Relu(x)  y = Exp(x) }", ["'x'", "twice", "an input"]),
        ("g (float[N,4] x, float[N,4] x) => (y) { y = Relu(x) }", ["two inputs", "'x'"]),
        ("g (float[N,4] x) => (y) <int64[N,4] t> { t = Relu(x)  y = Exp(t) }", ["float32", "int64", "Relu"]),
    ],
)
def test_unsound_graphs(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as caught:
        capture(text, batch=2)
    assert caught.value.hint
    for word in words:
        assert word in caught.value.message


def test_duplicate_initializers() -> None:
    model = parser.parse_model(HEADER + CHAIN)
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(TargetError, match="two initializers are called 'w'"):
        capture_onnx(model, batch=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g (float[N,3] x, float[N,4] y) => (z) { z = Add(x, y) }", ["Add", "[2, 3]", "[2, 4]"]),
        ("g (float[N,3] x) => (z) <float[4,5] w = {1}> { z = MatMul(x, w) }", ["MatMul", "[2, 3]", "[4, 5]"]),
        (
            "g (float[N,3,4,4] x) => (z) <int64[2] s = {2,25}> { z = Reshape(x, s) }",
            ["Reshape", "[2, 3, 4, 4]", "[2, 25]"],
        ),
        ("g (float[N,3] x) => (z) <int64[2] s = {-1,5}> { z = Reshape(x, s) }", ["Reshape", "[2, 3]"]),
    ],
)
def test_contradicting_shapes_name_the_node(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        capture(text, batch=2)
    assert caught.value.hint
    for word in words:
        assert word in caught.value.message


def test_a_reshape_that_cannot_hold_the_batch_says_how_to_fix_the_export() -> None:
    model = parser.parse_model(
        HEADER + "g (float[1,4,4] x) => (z) <int64[2] s = {1,16}> { y = Reshape(x, s)  z = Relu(y) }"
    )
    model.graph.node[0].name = "flatten"
    assert capture_onnx(model, batch=1).notes == ()
    with pytest.raises(InputError) as caught:
        capture_onnx(model, batch=3)
    assert caught.value.message == "node 'flatten' (Reshape) cannot hold [3, 4, 4] as [1, 16] at batch 3"
    assert "dynamic batch" in caught.value.hint


def test_wrongly_declared_shapes_are_noted() -> None:
    graph = capture("g (float[N,4] x) => (float[N,5] y) { y = Relu(x) }", batch=2)
    assert graph.storages[-1].nbytes == 32
    assert "y as [N, 5], it is [2, 4]" in graph.notes[0]


def test_unknown_operators_are_named_and_counted() -> None:
    graph = capture("g (float[N,4] x) => (y) { a = my.domain.Magic(x)  y = Relu(a) }", batch=2)
    assert [s.nbytes for s in graph.storages] == [32, 32, 32]
    assert "my.domain.Magic" in graph.notes[0]
    assert "not a bound" in graph.notes[0]
    assert graph.operators[0].domain == "my.domain"


def test_a_declared_shape_settles_an_unknown_operator() -> None:
    graph = capture("g (float[N,4] x) => (y) <float[N,7] a> { a = my.domain.Magic(x)  y = Relu(a) }", batch=2)
    assert [s.nbytes for s in graph.storages] == [32, 56, 56]
    assert graph.notes == ()


# -- inputs and batch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, -1, -(10**12), True, 1.5, "64"])
def test_impossible_batches(batch: object) -> None:
    with pytest.raises(InputError, match="positive integer"):
        capture(CHAIN, batch=batch)


@pytest.mark.parametrize("batch", [1, 2**31, 10**12, 10**30])
def test_absurd_batches_get_an_answer(batch: int) -> None:
    sizes = [s.nbytes for s in capture(CHAIN, batch=batch).storages]
    assert sizes == [128, 16 * batch, 16 * batch, 32 * batch, 32 * batch]


@settings(max_examples=30, deadline=None)
@given(st.integers(2**20 - 2, 2**20 + 50_000))
def test_continued_shapes_agree_with_inferred_ones(batch: int) -> None:
    """Across the limit above which shapes are continued from small batches: convolution, pooling, products of batches."""
    text = """g (float[N,3,8,8] x) => (y) <float[4,3,3,3] w = {1}, int64[1] f = {-1}> {
      c = Conv(x, w)  p = AveragePool<kernel_shape=[2,2],strides=[2,2]>(c)  r = Reshape(p, f)  y = Concat<axis=0>(r, r) }"""
    sizes = [s.nbytes for s in capture(text, batch=batch).storages if s.category is Category.ACTIVATION]
    assert sizes == [batch * 4 * n * 4 for n in (36, 9, 9, 18)]


def test_what_is_no_polynomial_of_a_huge_batch_is_said() -> None:
    text = "g (float[N,4] x) => (y) <int64[2] s = {7000,4}> { y = Expand(x, s) }"
    with pytest.raises(AnalyzerError):
        capture(text, batch=10**12)


def test_unknown_dimensions_are_named_with_the_option_that_binds_them() -> None:
    with pytest.raises(InputError) as caught:
        capture("g (float[N,C,4] x, int64[N,length] ids) => (z) { z = Relu(x) }", batch=2)
    assert "x axis 1 ('C')" in caught.value.message
    assert "ids axis 1 ('length')" in caught.value.message
    assert caught.value.hint == "give --input C=SIZE --input length=SIZE"
    with pytest.raises(InputError, match="axis 0") as caught:
        capture(CHAIN)
    assert caught.value.hint == "give --batch N"
    with pytest.raises(InputError, match="x axis 1") as caught:
        capture("g (float[N,?,4] x) => (z) { z = Relu(x) }", batch=2)
    assert caught.value.hint == "give --input x=2xSIZEx4"


def test_a_named_dimension_can_be_given_by_itself() -> None:
    text = "g (int64[N,length] ids, int64[N,length] mask) => (z) { z = Add(ids, mask) }"
    graph = capture(text, batch=2, inputs={"length": ((7,), None)})
    assert [s.nbytes for s in graph.storages] == [112, 112, 112]
    assert graph.storages == capture(text, inputs={"length": ((7,), None), "N": ((2,), None)}).storages


def test_a_size_the_file_fixes_differently_is_said() -> None:
    graph = capture("g (float[N,4] x) => (y) { y = Relu(x) }", batch=2, inputs={"x": ((2, 6), None)})
    assert graph.storages[-1].nbytes == 48
    assert "the file fixes [N, 4]" in graph.notes[0]


def test_described_inputs_bind_names_everywhere() -> None:
    text = "g (int64[N,length] ids, int64[N,length] mask) => (z) { z = Add(ids, mask) }"
    graph = capture(text, batch=2, inputs={"ids": ((2, 7), "int64")})
    assert [s.nbytes for s in graph.storages] == [112, 112, 112]
    without_batch = capture(text, batch=2, inputs={"ids": ((7,), None)})
    assert without_batch.storages == graph.storages
    alone = capture(text, inputs={"ids": ((2, 7), None)})
    assert alone.storages == graph.storages


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"nope": ((2, 7), None)}, ["'nope'", "ids"]),
        ({"ids": ((2, 7), "float32")}, ["int64", "float32"]),
        ({"ids": ((2, 7, 7), None)}, ["rank 2"]),
        ({"ids": ((-2, 7), None)}, ["not a shape"]),
        ({"ids": ((3, 7), None)}, ["'N'", "3", "2"]),
        ({"ids": ((2, 7), None), "mask": ((2, 8), None)}, ["'length'", "7", "8"]),
    ],
)
def test_described_inputs_that_do_not_fit(
    inputs: dict[str, tuple[tuple[int, ...], str | None]], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        capture(
            "g (int64[N,length] ids, int64[N,length] mask) => (z) { z = Add(ids, mask) }",
            batch=2,
            inputs=inputs,
        )
    assert caught.value.hint
    for word in words:
        assert word in str(caught.value)


def test_batch_names_win_over_the_first_axis() -> None:
    graph = capture(
        "g (float[length,batch,4] x) => (y) { y = Relu(x) }", batch=5, inputs={"x": ((7, 5, 4), None)}
    )
    assert graph.storages[0].nbytes == 7 * 5 * 4 * 4
    with pytest.raises(InputError, match=r"x axis 0 \('length'\)"):
        capture("g (float[length,batch,4] x) => (y) { y = Relu(x) }", batch=5)


def test_a_model_without_a_batch_says_so() -> None:
    graph = capture("g (float x) => (y) { y = Relu(x) }", batch=5)
    assert "no input has a batch dimension" in graph.notes[0]


# -- speed and memory ------------------------------------------------------------------------------------------------


def big(count: int, op_type: str, domain: str = "") -> onnx.ModelProto:
    nodes = [
        helper.make_node(op_type, [f"v{i}"], [f"v{i + 1}"], f"n{i}", domain=domain) for i in range(count)
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, ["N", 64])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize(("op_type", "domain"), [("Relu", ""), ("Gelu", "com.microsoft")])
def test_ten_thousand_nodes_in_five_seconds(op_type: str, domain: str) -> None:
    model = big(10_000, op_type, domain)
    start = time.process_time()
    graph = capture_onnx(model, batch=4)
    assert time.process_time() - start < 5
    assert len(graph.operators) == 10_000
    assert graph.storages[-1].nbytes == 4 * 64 * 4


def test_ten_thousand_nodes_in_reverse_order() -> None:
    model = big(10_000, "Relu")
    nodes = list(model.graph.node)
    reordered = onnx.ModelProto()
    reordered.CopyFrom(model)
    del reordered.graph.node[:]
    reordered.graph.node.extend(reversed(nodes))
    start = time.process_time()
    graph = capture_onnx(reordered, batch=4)
    assert time.process_time() - start < 5
    assert [op.module for op in graph.operators] == [node.name for node in nodes]


def test_host_memory_stays_near_the_proto(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    path.write_bytes(big(10_000, "Relu").SerializeToString())
    code = (
        "from pathlib import Path; from analyzer.capture.onnx import capture_onnx\n"
        f"capture_onnx({str(path)!r}, batch=2)\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"  # peak resident size, KiB
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) * 1024 < path.stat().st_size + 300 * 2**20
