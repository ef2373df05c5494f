"""Strategies side by side: for a terminal, as JSON and as CSV."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzer.report import speed
from analyzer.report.columns import Column, room_of, table, within
from analyzer.report.csv import csv_records
from analyzer.report.formats import PLAIN, View
from analyzer.report.sentences import subject
from analyzer.report.verdicts import uncounted
from analyzer.report.words import clean, mib, percent, size

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate
    from analyzer.results.strategy import Strategy

_NAME_WIDTH = 40
COSTS = ("free", "slower", "changes results", "more GPUs", "a larger GPU")


def render(strategies: Sequence[Strategy], view: View = PLAIN) -> str:
    """Return a table of strategies: device memory (and of a device with room for all, where that is more; its
    savings), recomputed operations, step time with range, samples per second, largest batch; then what to
    type."""
    base = strategies[0].estimate
    assert base is not None
    columns = [
        Column("strategy", _NAME_WIDTH, least=20),
        Column("device MiB", 12),
    ]
    pressed = under_pressure(strategies)
    columns += [Column("with room", 11, rank=2)] * pressed
    columns += [Column("saves", 9, rank=1)]
    columns += [Column("compute", 9, rank=2)]
    timed = base.step_seconds is not None
    if timed:
        columns += [
            Column("step", 9, rank=2),
            Column("samples/s", 11, rank=4),
            Column("step range", 20, rank=5),
        ]
    columns.append(Column("fits", 6, rank=3))
    if any(strategy.largest is not None for strategy in strategies):
        columns.append(Column("largest", 9))
    rows, below, failed = [], [], []
    for strategy in strategies:
        estimate, name = strategy.estimate, clean(strategy.name)
        if estimate is None:
            failed.append(f"{name} does not run: {clean(strategy.error)}")
            continue
        room = room_of(columns[0], columns, view.width)
        first, *others = textwrap.wrap(name, room, subsequent_indent="  ", break_on_hyphens=False)
        below.append([*others, *([f"    {clean(strategy.typed)}"] * bool(strategy.typed))])
        rows.append(
            [
                first,
                mib(estimate.device_used),
                *([mib(estimate.needed.device_used)] * pressed),
                percent(strategy.saved, base.needed.device_used),
                f"+{100 * strategy.extra_compute:.0f} %" if strategy.extra_compute >= 0.005 else "-",
                *([speed.step(estimate), speed.rate(estimate), speed.step_range(estimate)] if timed else []),
                judged(estimate),
                f"{strategy.largest:,}" if strategy.largest is not None else "",
            ]
        )
    head = within([" · ".join([*subject(base), clean(base.device)]), ""], view.width)
    titles, *lines = table(columns, rows, view.width)
    body = [
        part for line, more in zip(lines, below, strict=True) for part in (line, *within(more, view.width))
    ]
    failures = within([*failed, *_recomputable(strategies[0], base)], view.width)
    return "\n".join([*head, titles, *body, *failures]) + "\n"


def under_pressure(strategies: Sequence[Strategy]) -> bool:
    """Return whether one of them runs in less than it would take with room: the verdict is on what it takes
    here, savings are between what each would take with room."""
    return any(s.estimate is not None and s.estimate.with_room is not None for s in strategies)


def _recomputable(strategy: Strategy, base: Estimate) -> list[str]:
    """Return a line on saved bytes that are cheap to recompute, where they are more than a little."""
    if 100 * strategy.recomputable < base.peak_allocated:
        return []
    return [
        f"of {size(base.saved_for_backward)} kept for backward {size(strategy.recomputable)} can be computed"
        " again without a product, a convolution or attention done twice, at best: selective checkpointing,"
        " torch.compile"
    ]


def judged(estimate: Estimate) -> str:
    """Return the verdict in a word ("maybe": may not fit), "-" if no device was named."""
    if estimate.device_assumed and estimate.budget_bytes is None:
        return "-"
    return {"fits": "yes", "may not fit": "maybe", "does not fit": "no"}[estimate.verdict()]


def cheapest(strategies: Sequence[Strategy]) -> Strategy | None:
    """Return the change that fits and costs least (`COSTS`, then operations, then memory), or None."""
    fitting = [
        (strategy.cost, strategy.extra_compute, strategy.estimate.device_used, place)
        for place, strategy in enumerate(strategies)
        if place and strategy.estimate is not None and strategy.estimate.verdict() == "fits"
    ]
    return strategies[min(fitting)[-1]] if fitting else None


def advice(strategy: Strategy | None, base: Estimate, width: int = PLAIN.width) -> str:
    """Return one sentence: the cheapest change that makes a job fit, or what else can be done."""
    return "\n".join(within([_advice(strategy, base)], width))


def _advice(strategy: Strategy | None, base: Estimate) -> str:
    """Return the cheapest change that fits and what to add for it, or what else can be done."""
    allowed = base.allowed_bytes
    larger = "allow more" if allowed == base.budget_bytes else "take a larger device"
    if base.framework != "onnx":
        larger += ", or take more devices (--parallel)"
    if strategy is None or strategy.estimate is None:
        if base.at_least and base.within(allowed):
            return f"an operator decides whether it fits, {uncounted(base)}: describe it with analyzer.rule"
        nothing = "no single change or usual combination makes it fit"
        least = base.breakdown.get("parameters", 0) + base.device_used - base.peak_reserved
        if least > allowed:
            return (
                f"{nothing}, nor does a smaller batch: parameters, context and libraries alone take"
                f" {mib(least)} MiB of {mib(allowed)}; {larger}"
            )
        if base.batch == 1:
            return f"{nothing}, not even for one sample: {larger}"
        return f"{nothing}: take a smaller batch (analyze fit)"
    extra = (
        f", {100 * strategy.extra_compute:.0f} % more operations" if strategy.extra_compute >= 0.005 else ""
    )
    fits = "fits" if strategy.estimate.verdict() == "fits" else "may fit"
    return (
        f"cheapest change that {fits}: {clean(strategy.name)}: {mib(strategy.estimate.device_used)} MiB of "
        f"{mib(strategy.estimate.allowed_bytes)} ({COSTS[strategy.cost]}{extra}); add {clean(strategy.typed)}"
    )


def rows(strategies: Sequence[Strategy]) -> list[dict[str, object]]:
    return [
        {
            "name": strategy.name,
            "changes": {name: str(value) for name, value in strategy.changes.items()},
            "options": strategy.typed,
            "cost": COSTS[strategy.cost],
            "extra_compute": strategy.extra_compute,
            **speed.fields(estimate),
            "peak_allocated": estimate.peak_allocated if estimate else None,
            "peak_reserved": estimate.peak_reserved if estimate else None,
            "device_used": estimate.device_used if estimate else None,
            "saved": strategy.saved if estimate else None,
            "fits": estimate.fits() if estimate else None,
            "verdict": estimate.verdict() if estimate else None,
            "largest": strategy.largest,
            "recomputable": strategy.recomputable,
            "error": strategy.error,
        }
        for strategy in strategies
        for estimate in (strategy.estimate,)
    ]


def render_json(strategies: Sequence[Strategy], _: View = PLAIN) -> str:
    """Return all figures as JSON, in bytes."""
    return json.dumps({"schema": 1, "strategies": rows(strategies)}, indent=1) + "\n"


def render_csv(strategies: Sequence[Strategy], _: View = PLAIN) -> str:
    """Return a CSV with one row for each strategy, in bytes."""
    table = [
        {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
        for row in rows(strategies)
    ]
    return csv_records(list(table[0]), table)
