"""TensorFlow as a runtime: buffers forwarded, its limits, and what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.allocators.tensorflow_bfc import system_bytes
from analyzer.devices import load
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.spec import TensorSpec
from analyzer_plugins.tensorflow.settings import MIB, parse
from tests.extensions.plugins.paddle.twins import SIDE, TWINS

GIB = 2**30


def peak_mib(name: str, **options: Any) -> float:
    model, optimizer = TWINS[name]
    said: dict[str, Any] = {
        "inputs": TensorSpec((SIDE, SIDE)),
        "device": "h200",
        "runtime": "tensorflow",
        "runtime_options": {"allow_growth": True, **options},
    }
    if optimizer:
        said |= {"mode": "train", "optimizer": optimizer, "loss": lambda output: output}
    return round(analysis(model(), Options.of(said)).estimate.peak_requested / MIB, 2)


@pytest.mark.parametrize(
    ("program", "tensors"),
    [
        # The feed, and one buffer every tanh forwards.
        ("unary", 2),
        # A reshape is another look at the buffer.
        ("reshape", 2),
        # A transposition is not: the feed, its operand and its result.
        ("transpose", 3),
        # a and tanh(a) are read by the sum a + tanh(a): it may take tanh(a)'s buffer, a is needed once more.
        ("residual", 3),
    ],
)
def test_buffers_are_forwarded(program: str, tensors: int) -> None:
    """Tensors of 1 MiB, counted by hand."""
    assert peak_mib(program) == tensors


@pytest.mark.parametrize(
    ("available", "major", "left_mib"),
    [(GIB, 9, 225), (16 * GIB, 6, 500), (16 * GIB, 7, 1050), (16 * GIB, 8, 1536), (80 * GIB, 9, 1800)],
)
def test_what_is_left_to_the_system(available: int, major: int, left_mib: int) -> None:
    assert system_bytes(available, major) == left_mib * MIB


def test_limits() -> None:
    h200 = load("h200")
    limit = parse({"memory_limit": "2048"}, h200, 100 * GIB, {}).limit_bytes
    assert limit == 2048 * MIB
    half = parse({"per_process_gpu_memory_fraction": 0.5}, h200, 100 * GIB, {})
    assert half.limit_bytes == h200.capacity_bytes // 2 and half.limited
    assert not parse({}, h200, 100 * GIB, {}).allow_growth
    assert parse({}, h200, 100 * GIB, {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}).allow_growth


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"allow_grow": "1"}, {}),
        ({"allow_growth": "perhaps"}, {}),
        ({"memory_limit": "0"}, {}),
        ({"per_process_gpu_memory_fraction": "2"}, {}),
        ({}, {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
    ],
)
def test_mistakes(options: dict[str, str], environment: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        parse(options, load("h200"), 100 * GIB, environment)
    assert caught.value.hint


def test_a_limit_that_does_not_hold_is_said_and_the_figures_go_on() -> None:
    model, _ = TWINS["unary"]
    said = {"inputs": TensorSpec((SIDE, SIDE)), "device": "h200", "runtime": "tensorflow"}
    found = analysis(model(), Options.of({**said, "runtime_options": {"memory_limit": "1"}})).estimate
    assert "runs out of memory" in found.notes[0]
    assert not found.fits()
    assert found.peak_requested >= 2 * MIB
