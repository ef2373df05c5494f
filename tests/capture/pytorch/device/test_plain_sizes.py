"""Stand-ins for SymPy and PyTorch's symbolic sizes: the same answers, gone when they are needed no more."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from analyzer.capture.pytorch.device import plain_sizes as under_test
from tests.forked import ran

_CASES: list[tuple[str, tuple[Any, ...]]] = [
    *((name, (value,)) for name in (
        "expect_true", "guard_or_false", "guard_or_true", "statically_known_true", "guard_bool",
        "guard_size_oblivious",
    ) for value in (True, False)),
    *((name, (7,)) for name in (
        "guard_int", "size_hint", "guarding_hint_or_throw", "is_nested_int", "has_hint",
        "has_guarding_hint",
    )),
    *(("is_symbolic", (value,)) for value in (7, True, 0.5)),
    *((name, (value,)) for name in ("free_unbacked_symbols", "has_free_unbacked_symbols") for value in (
        7, torch.empty(2, 3, device="meta"), (3, 4),
    )),
    ("sym_eq", (3, 3)), ("sym_eq", (3, 4)), ("sym_eq", ([1, 2], (1, 2))), ("sym_eq", ((1, 2), (1, 3))),
    ("sym_eq", (torch.Size((2,)), [2, 3])),
    ("sym_and", (True,)), ("sym_and", (True, False)), ("sym_or", (False, True, False)),
    ("sym_or", (False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), _CASES)
def test_answers_as_pytorch_does(name: str, args: tuple[Any, ...]) -> None:
    """Each answer for plain numbers is the one PyTorch's own function gives."""
    from torch.fx.experimental import symbolic_shapes

    if not hasattr(symbolic_shapes, name):
        pytest.skip(f"this release of torch has no {name}")
    answers = under_test._ANSWERS | under_test._OF_TENSORS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        expected = getattr(symbolic_shapes, name)(*args)
    assert bool(answers[name](*args)) == bool(expected)
    if name.startswith("free"):
        assert set(answers[name](*args)) == set(expected)


def test_all_answers_are_compared() -> None:
    """No function of the stand-in goes without a case."""
    assert {name for name, _ in _CASES} == set(under_test._ANSWERS | under_test._OF_TENSORS)


def _run(code: str) -> str:
    done = ran("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_plain_program_imports_no_sympy_and_a_symbolic_one_does() -> None:
    """A captured step imports no SymPy; whoever needs it finds it, and afterwards nothing stands in."""
    code = """
import sys, torch, analyzer
from analyzer.capture.pytorch.device.plain_sizes import plain_sizes
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten())
analyzer.analyze(model, torch.zeros(4, 3, 8, 8), mode="train", loss="sum", device="h200")
print("sympy" in sys.modules, "torch.fx.experimental.symbolic_shapes" in sys.modules)
with plain_sizes():
    from torch.fx.experimental.symbolic_shapes import guard_or_false
    import sympy
    print("sympy.core" in sys.modules, guard_or_false(True), "sympy.core" in sys.modules)
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    print(ShapeEnv.__module__, sympy.Basic is sys.modules["sympy"].Basic, sympy.Symbol("n") + 0)
    print(guard_or_false(False), torch.fx.experimental.symbolic_shapes.ShapeEnv is ShapeEnv)
print("sympy.core" in sys.modules, type(sys.modules["sympy"]).__name__)
"""
    assert _run(code).split("\n") == [
        "False False",
        "False True False",
        "torch.fx.experimental.symbolic_shapes True n",
        "False True",
        "True module",
    ]
