"""Predict a measured case through the public API, and compare event by event."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

import analyzer
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.runtimes.events import Event
from analyzer_verify.history import compare_history
from analyzer_verify.results import HistoryComparison
from benchmarks.accuracy.sets import MeasuredCase, zoo

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted bytes for a measured case. `error` names what went wrong instead."""

    case: MeasuredCase
    peak_allocated: int = 0
    peak_reserved: int = 0
    device_used: int = 0
    error: str = ""
    comparison: HistoryComparison | None = None

    @property
    def errors(self) -> tuple[float, float, float]:
        """Relative errors of allocated, reserved and device used; a failure counts as 100 %."""
        if self.error:
            return -1.0, -1.0, -1.0
        return (
            self.peak_allocated / self.case.peak_allocated - 1,
            self.peak_reserved / self.case.peak_reserved - 1,
            self.device_used / self.case.device_used - 1,
        )


def predict(measured: MeasuredCase, events: bool = False, device: str = "h200") -> Prediction:
    """The prediction for one case; with `events` also the recorded sequence beside the predicted one."""
    case, models = measured.case, zoo(measured.set_name)
    make_model, make_batch, loss = models.M[case["model"]]
    train = case["mode"] == "train"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = Options(
                inputs=inputs_of(make_batch, case),
                # The development runs moved the target to the GPU in inference too.
                targets=targets_of(make_batch, case, measured.set_name),
                loss=loss if train else None,
                mode=case["mode"],
                optimizer=models.OPT[case["opt"]],
                amp=case.get("amp"),
                grad_accumulation=case.get("accum", 1),
                device=device,
            )
            found = analysis(model_of(make_model, case).train(train), options)
    except analyzer.AnalyzerError as error:
        return Prediction(measured, error=str(error))
    comparison = None
    if events:
        program = list(found.events)
        if measured.set_name == "development":
            # Those recordings end with the last event, before Python drops the loop's variables.
            last = max(place for place, event in enumerate(program) if isinstance(event, Event))
            program = program[: last + 1]
        comparison = compare_history(program, measured.history(), found.graph)
    estimate = found.estimate
    return Prediction(
        measured, estimate.peak_allocated, estimate.peak_reserved, estimate.device_used, comparison=comparison
    )


def model_of(make_model: Any, case: dict[str, Any]) -> torch.nn.Module:
    try:
        with torch.device("meta"):
            model = make_model()
    except (NotImplementedError, RuntimeError):
        model = make_model()
    if case.get("dtype"):
        model = model.to(TYPES[case["dtype"]])
    if case.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    return model  # type: ignore[no-any-return]


def inputs_of(make_batch: Any, case: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    with torch.device("meta"):
        inputs, _ = make_batch(case["batch"])
    dtype = TYPES.get(case.get("dtype", ""))
    inputs = tuple(x.to(dtype) if dtype and x.is_floating_point() else x for x in inputs)
    if case.get("channels_last"):
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    return inputs


def targets_of(make_batch: Any, case: dict[str, Any], set_name: str) -> tuple[torch.Tensor, ...] | None:
    if case["mode"] != "train" and set_name != "development":
        return None
    with torch.device("meta"):
        _, target = make_batch(case["batch"])
    dtype = TYPES.get(case.get("dtype", ""))
    # The development runs converted floating-point targets too; the held-out ones have none with a dtype.
    return (target.to(dtype) if dtype and target.is_floating_point() else target,)
