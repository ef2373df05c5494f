"""The invariants `Graph.check` promises, each broken once, and sizes of element types."""

from __future__ import annotations

import dataclasses

import pytest

from analyzer.graph import (
    Birth,
    Category,
    Death,
    Graph,
    GraphError,
    Mark,
    Moment,
    Operator,
    Phase,
    Run,
    Storage,
    TensorMeta,
    dtype_bits,
    dtype_bytes,
    nbytes_of,
)
from analyzer.graph.dtype import BITS, full_name
from tests.values import not_values


def meta(storage: int, *shape: int) -> TensorMeta:
    return TensorMeta(storage, shape, shape, "float32")


STORAGES = (Storage(0, 4, Category.INPUT), Storage(1, 4, Category.ACTIVATION))
OPERATORS = (Operator(0, "neg", (meta(0),), (meta(1),)), Operator(1, "abs", (meta(1),), (meta(1),)))


def graph(*program: Moment) -> Graph:
    return Graph("pytorch", STORAGES, OPERATORS, program)


def test_a_sound_program_passes() -> None:
    sound = graph(Birth(0), Run(0), Mark("forward"), Death(0), Run(1), Death(1))
    assert sound.check() is sound
    graph().check()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ((Birth(0), Birth(0)), "born twice"),
        ((Run(0),), "reads storage 0, which is not alive"),
        ((Birth(0), Death(0), Run(0)), "reads storage 0, which is not alive"),
        ((Birth(0), Run(1)), "reads storage 1, which is not alive"),
        ((Birth(0), Run(0), Run(0)), "out of order"),
        ((Birth(0), Run(0), Run(1), Run(0)), "out of order"),
        ((Birth(0), Run(2)), "out of order"),
        ((Death(0),), "dies unborn"),
        ((Birth(0), Death(0), Death(0)), "dies unborn or twice"),
        ((Birth(0), Birth(1), Death(1), Run(0)), "returns dead storage 1"),
    ],
)
def test_broken_invariants(program: tuple[Moment, ...], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph(*program).check()


@pytest.mark.parametrize("storage", [Storage(1, 4, Category.INPUT), Storage(0, -1, Category.INPUT)])
def test_storages_are_numbered_and_not_negative(storage: Storage) -> None:
    with pytest.raises(GraphError, match="storage 0"):
        Graph("pytorch", (storage,), (), ()).check()


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        STORAGES[0].nbytes = 5  # type: ignore[misc]


def test_inputs_are_found_at_any_depth() -> None:
    operator = Operator(0, "cat", ((meta(0), (meta(1),)), 1), (), {"out": meta(2), "dim": 0})
    assert [tensor.storage for tensor in operator.inputs] == [0, 1, 2]


def test_element_counts() -> None:
    assert meta(0).element_count == 1
    assert meta(0, 2, 3).element_count == 6
    assert meta(0, 5, 0).element_count == 0


def test_dtype_sizes() -> None:
    assert (dtype_bytes("float32"), dtype_bytes("bfloat16"), dtype_bytes("bool")) == (4, 2, 1)
    assert (dtype_bits("int4"), dtype_bytes("int4")) == (4, 1)
    assert nbytes_of(3, "int4") == 2  # 12 bits, in whole bytes
    assert nbytes_of(10**12, "float64") == 8 * 10**12
    with pytest.raises(KeyError):
        dtype_bits("float31")


def test_values_cannot_be_changed() -> None:
    assert not_values("analyzer.graph") == set()


def test_what_need_not_be_said() -> None:
    tensor = TensorMeta(0, (2, 3), (3, 1), "float32")
    assert (tensor.offset, tensor.requires_grad, tensor.symbols, tensor.element_count) == (0, False, (), 6)
    assert meta(0).element_count == 1
    operator = OPERATORS[0]
    assert (operator.keywords, operator.writes, operator.phase) == ({}, (), Phase.FORWARD)
    assert (operator.step, operator.module, operator.source, operator.domain) == (0, "", "", "aten")
    assert (STORAGES[0].name, STORAGES[0].saved, STORAGES[0].on_device) == ("", False, True)
    assert (graph().batch, graph().notes) == (None, ())


def test_inputs_are_the_tensors_of_all_arguments_in_order() -> None:
    nested = Operator(
        0, "cat", ((meta(0), (meta(1), 5)), None, 2.0), (), {"a": meta(2), "b": "x", "c": (meta(0),)}
    )
    assert [tensor.storage for tensor in nested.inputs] == [0, 1, 2, 0]


def test_operators_run_in_order_and_exist() -> None:
    graph(Birth(0), Run(0), Run(1)).check()
    with pytest.raises(GraphError, match="moment 3: operator 1 runs out of order"):
        graph(Birth(0), Run(0), Run(1), Run(1)).check()
    with pytest.raises(GraphError, match="moment 1: operator 2 runs out of order"):
        graph(Birth(0), Run(2)).check()
    with pytest.raises(GraphError, match="moment 0: operator -1 runs out of order"):
        graph(Run(-1)).check()
    skipped = graph(Birth(0), Birth(1), Run(1))
    assert skipped.check() is skipped


def test_results_may_be_absent_but_not_dead() -> None:
    absent = Operator(0, "f", (), (None, meta(1)))
    Graph("pytorch", STORAGES, (absent,), (Run(0), Death(1))).check()
    with pytest.raises(GraphError, match="returns dead storage 1"):
        Graph("pytorch", STORAGES, (absent,), (Birth(1), Death(1), Run(0))).check()


def test_storages_are_known_by_their_place_and_not_negative() -> None:
    for storage in (Storage(1, 4, Category.INPUT), Storage(0, -1, Category.INPUT)):
        with pytest.raises(GraphError, match="storage 0: index"):
            Graph("pytorch", (storage,), (), ()).check()
    Graph("pytorch", (Storage(0, 0, Category.INPUT),), (), ()).check()


# Bits of an element by the definitions of the types themselves.
PUBLISHED = {
    8: "bool uint8 int8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu qint8 quint8 float4_e2m1fn_x2",
    16: "uint16 int16 float16 bfloat16",
    32: "uint32 int32 float32 complex32 qint32",
    64: "uint64 int64 float64 complex64",
    128: "complex128",
    4: "quint4x2 int4 uint4 float4_e2m1",
    2: "quint2x4 int2 uint2",
    256: "string",
}


def test_bits_of_every_type() -> None:
    found = {name: dtype_bits(name) for name in BITS}
    assert found == {name: bits for bits, names in PUBLISHED.items() for name in names.split()}
    assert {name: dtype_bytes(name) for name in BITS} == {
        name: max(1, bits // 8) for name, bits in found.items()
    }
    assert [nbytes_of(count, "int2") for count in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [nbytes_of(3, name) for name in ("float32", "int4", "bool")] == [12, 2, 3]


@pytest.mark.parametrize(
    ("short", "full"), [("fp16", "float16"), ("half", "float16"), ("bf16", "bfloat16"), ("fp32", "float32"),
                        ("float", "float32"), ("fp64", "float64"), ("double", "float64"), ("int8", "int8")]
)  # fmt: skip
def test_short_names(short: str, full: str) -> None:
    assert full_name(short) == full
