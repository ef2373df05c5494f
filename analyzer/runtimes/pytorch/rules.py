"""The named rules behind eager PyTorch's requests, for `analyze explain`: those of `scratch/`, and how a
tensor takes memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from analyzer.runtimes.pytorch.scratch import BY_NAME, OF_OPERATOR, ScratchRule, inert
from analyzer.runtimes.pytorch.scratch.script import rule_for
from analyzer.runtimes.rules import TENSOR, UNKNOWN, Rule, carried_out_by, source_in

_TENSOR = Rule(
    TENSOR,
    "A tensor takes the bytes of its elements, once for its storage: views and in-place results take nothing"
    " of their own. It is requested where it is born (a parameter, an input, an operator's result) and given"
    " back when the last reference to it goes. The allocator rounds every request up (see caching-allocator),"
    " so blocks in the output can be a little larger.",
    "aten/src/ATen/EmptyTensor.cpp (computeStorageNbytes), c10/core/StorageImpl.h",
    "analyzer/runtimes/pytorch/eager.py",
)

_UNKNOWN = Rule(
    UNKNOWN,
    "For an operator without a rule only the results are counted. Its kernel's other memory has no bound that"
    " could be proven, so every figure of the estimate is a lower bound, and the program may not fit where"
    " they do. --strict makes it an error; @analyzer.rule describes the operator.",
    "measured: torch.cdist(p=1) takes 384 MiB in its backward pass, for operands of 0.9 (H100, torch 2.11)",
    "analyzer/runtimes/pytorch/scratch/script.py",
    sure=(),
)


def rules() -> tuple[Rule, ...]:
    """Return every named rule of this runtime, including those a user registered."""
    return (_TENSOR, _inert(), _UNKNOWN, *(_explained(rule) for rule in BY_NAME.values()))


def names_of(operator: str) -> tuple[str, ...]:
    """Return the rules of an operator ("aten::mm", "mm", "mylib::op"), () if it has none."""
    for name in (operator, f"aten::{operator}"):
        scratch_rule = rule_for(name)
        if scratch_rule is not None:
            return (scratch_rule.name, *_parts(scratch_rule.code), TENSOR)
        if "::" in name and inert.is_inert(name):
            return ("inert", TENSOR)
    return ()


def operators() -> tuple[str, ...]:
    """Return the operators with a rule of their own and the inert ones."""
    return (*OF_OPERATOR, *inert.operators())


def _explained(rule: ScratchRule) -> Rule:
    covered = tuple(operator for operator, owner in OF_OPERATOR.items() if owner.name == rule.name)
    sure = tuple(basis.value for basis in rule.sure)
    releases = f"torch {rule.span}" if str(rule.span) else ""
    return carried_out_by(rule.code, rule.name, covered, sure, _parts(rule.code), releases)


def _inert() -> Rule:
    text = inspect.getdoc(inert) or ""
    return Rule(
        "inert", text, source_in(text), "analyzer/runtimes/pytorch/scratch/inert.py", inert.operators()
    )


def _parts(code: Callable[..., Any]) -> tuple[str, ...]:
    """Return the named parts `code` may take, found by the functions it calls."""
    return tuple(dict.fromkeys(_parts_called(inspect.unwrap(code), set())))


def _parts_called(code: Callable[..., Any], visited: set[Any]) -> Iterator[str]:
    for name in code.__code__.co_names:
        called = code.__globals__.get(name)
        if inspect.isclass(called) and "__call__" in vars(called):
            called = vars(called)["__call__"]
        if not inspect.isfunction(called) or called in visited or called.__module__.startswith("torch"):
            continue
        visited.add(called)
        inner = inspect.unwrap(called)
        yield from (rule.name for rule in BY_NAME.values() if rule.code is inner and not rule.operators)
        yield from _parts_called(inner, visited)
