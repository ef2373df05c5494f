"""Bytes that products an image take besides, as an H100's handle answered."""

import gzip
import json
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.besides import extra_bytes
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.on_cublas import ENGINES, PRODUCT, product_bytes

ANSWERS = Path(__file__).parents[2] / "data/h100/products_besides.json.gz"


@pytest.fixture(scope="module")
def answers() -> list[tuple[Convolution, int]]:
    """Products an image that the trees were not grown from, with the bytes they take besides."""
    rows = json.loads(gzip.decompress(ANSWERS.read_bytes()))
    return [(Question.read(["pytorch", *fields, False]).call, besides) for fields, besides in rows]


def test_most_are_right_and_all_that_are_sure(answers: list[tuple[Convolution, int]]) -> None:
    right = [extra_bytes(call)[0] == besides for call, besides in answers]
    none = [besides == 0 for _, besides in answers]
    assert len(answers) > 400
    assert sum(right) > 0.91 * len(right)
    assert sum(none) < 0.82 * len(right)
    for call, besides in answers:
        nbytes, least, most = extra_bytes(call)
        assert least <= nbytes <= most
        if least == most:
            assert nbytes == besides


def test_the_range_holds_what_a_handle_said(answers: list[tuple[Convolution, int]]) -> None:
    for call, besides in answers:
        _, least, most = extra_bytes(call)
        assert least <= besides <= most, call


def test_a_plan_has_them_on_a_hopper_gpu_alone(answers: list[tuple[Convolution, int]]) -> None:
    call = next(call for call, besides in answers if besides and extra_bytes(call)[0])
    plan = Plan(ENGINES[call.operation][PRODUCT], product_bytes(call) or 0)
    more = extra_bytes(call)[0]
    assert choices_of(load("h100")).by_handle(call, plan).workspace_bytes == plan.workspace_bytes + more
    assert choices_of(load("a100-80gb")).by_handle(call, plan) == plan
