"""The engines that multiply matrices by cuBLAS: when they come first, and what they take."""

from __future__ import annotations

import collections
import gzip
import json

from analyzer.libraries.cudnn.choices import UNKNOWN, _asked
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.products import PRODUCT, product_plan, with_unlisted
from tests.paths import DATA

# Engines that are listed where a device is present alone.
ABSENT = {"forward": (3, 6, 58), "data": (7, 50, 63), "weight": (17, 18, 62)}


def pointwise(operation: str, *, channels_last: bool = False, batch: int = 8) -> Convolution:
    return Convolution(
        operation, "float32", channels_last, (batch, 64, 10, 10), (96, 64, 1, 1), (0, 0), (1, 1), (1, 1)
    )


def test_a_weights_gradient_takes_one_result_an_image() -> None:
    plan = product_plan(pointwise("weight"))
    assert plan is not None
    assert plan.workspace_bytes == 8 * 96 * 64 * 4
    assert product_plan(pointwise("data")) == Plan(PRODUCT, 0, tensor_core=True)
    padded = Convolution("data", "float32", False, (8, 64, 10, 10), (96, 64, 1, 1), (1, 1), (1, 1), (1, 1))
    assert product_plan(padded) is None


def test_where_channels_come_last_the_sum_is_in_parts_and_only_an_estimate() -> None:
    call = pointwise("weight", channels_last=True, batch=200)  # 20,000 positions
    plan = product_plan(call)
    assert plan is not None
    assert plan.workspace_bytes == 4 * 96 * 64 * (20_000 // 1344)
    found = _asked(call, with_unlisted(call, [Plan(68, 1000)], recorded=True))
    assert found.source == UNKNOWN
    assert found.low_bytes == 0
    assert found.high_bytes > plan.workspace_bytes


def test_one_of_two_is_unknown_unless_both_take_the_same() -> None:
    call = pointwise("weight")
    product = 8 * 96 * 64 * 4
    apart = _asked(call, with_unlisted(call, [Plan(68, 10 * product)], recorded=True))
    assert (apart.low_bytes, apart.high_bytes, apart.source) == (product, 10 * product, UNKNOWN)
    assert _asked(call, with_unlisted(call, [Plan(68, product + 400)], recorded=True)).source != UNKNOWN


def test_whether_it_comes_first_is_decided_as_an_h200_decides_in_programs() -> None:
    """Of 2,277 convolutions of programs none of which the decision was grown from, those that are products: by a handle, and what a
    description lists without a device."""
    right: collections.Counter[str] = collections.Counter()
    every: collections.Counter[str] = collections.Counter()
    for line in gzip.decompress((DATA / "h200/asked_in_programs.jsonl.gz").read_bytes()).splitlines():
        (_, operation, dtype, last, x, w, _, padding, stride, dilation, _), (handle, description) = (
            json.loads(line)
        )
        call = Convolution(
            operation, dtype, last, tuple(x), tuple(w), tuple(padding), tuple(stride), tuple(dilation)
        )
        listed = [
            Plan(engine, nbytes)
            for engine, _, nbytes in description
            if nbytes is not None and engine not in ABSENT[operation]
        ]
        ran = next((nbytes for _, _, nbytes in handle if nbytes is not None), None)
        if product_plan(call) is None or last or not listed or ran is None:
            continue
        every[operation] += 1
        right[operation] += abs(with_unlisted(call, listed, recorded=True)[0].workspace_bytes - ran) < 512
    assert every == {"forward": 390, "data": 157, "weight": 159}
    assert right["forward"] >= 364
    assert right["data"] >= 155
    assert right["weight"] >= 138


def test_elsewhere_than_on_a_recorded_gpu_a_product_is_first_and_winograd_left_out() -> None:
    call = pointwise("weight")
    assert with_unlisted(call, [Plan(1, 0)], recorded=False)[0].engine == PRODUCT
    filters = Convolution(
        "weight", "float32", False, (24, 192, 16, 16), (192, 192, 3, 3), (1, 1), (1, 1), (1, 1)
    )
    assert with_unlisted(filters, [Plan(50, 17_399_952)], recorded=False) == (Plan(50, 17_399_952),)
    winograd, listed = with_unlisted(filters, [Plan(50, 17_399_952)], recorded=True)
    assert (winograd.engine, winograd.workspace_bytes, listed.engine) == (
        17,
        26_542_080,
        50,
    )  # as the H200 says
