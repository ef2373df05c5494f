"""cuDNN's settings: benchmark mode's trials and winners as executed, TF32 off, deterministic, and what follows a plan."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, trial, workspace
from analyzer.libraries.cudnn.table import Convolution, write
from tests.paths import DATA

TRIALS = DATA / "h200" / "convolution_trials.json.gz"
BENCHMARK = ConvolutionSettings(benchmark=True)
CALL = Convolution("forward", "float32", False, (2, 8, 14, 16), (24, 8, 3, 3), (1, 1), (1, 1), (1, 1))


def executed() -> list[tuple[Convolution, int, int]]:
    """(call, largest request of its trials, workspace of the winner): calls executed in benchmark mode, twice each."""
    with gzip.open(TRIALS, "rt") as file:
        rows = json.load(file)["calls"]
    return [
        (Convolution(*row[:3], *(tuple(part) for part in row[3:8])), row[8], row[9])  # type: ignore[arg-type]
        for row in rows
    ]


def test_every_executed_trial_takes_what_the_table_says() -> None:
    """Recorded is what only the first of two calls requested: nothing where the winner takes as much."""
    for call, tried, winner in executed():
        found = trial(call, "h200", BENCHMARK)
        if call.x_shape[2:] == (1, 1):  # in both layouts at once: its plan may have been there before
            continue
        assert found.source == "measured"
        assert tried == found.nbytes or (tried == 0 and found.nbytes == winner), call


def test_the_plan_that_won_is_the_recorded_one_and_often_cudnns_first_choice() -> None:
    """Some calls were executed twice, and another plan was the faster one the second time."""
    seen = executed()
    assert all(winner <= trial(call, "h200", BENCHMARK).nbytes for call, _, winner in seen)
    assert sum(workspace(call, "h200", BENCHMARK).nbytes == winner for call, _, winner in seen) > 0.95 * len(
        seen
    )
    assert sum(workspace(call, "h200").nbytes == winner for call, _, winner in seen) > 0.6 * len(seen)


def test_a_winner_nobody_timed_is_a_guess_between_nothing_and_the_largest_timed(tmp_path: Path) -> None:
    found = workspace(CALL, table(tmp_path), BENCHMARK)
    assert (found.nbytes, found.low_bytes, found.high_bytes, found.source) == (100, 0, 700, "inferred")
    assert trial(CALL, table(tmp_path), BENCHMARK).nbytes == 900


def table(folder: Path) -> str:
    """CALL at batches 1 and 2."""
    path = folder / "mine.npz"
    prefix = "float32.nchw"
    figures = {
        "forward": [90, 100], "deterministic.forward": [-3, 0], "strict.forward": [80, -3], "trial.forward": [800, 900],
        "strict_trial.forward": [-3, 500], "deterministic_trial.forward": [-2, 400], "timed.forward": [-2, 700],
        "after1.forward": [-2, 60], "after2.forward": [-2, 0], "after3.forward": [-2, -1],
    }  # fmt: skip
    arrays = {f"{prefix}.{name}": np.array(values) for name, values in figures.items()}
    rows = {f"{prefix}.family": np.array([0, 0]), f"{prefix}.batch": np.array([1, 2])}
    write(path, {"family": np.array([CALL.family], np.int32), **rows, **arrays}, {"gpu": "mine"})
    return str(path)


@pytest.mark.parametrize(
    ("settings", "nbytes", "tried"),
    [
        (ConvolutionSettings(), 100, 900),
        (ConvolutionSettings(deterministic=True), 0, 400),
        (ConvolutionSettings(allow_tf32=False), 100, 500),
        (ConvolutionSettings(deterministic=True, allow_tf32=False), 100, 500),
    ],
)
def test_settings_have_answers_of_their_own(
    settings: ConvolutionSettings, nbytes: int, tried: int, tmp_path: Path
) -> None:
    path = table(tmp_path)
    assert workspace(CALL, path, settings).nbytes == nbytes
    assert trial(CALL, path, replace(settings, benchmark=True)).nbytes == tried


def test_tf32_is_float32s_alone() -> None:
    assert ConvolutionSettings(allow_tf32=False).figure("float16") == "first"
    assert ConvolutionSettings(allow_tf32=False, deterministic=True).figure("bfloat16") == "deterministic"
    assert ConvolutionSettings(allow_tf32=False).figure("float32", trial=True) == "strict_trial"


def test_an_answer_like_the_first_plans_votes_for_the_calls_own(tmp_path: Path) -> None:
    """At batch 4 nobody asked: without TF32 the nearest, batch 2, is as by default, so this one is too."""
    path = table(tmp_path)
    larger = replace(CALL, x_shape=(4, *CALL.x_shape[1:]))
    found = workspace(larger, path, ConvolutionSettings(allow_tf32=False))
    assert (found.nbytes, found.source) == (workspace(larger, path).nbytes, "inferred")


def test_a_trial_no_form_explains_grows_as_input_and_output_do(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    arrays = {"family": np.array([CALL.family], np.int32), "float32.nchw.family": np.array([0])}
    arrays |= {"float32.nchw.batch": np.array([2]), "float32.nchw.forward": np.array([0])}
    write(path, {**arrays, "float32.nchw.trial.forward": np.array([10_000_000])}, {"gpu": "mine"})
    twice = replace(CALL, x_shape=(4, *CALL.x_shape[1:]))
    assert trial(twice, str(path), BENCHMARK).nbytes == 20_000_000


def test_the_shipped_table_knows_settings() -> None:
    """ResNet-50's first convolution at batch 64."""
    stem = Convolution("forward", "float32", False, (64, 3, 224, 224), (64, 3, 7, 7), (3, 3), (2, 2), (1, 1))
    assert workspace(stem, "h200").nbytes == 244_093_712
    assert workspace(stem, "h200", ConvolutionSettings(allow_tf32=False)).nbytes == 0
    assert trial(stem, "h200", BENCHMARK).nbytes == 256_951_312
    assert trial(stem, "h200", ConvolutionSettings(benchmark=True, allow_tf32=False)).nbytes == 588
