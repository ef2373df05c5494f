"""The code that runs in the user's Python: its files import one another without a package, which no type checker follows."""

from __future__ import annotations

import ast
from pathlib import Path

import analyzer.emulation

INSIDE = Path(analyzer.emulation.__file__).parent / "inside"


def test_what_its_files_import_of_one_another_is_there() -> None:
    trees = {file.stem: ast.parse(file.read_text()) for file in INSIDE.glob("*.py")}
    names = {
        module: {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for module, tree in trees.items()
    }
    imported = [
        (module, node.module, alias.name)
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
    ]
    assert imported and [each for each in imported if each[2] not in names[each[1] or ""]] == []
