"""Curves under any runtime: one that looks at the graph alone needs a few captures, one that says nothing needs one a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from analyzer.allocators import create
from analyzer.devices import DeviceProfile
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline.workload import Workload
from analyzer.planning.curve import curve
from analyzer.planning.fit import fit
from analyzer.planning.intervals import figures_of
from analyzer.results.curve import Row
from analyzer.runtimes import base
from analyzer.runtimes.base import Prediction, Runtime, Source
from analyzer.runtimes.batches import Batches, OfGraph, ParametricCapture
from analyzer.runtimes.events import Malloc
from tests.paths import MODELS
from tests.planning.targets import Small, small_batch


class Keeping(Runtime):
    """Keeps every storage until the end."""

    name = "keeping"

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        del options
        storages = source.graph.storages
        return Prediction(
            tuple(Malloc(s.index, s.nbytes, s.category, -1, s.index) for s in storages if s.on_device),
            lambda: create("pytorch"),
            lambda simulation: simulation.peak_reserved + profile.context_bytes,
        )


class Joining(Keeping):
    """The same, told of the joined graph."""

    name = "joining"

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches:
        return OfGraph(self, parametric, profile, options)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_registered", {"keeping": Keeping(), "joining": Joining()})


def rows_of(workload: Workload, batches: range) -> list[Row]:
    """Each batch by an analysis of its own."""
    found = [figures_of(workload.analysis(batch)) for batch in batches]
    return [Row(f.batch, f.peak_allocated, f.peak_reserved, f.device_used, f.naive) for f in found]


@pytest.mark.parametrize(
    ("runtime", "mode"), [("joining", "infer"), ("paddle", "train"), ("tensorflow", "train")]
)
@pytest.mark.sampled(1)
def test_a_joined_curve_is_that_of_analyses(runtime: str, mode: str) -> None:
    def workload() -> Workload:
        given: Any = {"inputs": small_batch, "mode": mode, "runtime": runtime, "device": "h200"}
        return Workload(Small(), Options.of(given))

    found = curve(workload(), range(2, 18))
    assert len(found.captures) <= 4
    assert list(found.rows) == rows_of(workload(), range(2, 18))


@pytest.mark.parametrize("runtime", ["paddle", "tensorflow"])
def test_a_file_too(runtime: str) -> None:
    options = Options.of({"runtime": runtime, "device": "h200"})
    found = curve(Workload(MODELS / "cnn.onnx", options), range(1, 13))
    assert len(found.captures) <= 4
    assert list(found.rows) == rows_of(Workload(MODELS / "cnn.onnx", options), range(1, 13))


def test_a_runtime_that_says_nothing_is_asked_about_each_batch() -> None:
    given: Any = {"inputs": small_batch, "runtime": "keeping", "device": "h200"}
    found = curve(Workload(Small(), Options.of(given)), range(2, 10))
    assert found.captures == tuple(range(2, 10))
    assert list(found.rows) == rows_of(Workload(Small(), Options.of(given)), range(2, 10))


@pytest.mark.parametrize("runtime", ["keeping", "joining"])
def test_the_largest_batch(runtime: str) -> None:
    found = fit(Small(), small_batch, runtime=runtime, device="2GiB")
    assert found.at is not None and found.beyond is not None
    assert found.at.device_used <= 2 * 2**30 < found.beyond.device_used


def test_no_limit_of_its_own() -> None:
    with pytest.raises(OptionError, match="keeping has no option for what its allocator may hold"):
        fit(Small(), small_batch, runtime="keeping", limit="1GiB")


class TwoStreams(nn.Module):
    """Waits for one stream while another still uses a tensor that is gone: its block serves nobody yet."""

    def forward(self, x: Tensor) -> Tensor:
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(one):
            y = torch.relu(x)
        y.record_stream(two)
        del y
        one.synchronize()
        with torch.cuda.stream(one):
            return torch.relu(x) * torch.relu(x)


def test_a_wait_is_for_the_stream_it_names() -> None:
    def workload() -> Workload:
        given: Any = {"inputs": lambda batch: ((torch.randn(batch, 4096),), ()), "device": "h200"}
        return Workload(TwoStreams(), Options.of(given))

    found = curve(workload(), range(1000, 1010))
    assert len(found.captures) <= 4
    assert list(found.rows) == rows_of(workload(), range(1000, 1010))
