"""The code that runs in the user's Python: its files import one another without a package, which no type checker follows."""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import analyzer.values
import analyzer_emulation
from analyzer.values import branches, checks
from analyzer.values.known import on_host

INSIDE = Path(analyzer_emulation.__file__).parent / "inside"
VALUES = Path(analyzer.values.__file__).parent


def loaded(name: str) -> Any:
    """One of its files as a module, which imports none of the others, but the folder `values`."""
    spec = importlib.util.spec_from_file_location(name, INSIDE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for one in ("values", "values.own"):
            patch.setitem(sys.modules, one, importlib.import_module(f"analyzer.{one}"))
        spec.loader.exec_module(module)
    return module


def test_what_its_files_import_of_one_another_is_there() -> None:
    files = [*INSIDE.glob("*.py"), *VALUES.glob("*.py")]
    trees = {
        f"values.{file.stem}" if file.parent == VALUES else file.stem: ast.parse(file.read_text())
        for file in files
    }
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
            return str(known.current_place()[1])

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
    (tmp_path / "checks.py").write_text(CHECKS)
    at = [f"{tmp_path / 'checks.py'}:{number}" for number in range(1, 12)]
    passes = {
        number: passing for number, line in enumerate(at, 1) if (passing := checks.passes(line)) is not None
    }
    # Line 5 needs different values: nobody knows which was read.
    assert passes == {2: True, 4: True, 8: False}
    assert [number for number, line in enumerate(at, 1) if checks.decides_a_loop(line)] == [10]
    assert checks.passes("nowhere.py:3") is None and checks.passes("") is None


def test_what_was_computed_beside_is_not_kept() -> None:
    """No cycle holds an operator's tensors, which a program may drop at once."""
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


def test_lbfgs_reads_losses_that_fall_and_remembers_its_steps() -> None:
    path = sys.modules[torch.optim.LBFGS.__module__].__file__ or ""
    lines = Path(path).read_text().splitlines()
    asked = [line for _, ask in branches.LINES if _.endswith("lbfgs.py") for line in lines if ask in line]
    assert ["gtd_new" in line for line in asked] == [False, True, True] and "ys > 1e-10" in asked[0]
    names: dict[str, Any] = {"falls": branches.falls}
    exec(compile("inside = falls()", path, "exec"), names)
    assert names["inside"] and not branches.falls()


STARTS = """
import json, multiprocessing, os, sys, types
from pathlib import Path

def work(out):
    Path(out).write_text(os.environ.get("LD_LIBRARY_PATH", "") + json.dumps(sys.argv[1:]))

if __name__ == "__main__":
    inside, folder = sys.argv[1:]
    sys.path.insert(0, inside)
    import children
    recorder = types.SimpleNamespace(close=lambda: {"process": os.getpid()})
    sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True))
    seen = os.open(folder + "/children", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    variables = {"ANALYZER_EMULATED_LD_LIBRARY_PATH": "/as/before"}
    children.follow(types.SimpleNamespace(recorder=recorder), folder + "/job", seen, variables)
    for way in ("fork", "spawn"):
        process = multiprocessing.get_context(way).Process(target=work, args=(folder + "/" + way,))
        process.start()
        process.join()
        assert process.exitcode == 0 and "ANALYZER_EMULATED_LD_LIBRARY_PATH" not in os.environ
        print(way, process.pid)
"""


def test_processes_that_a_program_starts_are_seen_to_their_end(tmp_path: Path) -> None:
    """A forked one writes what its recorder saw; a spawned one begins in this folder, with the variables put back."""
    (tmp_path / "program.py").write_text(STARTS)
    (tmp_path / "job").write_text("{}")
    ran = subprocess.run(
        [sys.executable, tmp_path / "program.py", INSIDE, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    started = dict(line.split() for line in ran.stdout.splitlines())
    lines = (tmp_path / "children").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"process": int(started["fork"])}]
    assert (tmp_path / "spawn").read_text().startswith("/as/before[")
    assert "as/before" not in (tmp_path / "fork").read_text()
