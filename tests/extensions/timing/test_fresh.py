"""Cases drawn by lot, compiled advice that was run, both orders of channels: what was recorded beside what the page says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks.harness import pages
from benchmarks.harness.files import read
from benchmarks.subjects.networks import torchvision_cpu
from benchmarks.timing import advise_compiled, answers, fresh, layouts, lot
from benchmarks.timing.cases import COMPILED, KINDS, SETS, WAYS, kind_of, tag
from benchmarks.timing.page import PAGE


@pytest.mark.parametrize("draw", list(lot.DRAWS))
def test_the_cases_are_those_the_lot_drew(draw: str) -> None:
    torchvision_cpu.enable()
    drawn = lot.drawn(draw)
    assert drawn["eager"] == SETS[draw] and drawn["compiled"] == COMPILED[draw]
    models = [case["model"] for cases in drawn.values() for case in cases]
    assert len(set(models)) == len(models) == lot.DRAWS[draw].eager + lot.DRAWS[draw].compiled


@pytest.mark.parametrize("draw", list(lot.DRAWS))
def test_every_drawn_case_is_said_or_has_a_reason(draw: str) -> None:
    """What was said in advance is what the table counts, whatever is said now."""
    eager, compiled, without = fresh.rows(draw)
    record = read(fresh.record_of(draw))
    assert len(eager) + len(compiled) + len(without) == lot.DRAWS[draw].eager + lot.DRAWS[draw].compiled
    text = pages.part(PAGE, draw)
    assert all(f"`{name}`: not said (" in text or f"`{name}`: not measured (" in text for name in without)
    for row in (*eager, *compiled):
        assert row.said.seconds == record["said"][tag(row.case)]["seconds"]
    within = sum(row.holds[2] for row in (*eager, *compiled))
    (line,) = re.findall(r"\| all, as said \| .*", text)
    assert line.startswith(f"| all, as said | {len(eager) + len(compiled)} |")
    assert f"| {within / (len(eager) + len(compiled)):.0%} |" in line[: line.rindex(" | ")] + " |"


def planned(named: float | None) -> dict[str, Any]:
    taken = {"1.0": {"reserved": 100, "device": 110, "said": [0.1, 0.09, 0.12]}}
    return {"taken": taken, "pairs": [{"share": 1.0, "budget": 110, "limit": 100, "named": named}]}


def ran(start: bool, budget: float, **seconds: float) -> dict[str, Any]:
    return {
        "program": "net.py", "budget": budget, "limits": [100], "from_the_start": start, "reserved": 101,
        "seconds": {name.removeprefix("under_"): value for name, value in seconds.items()},
    }  # fmt: skip


def test_the_best_budget_is_of_those_that_ran_under_the_limit() -> None:
    rows = [
        ran(True, 1.0, under_0=0.11),
        ran(False, 1.0, under_0=0.01, under_100=0.12),
        ran(False, 0.5, under_100=0.105),
    ]
    (pair,) = advise_compiled.pairs_recorded({"programs": {"net.py": planned(1.0)}, "rows": rows})
    assert (pair.begun, pair.best, pair.there) == (0.11, 0.105, {1.0: 0.12, 0.5: 0.105})
    assert pair.said == (0.1, 0.09, 0.12)
    (out,) = advise_compiled.pairs_recorded({"programs": {"net.py": planned(1.0)}, "rows": [ran(True, 1.0)]})
    assert out.begun is None and out.best is None
    (none,) = advise_compiled.pairs_recorded({"programs": {"net.py": planned(None)}, "rows": []})
    assert none.named is None
    assert not advise_compiled.pairs_recorded(
        {"programs": {"net.py": planned(1.0)}, "rows": []}
    )  # not reached


def test_a_step_is_timed_when_it_is_warm_then_under_each_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen steps behind the warm ones, and behind two that fill the cache under each limit."""
    now, limits = [0.0], list[int]()
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda: 7)
    monkeypatch.setattr(advise_compiled.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(advise_compiled, "restrict", limits.append)
    ready = list[float]()
    clock = advise_compiled.Clock([200, 100], lambda: ready.append(now[0]))
    for step in range(clock.steps):
        now[0] += 1.0 if step < 20 else 2.0 if step < 37 else 3.0
        clock.mark(f"{step}.forward")
        clock.mark(f"{step}.step")
    assert ready == [5.0] and limits == [200, 100] and clock.reserved == 7
    assert clock.found == {0: 1.0, 200: 2.0, 100: 3.0}


def test_the_page_says_what_was_recorded() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for said in (
        advise_compiled.section(read(advise_compiled.RECORD)),
        layouts.sentence(),
        answers.recorded(),
    ):
        assert said in text


def test_channels_last_takes_the_host_longer_only_where_each_step_makes_the_batch_contiguous() -> None:
    content = read(layouts.RECORD)
    host = {json.dumps([row["changes"], row[layouts.EACH_STEP]]): row["host"] for row in content["steps"]}
    usual, last, before = (
        host[json.dumps([changes, each])]
        for changes, each in (({}, False), ({"channels_last": True}, False), ({"channels_last": True}, True))
    )
    copy = sorted(content["batch"][str(content["threads"])])[3]
    assert before - last > 0.8 * copy
    assert last - usual < copy


def test_every_case_is_of_one_kind() -> None:
    cases = [case for sets in (SETS, COMPILED) for some in sets.values() for case in some]
    assert {kind_of(case) for case in (*cases, *WAYS)} >= {
        "recurrent, training",
        "compiled transformer, inference",
    }
    models = [model for some in KINDS.values() for model in some]
    assert len(models) == len(set(models)) and set(models) == {case["model"] for case in (*cases, *WAYS)}
