"""Counts of wordings that this project is giving up, by room.

sentences: of docstrings, comments, messages and pages, those with "What" or "Who" as their subject. names:
participles of a few verbs where a noun of the field belongs. skips: lines that `ruff format` may not touch.

`python -m tests.words` writes the counts; they only fall (`test_words.py`).
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

RECORDED = ROOT / "tests/data/words.json"
PARTICIPLES = frozenset(("said", "found", "asked", "seen", "taken", "lost", "told", "met", "heard"))
_SENTENCE = re.compile(
    r"(?:(?<=[.!:] )|^(?:[#*|-]+:? )?)(?:What|Who|Whatever|Whoever) [^.?!]{6,}(.?)", re.MULTILINE
)
_SKIP = "fmt: " + "skip"


def sentences(text: str) -> int:
    """Return how many sentences have "What" or "Who" as their subject; questions have not."""
    return sum(ending != "?" for ending in _SENTENCE.findall(text))


def _bound(node: ast.AST) -> str:
    """Return the name a node gives to something, "" if it gives none."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return ""


def _comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def of_source(source: str) -> tuple[int, int, int]:
    """Return (sentences, names, skips) of a Python file's text."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    comments = list(_comments(source))
    return (
        sum(sentences(re.sub(r"\s+", " ", text)) for text in texts) + sum(map(sentences, comments)),
        sum(_bound(node).strip("_") in PARTICIPLES for node in nodes),
        sum(_SKIP in comment for comment in comments),
    )


def _rooms() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for folder in [ROOT / "analyzer", *sorted((ROOT / "extensions").glob("analyzer_*"))]:
        package = folder.name
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).parts
            rooms.setdefault(f"{package}/{inside[0]}" if len(inside) > 1 else package, []).append(path)
    pages = (ROOT / "docs").glob("*.md"), (ROOT / "docs/questions").glob("*.md")
    rooms["docs"] = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(itertools.chain(*pages))]
    return rooms


def counts() -> dict[str, list[int]]:
    """Return (sentences, names, skips) of each room that has any."""
    result = {}
    for room, paths in _rooms().items():
        texts = [path.read_text() for path in paths]
        each = [(sentences(text), 0, 0) for text in texts] if room == "docs" else list(map(of_source, texts))
        total = [sum(column) for column in zip(*each, strict=True)]
        if any(total):
            result[room] = total
    return result


if __name__ == "__main__":
    lines = (f" {json.dumps(room)}: {json.dumps(total)}" for room, total in counts().items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
