"""Do the tests notice? docs/evidence/MUTATION.md is what the recorded campaigns make, they reach the goal, and every mutant that
survived has been looked at. Marked `mutation`: the campaign itself, on a module of three mutants and on a real room.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.mutation import findings
from benchmarks.mutation.findings import Finding, Result, Survivor
from benchmarks.mutation.rooms import ROOMS, Room
from tests.paths import ROOT

RECORDED = findings.results()


def test_the_page_is_what_the_results_make() -> None:
    """`python -m benchmarks mutation table` writes it anew."""
    assert findings.PAGE.read_text() == findings.page(RECORDED, findings.findings())


@pytest.mark.parametrize("seed", sorted(findings.ABOUT))
def test_the_tests_notice(seed: int) -> None:
    of = [result for result in RECORDED if result.seed == seed]
    assert sum(result.tried_count for result in of) >= 100
    assert findings.score(of) >= findings.GOAL


def test_every_survivor_was_looked_at() -> None:
    known = findings.findings()
    for result in RECORDED:
        for survivor in result.survivors:
            assert survivor.key in known, f"{survivor}: say in {findings.SURVIVORS.name} what was found"
            assert known[survivor.key].verdict in findings.VERDICTS
            assert len(known[survivor.key].reason) > 10


def test_no_finding_is_about_code_that_is_gone() -> None:
    survived = {survivor.key for result in RECORDED for survivor in result.survivors}
    assert set(findings.findings()) <= survived


def test_every_room_and_its_tests_exist() -> None:
    for room in ROOMS:
        for path in (*room.sources, *room.tests, *room.last):
            assert (ROOT / path).exists(), path
    assert len({room.name for room in ROOMS}) == len(ROOMS)


def result(seed: int, room: str, tried: int, *survivors: Survivor) -> Result:
    return Result(seed, room, "2026-01-02", {"Python": "3.11"}, 50, tried, 1, survivors)


SURVIVOR = Survivor("a.py", 7, "f", "x | y", "x & y")
ONE, OTHER = ROOMS[0].name, ROOMS[1].name


def test_results_replace_those_of_the_same_room_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    findings.record([result(2, ONE, 4), result(1, OTHER, 3)], path)
    findings.record([result(1, ONE, 5, SURVIVOR), result(2, ONE, 6)], path)
    assert findings.results(path) == [result(1, ONE, 5, SURVIVOR), result(1, OTHER, 3), result(2, ONE, 6)]
    content = json.loads(path.read_text())
    content[0]["room"] = "gone"
    path.write_text(json.dumps(content))
    assert findings.results(path) == [result(1, OTHER, 3), result(2, ONE, 6)]
    assert findings.results(tmp_path / "none.json") == []


def test_the_page_tells_what_survived_and_what_was_not_tried() -> None:
    recorded = [result(1, ONE, 3, SURVIVOR), result(1, OTHER, 5)]
    assert findings.score(recorded) == 7 / 8
    text = findings.page(recorded, {SURVIVOR.key: Finding("equivalent", "a | b is a & b here")})
    assert "## Seed 1: 7 of 8 noticed, 87.5 %" in text
    assert f"| {ONE} | 50 | 3 | 2 | 1 | 66.7 % | 2026-01-02 |" in text
    assert r"| `a.py:7` f | `x \| y` → `x & y` | equivalent | a \| b is a & b here |" in text
    assert f"Not tried under this seed: {', '.join(room.name for room in ROOMS[2:])}." in text
    assert "not looked at" in findings.page(recorded, {})


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Room]:
    """A module of three small changes, one of which its tests notice, and one by never ending."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "below.py").write_text(
        '"""1 + 1."""\nfrom __future__ import annotations\n\n\n'
        "def below(x: int | None, y=3) -> bool | None:\n    return x < y\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_quick.py").write_text(
        "from package.below import below\n\n\ndef test_below():\n    assert below(2)\n"
    )
    (tmp_path / "tests" / "test_slow.py").write_text(
        "import time\nfrom package.below import below\n\n\n"
        "def test_below():\n    time.sleep(60 if below(5, 5) else 0)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path, Room("mine", ("package",), ("tests",), ("tests/test_slow.py",))


@pytest.mark.mutation
def test_mutants_are_made_tried_and_undone(tree: tuple[Path, Room]) -> None:
    mutants = pytest.importorskip("mutants", reason="needs the mutation extra")
    root, room = tree
    source = (root / "package" / "below.py").read_text()
    found = mutants.every_mutant(room, root)
    tried = list(mutants.attempts(found, room, root, 10))
    line = "def below(x: int | None, y=3) -> bool | None:"
    assert [
        (one.mutant.line, one.mutant.before, one.mutant.after, one.noticed, one.timed_out) for one in tried
    ] == [
        (5, line, line.replace("=3", "= 4"), False, False),
        (5, line, line.replace("=3", "= 2"), True, False),
        (6, "return x < y", "return x <= y", True, True),
    ]
    assert {one.mutant.function for one in tried} == {"below"}
    assert (root / "package" / "below.py").read_text() == source
    assert 10 < mutants.limit_s(room, root) < 100
    (root / "tests" / "test_quick.py").write_text("def test_below():\n    assert False\n")
    with pytest.raises(mutants.TestsFail, match="before anything is changed"):
        mutants.limit_s(room, root)


@pytest.mark.mutation
def test_a_seed_draws_the_same_mutants_again() -> None:
    mutants, campaign = (
        pytest.importorskip(name, reason="needs the mutation extra") for name in ("mutants", "campaign")
    )
    room = next(room for room in ROOMS if room.name == "devices")
    possible = mutants.every_mutant(room, ROOT)
    first = mutants.draw(possible, 5, 1, room)
    assert first == mutants.draw(possible, 5, 1, room) != mutants.draw(possible, 5, 2, room)
    assert len(mutants.draw(possible, 10**6, 1, room)) == len(possible)
    assert campaign.shares([10, 90, 1000], 110, 8) == [8, 9, 100]
    assert campaign.shares([3, 97], 10, 8) == [3, 10]


@pytest.mark.mutation
def test_a_small_sample_of_a_real_room() -> None:
    campaign = pytest.importorskip("campaign", reason="needs the mutation extra")
    room = next(room for room in ROOMS if room.name == "devices")
    (found,) = campaign.run([room], 10, 2, seed=1)
    assert (found.room, found.seed, found.tried_count) == ("devices", 1, 2)
    assert found.mutant_count > 100 and found.noticed_count >= 1
