"""Tables of GPUs that were not there: what cuDNN answered for their public figures, asked a second time apart from the tables.

`tests/data/elsewhere/cudnn_sample.npz`: 1,240 calls of the H200's table (`families`, `entries` as lists of calls have them); `first`:
(GPU, call, operation, bytes) of first plans; `plans`: (call, operation, engine, bytes asked through a handle, bytes asked with a
description) of the H200's plans.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.convolutions import workspace
from analyzer.libraries.cudnn.ladders import ladder
from analyzer.libraries.cudnn.table import (
    OPERATIONS,
    Convolution,
    convolution_of,
    measurements,
    table_of_device,
)
from analyzer.libraries.cudnn.votes import neighbours

SAMPLE = Path(__file__).parents[2] / "data" / "elsewhere" / "cudnn_sample.npz"
GROUPS = tuple(
    f"{dtype}.{layout}" for dtype in ("float32", "bfloat16", "float16") for layout in ("nchw", "nhwc")
)
TABLES = ("sm75", "sm80", "sm86", "sm89", "sm120")
# Engines of Hopper alone, by operation: what they take is not said without a handle.
HOPPER = {"forward": {62, 67}, "data": {67, 71}, "weight": {65, 68}}


@pytest.fixture(scope="module")
def sample() -> dict[str, np.ndarray]:
    with np.load(SAMPLE) as members:
        return dict(members)


def call_of(sample: dict[str, np.ndarray], number: int, operation: str) -> Convolution:
    family, group, batch = sample["entries"][number].tolist()
    dtype, _, layout = GROUPS[group].partition(".")
    like = Convolution(operation, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ())
    return convolution_of(sample["families"][family], batch, like)


def test_a_description_says_what_a_handle_says(sample: dict[str, np.ndarray]) -> None:
    """All plans of 900 calls: the bytes differ for Hopper's engines alone."""
    differ = sample["plans"][sample["plans"][:, 3] != sample["plans"][:, 4]]
    assert len(sample["plans"]) > 30_000 and len(differ) > 5_000
    for operation, engine in np.unique(differ[:, 1:3], axis=0).tolist():
        assert engine in HOPPER[OPERATIONS[operation]]


@pytest.mark.parametrize("place", range(len(TABLES)), ids=TABLES)
def test_what_is_in_the_table_is_what_is_answered(sample: dict[str, np.ndarray], place: int) -> None:
    """What was asked is right, but for one call (clocks); what was not, by vote, in more than half."""
    asked, voted = [], []
    for gpu, number, operation, nbytes in sample["first"].tolist():
        if gpu == place and number % 8 == 0:
            found = workspace(call_of(sample, number, OPERATIONS[operation]), TABLES[place])
            right = -(-found.nbytes // 512) == -(-nbytes // 512)
            (asked if found.source == "measured" else voted).append(right)
            assert found.low_bytes <= found.nbytes <= found.high_bytes
    assert len(asked) > 80 and len(voted) > 150
    assert sum(asked) >= len(asked) - 1
    assert sum(voted) > 0.5 * len(voted)


def test_gpus_of_one_compute_capability_share_a_table() -> None:
    assert (
        table_of_device(load("rtx3090")) == "sm86" == table_of_device(replace(load("rtx3090"), sm_count=28))
    )
    assert table_of_device(load("h200")) == "h200" == table_of_device(load("h100"))
    assert table_of_device(load("a100-40gb")) == table_of_device(load("a100-80gb")) == "sm80"
    assert measurements(table_of_device(load("t4"))).name == "sm75"


@pytest.mark.parametrize(
    ("gpu", "torch", "table"),
    [
        ("rtx4090", (2, 0), "sm86"),
        ("rtx4090", (2, 1), "sm89"),
        ("l4", (1, 13), "sm86"),
        ("rtx3090", (2, 0), "sm86"),
        ("rtx3090", (1, 7), "sm80"),
        ("a100-40gb", (1, 7), "sm80"),
    ],
)
def test_an_older_cudnn_runs_what_the_architecture_before_runs(
    gpu: str, torch: tuple[int, int], table: str
) -> None:
    found = load(gpu)
    assert table_of_device(replace(found, releases={**found.releases, "torch": torch})) == table


def test_without_a_table_the_nearest_stands_in_and_says_so() -> None:
    call = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    titan = table_of_device(replace(load("t4"), sm_count=72))
    for name, stand_in in ((titan, "sm75"), (table_of_device(load("v100")), "sm75"), ("sm100", "h200")):
        found = workspace(call, name)
        assert found.source == f"measured (transferred from {stand_in})"
        assert found.nbytes == workspace(call, stand_in).nbytes


def test_where_nobody_votes_the_h200_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Convolution("forward", "float32", False, (32, 64, 57, 57), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    monkeypatch.setattr(measurements("sm86"), "nearest", lambda *_, **__: iter(()))
    neighbours.cache_clear()
    found = workspace(call, "sm86")
    neighbours.cache_clear()
    assert found.source == "inferred (transferred from h200)"
    assert found.nbytes == workspace(call, "h200").nbytes


def test_the_next_plans_are_those_of_the_gpu_itself() -> None:
    """ResNet-18's second layer: a table asked with all its plans has the ladder of its own GPU."""
    call = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    for name in TABLES:
        first = workspace(call, name).nbytes
        steps = ladder(call, first, name)
        assert steps[0] == first and steps[-1] == 0 and list(steps) == sorted(steps, reverse=True)
