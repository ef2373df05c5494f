"""Engines on cuBLAS: what they take, and where a plan of theirs stands."""

from __future__ import annotations

import collections
import ctypes
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.backend import Cudnn
from analyzer.libraries.cudnn.choices import UNKNOWN, Choices, _first_workspace
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.description import description_of
from analyzer.libraries.cudnn.first_plan import SURE, UNKNOWN_ENGINE, FirstPlans
from analyzer.libraries.cudnn.on_cublas import (
    ENGINES,
    PRODUCT,
    TRANSFORMS,
    WINOGRAD,
    plans_on_cublas,
    product_bytes,
    winograd_bytes,
)
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.libraries.cudnn.splits import H100_CLOCKS
from analyzer.libraries.cudnn.transforms import tiles_bytes
from tests.libraries.cudnn.fakes import LIBRARIES, needs_cudnn
from tests.paths import DATA

_GPUS = {
    "sm75": "t4",
    "sm80": "a100",
    "sm86": "rtx3090",
    "sm89": "rtx4090",
    "sm90": "h100",
    "sm120": "rtx5090",
}

KEPT = json.loads(gzip.decompress((DATA / "h100/first_plans.json.gz").read_bytes()))


def pointwise(operation: str, *, channels_last: bool = False, batch: int = 8) -> Convolution:
    return Convolution(
        operation, "float32", channels_last, (batch, 64, 10, 10), (96, 64, 1, 1), (0, 0), (1, 1), (1, 1)
    )


def filters(operation: str, size: int, batch: int, side: int) -> Convolution:
    return Convolution(
        operation, "float32", False, (batch, 32, side, side), (4, 32, size, size), (0, 0), (1, 1), (1, 1)
    )


def test_a_weights_gradient_takes_one_result_an_image() -> None:
    assert product_bytes(pointwise("weight")) == 8 * 96 * 64 * 4
    assert product_bytes(pointwise("data")) == product_bytes(pointwise("forward")) == 0
    padded = Convolution("data", "float32", False, (8, 64, 10, 10), (96, 64, 1, 1), (1, 1), (1, 1), (1, 1))
    assert product_bytes(padded) is None


def test_winograd_transforms_tiles_of_input_result_and_filters() -> None:
    """A weight's gradient of 3 x 3: 3 x 3 tiles of 4 x 4 outputs an image, no rounding; of 5 x 5 (as an H100 says): 2 x 2 tiles of 9 x 9
    outputs, 16 images for 8."""
    assert winograd_bytes(filters("weight", 3, 8, 14)) == 4 * 36 * (72 * 32 + 72 * 4 + 32 * 4)
    assert winograd_bytes(filters("weight", 5, 8, 16)) == 4 * 169 * (64 * 32 + 64 * 4 + 32 * 4) == 1_644_032
    assert winograd_bytes(filters("forward", 3, 8, 14)) == 4 * 36 * (144 * 32 + 144 * 4 + 32 * 4)
    assert winograd_bytes(filters("forward", 7, 8, 14)) is None


def test_where_channels_come_last_the_sum_is_in_parts_and_only_an_estimate() -> None:
    call = pointwise("weight", channels_last=True, batch=200)  # 20,000 positions
    assert product_bytes(call) == 4 * 96 * 64 * (20_000 // 1344)
    product = plans_on_cublas(call)[PRODUCT]._replace(share_first=1.0, split=True)
    found = _first_workspace(call, [product, Plan(68, 1000)])
    assert found.source == UNKNOWN
    assert found.low_bytes == 0
    assert found.high_bytes > product.workspace_bytes
    result = plans_on_cublas(pointwise("forward", channels_last=True))[PRODUCT]._replace(split=True)
    assert result.workspace_bytes == 0
    found = _first_workspace(pointwise("forward", channels_last=True), [result, Plan(67, 1000)])
    assert (found.nbytes, found.low_bytes) == (0, 0)
    assert found.high_bytes > 1000


def test_a_place_that_is_not_sure_leaves_two_figures() -> None:
    call = pointwise("weight")
    product, listed = plans_on_cublas(call)[PRODUCT], Plan(68, 1_000_000)

    def found(share: float, before: bool) -> tuple[int, int, int, bool]:
        ours = product._replace(share_first=share)
        workspace = _first_workspace(call, [ours, listed] if before else [listed, ours])
        return (
            workspace.nbytes,
            workspace.low_bytes,
            workspace.high_bytes,
            workspace.source != UNKNOWN,
        )

    small = product.workspace_bytes
    assert found(0.7, before=True) == (small, small, 1_000_000, False)
    assert found(0.3, before=False) == (1_000_000, small, 1_000_000, False)
    assert found(1 - SURE / 2, before=True) == (small, small, small, True)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_held_back_answers(name: str) -> None:
    """Convolutions none of which the trees were grown from: the first plan's bytes as in a process with a GPU, and where
    that is wrong the range says so."""
    order = FirstPlans(name)
    counted: collections.Counter[str] = collections.Counter()
    for fields, plans in KEPT[name]:
        call = Question.read(["pytorch", *fields, False]).call
        listed = next(
            (Plan(*plan) for plan in plans if plan[0] not in ENGINES[call.operation].values()), None
        )
        if listed is None:
            continue
        for kind, first in (("known", listed), ("unknown", listed._replace(engine=UNKNOWN_ENGINE))):
            found = _first_workspace(call, order.with_unlisted(call, [first]))
            counted[f"{kind} all"] += 1
            counted[f"{kind} right"] += abs(found.nbytes - plans[0][1]) < 512
            counted[f"{kind} outside"] += not found.low_bytes - 512 < plans[0][1] < found.high_bytes + 512
    assert counted["known all"] > 100
    assert counted["known right"] >= 0.88 * counted["known all"]
    assert counted["unknown right"] >= 0.88 * counted["unknown all"]
    assert counted["known outside"] + counted["unknown outside"] <= 0.01 * 2 * counted["known all"]


def test_the_order_is_an_h200s_in_programs() -> None:
    """The 2,277 convolutions of programs: by a handle, and what a description lists without a device."""
    order = FirstPlans("sm90")
    right: collections.Counter[str] = collections.Counter()
    every: collections.Counter[str] = collections.Counter()
    for line in gzip.decompress((DATA / "h200/asked_in_programs.jsonl.gz").read_bytes()).splitlines():
        fields, (handle, description) = json.loads(line)
        call = Question.read(fields).call
        ours = ENGINES[call.operation].values()
        listed = [
            Plan(engine, nbytes)
            for engine, _, nbytes in description
            if nbytes is not None and engine not in ours
        ]
        ran = next((engine for engine, _, nbytes in handle if nbytes is not None), None)
        if not listed or ran is None or not order.possible(call):
            continue
        first = order.with_unlisted(call, listed)[0]
        every[call.operation] += 1
        right[call.operation] += (first.engine if first.engine in ours else 0) == (ran if ran in ours else 0)
    assert sum(every.values()) > 1000
    for operation in every:
        assert right[operation] >= 0.96 * every[operation], operation


@needs_cudnn
@pytest.mark.parametrize(("name", "gpu"), _GPUS.items())
def test_the_log_says_where_they_stand(name: str, gpu: str, tmp_path: Path) -> None:
    """A third of the answers of a process with an H100, and what cuDNN ranks first here, without any."""
    asker = Asker(LIBRARIES[0], description_of(load(gpu)), tmp_path)
    kept = [(Question.read(["pytorch", *fields, False]), plans) for fields, plans in KEPT[name][::3] if plans]
    found = asker.ask([question for question, _ in kept])
    asker.close()
    assert asker.ranks_unusable
    right = 0
    for (_, plans), answer in zip(kept, found, strict=True):
        engine, nbytes = plans[0]
        first = answer[0] if answer else None
        right += first is not None and (first.engine == engine or first.workspace_bytes == nbytes)
    assert right >= (1 if gpu == "h100" else 0.98) * len(kept)


GROUPED = json.loads(gzip.decompress((DATA / "h100/grouped_plans.json.gz").read_bytes()))["calls"]


def in_groups(fields: list[Any]) -> Convolution:
    operation, dtype, channels_last, x, w, _, padding, stride, dilation = fields
    shapes = map(tuple, (x, w, padding, stride, dilation))
    return Convolution(operation, dtype, channels_last, *shapes)


def test_in_groups_they_take_what_is_computed() -> None:
    """All of 45,728 convolutions in 2 to 16 groups of which such an engine is first on an H100."""
    seen = collections.Counter[str]()
    for fields, plans in GROUPED:
        call, (engine, nbytes, _) = in_groups(fields), plans[0]
        kind = next((kind for kind, index in ENGINES[call.operation].items() if index == engine), None)
        if kind is not None:
            assert plans_on_cublas(call)[kind].workspace_bytes == nbytes, call
            seen[kind] += 1
    assert seen == {WINOGRAD: 1_294, TRANSFORMS: 320}


@needs_cudnn
def test_in_groups_the_log_says_where_they_stand(tmp_path: Path) -> None:
    """Every fifth of these, and of others; where TF32 is off, the first plan without tensor cores as well."""
    asker = Asker(LIBRARIES[0], description_of(load("h100")), tmp_path)
    choices = Choices(None, asker, 132, (9, 0), H100_CLOCKS)
    rows = [(in_groups(fields), plans) for fields, plans in GROUPED[::5]]
    found = choices.workspaces([call for call, _ in rows])
    for answer, (call, plans) in zip(found, rows, strict=True):
        assert answer.nbytes == plans[0][1], call
    single = [(call, plans) for call, plans in rows if call.dtype == "float32" and plans[-1][2]]
    found = choices.workspaces([call for call, _ in single], ConvolutionSettings(allow_tf32=False))
    for answer, (_, plans) in zip(found, single, strict=True):
        assert answer.nbytes == next(nbytes for _, nbytes, plain in plans if plain)


def test_the_log_is_read_message_by_message() -> None:
    """Lines end in a null byte, a message in two; other messages name engines as well, which count for nothing."""
    cudnn = object.__new__(Cudnn)
    cudnn._unusable = []

    def message(*lines: bytes) -> int:
        kept.append(ctypes.create_string_buffer(b"\0".join(lines) + b"\0\0"))
        return ctypes.addressof(kept[-1])

    kept: list[object] = []
    cudnn._read_log(3, None, None, message(b"cudnnBackendFinalizeEngineCfgVisualize()", b'{"engineId":40}'))
    checks = b"function cudnnBackendGetAttribute_CUDNN_ATTR_ENGINEHEUR_RESULTS_engine_config_support_checks() called:"
    why = b"Warning: CUDNN_STATUS_NOT_SUPPORTED"
    cudnn._read_log(
        3, None, None, message(checks, b'{"engineId":18,"smVersion":900}', why, b'{"engineId":17}')
    )
    assert cudnn._unusable == [18, 17]


def test_a_ranked_list_stays_as_it_is_but_for_sums_in_parts() -> None:
    order = FirstPlans("sm90")
    call = pointwise("weight", channels_last=True, batch=200)
    product = plans_on_cublas(call)[PRODUCT]
    marked = order.with_splits(call, [product, Plan(68, 1000)])
    assert [plan.engine for plan in marked] == [62, 68]
    assert marked[0].split and not marked[1].split
    several = pointwise("weight")  # one product an image: no sum over all
    assert not order.with_splits(several, [plans_on_cublas(several)[PRODUCT], Plan(68, 1000)])[0].split


def test_tiles_of_rows_are_rows() -> None:
    """As an H100's process says (`first_plans.json.gz`, sm75 and sm120)."""
    row = Convolution("forward", "float32", False, (26, 128, 1, 5), (4, 128, 1, 4), (0, 2), (1, 1), (1, 1))
    assert tiles_bytes(row) == 8 * 17 * (128 * 4 + 26 * (128 + 4)) == 536_384
    plane = Convolution("data", "float32", False, (4, 32, 145, 145), (256, 32, 3, 3), (1, 1), (1, 1), (1, 1))
    assert tiles_bytes(plane) == 8 * 32 * 17 * (256 * 32 + 2 * 4 * (32 + 256)) == 45_678_592


def test_an_architecture_that_was_not_asked_puts_products_first() -> None:
    order = FirstPlans("sm100")
    assert [plan.engine for plan in order.with_unlisted(pointwise("data"), [Plan(1, 0)])] == [63, 1]
    assert WINOGRAD not in order.possible(filters("weight", 3, 8, 14))
    assert order.with_unlisted(pointwise("data"), []) == ()
