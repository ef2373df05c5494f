"""cuDNN's settings: benchmark mode's trials and winners as executed, TF32 off, deterministic, and what follows a plan."""

from __future__ import annotations

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import Workspace, choices_of
from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.plans import DEFAULT, ConvolutionSettings
from tests.libraries.cudnn.trials import executed

BENCHMARK = ConvolutionSettings(benchmark=True)
H200 = choices_of(load("h200"))


def workspace(call: Convolution, settings: ConvolutionSettings = DEFAULT) -> Workspace:
    return H200.workspace(call, settings)


def trial(call: Convolution) -> Workspace:
    return H200.workspaces([call], BENCHMARK, trial=True)[0]


def test_every_executed_trial_takes_what_the_table_says() -> None:
    """Recorded is what only the first of two calls requested: nothing where the winner takes as much."""
    for call, tried, winner in executed():
        found = trial(call)
        if call.x_shape[2:] == (1, 1):  # in both layouts at once: its plan may have been there before
            continue
        assert found.source == "measured"
        assert tried == found.nbytes or (tried == 0 and found.nbytes == winner), call


def test_the_plan_that_won_is_the_recorded_one_and_often_cudnns_first_choice() -> None:
    """Some calls were executed twice, and another plan was the faster one the second time."""
    seen = executed()
    assert all(winner <= trial(call).nbytes for call, _, winner in seen)
    assert sum(workspace(call, BENCHMARK).nbytes == winner for call, _, winner in seen) > 0.95 * len(seen)
    assert sum(workspace(call).nbytes == winner for call, _, winner in seen) > 0.6 * len(seen)
