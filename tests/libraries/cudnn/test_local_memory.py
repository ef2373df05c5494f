"""Local memory that kernels tried in benchmark mode leave behind, against what NVML counted after each call on an H200."""

from __future__ import annotations

import gzip
import json

from analyzer.devices import load
from analyzer.graph import TensorMeta
from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.local_memory import local_memory
from analyzer.runtimes.pytorch.scratch import kernel_allocations
from tests.paths import DATA
from tests.schemas import called

MIB = 2**20
PLANS = DATA / "h200" / "convolution_plans.json.gz"


def test_kernels_that_keep_local_memory_are_those_recorded() -> None:
    """What NVML grew by at once, beyond modules: none but the calls the rule names, and all of them."""
    profile = load("h200")
    with gzip.open(PLANS, "rt") as file:
        networks = json.load(file)["executed"]
    for network in networks:
        before, held = network["begin"], set[str]()
        for operation, number, _, _, outside in network["calls"]:
            shapes = [tuple(shape) for shape in network["convolutions"][number]]
            call = Convolution(operation, network["dtype"], network["channels_last"], *shapes)
            family = local_memory(call) if network["benchmark"] else None
            expected = profile.modules_bytes[family] if family is not None and family not in held else 0
            held |= {family} if family is not None else set()
            assert abs(outside - before - expected) <= 12 * MIB, (network["name"], call)
            before = outside


def test_it_is_counted_once_in_benchmark_mode_alone() -> None:
    shape, filter_shape = (32, 672, 14, 14), (672, 1, 5, 5)
    x = TensorMeta(0, shape, (672 * 196, 196, 14, 1), "float16")
    w = TensorMeta(1, filter_shape, (25, 25, 5, 1), "float16")
    numbers = ((1, 1), (2, 2), (1, 1), False, (0, 0), 672, (False, True, False))
    for settings, counted in ((("benchmark",), True), ((), False)):
        operator = called(
            0, "aten::convolution_backward", (x, x, w, None, *numbers), (None, w, None), settings=settings
        )
        assert ("local_memory_5x5" in kernel_allocations(operator, load("h200")).libraries) is counted
