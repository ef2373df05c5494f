"""How tensors lie in memory, and how a call's arguments are found: each answer on tensors written by hand."""

from __future__ import annotations

import pytest

from analyzer.graph import Operator, contiguous_strides
from analyzer.graph.model import GraphError
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    accumulator_dtype,
    bytes_of,
    contiguous_copy_bytes,
    contiguous_like,
    is_channels_last,
    is_contiguous,
    is_dense,
    preserved_strides,
    suggests_channels_last,
)
from tests.runtimes.pytorch.scratch.handwritten import channels_last, spread, tensor


def test_contiguous() -> None:
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert contiguous_strides((2, 0, 4)) == (4, 4, 1)
    assert contiguous_strides(()) == ()
    assert is_contiguous(tensor(2, 3, 4)) and is_contiguous(tensor())
    assert is_contiguous(tensor(1, 3, 1, stride=(99, 1, 77)))  # what has size 1 is not compared
    assert is_contiguous(tensor(2, 0, 3, stride=(7, 7, 1)))
    assert not is_contiguous(tensor(2, 3, stride=(1, 2)))
    assert not is_contiguous(tensor(2, 3, stride=(6, 2)))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_channels_last(shape: tuple[int, ...]) -> None:
    last = channels_last(*shape)
    assert is_channels_last(last) and suggests_channels_last(last) and not is_contiguous(last)
    plain = tensor(*shape)
    assert not is_channels_last(plain) and not suggests_channels_last(plain)
    gaps = spread(last)
    assert not is_channels_last(gaps) and suggests_channels_last(gaps)


def test_channels_last_is_of_four_or_five_dimensions() -> None:
    for shape in ((2, 3, 4), (2, 3, 4, 5, 6, 7)):
        assert not is_channels_last(channels_last(*shape))
        assert not suggests_channels_last(channels_last(*shape))


def test_ambiguous_shapes() -> None:
    """A shape of ones suits every format; what suggests a format is decided by the strides alone."""
    assert is_channels_last(tensor(2, 1, 4, 5)) and is_contiguous(tensor(2, 1, 4, 5))
    assert not suggests_channels_last(tensor(2, 1, 4, 5))  # the width's stride, 1, is below the channels', 20
    assert not suggests_channels_last(tensor(2, 1, 1, 1, stride=(1, 1, 1, 1)))  # N as near as C
    assert suggests_channels_last(tensor(2, 3, 1, 1, stride=(3, 1, 3, 3)))
    assert is_channels_last(tensor(2, 3, 1, 1)) and not suggests_channels_last(tensor(2, 3, 1, 1))
    assert not suggests_channels_last(tensor(2, 3, 4, 5, stride=(60, 0, 15, 3)))
    assert not suggests_channels_last(tensor(2, 3, 0, 5, stride=(60, 1, 15, 3)))
    assert not suggests_channels_last(tensor(1, 1, 2, 2, stride=(1, 1, 2, 1)))
    assert not suggests_channels_last(
        tensor(2, 2, 2, 2, stride=(8, 1, 2, 2))
    )  # height within the width's reach


def test_dense() -> None:
    assert is_dense(tensor(2, 3, 4)) and is_dense(tensor(2, 3, stride=(1, 2))) and is_dense(tensor())
    assert is_dense(tensor(2, 1, 3, stride=(3, 50, 1)))
    assert is_dense(tensor(3, 0, stride=(5, 5)))
    assert not is_dense(tensor(2, 3, stride=(4, 1)))
    assert not is_dense(tensor(2, 3, stride=(0, 1)))
    assert preserved_strides(tensor(2, 3, stride=(1, 2))) == (1, 2)
    assert preserved_strides(tensor(2, 3, stride=(4, 1))) == (3, 1)
    fresh = contiguous_like(tensor(2, 3, stride=(1, 2), offset=7))
    assert (fresh.stride, fresh.offset) == ((3, 1), 0)


def test_bytes() -> None:
    assert bytes_of(tensor(2, 3, dtype="float16")) == 12
    assert bytes_of(tensor(3, dtype="quint4x2")) == 2
    assert contiguous_copy_bytes(None) == contiguous_copy_bytes(tensor(2, 3)) == 0
    assert contiguous_copy_bytes(spread(tensor(2, 3))) == 24
    assert [accumulator_dtype(name) for name in ("float16", "bfloat16", "float64", "complex32", "int8")] == [
        *("float32", "float32", "float64", "complex64", "int8")
    ]
    assert [accumulator_bytes(name) for name in ("float16", "complex32", "complex128")] == [4, 8, 16]


def test_arguments_by_their_schemas_names() -> None:
    one, other = tensor(1), tensor(2)
    given, named = (one, 5, True, (1, 2.5, 3), (1, 0)), {"k": 7, "t": other, "m": (True, False)}
    operator = Operator(0, "f", given, (), named, names=("a", "b", "c", "d", "e", "k"))
    assert operator.argument("b") == 5 == operator.argument("z", "b")
    assert operator.argument("k") == 7 == operator.argument("k", "b")
    assert operator.argument("x", default=9) == 9 and operator.argument("x") is None
    assert operator.tensor("a") is one and operator.tensor("b") is None
    assert operator.tensor("t") is other and operator.tensor("x") is None
    assert operator.integer("b", default=3) == 5 and operator.integer("c", default=3) == 1
    assert operator.integer("a", default=3) == 3 and operator.integer("x") == 0
    assert operator.integers("b") == (5,) and operator.integers("d") == (1, 3)
    assert operator.integers("a") is None
    assert operator.flags("e", 2) == (True, False) == operator.flags("m", 2)
    assert operator.flags("m", 3) == operator.flags("x", 3) == (True, True, True)


def test_arguments_whose_names_nobody_said_are_not_taken_for_absent() -> None:
    with pytest.raises(GraphError, match="f has arguments without their schema's names"):
        Operator(0, "f", (tensor(1),), ()).tensor("self")
    assert Operator(0, "f", (), ()).tensor("self") is None
    assert Operator(0, "f", (tensor(1),), (), {"k": 1}).argument("k") == 1
