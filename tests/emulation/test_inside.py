"""The code that runs in the user's Python: its files import one another without a package, which no type checker follows."""

from __future__ import annotations

import ast
import gc
import importlib.util
import weakref
from pathlib import Path
from typing import Any

import torch

import analyzer.emulation

INSIDE = Path(analyzer.emulation.__file__).parent / "inside"


def loaded(name: str) -> Any:
    """One of its files as a module, which imports none of the others."""
    spec = importlib.util.spec_from_file_location(name, INSIDE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_no_module_is_kept_alive_to_know_its_name() -> None:
    """A program that drops a model, and what its parameters hold, has the memory back when it would."""
    known = loaded("places").SourcePlaces()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.ReLU())

        def forward(self) -> str:
            return str(known.here()[1])

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self) -> str:
            return str(self.net())

    outer = Outer()
    assert outer() == "net"
    assert known.roots() == [outer]
    gone = weakref.ref(outer)
    del outer
    gc.collect()
    assert gone() is None and known.roots() == []


CHECKS = """
if not ready:
    raise ValueError
assert first and second
if first or not second:
    said = "no"
    raise ValueError(said)
if first and second:
    raise ValueError
while waiting: pass
if first: said = "yes"
"""


def test_what_a_line_does_with_the_value_it_reads(tmp_path: Path) -> None:
    lines = loaded("lines")
    (tmp_path / "checks.py").write_text(CHECKS)
    at = [f"{tmp_path / 'checks.py'}:{number}" for number in range(1, 12)]
    passes = {number: lines.passes(line) for number, line in enumerate(at, 1) if lines.asserts(line)}
    # Where one value of several decides, or different ones are needed, nobody knows which was read.
    assert passes == {2: True, 4: True, 5: None, 8: None}
    assert [number for number, line in enumerate(at, 1) if lines.decides_a_loop(line)] == [10]
    assert lines.passes("nowhere.py:3") is None and lines.passes("") is None


def test_what_was_computed_beside_is_not_kept() -> None:
    """No cycle holds an operator's tensors, which a program may drop at once."""
    on_host = loaded("tensors").on_host
    before = gc.isenabled()
    gc.disable()
    try:
        tensor = torch.nn.Parameter(torch.ones(3))
        known = {id(tensor): tensor}
        (found,) = on_host([[tensor]], known)[0]
        assert found is tensor
        gone = weakref.ref(tensor)
        del tensor, known, found
        assert gone() is None
    finally:
        if before:
            gc.enable()
