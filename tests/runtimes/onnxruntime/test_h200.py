"""Predictions for the CUDA provider against runs recorded on an H200 (`tests/data/ort/h200_runs.json.gz`)."""

from __future__ import annotations

import gzip
import json
import statistics
from functools import lru_cache
from typing import Any

import pytest

from analyzer import devices
from analyzer.runtimes.onnxruntime import SessionPrediction, predict, prepare
from analyzer.runtimes.onnxruntime.options import parse
from tests.paths import DATA
from tests.runtimes.onnxruntime import ort_reference as reference

CASES = reference.recorded()["cases"]
HELDOUT = reference.recorded()["heldout"]


def _id(row: dict[str, Any]) -> str:
    case = row["case"]
    return "-".join([case["model"], str(case["batch"]), *map(str, case.get("prov", {}).values())])


@lru_cache(maxsize=128)
def _prediction(which: str, index: int) -> SessionPrediction:
    row = {"cases": CASES, "heldout": HELDOUT}[which][index]
    case = row["case"]
    return predict(
        reference.graph(case["model"]),
        batch=case["batch"],
        options=reference.options_of(case),
        device=devices.load("h200"),
    )


@pytest.mark.parametrize("row", [*CASES, *HELDOUT], ids=_id)
def test_the_graph_that_runs(row: dict[str, Any]) -> None:
    """Every kernel, in order, on the provider that ran it: 58 runs, 32 models."""
    case = row["case"]
    prepared = prepare(reference.graph(case["model"]), case["batch"], parse(reference.options_of(case)))
    mine = [(node.op, node.provider) for node in prepared.order]
    assert mine == [(op, provider) for op, provider, *_ in row["first"]]


@pytest.mark.parametrize(
    "row",
    [row for row in (*CASES, *HELDOUT) if "kSameAsRequested" in str(row["case"])],
    ids=_id,
)
def test_kernel_by_kernel(row: dict[str, Any]) -> None:
    """Where the order of initializers does not matter, peak in use and held are exact, after each kernel too."""
    case = row["case"]
    mine = reference.predicted(
        reference.graph(case["model"]), case["batch"], reference.options_of(case), "cuda"
    )
    assert (mine.peak, mine.held) == (row["peak"], row["held"])
    compared = [
        ((a.peak, a.held), (peak, held))
        for a, (_, provider, peak, _, held) in zip(mine.first, row["first"], strict=True)
        if provider == "cuda"
    ]
    assert sum(a == b for a, b in compared) >= 0.95 * len(compared)


def _errors(which: str, rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    errors: dict[str, list[float]] = {"use": [], "held": [], "device": []}
    for index, row in enumerate(rows):
        mine = _prediction(which, index)
        errors["use"].append(abs(mine.peak_in_use / row["peak"] - 1))
        errors["held"].append(abs(mine.held / row["held"] - 1))
        errors["device"].append(abs(mine.device_bytes / row["nvml"][-1] - 1))
    return errors


def test_accuracy_of_the_24_cases() -> None:
    """In use, held and device memory: medians within 1, 1 and 2 %, 95th percentile bounded.

    The order of initializers is drawn anew by every process; the spread that causes is part of these errors.
    """
    errors = _errors("cases", CASES)
    assert statistics.median(errors["use"]) <= 0.01
    assert statistics.median(errors["held"]) <= 0.01
    assert sorted(errors["held"])[22] <= 0.12
    assert statistics.median(errors["device"]) <= 0.02
    assert sorted(errors["device"])[22] <= 0.06


def test_what_is_held_is_exact_in_most_runs() -> None:
    """An order of initializers in the middle of all holds what 34 of the 58 processes held; the bytes that are most
    common among orders are those of 33."""
    errors = [*_errors("cases", CASES)["held"], *_errors("heldout", HELDOUT)["held"]]
    assert sum(error == 0 for error in errors) >= 34


def test_accuracy_of_models_no_rule_was_made_from() -> None:
    """34 more runs of 18 other models and options, measured after the rules were written."""
    errors = _errors("heldout", HELDOUT)
    assert statistics.median(errors["use"]) <= 0.02
    assert statistics.median(errors["held"]) <= 0.02
    assert statistics.median(errors["device"]) <= 0.03


def test_measured_values_lie_in_the_predicted_spread() -> None:
    """ViT holds 4,109 MiB in one process and less in another: the range is said in a note."""
    index = next(i for i, row in enumerate(CASES) if row["case"]["model"] == "gpt2")
    notes = " ".join(_prediction("cases", index).notes)
    assert "order of a hash table" in notes


def test_explanation_names_requests_and_savings() -> None:
    """Held memory beyond the tensors is explained line by line, cheaper settings with what they would hold."""
    index = next(
        i for i, row in enumerate(CASES) if row["case"]["model"] == "vit_b_16" and "prov" not in row["case"]
    )
    mine = _prediction("cases", index)
    assert any("held for a request of" in line for line in mine.notes)
    (saving,) = (s for s in mine.savings if s.setting == "arena_extend_strategy=kSameAsRequested")
    held = saving.peak_reserved
    assert held < mine.held
    measured = next(row for row in CASES if row["case"]["model"] == "vit_b_16" and "prov" in row["case"])
    assert held == measured["held"]


def test_limit_is_reported_with_the_request_that_fails() -> None:
    """gpu_mem_limit below the need: the failing request, not an exception."""
    mine = predict(
        reference.graph("resnet50"),
        batch=32,
        options={"gpu_mem_limit": "200MiB"},
        device=devices.load("h200"),
    )
    assert mine.failure is not None
    assert mine.failure.limit == 200 << 20
    assert mine.failure.phase == "run 1"
    assert mine.failure.requested_bytes > 0
    assert "out of memory" in mine.notes[0]


def test_events_play_to_the_same_figures() -> None:
    """The timeline's player on the prediction's arena reaches the prediction's peak and held bytes."""
    from analyzer.runtimes.timeline import simulate

    mine = _prediction("cases", 0)
    simulation = simulate(mine.events, mine.allocator())
    assert max(simulation.allocated) == mine.peak_in_use
    assert simulation.peak_reserved == mine.held


@lru_cache(maxsize=1)
def _every_type() -> dict[str, dict[str, Any]]:
    with gzip.open(DATA / "h200" / "onnx_cuda.json.gz", "rt") as stream:
        rows = json.load(stream)["cases"]
    return {row["name"]: row for row in rows if row.get("peak") is not None}


def test_single_operators_of_every_type() -> None:
    """176 operators that ran on the GPU in float32, half precision, bfloat16 and integers: nine in ten to the byte, none more
    than 0.1 % under; 5 % over only where data decides."""
    pytest.importorskip("ml_dtypes")
    from benchmarks.subjects.onnx_operators import operators

    compared = {}
    for name, model, _ in operators():
        row = _every_type().get(f"o_{name}")
        if row is not None:
            mine = reference.predicted(model, None, row["provider"], "cuda")
            compared[name] = (mine.peak, row["peak"], mine.held, row["held"])
    assert len(compared) == 176
    exact = [
        name for name, (peak, real, held, real_held) in compared.items() if (peak, held) == (real, real_held)
    ]
    assert len(exact) >= 0.9 * len(compared)
    assert [name for name, (peak, real, *_) in compared.items() if peak < 0.999 * real] == []
    over = {name for name, (peak, real, *_) in compared.items() if peak > 1.05 * real}
    assert over == {
        "nms_4096",
        "nms_1000",
    }  # bounded by all boxes: how many have the least score, only data tells
