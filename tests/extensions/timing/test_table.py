"""The measured table: made from the recorded rows, near them where they are, and honest about what is not in it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzer.devices import load
from analyzer.devices.loader import names
from analyzer_timing import beside, table
from analyzer_timing.products import product
from analyzer_timing.rates import rates_of
from analyzer_timing.traffic import vectors
from analyzer_timing.work import Work
from benchmarks.timing.beside import GPU, all_planes
from benchmarks.timing.pack import h100, measured_rows, packed, work_of

SHIPPED = 140_000  # bytes a wheel has for it


def test_the_file_is_what_the_recorded_rows_give() -> None:
    made = packed(h100())
    with np.load(table.FILE) as found:
        assert set(found.files) == set(made)
        for name in found.files:
            assert np.array_equal(found[name], made[name]), name
    assert table.FILE.stat().st_size < SHIPPED


def test_the_planes_are_what_the_calls_of_both_gpus_give() -> None:
    made, known = all_planes(), beside.planes(GPU)
    assert known.keys() == made.keys()
    off = max(abs(a - b) for name, plane in made.items() for a, b in zip(plane, known[name], strict=True))
    assert off <= 0.5 / beside.SCALE + 1e-9


@pytest.mark.parametrize(
    ("kind", "within"), [("mm", 0.12), ("moved", 0.1), ("attention", 0.15), ("conv", 0.25)]
)
def test_measured_calls_are_found_again(kind: str, within: float) -> None:
    rates = h100()
    rows = [row for row in measured_rows() if row["kind"] == kind][::40]
    pairs = [(row, work) for row in rows if (work := work_of(row, rates)) is not None]
    said = table.seconds_of([work for _, work in pairs])
    errors = [abs(entry.warm / (row["warm"] / 1e9) - 1) for (row, _), entry in zip(pairs, said, strict=True)]
    assert np.median(errors) < within


def test_a_longer_copy_takes_longer() -> None:
    rates = h100()
    times = table.seconds_of(
        [vectors("clone", 4, nbytes, nbytes / 2, rates) for nbytes in (2**16, 2**20, 2**24, 2**28)]
    )
    warm = [entry.warm for entry in times]
    assert warm == sorted(warm)
    assert 2.0e12 < 2**28 / warm[-1] < 3.35e12


def test_what_was_not_measured_is_said_so() -> None:
    known, alike, unknown = table.seconds_of(
        [
            Work("vec:clone:4", (20.0,), 1e-6),
            Work("vec:clone:8", (20.0,), 1e-6),
            Work("nothing:like:it", (1.0,), 2e-6),
        ]
    )
    assert known.known
    assert not alike.known
    assert alike.spread >= table.UNKNOWN_SPREAD / 2
    assert not unknown.known
    assert unknown.warm == pytest.approx(2e-6 * math.exp(0.1))  # the most that a mean is above the middle
    assert unknown.spread == table.UNKNOWN_SPREAD


def test_every_profile_has_figures_of_its_speed() -> None:
    assert not [name for name in names() if rates_of(load(name)) is None]
    slow, fast = rates_of(load("t4")), rates_of(load("b200"))
    assert slow is not None
    assert fast is not None
    assert slow.bandwidth < fast.bandwidth
    assert not fast.measured


def test_a_call_on_the_h200_gains_by_its_memory_what_the_memory_does_of_it() -> None:
    """The same calls were measured on both GPUs: an addition of large tensors, and a product of many operations."""
    both = {}
    for name in ("h100", "h200"):
        rates = rates_of(load(name))
        assert rates is not None
        assert rates.measured
        works = [
            vectors("add", 4, 3 * 2**29, 2**30, rates),
            product(8192, 8192, 8192, 1, "float32", "nt", rates),
        ]
        both[name] = table.seconds_of(works, rates.beside)
    moved, computed = (there.warm / here.warm for here, there in zip(both["h100"], both["h200"], strict=True))
    assert 3350 / 4800 - 0.03 < moved < 3350 / 4800 + 0.06
    assert 0.95 < computed < 1.03


def test_a_step_counts_the_mean_of_what_a_call_may_take() -> None:
    """Which is above the middle, the more so the less is known."""
    known, unknown = (Work(category, (10.0,) * 3, 1e-5) for category in ("mm:half:nn:0:0", "nobody:measured"))
    sure, unsure = table.seconds_of([known, unknown])
    assert unsure.warm == pytest.approx(1e-5 * math.exp(0.1))
    rows = table.rows_of(known.category)
    assert rows is not None
    ((middle, _, spread),) = table.near(rows, np.array([known.place], np.float32))
    assert sure.warm == pytest.approx(1e-5 * math.exp(middle + math.pi / 4 * spread**2))
