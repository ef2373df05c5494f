"""Convolutions no table has are asked of cuDNN itself: first plan, settings, batches, next plans, products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from analyzer.devices import load, names
from analyzer.libraries.cudnn import asked
from analyzer.libraries.cudnn.answers import CudnnPlan
from analyzer.libraries.cudnn.batches import workspaces
from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, _asked, _figure, trial, workspace
from analyzer.libraries.cudnn.ladders import ladder
from analyzer.libraries.cudnn.table import Convolution, table_of_device

UNSEEN = Convolution("forward", "float32", False, (7, 61, 39, 39), (83, 61, 3, 3), (1, 1), (1, 1), (1, 1))
KNOWN = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
PLANS = (
    CudnnPlan(67, 3000, tensor_core=True),
    CudnnPlan(38, 5000, deterministic=False, tensor_core=True),
    CudnnPlan(25, 200, deterministic=False),
    CudnnPlan(1, 0),
)
TABLE = "sm89"


class FakeAsker:
    """Every convolution has the same plans. calls: those that were asked."""

    release = (9, 19)

    def __init__(self) -> None:
        self.calls: list[Convolution] = []

    def ask(self, calls: Sequence[Convolution]) -> list[tuple[CudnnPlan, ...] | None]:
        self.calls += calls
        return [PLANS] * len(calls)


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAsker]:
    made = FakeAsker()
    monkeypatch.setitem(asked._LIBRARIES, TABLE, asked.Library(made, load("rtx4090")))  # type: ignore[arg-type]
    for remembered in (_figure, _asked, ladder):
        remembered.cache_clear()
    yield made
    for remembered in (_figure, _asked, ladder):
        remembered.cache_clear()


def test_what_a_table_has_is_not_asked(asker: FakeAsker) -> None:
    assert workspace(KNOWN, TABLE).source == "measured" and not asker.calls


@pytest.mark.parametrize(
    ("settings", "runs", "tried"),
    [
        (ConvolutionSettings(), 3000, 5000),
        (ConvolutionSettings(deterministic=True), 3000, 3000),
        (ConvolutionSettings(allow_tf32=False), 200, 200),
    ],
)
@pytest.mark.usefixtures("asker")
def test_settings_choose_among_the_plans(settings: ConvolutionSettings, runs: int, tried: int) -> None:
    found = workspace(UNSEEN, TABLE, settings)
    assert (found.nbytes, found.low_bytes, found.high_bytes, found.source) == (runs, runs, runs, "asked")
    assert trial(UNSEEN, TABLE, settings).nbytes == tried


@pytest.mark.usefixtures("asker")
def test_the_next_plans_are_the_real_ones() -> None:
    assert ladder(UNSEEN, 3000, TABLE) == (3000, 200, 0)


def test_many_batches_are_asked_together(asker: FakeAsker) -> None:
    like = replace(UNSEEN, x_shape=(1, 62, 38, 38), w_shape=(83, 62, 3, 3))
    found = workspaces(like, np.array([3, 5, 9]), TABLE, ConvolutionSettings(allow_tf32=False))
    assert found is not None and found.tolist() == [200, 200, 200]
    assert [call.x_shape[0] for call in asker.calls][:3] == [3, 5, 9]


@pytest.mark.usefixtures("asker")
def test_a_plain_product_may_run_what_the_list_lacks() -> None:
    product = replace(UNSEEN, w_shape=(83, 61, 1, 1), padding=(0, 0))
    found = workspace(product, TABLE)
    assert (found.nbytes, found.low_bytes, found.high_bytes) == (0, 0, 3000)


def test_every_profile_has_a_description_of_its_own_figures() -> None:
    for name in names():
        profile = load(name)
        device = profile.cudnn_device
        major, minor = profile.compute_capability
        assert device["deviceVer"] == 100 * major + 10 * minor, name
        assert device["multiProcessorCount"] == profile.sm_count, name
        assert device["maxThreadsPerSM"] == profile.max_threads_per_sm, name
        assert set(device) == set(load("h200").cudnn_device), name
        assert "cudnn_device" in profile.sources, name
        assert table_of_device(profile)
