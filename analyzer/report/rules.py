"""Rules in words, for `analyze explain`: docstrings at the terminal's width, then operators, certainty and
source.

1. A rule alone is shown with the topic it belongs to, several (those of an operator) without.
2. Numbered rules of a docstring keep a paragraph each, code keeps its lines.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from analyzer.report.formats import PLAIN, View

if TYPE_CHECKING:
    from analyzer.runtimes.rules import Rule

_LABEL_WIDTH = 14
_SURE = {
    "exact": "decided by the runtime's code",
    "measured": "a library's choice, measured",
    "bounded": "an upper bound",
}
_NUMBERED = re.compile(r"\d\. ")
_CODE = "    "


def render_list(rules: Sequence[Rule], view: View = PLAIN) -> str:
    """Return one line for each rule: its name and the beginning of its text."""
    width = max(len(rule.name) for rule in rules)
    return "".join(
        f"{rule.name:<{width}}  {textwrap.shorten(rule.summary, view.width - width - 2, placeholder='…')}\n"
        for rule in rules
    )


def render(rules: Sequence[Rule], view: View = PLAIN) -> str:
    """Return the full text of each rule."""
    return "\n".join(_explained(rule, view.width, alone=len(rules) == 1) for rule in rules)


def render_json(rules: Sequence[Rule], view: View = PLAIN) -> str:  # noqa: ARG001 (JSON has no view)
    """Return the rules as JSON: `schema`, and under `rules` the fields of `Rule` with a `summary`."""
    entries = [{"summary": rule.summary, **asdict(rule)} for rule in rules]
    return json.dumps({"schema": 1, "rules": entries}, indent=1) + "\n"


def _explained(rule: Rule, width: int, *, alone: bool) -> str:
    lines = [rule.name, "=" * len(rule.name), "", *_paragraphs(rule.words, width), ""]
    facts = {
        "operators": ", ".join(rule.operators),
        "may take too": ", ".join(rule.parts),
        "how sure": "; ".join(f"{basis}: {_SURE[basis]}" for basis in rule.sure),
        "holds for": rule.releases,
        "source": rule.source or "none given",
        "code": rule.where,
    }
    for label, fact in facts.items():
        if fact:
            lines += _wrapped(f"{label + ':':<{_LABEL_WIDTH}}{fact}", width, " " * _LABEL_WIDTH)
    if rule.topic and alone:
        lines += [
            "",
            "The topic it belongs to:",
            "",
            *("  " + line for line in _paragraphs(rule.topic, width - 2)),
        ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _paragraphs(text: str, width: int) -> list[str]:
    """Return a docstring's lines, its running text wrapped anew."""
    lines: list[str] = []
    block: list[str] = []

    def flush() -> None:
        if block:
            hang = "   " if _NUMBERED.match(block[0]) else ""
            lines.extend(_wrapped(" ".join(line.strip() for line in block), width, hang))
            block.clear()

    for line in text.splitlines():
        code = line.startswith(_CODE) and not block
        if code or not line.strip() or _NUMBERED.match(line):
            flush()
        if code or not line.strip():
            lines.append(line)
        else:
            block.append(line)
    flush()
    return lines


def _wrapped(text: str, width: int, hang: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=hang, break_on_hyphens=False, break_long_words=False)
