"""Named rules: the origin of each number of the output, so that a reader can ask for it.

1. Every request of a runtime names the rule that decided its size (`events.Malloc.rule`): a short name in
   lower case with hyphens, which keeps its meaning from version to version.
2. A rule is carried out by code, and that code's docstring says it in words: `analyze explain` prints it. Its
   source is the part of the docstring that begins with "Source:" (or "Measured:"), or where a topic's rules
   share one, that of the module.
3. A mere convention of a runtime (an initializer is a request of its own) has a `Rule` without code.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST_NAME = 24
TENSOR, UNKNOWN = "tensor", "unknown-operator"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SOURCE = re.compile(r"\b(?:Sources?|Measured)\b[^:.\n]{0,30}: ")
# The packages of this project: their rules are shown with the module's words, and from the repository's root.
_PACKAGES = ("analyzer", "analyzer_plugins")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, as `analyze explain` prints it.

    text: what the rule says. topic: what its module says of it and its neighbours ("" for none).
    source: the framework's file and function, or the measurement. where: file and line in this repository.
    operators: those it covers. sure: how its bytes may be known ("exact", "measured", "bounded").
    parts: other rules that decide some of an operator's requests. releases: of the runtime, that it holds for
    ("" for all).
    """

    name: str
    text: str
    source: str
    where: str
    operators: tuple[str, ...] = ()
    sure: tuple[str, ...] = ("exact",)
    parts: tuple[str, ...] = ()
    topic: str = ""
    releases: str = ""

    @property
    def words(self) -> str:
        """The text without the paragraphs that only name its source."""
        return without_source(self.text)

    @property
    def summary(self) -> str:
        """The first sentence, on one line."""
        words = " ".join(self.text.split())
        return re.split(r"(?<=[^.\d])\. ", words, maxsplit=1)[0].removesuffix(".") + "."


def is_name(name: str) -> bool:
    """Return whether `name` may name a rule: lower case with hyphens, short."""
    return len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


def carried_out_by(
    code: Callable[..., Any],
    name: str,
    operators: tuple[str, ...] = (),
    sure: tuple[str, ...] = ("exact",),
    parts: tuple[str, ...] = (),
    releases: str = "",
) -> Rule:
    """Return the rule that `code` carries out, in the words of its docstring and its module's."""
    code = inspect.unwrap(code)
    text = inspect.getdoc(code) or ""
    topic = inspect.getdoc(sys.modules.get(code.__module__)) or ""
    return Rule(
        name,
        text or "It has no docstring.",
        source_in(text) or source_in(topic),
        place(code),
        operators,
        sure,
        parts,
        topic if code.__module__.partition(".")[0] in _PACKAGES else "",
        releases,
    )


def concept(name: str, module: str) -> Rule:
    """Return the docstring of a module as a rule with this name."""
    text = inspect.getdoc(import_module(module)) or ""
    where = f"{module.replace('.', '/')}.py"
    return Rule(name, text, source_in(text), where, sure=())


def source_in(text: str) -> str:
    """Return the source a docstring names, to the end of its paragraph, on one line; "" if it names none."""
    sources = (
        paragraph[match.start() :] for paragraph in text.split("\n\n") if (match := _SOURCE.search(paragraph))
    )
    return " ".join(" ".join(sources).split()).removeprefix("Source: ")


def without_source(text: str) -> str:
    """Return a docstring without the paragraphs that only name its source."""
    return "\n\n".join(part for part in text.split("\n\n") if not _SOURCE.match(part))


def file_of(code: Callable[..., Any]) -> Path:
    """Return the file that defines `code`."""
    return Path(inspect.unwrap(code).__code__.co_filename).resolve()


def place(code: Callable[..., Any]) -> str:
    """File and line of `code`: from its package's folder for this project's own."""
    path, line = file_of(code), inspect.unwrap(code).__code__.co_firstlineno
    package = inspect.unwrap(code).__module__.partition(".")[0]
    if package in _PACKAGES:
        path = path.relative_to(Path(str(sys.modules[package].__file__)).resolve().parents[1])
    return f"{path.as_posix()}:{line}"
