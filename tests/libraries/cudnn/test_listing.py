"""The list of plans has the figures it was made from."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzer.libraries.cudnn.answers import figures
from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, trial, workspace
from analyzer.libraries.cudnn.ladders import steps
from analyzer.libraries.cudnn.listing import Listing, listing
from analyzer.libraries.cudnn.table import (
    AS_FIRST,
    FASTEST,
    FIGURES,
    FIRST,
    NOT_ASKED,
    OPERATIONS,
    TIMED,
    TRIAL,
    Convolution,
    convolution_of,
    measurements,
    member_of,
)

UNSEEN = Convolution("forward", "float32", False, (7, 61, 39, 39), (83, 61, 3, 3), (1, 1), (1, 1), (1, 1))


def rows(group: str, operation: str, figure: str, count: int) -> list[int]:
    """Places in the table where a figure was asked for."""
    table = measurements("h200")
    member = member_of(group, operation, figure)
    known = np.flatnonzero(table.array(member) >= 0) if member in table.members else np.empty(0, int)
    return random.Random(group + operation).sample(known.tolist(), min(count, len(known)))


def call_at(group: str, operation: str, row: int) -> Convolution:
    table = measurements("h200")
    dtype, _, layout = group.partition(".")
    like = Convolution(operation, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ())
    family = table.families[int(table.array(f"{group}.family")[row])]
    return convolution_of(family, int(table.array(f"{group}.batch")[row]), like)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("group", ["float32.nchw", "float32.nhwc", "float16.nchw", "float16.nhwc"])
def test_a_list_has_the_figures_that_cudnn_was_asked_for(group: str, operation: str) -> None:
    table = measurements("h200")
    chosen = rows(group, operation, TRIAL, 25)
    assert chosen
    for row in chosen:
        found = dict(
            zip(
                FIGURES,
                figures(listing(call_at(group, operation, row), "h200").plans, group.partition(".")[0]),
                strict=True,
            )
        )
        first = int(table.array(member_of(group, operation, FIRST))[row])
        for figure in FIGURES:
            member = member_of(group, operation, figure)
            told = int(table.array(member)[row]) if member in table.members else NOT_ASKED
            if figure not in (TIMED, FASTEST) and told != NOT_ASKED:
                assert (found[figure], found[FIRST])[found[figure] == AS_FIRST] == (told, first)[
                    told == AS_FIRST
                ], (row, figure)


def run_under(found: Listing, settings: ConvolutionSettings) -> list[int]:
    """Workspaces in the order PyTorch comes to them (`filterEngineConfigs`)."""
    return [
        plan.workspace_bytes
        for plan in found.plans
        if (plan.deterministic or not settings.deterministic)
        and (settings.allow_tf32 or not plan.tensor_core)
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_where_nobody_asked_the_votes_are_in_it(operation: str, batch: int) -> None:
    call = Convolution(
        operation, "float32", False, (batch, *UNSEEN.x_shape[1:]), UNSEEN.w_shape, (1, 1), (1, 1), (1, 1)
    )
    found = listing(call, "h200")
    for settings in (
        ConvolutionSettings(),
        ConvolutionSettings(deterministic=True),
        ConvolutionSettings(allow_tf32=False),
    ):
        sizes = run_under(found, settings)
        assert sizes[0] == steps(call, "h200", settings)[1][0]
        assert max(sizes) >= trial(call, "h200", settings).nbytes
    assert found.known[""].source == "inferred"


def test_without_room_the_ladder_is_asked_for_and_nothing_between() -> None:
    call = call_at("float32.nchw", "data", rows("float32.nchw", "data", TRIAL, 1)[0])
    refused: list[int] = []
    for nbytes in run_under(listing(call, "h200"), ConvolutionSettings()):
        if not refused or nbytes < min(refused):
            refused.append(nbytes)
    assert tuple(refused) == steps(call, "h200", ConvolutionSettings())[1]


def test_the_plan_that_won_the_trials_is_marked() -> None:
    chosen = rows("float32.nchw", "forward", FASTEST, 20)
    assert chosen
    for row in chosen:
        call = call_at("float32.nchw", "forward", row)
        found = listing(call, "h200")
        assert (
            found.plans[found.fastest].workspace_bytes
            == workspace(call, "h200", ConvolutionSettings(benchmark=True)).nbytes
        )
        assert found.fastest < 10  # benchmark mode times no more
