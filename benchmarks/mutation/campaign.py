"""Do the tests notice? `python -m benchmarks mutation score --sample 150 --seed 2`.

Draws small changes of the rooms' source, tries each with the tests of its room, and writes what came out to
`benchmarks/mutation/results.json` and `docs/evidence/MUTATION.md`. The sample is shared among the rooms by their number of
possible changes, at least `--least` each. `--room` tries these rooms only and keeps what is recorded of the others.
`--again` tries only the recorded survivors of the seed once more, after tests were added (what was noticed before still
is, as long as no test went). `--page` only writes the page anew, after `survivors.json` was edited. Needs the `mutation` extra. One process; nice
it where others work.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
from cosmic_ray.work_item import MutationSpec

from benchmarks.mutation import findings
from benchmarks.mutation.mutants import attempts, copied_tree, draw, every_mutant, limit_s
from benchmarks.mutation.rooms import ROOMS, Room


def shares(counts: Sequence[int], sample: int, least: int) -> list[int]:
    """How many mutants each room gets of `sample`: by its count of possible ones, at least `least`, at most all."""
    return [min(count, max(least, round(sample * count / sum(counts)))) for count in counts]


def run(
    rooms: Sequence[Room], sample: int, least: int, seed: int, again: Sequence[findings.Result] = ()
) -> list[findings.Result]:
    """Try each room's share of the sample, or the survivors of `again`; progress on stderr."""
    done = []
    with copied_tree() as tree:
        possible = {room.name: every_mutant(room, tree) for room in ROOMS}
        given = shares([len(possible[room.name]) for room in ROOMS], sample, least)
        for room, count in zip(ROOMS, given, strict=True):
            if room not in rooms:
                continue
            before = next((result for result in again if result.room == room.name), None)
            if again and before is None:
                continue
            drawn = draw(possible[room.name], before.tried_count if before else count, seed, room)
            result = _try(room, drawn, tree, before)
            done.append(
                replace(result, seed=seed, mutant_count=len(possible[room.name]), tried_count=len(drawn))
            )
    return done


def _try(
    room: Room, drawn: Sequence[MutationSpec], tree: Path, before: findings.Result | None
) -> findings.Result:
    """One room: all that were drawn, or what is on the lines of those that survived `before`."""
    places = {(survivor.file, survivor.line) for survivor in before.survivors} if before else set()
    if before:
        drawn = [
            one for one in drawn if (one.module_path.relative_to(tree).as_posix(), one.start_pos[0]) in places
        ]
        if len(drawn) < len(before.survivors):
            raise SystemExit(f"{room.name} has changed since: run it without --again")
    tried = []
    for attempt in attempts(drawn, room, tree, limit_s(room, tree)):
        tried.append(attempt)
        print(f"{room.name}, {len(tried)} of {len(drawn)}: {attempt}", file=sys.stderr, flush=True)
    timed_out = sum(attempt.timed_out for attempt in tried)
    return findings.Result(
        seed=0,
        room=room.name,
        date=datetime.now(UTC).date().isoformat(),
        versions={
            "Python": platform.python_version(),
            **{name: version(name) for name in ("cosmic-ray", "pytest", "torch")},
        },
        mutant_count=0,
        tried_count=len(tried),
        timed_out_count=timed_out + (before.timed_out_count if before else 0),
        survivors=tuple(
            findings.Survivor(**asdict(attempt.mutant)) for attempt in tried if not attempt.noticed
        ),
    )


@click.command()
@click.option("--sample", default=150, help="mutants, over all rooms")
@click.option("--least", default=8, help="mutants of each room")
@click.option("--seed", default=2)
@click.option("--room", "names", multiple=True, type=click.Choice([room.name for room in ROOMS]))
@click.option("--again", is_flag=True, help="only what survived")
@click.option("--results", type=Path, help="write the results here, and no page")
def score(
    sample: int, least: int, seed: int, names: tuple[str, ...], again: bool, results: Path | None
) -> None:
    """Make small changes of these rooms, or all, run the room's own tests on each, and write results and page."""
    rooms = [room for room in ROOMS if not names or room.name in names]
    path = results or findings.RESULTS
    recorded = [result for result in findings.results(path) if result.seed == seed]
    done = run(rooms, sample, least, seed, recorded if again else ())
    findings.record(done, path)
    print(f"noticed: {100 * findings.score(done):.1f} %")
    if results is None:
        findings.write_page()
