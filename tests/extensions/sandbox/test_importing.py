"""Functions replaced wherever modules hold them, and put back."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from analyzer_sandbox.importing import exchange_all


def real() -> None: ...


def stand_in() -> None: ...


PAIRS = [{"opens": (real, stand_in)}]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("holds_a_function")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_function_is_replaced_and_put_back(module: ModuleType) -> None:
    module.opens, module.other = real, real  # type: ignore[attr-defined]
    back = exchange_all(PAIRS)
    assert module.opens is stand_in and module.other is real
    back()
    assert module.opens is real


def test_what_a_module_has_gained_since_the_last_look_is_replaced_too(module: ModuleType) -> None:
    exchange_all(PAIRS)()
    module.opens = real  # type: ignore[attr-defined]
    back = exchange_all(PAIRS)
    assert module.opens is stand_in
    back()
    assert module.opens is real


def test_what_a_module_takes_in_between_is_put_back_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    back = exchange_all(PAIRS)
    made = ModuleType("imported_in_between")
    made.opens = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, made.__name__, made)
    back()
    assert made.opens is real


def test_another_function_of_that_name_is_left_alone(module: ModuleType) -> None:
    module.opens = print  # type: ignore[attr-defined]
    back = exchange_all(PAIRS)
    assert module.opens is print
    module.opens = len  # type: ignore[attr-defined]
    back()
    assert module.opens is len
