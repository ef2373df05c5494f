"""Engines in frequency space: what they take, beside cuDNN's lists on a GPU and trials that were executed there."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import ASKED, UNKNOWN, choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.libraries.cudnn.spectral import spectral_bytes
from tests.libraries.cudnn.fakes import FakeAsker, with_asker
from tests.libraries.cudnn.test_settings import executed
from tests.paths import DATA

BENCHMARK = ConvolutionSettings(benchmark=True)
# The projection of an attention over 14 x 14 places: its trial took 28.9 GB on an H100 (minimal_diffusion of the public programs).
PROJECTION = Convolution(
    "forward", "float32", False, (64, 128, 1, 196), (384, 128, 1, 1), (0, 0), (1, 1), (1, 1)
)


def test_every_listed_engine_takes_what_the_rule_says() -> None:
    with gzip.open(DATA / "h200/convolution_plans.json.gz", "rt") as file:
        rows = json.load(file)["plans"]
    seen = 0
    for *told, plans in rows:
        call = Convolution(*told[:3], *map(tuple, told[3:8]))  # type: ignore[arg-type]
        taken = {row[1] for row in plans if (call.operation, row[0]) in (("forward", 3), ("weight", 18))}
        if taken and call.groups == 1 and call.dtype == "float32":
            assert spectral_bytes(call) in taken, call
            seen += 1
    assert seen == 332


def test_it_is_the_largest_of_most_trials_and_never_too_little() -> None:
    tried = [(call, taken) for call, taken, _ in executed() if taken and spectral_bytes(call)]
    assert all(taken <= spectral_bytes(call) for call, taken in tried)
    equal = [call for call, taken in tried if taken == spectral_bytes(call)]
    assert len(equal) > 0.9 * len(tried)


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "data"}, {"dtype": "float16"}, {"stride": (2, 2)}, {"dilation": (2, 2)}, {"padding": (0, 40)},
        {"x_shape": (64, 256, 1, 196)},
    ],
)  # fmt: skip
def test_there_is_none_for_other_calls(other: dict[str, object]) -> None:
    assert spectral_bytes(PROJECTION) and not spectral_bytes(replace(PROJECTION, **other))  # type: ignore[arg-type]


def test_a_trial_nobody_recorded_counts_it_down_to_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = FakeAsker({}, (Plan(67, 3000, tensor_core=True), Plan(1, 0)))
    with_asker(monkeypatch, asker)
    (found,) = choices_of(load("h100")).workspaces([PROJECTION], BENCHMARK, trial=True)
    assert (found.nbytes, found.low_bytes, found.source) == (30_299_848_704, 3000, UNKNOWN)
    (listed,) = choices_of(load("rtx4090")).workspaces([PROJECTION], BENCHMARK, trial=True)
    assert (listed.nbytes, listed.source) == (3000, ASKED)
