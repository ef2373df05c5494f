"""The traced side of `compare.py`: the same cases on the pretended device, and what their operators ask for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from analyzer import releases
from analyzer.capture.pytorch.device.device_thread import DeviceThread
from analyzer.capture.pytorch.environment import cuda_environment, own_randomness, watching
from analyzer.devices import DeviceProfile, load
from analyzer.graph import Graph, Mark, Phase, Run
from analyzer.runtimes.events import Free, Malloc
from analyzer.runtimes.pytorch.eager import Eager
from benchmarks.operators import database


class Asked(NamedTuple):
    """One request: bytes (freed ones are negative), and the operator and rule behind it."""

    nbytes: int
    operator: str
    rule: str
    bounded: bool


@dataclass(frozen=True, slots=True)
class Traced:
    """A case that was followed. unknown: operators without a rule; error: what ended it."""

    parts: tuple[tuple[str, tuple[Asked, ...]], ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]
    error: str | None


def profile(version: str) -> DeviceProfile:
    """The measured GPU, with this torch."""
    found = load("h200")
    return replace(found, releases={**found.releases, "torch": releases.parse(version)})


def traced(case: database.Case, sample: database.Sample, device: DeviceProfile) -> Traced:
    """One case, followed."""
    error = None
    with own_randomness(), cuda_environment(device) as recorder:
        recorder.whole_program(())
        recorder.phases = _phase
        with watching(recorder) as fake, contextlib.ExitStack() as thread:
            if case.way == "double":
                thread.enter_context(DeviceThread(fake.in_another_thread).open())
            try:
                database.run(sample, case.layout, case.way, recorder.mark)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"[:300]
        graph = recorder.finish(None)
    parts, unknown = _parts(graph, device)
    return Traced(parts, unknown, graph.notes, error)


def _phase() -> Phase:
    return Phase.FORWARD if torch._C._current_autograd_node() is None else Phase.BACKWARD


def _parts(
    graph: Graph, device: DeviceProfile
) -> tuple[tuple[tuple[str, tuple[Asked, ...]], ...], tuple[str, ...]]:
    """What is asked for between the marks of a case, and operators nothing is known of."""
    eager = Eager(graph, device)
    sizes: dict[int, tuple[int, str, str]] = {}
    parts: list[tuple[str, list[Asked]]] = []
    operator = ""
    for moment in graph.program:
        if isinstance(moment, Mark):
            parts.append((moment.name, []))
        if isinstance(moment, Run):
            operator = graph.operators[moment.operator].name
        for event in eager.follow(moment):
            if isinstance(event, Malloc):
                sizes[event.key] = (event.nbytes, operator, event.rule)
                asked = Asked(event.nbytes, operator, event.rule, event.basis == "bounded")
            elif isinstance(event, Free):
                nbytes, made_by, rule = sizes[event.key]
                asked = Asked(-nbytes, made_by, rule, False)
            else:
                continue
            if asked.nbytes and parts:
                parts[-1][1].append(asked)
    return tuple((name, tuple(found)) for name, found in parts[:-1]), tuple(sorted(eager.unknown))
