"""Recorded runs on an H200 (`tests/data/experiments`) beside what is predicted now: the tables of docs/evidence/EXPERIMENTS.md."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from tests.experiments import (
    CASES,
    SCRIPTS,
    Case,
    Script,
    compare,
    measured_marks,
    model_cases,
    predict_script,
    raw,
)
from tests.paths import ROOT

PREDICTED_AS_A_WHOLE = [entry for entry in SCRIPTS if not entry.function.endswith(("_nvml", "_released"))]


@pytest.mark.parametrize("case", [*CASES, *model_cases()], ids=lambda case: case.name)
@pytest.mark.sampled(6)
def test_recorded_programs(case: Case) -> None:
    found = compare(case).verification
    assert found.history is not None and found.history.same, found.history.first
    assert found.figure("requested").error_percent == 0
    for name, percent in (("graph", 0.1), ("allocated", 0.5), ("reserved", 1.0), ("device", 1.0)):
        error = found.figure(name).error_percent
        assert error is not None and abs(error) <= percent, name
    if not case.target.startswith("models/retinanet"):  # where ties between blocks fall otherwise
        assert all(mark.same for mark in found.marks)


@pytest.mark.parametrize("script", PREDICTED_AS_A_WHOLE, ids=lambda script: script.name)
def test_recorded_scripts_are_predicted_to_the_byte(script: Script) -> None:
    assert predict_script(script).marks() == measured_marks(script.name)


def test_published_figures_of_document_001_but_for_cublaslt() -> None:
    marks = {event: allocated for event, allocated, _ in measured_marks("001_linear_published_workspace")}
    assert (marks["model"], marks["input"]) == (257_024, 258_048)
    assert marks["forward"] - 2**20 == 8_778_752
    assert marks["backward"] - 2**20 == 17_555_456


def test_every_recorded_run_succeeded_and_says_where() -> None:
    for entry in (*CASES, *SCRIPTS, *model_cases()):
        recorded = raw(entry.name)
        assert recorded["environment"]["gpu"] == "NVIDIA H200"
        assert "ok" in recorded["program"] and recorded["program"]["ok"]["versions"]["cudnn"]


def test_verifications_on_record() -> None:
    """`analyze verify --format json` of every file in models/, run on the H200."""
    folder = ROOT / "tests/data/verify"
    names = {path.stem for path in folder.glob("*.json") if not path.stem.startswith("onnx_")}
    assert names == {case.title for case in model_cases()}
    for case in model_cases():
        document = json.loads((folder / f"{case.title}.json").read_text())
        assert (document["target"], document["environment"]["gpu"]) == (case.target, "NVIDIA H200")
        history = document["history"]
        assert history["predicted_count"] == history["recorded_count"] and history["first"] is None
        errors = {figure["name"]: figure["error_percent"] for figure in document["figures"]}
        assert errors["requested"] == errors["reserved"] == 0
        assert abs(errors["graph"]) <= 0.1 and abs(errors["device"]) <= 0.5
        assert errors["allocated"] == 0 or (case.title == "retinanet_r50_fpn" and errors["allocated"] <= 0.1)


def test_onnx_sessions_on_record() -> None:
    for path in sorted((ROOT / "tests/data/verify").glob("onnx_*.json")):
        document = json.loads(path.read_text())
        errors = {figure["name"]: figure["error_percent"] for figure in document["figures"]}
        assert document["runtime"] == "onnxruntime CUDA"
        assert abs(errors["held"]) <= 0.1 and abs(errors["device"]) <= 0.5
