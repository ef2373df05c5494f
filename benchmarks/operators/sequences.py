"""Rules out of emulated histories: python -m benchmarks operators rules PYTHON

Each kernel of `kernels.py` is called by itself, on tensors of several types, sizes and layouts. Where one sequence of steps explains all its
histories (results, copies of what is not contiguous, temporaries as large as one of its tensors, what is given back early), that sequence
is written to `analyzer/runtimes/pytorch/scratch/sequences.json`, by the release that was asked. `scratch/sequences.py` says how one is read.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from analyzer.runtimes.pytorch.scratch import is_known
from analyzer.runtimes.pytorch.scratch.script import rule_for
from analyzer.runtimes.pytorch.scratch.sequences import PATH, recorded_sequence
from benchmarks.operators.compare import run_emulated

_WORKSPACE = 32 * 2**20
_WIDTHS = (1, 2, 4, 8)
_NUMBER = 16  # bytes of the largest number that is a constant: what is more is a library's
_MOST_STEPS, _MOST_TRIED = 60, 50_000
_TYPES = ("float32", "bfloat16", "float64")


class Tensor(NamedTuple):
    """A tensor of a call. name: the argument's, or o0, o1 for a result. at: of a result, which of the events made it."""

    name: str
    shape: tuple[int, ...]
    width: int
    contiguous: bool
    at: int = -1

    @property
    def count(self) -> int:
        """Its elements."""
        return math.prod(self.shape)


class History(NamedTuple):
    """One call: its tensors, what it asked for (freed bytes are negative), and which of these requests each return is of."""

    given: dict[str, Tensor]
    made: dict[str, Tensor]
    events: tuple[int, ...]
    freed: tuple[int, ...]


class State(NamedTuple):
    """How far each history is explained: position, the request of every token so far (-1: not taken there; None: given back); results made."""

    at: tuple[int, ...]
    held: tuple[tuple[int | None, ...], ...]
    results: tuple[int, ...]


def _sizes(history: History, spec: str) -> int:
    """Bytes of a size: "x", "x:4", "x[1]:4", "x*y[1]"."""
    every = {**history.given, **history.made}
    head, _, width = spec.partition(":")
    product = 1
    own = 0
    for part in head.split("*"):
        name, _, dim = part.rstrip("]").partition("[")
        tensor = every[name]
        product *= tensor.shape[int(dim)] if dim else tensor.count
        own = own or tensor.width
    return product * (int(width) if width else own)


def specs(histories: Sequence[History]) -> Iterator[str]:
    """Every size that could be meant, the plainest first."""
    names = [
        n
        for n in {**histories[0].given, **histories[0].made}
        if all(n in {**h.given, **h.made} for h in histories)
    ]
    yield from names
    yield from (f"{name}:{width}" for name in names for width in _WIDTHS)
    ranks = {name: min(len({**h.given, **h.made}[name].shape) for h in histories) for name in names}
    dims = [f"{name}[{dim}]" for name in names for dim in (*range(ranks[name]), *range(-ranks[name], 0))]
    yield from (f"{dim}:{width}" for dim in dims for width in _WIDTHS)
    yield from (f"{name}*{dim}" for name in names for dim in dims)


def explained(histories: Sequence[History]) -> str | None:
    """The steps that explain all histories, as `scratch/sequences.py` reads them; None where there are none."""
    every: dict[tuple[int, ...], str] = {}  # one name is enough for what is as large everywhere
    for spec in specs(histories):
        every.setdefault(tuple(_sizes(history, spec) for history in histories), spec)
    start = State((0,) * len(histories), ((),) * len(histories), ())
    return _search(histories, every, start, (), set())


def _search(
    histories: Sequence[History],
    every: dict[tuple[int, ...], str],
    state: State,
    steps: tuple[str, ...],
    tried: set[State],
) -> str | None:
    if _over(histories, state):
        return " ".join(steps)
    if len(steps) >= _MOST_STEPS or state in tried or len(tried) > _MOST_TRIED:
        return None
    tried.add(state)
    for step, after in _moves(histories, every, state):
        found = _search(histories, every, after, (*steps, step), tried)
        if found is not None:
            return found
    return None


def _over(histories: Sequence[History], state: State) -> bool:
    """Whether all that is left is what ends with the call, the last taken first."""
    for history, at, held in zip(histories, state.at, state.held, strict=True):
        rest = [request for request in reversed(held) if request not in (None, -1)]
        if list(history.freed[at:]) != rest or len(state.results) < len(history.made):
            return False
    return True


def _moves(
    histories: Sequence[History], every: dict[tuple[int, ...], str], state: State
) -> Iterator[tuple[str, State]]:
    """The next steps that fit all histories."""

    def taken(sizes: Sequence[int | None], results: tuple[int, ...] = ()) -> State | None:
        """The state after so many bytes are taken in each history. None: nothing is taken there."""
        at = []
        for history, place, size in zip(histories, state.at, sizes, strict=True):
            if not size:
                at.append(place)
            elif place < len(history.events) and history.events[place] == size:
                at.append(place + 1)
            else:
                return None
        held = state.held
        if not results:
            places = (at if size else -1 for at, size in zip(state.at, sizes, strict=True))
            held = tuple((*before, place) for before, place in zip(held, places, strict=True))
        return State(tuple(at), held, state.results + results)

    left = [number for number in range(len(histories[0].made)) if number not in state.results]
    for number in left:
        made = [h.made[f"o{number}"] for h in histories]
        there = all(one.at in (-1, at) for one, at in zip(made, state.at, strict=True))
        if there and (after := taken([one.count * one.width for one in made], (number,))) is not None:
            yield "o" if number == left[0] else f"#{number}", after
    for sizes, spec in every.items():
        if any(sizes) and (after := taken(sizes)) is not None:
            yield spec, after
    for token in reversed(range(len(state.held[0]))):
        if (back := _given_back(histories, state, token)) is not None:
            yield f"-{token}", back
    tensors = [{**h.given, **h.made} for h in histories]
    for name in dict.fromkeys(name for each in tensors for name in each):
        given = [each.get(name) for each in tensors]
        sizes = [None if one is None or one.contiguous else one.count * one.width for one in given]
        if any(sizes) and (after := taken(sizes)) is not None:
            yield f"{name}?", after
    if (after := taken([_WORKSPACE] * len(histories))) is not None:
        yield "cublas", after._replace(held=tuple((*held[:-1], -1) for held in after.held))
    first = {h.events[at] if at < len(h.events) else None for h, at in zip(histories, state.at, strict=True)}
    if (
        len(first) == 1
        and (size := first.pop())
        and 0 < size <= _NUMBER
        and (after := taken([size] * len(histories))) is not None
    ):
        yield f"={size}", after


def _given_back(histories: Sequence[History], state: State, token: int) -> State | None:
    """The state after a token is given back in every history that has it."""
    at, held, any_ = [], [], False
    for history, place, before in zip(histories, state.at, state.held, strict=True):
        there = before[token] not in (None, -1)
        if there and (place >= len(history.freed) or history.freed[place] != before[token]):
            return None
        any_ = any_ or there
        at.append(place + there)
        held.append((*before[:token], None, *before[token + 1 :]))
    return State(tuple(at), tuple(held), state.results) if any_ else None


def histories(rows: Sequence[dict[str, Any]], but: Sequence[str] = ()) -> dict[str, list[History]]:
    """Every history of each kernel, what PyTorch refuses left out. but: layouts to leave out, too."""
    found: dict[str, list[History]] = {}
    for row in rows:
        if row["error"] or not row.get("call") or row["case"][2] in but:
            continue
        given = {name: Tensor(name, tuple(s), w, c) for name, (s, w, c) in row["call"]["given"].items()}
        made = {f"o{i}": Tensor(f"o{i}", tuple(s), *more) for i, (s, *more) in enumerate(row["call"]["made"])}
        events, freed = row["parts"][0][1], row["call"]["freed"]
        found.setdefault(row["case"][0][1], []).append(History(given, made, tuple(events), tuple(freed)))
    return found


def _is_described(name: str) -> bool:
    """Whether somebody wrote a rule, or nothing needs one."""
    rule = rule_for(name)
    return is_known(name) and (rule is None or rule.code is not recorded_sequence)


@click.command("rules")
@click.argument("python")
@click.option("--release", required=True, help="The release of its torch, as in 2.11.")
@click.option("--recorded", type=Path, help="Histories that are there already; without it they are recorded.")
def main(python: str, release: str, recorded: Path | None) -> None:
    """Write the steps of every kernel whose histories determine them: those of all layouts, else those of fewer, which is said."""
    from benchmarks.operators import database

    spread = ("spread", *database.EVERY)
    if recorded is None:
        recorded = Path(tempfile.mkdtemp()) / "kernels.jsonl"
        groups = [
            ("kernel", name, dtype, n)
            for name in database.entries("kernel")
            for dtype in _TYPES
            for n in (1, 2)
        ]
        job = {"groups": groups, "layouts": (*database.LAYOUTS, *spread), "ways": ["plain"], "limit": 12}
        run_emulated(python, recorded, job)
    rows = [json.loads(line) for line in recorded.read_text("utf-8").splitlines()]
    told: dict[str, str] = {}
    left = {name for name in histories(rows) if not _is_described(f"aten::{name}")}
    for but in ((), ("channels_last",), spread, ("channels_last", *spread)):
        steps = {name: explained(some) for name, some in histories(rows, but).items() if name in left}
        new = {f"aten::{name}": found for name, found in steps.items() if found}
        click.echo(
            f"{len(new)} of {len(left)}{' without ' + ', '.join(but) if but else ''}: {', '.join(sorted(new))}"
        )
        told |= new
        left -= {name.removeprefix("aten::") for name in new}
    table = {**json.loads(PATH.read_text("utf-8")), release: told}
    PATH.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")
    click.echo(f"not explained: {', '.join(sorted(left))}")
