"""Many batch sizes at once: what `convolutions.workspace` and `ladders.ladder` say, call by call."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from analyzer.libraries.cudnn import batches as at_once
from analyzer.libraries.cudnn.convolutions import DEFAULT, ConvolutionSettings, workspace
from analyzer.libraries.cudnn.ladders import ladder
from analyzer.libraries.cudnn.table import OPERATIONS, Convolution, convolution_of, measurements

BATCHES = (*range(1, 40), 64, 65, 100, 127, 128, 200, 201, 333, 512)


def calls() -> list[Convolution]:
    """Measured families, and others near none: of every operation and type."""
    draw = random.Random(9)
    table = measurements("h200")
    found = []
    for _ in range(18):
        like = Convolution(
            draw.choice(OPERATIONS), draw.choice(("float32", "bfloat16", "float16")), draw.random() < 0.3,
            (1, 1), (1, 1), (), (), (),
        )  # fmt: skip
        call = convolution_of(draw.choice(table.families), 1, like)
        if draw.random() < 0.5:
            images, filters = call.x_shape, call.w_shape
            call = replace(call, x_shape=(1, images[1], *(size + 3 for size in images[2:])), w_shape=filters)
        found.append(call)
    return found


def alone(call: Convolution, settings: ConvolutionSettings) -> int:
    found = workspace(call, "h200", settings).nbytes
    return ladder(call, found)[0] if settings == DEFAULT else found


@pytest.mark.parametrize(
    "settings",
    [DEFAULT, ConvolutionSettings(deterministic=True), ConvolutionSettings(allow_tf32=False)],
    ids=str,
)
def test_each_batch_is_as_alone(settings: ConvolutionSettings) -> None:
    told = 0
    for call in calls():
        found = at_once.workspaces(call, np.array(BATCHES), "h200", settings)
        expected = [alone(replace(call, x_shape=(b, *call.x_shape[1:])), settings) for b in BATCHES]
        told += found is not None  # a convolution like none that was asked about is told one by one
        assert found is None or found.tolist() == expected, call
    assert told > 12


def test_benchmark_mode_is_asked_one_by_one() -> None:
    assert (
        at_once.workspaces(calls()[0], np.array([1, 2]), "h200", ConvolutionSettings(benchmark=True)) is None
    )
