"""Every rule a number of the output can name: what `analyze explain` looks up.

1. A **rule** is behind an allocation: those of the runtimes (`runtimes/*/rules.py`, a user's own included,
   and `Runtime.rules` of those that packages announce).
2. A **concept** is behind a figure or a note (how an allocator rounds, what graph liveness means): the
   docstring of the module that carries it out.
3. An operator's name ("aten::mm", "Conv") stands for the rules behind its memory.
4. A note's code, or its sentence, stands for what its kind means (`notes.py`).
"""

from __future__ import annotations

from analyzer.errors import OptionError, did_you_mean
from analyzer.notes import KINDS, Kind, code_of
from analyzer.runtimes import base
from analyzer.runtimes.onnxruntime import rules as onnxruntime
from analyzer.runtimes.pytorch import rules as pytorch
from analyzer.runtimes.rules import Rule, concept

# Name -> the module whose docstring explains it.
_CONCEPTS = {
    "naive-sum": "analyzer.liveness.naive",
    "graph-liveness": "analyzer.liveness.lifetimes",
    "held-by": "analyzer.liveness.holders",
    "recomputation": "analyzer.liveness.recomputation",
    "eager-requests": "analyzer.runtimes.pytorch.eager",
    "device-memory": "analyzer.runtimes.pytorch.outside",
    "caching-allocator": "analyzer.allocators.pytorch.caching",
    "expandable-segments": "analyzer.allocators.pytorch.expandable",
    "bfc-arena": "analyzer.allocators.bfc",
    "ort-arena": "analyzer.allocators.onnxruntime_bfc",
    "ort-session": "analyzer.runtimes.onnxruntime.session",
    "ort-planner": "analyzer.runtimes.onnxruntime.plan.planner",
    "ort-device-memory": "analyzer.runtimes.onnxruntime.outside",
    "driver-pages": "analyzer.allocators.driver",
    "paddle-allocators": "analyzer.allocators.paddle",
    "tensorflow-bfc": "analyzer.allocators.tensorflow_bfc",
}


def catalogue() -> dict[str, Rule]:
    """Return every rule and concept by name, in alphabetical order."""
    announced = (rule for name in base.plugins() for rule in base.named(name).rules())
    by_name = {rule.name: rule for rule in (*announced, *pytorch.rules(), *onnxruntime.rules())}
    by_name |= {name: concept(name, module) for name, module in _CONCEPTS.items()}
    return dict(sorted(by_name.items()))


def find(name: str) -> tuple[Rule, ...]:
    """Return the rule or concept called `name`, or the rules of the operator called so.

    Raises OptionError if there is none.
    """
    rules = catalogue()
    if name in rules:
        return (rules[name],)
    if kind := next((kind for kind in KINDS if kind.code in (name, code_of(name))), None):
        return (_of_note(kind),)
    names = pytorch.names_of(name) or onnxruntime.names_of(name)
    if names:
        return tuple(rules[rule_name] for rule_name in names)
    if "::" in name:
        guess = did_you_mean(name, pytorch.operators())
        hint = f"{guess}what an operator nobody described means: analyze explain unknown-operator"
    else:
        hint = f"{did_you_mean(name, (*rules, *pytorch.operators()), 2)}analyze explain lists all rules"
    raise OptionError(f"there is no rule or operator called {name!r}", hint)


def _of_note(kind: Kind) -> Rule:
    """Return the explanation of a kind of notes."""
    text = f"{kind.meaning}\n\n{kind.reason}\n\n{kind.remedy}"
    return Rule(kind.code, text, source="a note of the analyzer's own", where=kind.writer, sure=())
