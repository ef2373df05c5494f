"""A step played: what bounds it, what waits, what lies in the cache; and measured steps beside what is said of them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from analyzer.devices import load
from analyzer.graph import Graph, Phase, Run, StreamWait
from analyzer.graph.model import Communicator
from analyzer.results.step_time import StepTime
from analyzer_timing.rates import rates_of
from analyzer_timing.residency import Residency
from analyzer_timing.step import step_time
from analyzer_timing.traffic import from_host
from tests.extensions.timing.graphs import H100, call, products, storage, tensor
from tests.values import not_values


def timed(graph: Graph) -> StepTime:
    """On an H100."""
    found = step_time(graph, H100)
    assert found is not None
    return found


def test_small_products_wait_for_the_host_and_large_ones_compute() -> None:
    small, large = timed(products(50, 64)), timed(products(50, 4096))
    assert small.bound == "host"
    assert small.seconds == pytest.approx(small.host_seconds, rel=0.05)
    assert large.bound == "compute"
    assert large.device_seconds < large.seconds < 1.05 * large.device_seconds


def test_a_range_holds_the_figure() -> None:
    for graph in (products(50, 64), products(5, 4096)):
        found = timed(graph)
        assert found.low <= found.seconds <= found.high
        assert found.device_range[0] <= found.device_seconds <= found.device_range[1]


def test_the_parts_sum_to_the_whole() -> None:
    found = timed(products(4, 2048))
    for sums in (found.by_phase, found.by_module, found.by_line, found.by_kind):
        assert sum(sums.values()) == pytest.approx(found.device_seconds)


def test_the_peak_of_a_type_is_what_a_large_product_is_near() -> None:
    exact, half = timed(products(5, 8192)), timed(products(5, 8192, "bfloat16"))
    operations = 5 * 2 * 8192**3
    assert 40e12 < operations / exact.device_seconds < 67e12
    assert 550e12 < operations / half.device_seconds < 990e12


def test_a_host_that_waits_hands_nothing_over_meanwhile() -> None:
    graph = products(40, 1024)
    waiting = dataclasses.replace(
        graph, program=tuple(moment for run in graph.program for moment in (run, StreamWait(0)))
    )
    assert timed(waiting).seconds > timed(graph).seconds


def test_other_gpus_are_scaled_with_a_wider_range() -> None:
    here, there = timed(products(20, 4096)), step_time(products(20, 4096), load("a100-80gb"))
    assert there is not None
    assert there.source.startswith("scaled from H100")
    assert here.source == "measured on H100"
    assert there.device_seconds > 2 * here.device_seconds
    assert there.high / there.seconds > here.high / here.seconds


def test_nothing_is_said_of_other_programs() -> None:
    graph = products(2, 64)
    assert step_time(dataclasses.replace(graph, framework="onnx"), H100) is None
    assert step_time(dataclasses.replace(graph, operators=(), program=()), H100) is None
    assert step_time(dataclasses.replace(graph, communicators={"0": Communicator(0, 0, 2)}), H100) is None
    assert step_time(graph, dataclasses.replace(H100, name="24GiB", nvml_names=())) is None


def test_the_cache_holds_what_was_touched_lately() -> None:
    storages = (storage(0, 8 << 20), storage(1, 8 << 20), storage(2, 64 << 20), storage(3, 64 << 20))
    residency = Residency(storages, 50 << 20)
    first = call(0, "aten::relu.default", (tensor(0, 2 << 20),), (tensor(1, 2 << 20),))
    again = call(1, "aten::relu.default", (tensor(1, 2 << 20),), (tensor(0, 2 << 20),))
    large = call(2, "aten::relu.default", (tensor(2, 16 << 20),), (tensor(3, 16 << 20),))
    assert residency.missing(first) == 1.0
    assert residency.missing(again) == 0.0
    assert residency.missing(large) == 1.0
    assert residency.missing(first) == 1.0


def test_the_last_iteration_counts() -> None:
    graph = products(4, 2048)
    steps = tuple(dataclasses.replace(o, step=o.index // 2, phase=Phase.FORWARD) for o in graph.operators)
    found = timed(dataclasses.replace(graph, operators=steps, program=tuple(Run(n) for n in range(4))))
    assert found.device_seconds == pytest.approx(timed(graph).device_seconds / 2, rel=0.05)


def test_values_do_not_change() -> None:
    assert not not_values("analyzer_timing")


def test_it_is_plain_enough_for_json() -> None:
    assert json.loads(json.dumps(dataclasses.asdict(timed(products(2, 256)))))["bound"] == "host"


@pytest.mark.parametrize(
    ("tag", "within"),
    [("resnet18 64 infer", 0.1), ("mnist_fc 8192", 0.3), ("diffusion 32 train", 0.15), ("r3d_18", 0.15)],
)
def test_measured_steps_are_near(tag: str, within: float) -> None:
    pytest.importorskip("benchmarks.subjects.networks.torchvision_cpu").enable()
    from benchmarks.timing.score import rows

    (row,) = rows(tag)
    device, _, _ = row.errors
    assert abs(device) < within
    assert row.holds[2]


def test_a_slower_host_hands_over_more_slowly() -> None:
    graph = products(50, 64)
    own = step_time(
        graph, dataclasses.replace(H100, name="my-h100", host_factor=2.0)
    )  # a calibrated profile's name
    assert own is not None
    assert own.host_seconds == pytest.approx(2 * timed(graph).host_seconds)
    assert own.device_seconds == timed(graph).device_seconds


def test_a_copy_from_the_host_begins_when_its_first_part_is_in_the_drivers_buffer() -> None:
    """Which is copied while the device still works on something else."""
    elements = 1 << 18
    copied = call(0, "aten::_to_copy.default", (tensor(0, elements),), (tensor(1, elements),))
    product = products(1, 4096).operators[0]
    memory = (storage(0, 4 * elements, on_device=False), storage(1, 4 * elements))
    alone = timed(Graph("pytorch", memory, (copied,), (Run(0),)))
    rates = rates_of(H100)
    assert rates is not None
    staging = from_host(4 * elements, rates).staged
    assert staging == pytest.approx(2**20 / 13e9)
    assert from_host(100 * 2**20, rates).staged == staging  # the rest is copied meanwhile
    assert alone.seconds == pytest.approx(alone.host_seconds + staging + alone.device_seconds, abs=2e-6)
    moved = dataclasses.replace(
        product,
        index=1,
        arguments=(tensor(2, 4096, 4096), tensor(3, 4096, 4096)),
        outputs=(tensor(4, 4096, 4096),),
    )
    larger = tuple(storage(number, 4 * 4096 * 4096) for number in (2, 3, 4))
    both = timed(Graph("pytorch", (*memory, *larger), (copied, moved), (Run(0), Run(1))))
    assert both.seconds == pytest.approx(both.device_seconds, rel=0.01)


def test_copies_from_the_host_are_off_together() -> None:
    """What pageable memory takes depends on the process: two copies are as uncertain as one of both."""
    whole, half = (
        call(0, "aten::_to_copy.default", (tensor(0, elements),), (tensor(1, elements),))
        for elements in (2**23, 2**22)
    )
    memory = (storage(0, 2**25, on_device=False), storage(1, 2**25))
    one = timed(Graph("pytorch", memory, (whole,), (Run(0),)))
    halves = (half, dataclasses.replace(half, index=1))
    two = timed(Graph("pytorch", memory, halves, (Run(0), Run(1))))
    assert two.device_range[1] / two.device_seconds == pytest.approx(
        one.device_range[1] / one.device_seconds, rel=0.02
    )
