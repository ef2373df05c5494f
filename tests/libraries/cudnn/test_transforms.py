"""The engines that multiply Fourier transforms, as benchmark mode's trials took them on an H100 (torch 2.11, cuDNN 9.19, 26 November 2026)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.choices import ASKED, UNKNOWN, Choices, choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.description import description_of
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.libraries.cudnn.splits import H100_CLOCKS
from analyzer.libraries.cudnn.transforms import transforms_bytes
from tests.libraries.cudnn.fakes import LIBRARIES, FakeAsker, needs_cudnn, with_asker
from tests.libraries.cudnn.trials import executed
from tests.paths import DATA

BENCHMARK = ConvolutionSettings(benchmark=True)
# The projection of an attention over 14 x 14 places: its trial took 28.9 GB on an H100 (minimal_diffusion of the public programs).
PROJECTION = Convolution(
    "forward", "float32", False, (64, 128, 1, 196), (384, 128, 1, 1), (0, 0), (1, 1), (1, 1)
)


def convolution(
    operation: str, x: tuple[int, ...], w: tuple[int, ...], pad: int = 0, **more: object
) -> Convolution:
    dims = len(x) - 2
    geometry = {"padding": (pad,) * dims, "stride": (1,) * dims, "dilation": (1,) * dims}
    call = {"operation": operation, "dtype": "float32", "channels_last": False, "x_shape": x, "w_shape": w}
    return Convolution(**{**call, **geometry, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "measured"),
    [
        (convolution("forward", (64, 64, 1, 196), (192, 64, 1, 1)), 8_657_092_608),
        (convolution("weight", (64, 64, 1, 196), (192, 64, 1, 1)), 8_666_677_248),
        (convolution("forward", (64, 32, 1, 100), (96, 32, 1, 1)), 817_901_568),
        (convolution("weight", (64, 32, 1, 100), (96, 32, 1, 1)), 1_092_976_640),
        (convolution("forward", (8, 384, 57, 86), (192, 96, 4, 4), 1), 2_953_273_408),
        (convolution("forward", (2, 11, 114, 91), (32, 11, 3, 3), 1, channels_last=True), None),
        (convolution("data", (8, 1, 16, 94), (256, 1, 5, 5)), 19_009_536),
        (convolution("data", (6, 32, 17, 4), (11, 32, 3, 4), padding=(2, 2)), 2_654_720),
        (convolution("data", (3, 3, 78, 56), (16, 3, 3, 3), 1), 705_024),
    ],
    ids=str,
)  # fmt: skip
def test_what_they_took(call: Convolution, measured: int | None) -> None:
    found = transforms_bytes(call)
    assert found is not None
    if measured is not None:
        assert 0 <= measured - found <= 128
    else:  # all three tensors are laid out anew
        plain = transforms_bytes(convolution("forward", call.x_shape, call.w_shape, 1))
        x, w, y = 2 * 11 * 114 * 91, 32 * 11 * 9, 2 * 32 * 114 * 91
        assert plain is not None and found - plain == 4 * (x + w + y) + 16


@pytest.mark.parametrize(
    "call",
    [
        convolution("forward", (2, 3, 300, 20), (4, 3, 3, 3)),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), 3),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), stride=(2, 2)),
        convolution("weight", (2, 3, 20, 20), (4, 3, 3, 3), dilation=(2, 2)),
        convolution("data", (2, 3, 20, 20), (4, 3, 1, 1)),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), dtype="bfloat16"),
        convolution("forward", (2, 3, 9, 9, 9), (4, 3, 3, 3, 3)),
    ],
    ids=str,
)
def test_what_they_cannot_compute(call: Convolution) -> None:
    assert transforms_bytes(call) is None


def test_every_listed_engine_takes_what_the_rule_says() -> None:
    with gzip.open(DATA / "h200/convolution_plans.json.gz", "rt") as file:
        rows = json.load(file)["plans"]
    seen = 0
    for *told, plans in rows:
        call = Convolution(*told[:3], *map(tuple, told[3:8]))  # type: ignore[arg-type]
        taken = {
            row[1]
            for row in plans
            if (call.operation, row[0]) in (("forward", 3), ("data", 50), ("weight", 18))
        }
        if taken and call.groups == 1 and call.dtype == "float32" and max(call.stride) == 1:
            assert transforms_bytes(call) in taken, call
            seen += 1
    assert seen == 353


def test_it_is_the_largest_of_most_trials_and_never_too_little() -> None:
    tried = [
        (call, taken)
        for call, taken, _ in executed()
        if taken
        and call.operation != "data"
        and call.dtype == "float32"
        and call.groups <= 8
        and transforms_bytes(call)
    ]
    assert all(taken <= transforms_bytes(call) for call, taken in tried)
    equal = [call for call, taken in tried if taken == transforms_bytes(call)]
    assert len(equal) > 0.9 * len(tried)


def test_a_trial_nobody_recorded_counts_it_down_to_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = FakeAsker({}, (Plan(67, 3000, tensor_core=True), Plan(1, 0)))
    with_asker(monkeypatch, asker)
    (found,) = choices_of(load("h100")).workspaces([PROJECTION], BENCHMARK, trial=True)
    assert (found.nbytes, found.low_bytes, found.source) == (30_299_848_704, 3000, UNKNOWN)


def test_random_convolutions_take_it_but_for_their_alignment() -> None:
    """Every fifth call of the random ones for which a handle on an H100 listed such an engine."""
    rows = json.loads(gzip.decompress((DATA / "h100/transforms.json.gz").read_bytes()))["calls"]
    near = 0
    for *told, taken in rows:
        call = Convolution(*told[:3], *map(tuple, told[3:8]))  # type: ignore[arg-type]
        found = transforms_bytes(call)
        assert found is not None and abs(taken - found) <= 0.07 * taken, call
        near += abs(taken - found) <= 128
    assert len(rows) > 500 and near >= 0.95 * len(rows)


def test_with_larger_strides_they_take_what_is_computed() -> None:
    """260 gradients of the input drawn by lot: what a handle on an H100 says of engine 50, where it lists it."""
    rows = json.loads(gzip.decompress((DATA / "h100/strided_transforms.json.gz").read_bytes()))["calls"]
    listed = 0
    for *geometry, nbytes in rows:
        call = Convolution("data", "float32", False, *map(tuple, geometry), dilation=(1, 1))  # type: ignore[arg-type]
        if nbytes is not None:
            assert transforms_bytes(call) == nbytes, call
            listed += 1
    assert listed == 208


def test_benchmark_mode_tries_what_the_log_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the first ten that are timed, one on cuBLAS computes half precision in float32 and is not taken to win."""
    asker = FakeAsker({}, (Plan(3, 9000), Plan(47, 100, tensor_core=True), *[Plan(1, 50)] * 9, Plan(6, 9999)))
    asker.ranks_unusable = True
    with_asker(monkeypatch, asker)
    image = convolution("forward", (128, 16, 32, 32), (16, 16, 3, 3), 1)
    half = convolution("forward", (128, 16, 32, 32), (16, 16, 3, 3), 1, dtype="float16")
    for call, wins in ((image, 9000), (half, 100)):
        choices = choices_of(load("a100-40gb"))
        (tried,), (won,) = (choices.workspaces([call], BENCHMARK, trial=trial) for trial in (True, False))
        assert (tried.nbytes, tried.source) == (9999, ASKED)
        assert (won.nbytes, won.low_bytes, won.high_bytes, won.source) == (wins, 0, 9000, UNKNOWN)


@needs_cudnn
def test_benchmark_mode_as_an_h100_ran_it(tmp_path: Path) -> None:
    """Every third of 752 convolutions: the trials' workspace, and how far the winner's lies from what is said."""
    rows = json.loads(gzip.decompress((DATA / "h100/tried_plans.json.gz").read_bytes()))["calls"][::3]
    asker = Asker(LIBRARIES[0], description_of(load("h100")), tmp_path)
    choices = Choices(None, asker, 132, (9, 0), H100_CLOCKS)
    calls = [Convolution.read(fields) for fields, _ in rows]
    tried = choices.workspaces(calls, BENCHMARK, trial=True)
    won = choices.workspaces(calls, BENCHMARK)
    same = 0
    for (_, requests), trial, winner in zip(rows, tried, won, strict=True):
        first, second = ([_block(nbytes) for nbytes in requests] + [0, 0])[:2]
        assert abs(_block(trial.nbytes) - max(first, second)) <= 512
        same += _block(trial.nbytes) == max(first, second)
        assert len(requests) < 3 and _block(winner.high_bytes) >= second
    assert same > 0.98 * len(rows)


def _block(nbytes: int) -> int:
    return -(-nbytes // 512) * 512
