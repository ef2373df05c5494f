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
    Run,
    Storage,
    TensorMeta,
    dtype_bits,
    dtype_bytes,
    nbytes_of,
)


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
