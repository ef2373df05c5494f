"""Mutants: small changes of the source, made by Cosmic Ray, each tried with the tests of its room.

Cosmic Ray finds the places, makes the change, runs the tests and puts the file back. Here is only which of its changes
are small (`SMALL`), which are left out, and which are drawn.

1. One change a mutant: a number one more or one less, a comparison for its neighbour, an arithmetic operator for its
   opposite, a condition negated, `and` for `or`, a truth value, a loop that ends early or never starts.
2. What is never carried out is not drawn: annotations (every module postpones them).
3. Which mutants are drawn depends on the seed, the room's source and the number alone: every mutant is as likely.
4. The tests run in a copy of the tree, so that the tree is never changed and can be worked on meanwhile.

Not modelled: removed decorators and renamed exceptions (not small), two changes at once.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.commands
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult

from benchmarks import ROOT
from benchmarks.mutation.rooms import Room

SMALL = re.compile(
    r"core/(?:NumberReplacer|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ZeroIterationForLoop"
    r"|ReplaceComparisonOperator_(?:Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)"
    r"|ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Div_Mul|Mod_FloorDiv|Pow_Mul"
    r"|LShift_RShift|RShift_LShift|BitAnd_BitOr|BitOr_BitAnd)"
    r"|ReplaceUnaryOperator_(?:USub_UAdd|Delete_Not))"
)
UNCHANGED_LIMIT_S = 600
TIMED_OUT = "timeout"  # what Cosmic Ray's run_tests puts in the place of the tests' output


@dataclass(frozen=True)
class Mutant:
    """One change, by where it is and what it makes of the line; `function` is the innermost definition around it."""

    file: str
    line: int
    function: str
    before: str
    after: str


@dataclass(frozen=True)
class Tried:
    """A mutant and what its room's tests said."""

    mutant: Mutant
    noticed: bool
    timed_out: bool


class TestsFail(Exception):
    """A room's tests fail, or take too long, before anything is changed."""


@contextlib.contextmanager
def copied_tree(root: Path = ROOT) -> Iterator[Path]:
    """A temporary copy of what git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in listed.stdout.decode().split("\0"):
            if name and (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        yield copy


def every_mutant(room: Room, tree: Path) -> list[MutationSpec]:
    """The room's small changes (rules 1 and 2: small ones, of what is carried out), in an order of their own."""
    paths = sorted(find_modules([tree / source for source in room.sources]))
    with tempfile.TemporaryDirectory() as folder, use_db(str(Path(folder) / "session.sqlite")) as session:
        cosmic_ray.commands.init(paths, session, {})
        found = [mutation for item in session.work_items for mutation in item.mutations]
    annotations = {path: list(_annotations(path.read_text())) for path in paths}
    kept = [
        mutation
        for mutation in found
        if SMALL.fullmatch(mutation.operator_name)
        and not any(start <= mutation.start_pos < end for start, end in annotations[mutation.module_path])
    ]
    return sorted(kept, key=lambda m: (m.module_path, m.start_pos, m.operator_name, m.occurrence))


def draw(mutants: list[MutationSpec], count: int, seed: int, room: Room) -> list[MutationSpec]:
    """At most `count` of them; the same ones for the same seed."""
    drawn = random.Random(f"{seed} {room.name}").sample(range(len(mutants)), min(count, len(mutants)))
    return [mutants[place] for place in sorted(drawn)]


def test_command(room: Room, tree: Path) -> str:
    """The room's own tests, stopping at the first that fails, on this tree only, in one process; those that take long
    come last."""
    variables = ["env", f"PYTHONPATH={tree}", "OMP_NUM_THREADS=1"]
    options = "-x -q -p no:cacheprovider -p no:xdist"
    pytest = [*variables, sys.executable, "-m", "pytest", *options.split()]
    first = shlex.join([*pytest, *(f"--ignore={path}" for path in room.last), *room.tests])
    if not room.last:
        return first
    return shlex.join(["sh", "-c", f"{first} && {shlex.join([*pytest, *room.last])}"])


def limit_s(room: Room, tree: Path) -> float:
    """How long a mutant's tests may take: three times what they take unchanged, and ten seconds.

    They run twice: the first time leaves compiled files behind, which Cosmic Ray's own runs (as it must, between changes
    in quick succession) do not write but read; without them every run would compile everything anew.
    Raises TestsFail where they do not pass unchanged: then they could not notice anything.
    """
    command = test_command(room, tree)
    subprocess.run(
        shlex.split(command), cwd=tree, capture_output=True, check=False, timeout=UNCHANGED_LIMIT_S
    )
    started = time.monotonic()
    with contextlib.chdir(tree):
        result = mutate_and_test([], command, UNCHANGED_LIMIT_S)
    if result.test_outcome is not TestOutcome.SURVIVED:
        raise TestsFail(f"the tests of {room.name} fail before anything is changed:\n{result.output}")
    return 3 * (time.monotonic() - started) + 10


def attempts(mutants: Iterable[MutationSpec], room: Room, tree: Path, limit: float) -> Iterator[Tried]:
    """Each mutant made in `tree`, tested, and undone."""
    for mutation in mutants:
        with contextlib.chdir(tree):
            result = mutate_and_test([mutation], test_command(room, tree), limit)
        if result.worker_outcome is not WorkerOutcome.NORMAL or result.diff is None:
            raise RuntimeError(f"{mutation} could not be tried: {result.output}")
        yield Tried(
            _described(mutation, result, tree),
            noticed=result.test_outcome is not TestOutcome.SURVIVED,
            timed_out=result.output == TIMED_OUT,
        )


def _described(mutation: MutationSpec, result: WorkResult, tree: Path) -> Mutant:
    lines = (result.diff or "").splitlines()[3:]  # after Cosmic Ray's headline and the two names of the file
    removed, added = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in ("-", "+")
    )
    file = mutation.module_path.relative_to(tree).as_posix()
    return Mutant(file, mutation.start_pos[0], mutation.definition_name or "", removed, added)


def _annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(line, column) where each annotation starts and ends, as Cosmic Ray counts them."""
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.expr):
                yield (
                    (part.lineno, part.col_offset),
                    (part.end_lineno or 0, part.end_col_offset or 0),
                )
