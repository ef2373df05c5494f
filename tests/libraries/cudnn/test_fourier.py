"""cuDNN's Fourier transform engines and benchmark mode's trials, against plans listed and calls executed on an H200."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, trial, workspace
from analyzer.libraries.cudnn.fourier import fourier_bytes
from analyzer.libraries.cudnn.table import Convolution, write
from tests.paths import DATA

ENGINES = {"forward": 3, "data": 50, "weight": 18}
BENCHMARK = ConvolutionSettings(benchmark=True)
MIB = 2**20
# DCGAN's second convolution (the third of its generator transposed): batch 64, float32.
DCGAN = Convolution("data", "float32", False, (64, 256, 8, 8), (512, 256, 4, 4), (1, 1), (2, 2), (1, 1))


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    with gzip.open(DATA / "h200" / "convolution_plans.json.gz", "rt") as file:
        found: dict[str, Any] = json.load(file)
    return found


def listed() -> Iterator[tuple[Convolution, list[list[int]]]]:
    for operation, dtype, channels_last, *shapes, plans in recorded()["plans"]:
        yield Convolution(operation, dtype, channels_last, *(tuple(shape) for shape in shapes)), plans


def executed(benchmark: bool) -> Iterator[tuple[str, Convolution, int, int]]:
    """(network, call, bytes beyond the result at the first and the second execution)."""
    for network in recorded()["executed"]:
        if network["benchmark"] != benchmark:
            continue
        for operation, number, first, second, _ in network["calls"]:
            shapes = [tuple(shape) for shape in network["convolutions"][number]]
            call = Convolution(operation, network["dtype"], network["channels_last"], *shapes)
            yield network["name"], call, first, second


def is_pytorchs_own(call: Convolution) -> bool:
    """Depthwise in NCHW: some of float16's are PyTorch's kernels (`scratch/convolution.py`)."""
    return call.groups == call.x_shape[1] > 1 and not call.channels_last


def test_every_fourier_plan_takes_what_its_formula_says() -> None:
    found = {
        call: sizes
        for call, plans in listed()
        if call.dtype == "float32"
        and (sizes := {size for engine, size, *_ in plans if engine == ENGINES[call.operation]})
        and fourier_bytes(call) is not None
    }
    assert len(found) > 500
    assert {call.operation for call in found} == set(ENGINES)
    assert {call.groups > 1 for call in found} == {call.channels_last for call in found} == {True, False}
    assert [call for call, sizes in found.items() if sizes != {fourier_bytes(call)}] == []


def test_no_formula_where_there_is_no_such_engine() -> None:
    assert fourier_bytes(replace(DCGAN, dtype="float16")) is None
    assert fourier_bytes(replace(DCGAN, dilation=(2, 2))) is None
    assert fourier_bytes(replace(DCGAN, operation="forward")) is None  # stride 2
    assert fourier_bytes(replace(DCGAN, stride=(4, 4))) is None
    wide = Convolution("weight", "float32", False, (1, 64, 300, 300), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    assert fourier_bytes(wide) is None
    assert fourier_bytes(replace(wide, x_shape=(1, 64, 200, 200))) is not None


def test_executed_trials_are_what_is_predicted() -> None:
    """Recorded is the peak: the winner's workspace is never more than the trials'."""
    seen = [row for row in executed(benchmark=True) if not is_pytorchs_own(row[1])]
    wrong = [
        (name, call)
        for name, call, first, _ in seen
        if abs(trial(call, "h200", BENCHMARK).nbytes - first) > 512  # one block
    ]
    assert len(seen) > 2500
    assert len(wrong) <= 0.005 * len(seen), wrong


def test_dcgans_trials_are_the_fourier_engines() -> None:
    nbytes = fourier_bytes(DCGAN)
    assert nbytes is not None and 2500 * MIB < nbytes < 2700 * MIB
    assert trial(DCGAN, "h200", BENCHMARK).nbytes == nbytes
    unseen = replace(DCGAN, x_shape=(61, 256, 8, 8))
    assert trial(unseen, "h200", BENCHMARK).nbytes == fourier_bytes(unseen)


def test_a_neighbour_of_the_fourier_engine_votes_for_the_calls_own(tmp_path: Any) -> None:
    """Half as many channels measured, at another batch: no form carries over what the formula does."""
    near = replace(DCGAN, x_shape=(16, 128, 8, 8), w_shape=(256, 128, 4, 4))
    path = tmp_path / "mine.npz"
    prefix = "float32.nchw"
    arrays = {"family": np.array([near.family], np.int32), f"{prefix}.family": np.array([0])}
    arrays |= {f"{prefix}.batch": np.array([16]), f"{prefix}.data": np.array([0])}
    write(path, {**arrays, f"{prefix}.trial.data": np.array([fourier_bytes(near)])}, {"gpu": "mine"})
    assert trial(DCGAN, str(path), BENCHMARK).nbytes == fourier_bytes(DCGAN)


def test_one_dimensional_dilated_convolutions_take_what_was_executed() -> None:
    """Those of a temporal convolutional network, benchmark mode off."""
    seen = [row for row in executed(benchmark=False) if row[0].startswith("tcn")]
    assert len(seen) > 200
    wrong = [call for _, call, first, _ in seen if abs(workspace(call, "h200").nbytes - first) > 512]
    assert len(wrong) <= 0.02 * len(seen), wrong
