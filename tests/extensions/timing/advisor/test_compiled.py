"""A compiled job's budgets: the fastest that fits, whatever others take; what PyTorch's own compiler says of a small model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import analyzer
from analyzer.errors import MissingDependencyError, OptionError, RunError
from analyzer.report import formats
from analyzer.results.estimate import Estimate
from analyzer_emulation import launch, library
from analyzer_timing.advise import advise
from analyzer_timing.advisor import compiled
from analyzer_timing.advisor.compiled import BUDGETS, RESERVED, chosen
from analyzer_timing.results import Advice
from benchmarks.harness.files import read
from benchmarks.timing.pack import RAW
from tests.extensions.timing.ways import reserved_bytes
from tests.paths import MODELS

MIB = 1 << 20
NET = """
import torch
from torch import nn

def make_model():
    return nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)))

def make_batch(batch):
    return (torch.randn(batch, 256),), (torch.randn(batch, 256),)

def loss(output, target):
    return ((output - target) ** 2).mean()
"""


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    """Of any training, under a budget of 1,000 MiB."""
    return analyzer.analyze(MODELS / "linear_mnist.py", mode="train", device="h100", budget="1000MiB")


def of_peaks(
    estimate: Estimate, *mib: int | None, seconds: tuple[float, ...] = ()
) -> tuple[Callable[[float], Estimate], list[float]]:
    """What each of the budgets takes of the device, and of time, in their order; None: it does not run. With those that were asked
    for."""
    asked: list[float] = []
    assert estimate.step_seconds is not None
    time = estimate.step_seconds

    def taken(budget: float) -> Estimate:
        asked.append(budget)
        size = mib[BUDGETS.index(budget)]
        if size is None:
            raise RunError("the compiler gave up", "see its message")
        took = dataclasses.replace(time, seconds=seconds[BUDGETS.index(budget)]) if seconds else None
        return dataclasses.replace(estimate, device_used=size * MIB, step_seconds=took)

    return taken, asked


def test_the_fastest_budget_that_fits_is_named(estimate: Estimate) -> None:
    """0.3 computes more again than 0.5 and moves less; 0.8 would be faster still and does not fit."""
    taken, asked = of_peaks(estimate, 1332, 1017, 788, 588, 700, seconds=(0.9, 1.0, 1.2, 1.1, 1.3))
    found = chosen(taken)
    assert asked == list(BUDGETS)
    assert found.best is not None and found.best.name.endswith("0.3")
    assert [way.name[-3:] for way in found.ways] == ["0.3", "0.5", "0.1"]
    assert [way.verdict for way in found.others] == ["does not fit", "does not fit"]
    assert "the fastest step is named" in found.notes[0]


@pytest.mark.parametrize("seconds", ((), (1.0,) * 5))
def test_without_a_time_and_of_equally_fast_ones_the_largest_is_named(
    estimate: Estimate, seconds: tuple[float, ...]
) -> None:
    found = chosen(of_peaks(estimate, 1332, 1017, 788, 588, 700, seconds=seconds)[0])
    assert (
        found.best is not None
        and found.best.typed == "torch._functorch.config.activation_memory_budget = 0.5"
    )
    assert ("no time is known" in found.notes[0]) == (not seconds)


def test_one_that_fits_whatever_is_reserved_goes_before_a_faster_one_near_the_limit(
    estimate: Estimate,
) -> None:
    """What allocators of compiled programs reserved was up to 1.042 times what is said."""
    near, under = 990 * MIB, 940 * MIB
    time = estimate.step_seconds
    assert time is not None

    def taken(budget: float, smallest: int = under) -> Estimate:
        size, seconds = (near, 1.0) if budget == BUDGETS[0] else (smallest, 2.0)
        return dataclasses.replace(
            estimate,
            device_used=size,
            peak_reserved=size,
            step_seconds=dataclasses.replace(time, seconds=seconds),
        )

    found = chosen(taken)
    assert found.best is not None and found.best.name.endswith(str(BUDGETS[1]))
    assert found.best.verdict == "fits" and found.ways[-1].verdict == "may not fit"
    none = chosen(lambda budget: taken(budget, near))
    assert none.best is not None and none.best.name.endswith(str(BUDGETS[0]))
    assert "allocators of compiled programs reserved 93 to 104 % of what is said here" in none.notes


def test_what_allocators_reserved_lies_in_the_range() -> None:
    """Of every compiled program whose reserved bytes were recorded, measured beside said."""
    record = read(RAW / "advise_compiled.json.gz")
    pairs = [
        (row["reserved"], record["programs"][row["program"]]["taken"][str(row["budget"])]["reserved"])
        for row in record["rows"]
        if not row["from_the_start"]
    ]
    pairs += reserved_bytes()
    assert len(pairs) == 22
    shares = [measured / said for measured, said in pairs]
    assert (pytest.approx(min(shares), abs=0.005), pytest.approx(max(shares), abs=0.005)) == RESERVED


def test_a_smaller_budget_is_not_taken_to_take_less(estimate: Estimate) -> None:
    """One that takes more than a larger one ends nothing: those below it are asked for too."""
    taken, asked = of_peaks(estimate, 1100, 1668, 1200, 1300, 900)
    found = chosen(taken)
    assert asked == list(BUDGETS)
    assert found.best is not None and found.best.name.endswith("0.1")
    assert "a smaller budget does not always take less" in found.notes


def test_where_none_fits_it_says_which_takes_least(estimate: Estimate) -> None:
    found = chosen(of_peaks(estimate, 1332, 1017, 1100, 1200, 1668)[0])
    assert found.best is None and found.missing_bytes == 0
    assert "activation_memory_budget 0.8 takes least" in " ".join(
        formats.render("advice", "text", found).split()
    )


def test_a_budget_that_does_not_compile_is_passed_over_and_the_first_ones_error_is_the_jobs(
    estimate: Estimate,
) -> None:
    found = chosen(of_peaks(estimate, 1332, None, 700, 0, 0)[0])
    assert found.best is not None and found.best.name.endswith("0.5")
    assert [way.error for way in found.others if way.estimate is None] == ["the compiler gave up"]
    with pytest.raises(RunError, match="gave up"):
        chosen(of_peaks(estimate, None, 1, 1, 1, 1)[0])


def test_a_step_that_ended_early_is_no_answer(estimate: Estimate) -> None:
    broken = dataclasses.replace(estimate, incomplete="ValueError: no")
    with pytest.raises(RunError, match="it ended early: ValueError: no"):
        chosen(lambda _: broken)


def test_what_it_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise MissingDependencyError("torch 2.13.0 is not a CUDA build", "give one with --python")

    monkeypatch.setattr(launch, "find_torch", none)
    with pytest.raises(MissingDependencyError, match="its compiler says: torch 2") as error:
        advise(MODELS / "cnn.py", device="h100", mode="train", compiled=True)
    assert error.value.hint == "give one with --python"


@pytest.mark.parametrize("more", ({"samples_per_second": 9.0}, {"change_numbers": True}))
def test_what_a_compiled_job_cannot_be_asked(more: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="for one batch"):
        advise(MODELS / "cnn.py", device="h100", mode="train", compiled=True, **more)


def test_pytorchs_compiler_is_asked(tmp_path: Path) -> None:
    """With a CUDA build: less than the whole is kept, and the compiled step takes less than the eager one."""
    try:
        library.path()
        python = launch.find_torch(os.environ.get("ANALYZER_CUDA_PYTHON")).python
    except MissingDependencyError as error:
        pytest.skip(error.message)
    path = tmp_path / "net.py"
    path.write_text(NET)
    job = {"mode": "train", "optimizer": "sgd", "batch": 16384, "device": "h100"}
    whole: Advice = advise(path, compiled=True, python=python, **job)
    assert whole.best is not None and whole.best.estimate is not None and whole.best.typed == ""
    least = analyzer.analyze(path, **job)
    assert 0 < whole.best.estimate.peak_allocated <= least.peak_allocated
    used = whole.best.estimate.needed.device_used
    found = advise(path, compiled=True, python=python, budget=used - 32 * MIB, **job)
    assert found.best is not None and found.best.typed.startswith(compiled.SETTING)


def test_without_a_backward_pass_one_budget_is_all_there_is(estimate: Estimate) -> None:
    """Before, five were compiled, one after the other, for the same bytes."""
    taken, asked = of_peaks(dataclasses.replace(estimate, mode="infer"), *[700] * 5)
    found = chosen(taken)
    assert asked == [BUDGETS[0]] and len(found.ways) == 1
    assert found.notes == (
        "without a backward pass no activations are kept: a budget for them changes nothing",
    )
