"""Which programs run sessions of ONNX Runtime: those that import it, themselves or by modules beside them.

It is read from their source, before anything runs: a program is followed as PyTorch's, and nobody follows a
session there.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

_MOST_FILES = 50  # of a program's own


def has_sessions(script: str | os.PathLike[str]) -> bool:
    """Return whether a program imports ONNX Runtime."""
    return "onnxruntime" in packages_of(script)


def has_sessions_alone(script: str | os.PathLike[str]) -> bool:
    """Return whether a program imports ONNX Runtime and not PyTorch."""
    packages = packages_of(script)
    return "onnxruntime" in packages and "torch" not in packages


def packages_of(script: str | os.PathLike[str]) -> frozenset[str]:
    """Return the packages that a program imports by its own source, and those of the modules in its folder
    that it imports; a file, or "-m MODULE"."""
    path = _file_of(os.fspath(script))
    if path is None:
        return frozenset()
    names: set[str] = set()
    waiting, done = [path], set[Path]()
    while waiting and len(done) < _MOST_FILES:
        file = waiting.pop()
        done.add(file)
        for name in _imports(file):
            names.add(name)
            beside = (path.parent / f"{name}.py", path.parent / name / "__init__.py")
            waiting += [one for one in beside if one.is_file() and one not in done]
    return frozenset(names)


def _file_of(words: str) -> Path | None:
    if not words.startswith("-m "):
        path = Path(words)
        return path if path.is_file() else None
    try:
        spec = importlib.util.find_spec(words.removeprefix("-m ").strip())
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _imports(path: Path) -> Iterator[str]:
    """Yield the first name of every import of a file, wherever it stands."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
