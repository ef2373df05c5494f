"""The measured steps beside what `Estimate.step_seconds` says of them: on the terminal, and in docs/evidence/TIMING.md.

1. **device**: kernels, copies and sets of the program's stream, and half of those of cuDNN's own, of which its recurrent layers use two
   at a time. **host**: the smaller of handing the step over, and of a batch of two (the step's work is the same for the host). **step**: wall.
2. An error is predicted over measured less one. The bound is named rightly where the greater of the two measured, host or device,
   is the one that is said. A figure is in its range where measured lies between low and high.
3. Development cases and held-out ones are counted apart, and so are kinds of models (`cases.json`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.results.step_time import StepTime
from analyzer_timing.step import step_time
from benchmarks.accuracy.predict import inputs_of, model_of, targets_of
from benchmarks.accuracy.sets import zoo
from benchmarks.harness import files, pages
from benchmarks.timing.cases import SETS, Case, kind_of, tag
from benchmarks.timing.pack import measured_rows, of_gpu

_TEXT = pages.prose(__file__)

GPU = "h100"


@dataclass(frozen=True, slots=True)
class Row:
    """A case: measured seconds beside the prediction."""

    group: str
    case: Case
    device: float
    host: float
    wall: float
    said: StepTime

    @property
    def errors(self) -> tuple[float, float, float]:
        """Of device, host and step."""
        said = self.said
        return (
            said.device_seconds / self.device - 1,
            said.host_seconds / self.host - 1,
            said.seconds / self.wall - 1,
        )

    @property
    def holds(self) -> tuple[bool, bool, bool]:
        """Whether the bound is the right one; whether the device and the step are in their ranges."""
        said = self.said
        least, most = said.device_range
        bound = (self.host > self.device) == (said.bound == "host")
        return bound, least <= self.device <= most, said.low <= self.wall <= said.high


def predicted(case: Case, host_factor: float | None = None, gpu: str = GPU) -> StepTime | None:
    """What the analyzer says of a case on a GPU. host_factor: of the machine's host; None: nobody measured it."""
    models = zoo(case["zoo"])
    make_model, make_batch, loss = models.M[case["model"]]
    train = case["mode"] == "train"
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = bool(case.get("tf32"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = Options(
                inputs=inputs_of(make_batch, case),
                targets=targets_of(make_batch, case, case["zoo"]) if train else None,
                loss=loss if train else None,
                mode=case["mode"],
                optimizer=models.OPT[case["opt"]],
                amp=case.get("amp"),
                channels_last=bool(case.get("channels_last")),
                device=gpu,
            )
            found = analysis(model_of(make_model, case).train(train), options)
            if host_factor is None:
                return found.estimate.step_seconds
            return step_time(found.graph, replace(found.profile, host_factor=host_factor))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def of_measured(group: str, measured: Mapping[str, Any], said: StepTime) -> Row:
    """A row of an eager case's measurements."""
    streams = dict(measured["streams"])
    own = min(streams, key=int)
    device = streams.pop(own) + sum(streams.values()) / 2
    host = min(measured["enqueue"], measured["small"])
    return Row(group, measured["case"], device, host, measured["wall"], said)


def rows(only: str = "", gpu: str = GPU) -> list[Row]:
    """Every case measured on a GPU, or those whose tag has `only` in it, predicted now."""
    found = list[Row]()
    for measured in (
        row for path in sorted(of_gpu(gpu).glob("programs*.json.gz")) for row in files.read(path)["rows"]
    ):
        if only not in tag(measured["case"]) or "error" in measured:
            continue
        try:
            said = predicted(measured["case"], gpu=gpu)
        except CaptureError:  # `longformer` asks for a value that only a run has
            continue
        if said is None:
            continue
        found.append(of_measured(measured["set"], measured, said))
    order = {
        tag(case): number for number, case in enumerate(case for cases in SETS.values() for case in cases)
    }
    return sorted(found, key=lambda row: order[tag(row.case)])


def figures(group: Sequence[Row]) -> list[str]:
    """The cells under the head of some cases: errors of device, host and step, the shares that hold, and the step that is furthest off."""
    errors = list(zip(*(row.errors for row in group), strict=True))
    holds = np.array([row.holds for row in group]).mean(0)
    far = pages.worst(group, lambda row: tag(row.case), lambda row: row.errors[2])
    return [*map(pages.middle_and_far, errors), *(f"{share:.0%}" for share in holds), far]


def summary(cases: Sequence[Row]) -> list[list[object]]:
    """A line a set, where there are several, a line a kind of model, and one of all."""
    *sets, every = pages.by_kind(cases, lambda row: row.group.replace("_", " "), figures)
    return [
        *(sets if len(sets) > 1 else []),
        *pages.by_kind(cases, lambda row: kind_of(row.case), figures)[:-1],
        every,
    ]


def table_of_kinds(lines: Sequence[Sequence[object]]) -> str:
    """The table of what `summary` says."""
    return pages.table(_TEXT["head"].split(" | "), lines, "lrrrrrrrl").rstrip()


def cells(row: Row, digits: int) -> tuple[str, ...]:
    """A case's line of the tables; milliseconds have so many digits."""
    said = row.said
    device, host, wall = (f"{error:+.0%}" for error in row.errors)
    bound, _, within = row.holds
    figures = [
        f"{1e3 * value:.{digits}f}"
        for value in (row.device, said.device_seconds, row.host, said.host_seconds, row.wall, said.seconds)
    ]
    return (
        tag(row.case), figures[0], figures[1], device, figures[2], figures[3], host, figures[4], figures[5], wall,
        f"{1e3 * said.low:.{digits}f} to {1e3 * said.high:.{digits}f}{'' if within else ' (no)'}", said.bound + ("" if bound else " (no)"),
    )  # fmt: skip


def table_of(cases: Sequence[Row], digits: int = 2) -> str:
    """The table of cases, a line each."""
    return pages.table(_TEXT["lines"].split(" | "), [cells(row, digits) for row in cases], "lrrrrrrrrrll")


def section(gpu: str, cases: Sequence[Row]) -> str:
    """The page's part of the steps on a GPU."""
    text = {
        "versions": files.read(of_gpu(gpu) / "programs.json.gz")["versions"],
        "table": table_of_kinds(summary(cases)),
    }
    return _TEXT[gpu].format(calls=f"{len(measured_rows(of_gpu(gpu))):,}", **text)
