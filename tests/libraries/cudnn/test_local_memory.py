"""Local memory that cuDNN's kernels leave behind, against what the driver counted after each call."""

from __future__ import annotations

import gzip
import json

import pytest

from analyzer.devices import load
from analyzer.graph import TensorMeta
from analyzer.libraries.cudnn import choices
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.local_memory import kept_by, kept_bytes
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.pytorch.scratch import kernel_allocations
from tests.paths import DATA
from tests.schemas import called

MIB = 2**20
H100_THREADS = 132 * 2048
PLANS = DATA / "h200" / "convolution_plans.json.gz"
SURVEY = DATA / "h100" / "local_memory_survey.json.gz"


def test_kernels_that_keep_local_memory_are_those_recorded() -> None:
    """What NVML grew by at once, beyond modules: in benchmark mode none but the calls the rule names, and all
    of them, where no plans can be asked."""
    with gzip.open(PLANS, "rt") as file:
        networks = json.load(file)["executed"]
    for network in networks:
        before, held = network["begin"], set[str]()
        for operation, number, _, _, outside in network["calls"]:
            shapes = [tuple(shape) for shape in network["convolutions"][number]]
            call = Convolution(operation, network["dtype"], network["channels_last"], *shapes)
            had, family = kept_bytes(held, H100_THREADS), kept_by(call, None, 1, network["benchmark"])
            held |= {family} if family else set()
            expected = kept_bytes(held, H100_THREADS) - had
            assert abs(outside - before - expected) <= 12 * MIB, (network["name"], call)
            before = outside


def test_the_knobs_of_the_first_plan_decide() -> None:
    """1,231 convolutions on an H100: all that kept some, and no others, but for one input and output
    channel."""
    with gzip.open(SURVEY, "rt") as file:
        rows = json.load(file)["rows"]
    kept = {0: 0, 384: 0, 1010: 0}
    for operation, dtype, channels_last, *shapes, plan, kernel, grew in rows:
        call = Convolution(operation, dtype, channels_last, *(tuple(shape) for shape in shapes))
        if plan is None or kernel == "conv_depthwise2d_grad_weight_kernel":  # PyTorch's own
            assert grew < 12 * MIB
            continue
        engine, knobs = plan
        knobs = tuple(tuple(knob) for knob in knobs)
        if call.w_shape[:2] == (1, 1) and not knobs:
            continue
        family = kept_by(call, [Plan(engine, 0, knobs=knobs)], 0, benchmark=False)
        expected = kept_bytes([family] if family else [], H100_THREADS)
        assert grew == expected or (not expected and grew < 12 * MIB), call
        kept[expected // MIB] += 1
        if expected and call.w_shape[1] <= 4:
            assert kept_by(call, None, 0, benchmark=False) == family  # also where no plan can be asked
    assert kept[384] == 15
    assert kept[1010] == 7


def test_it_is_counted_once_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices.Choices, "plans", lambda self, calls, **_: [None] * len(calls))
    shape, filter_shape = (32, 672, 14, 14), (672, 1, 5, 5)
    x = TensorMeta(0, shape, (672 * 196, 196, 14, 1), "float16")
    w = TensorMeta(1, filter_shape, (25, 25, 5, 1), "float16")
    numbers = ((1, 1), (2, 2), (1, 1), False, (0, 0), 672, (False, True, False))
    for settings, counted in ((("benchmark",), True), ((), False)):
        operator = called(
            0, "aten::convolution_backward", (x, x, w, None, *numbers), (None, w, None), settings=settings
        )
        assert ("local_memory_5x5" in kernel_allocations(operator, load("h200")).libraries) is counted


def test_a_process_keeps_the_most_of_its_kernels() -> None:
    profile = load("h100")
    without = device_used(2 * MIB, ["cudnn"], profile)
    for families, mib in ((["5x5"], 384), (["7x7"], 1010), (["5x5", "7x7"], 1010)):
        used = ["cudnn", *(f"local_memory_{family}" for family in families)]
        assert device_used(2 * MIB, used, profile) - without == mib * MIB
