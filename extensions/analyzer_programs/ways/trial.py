"""A program that runs out of memory, followed once more with a change, or on another GPU.

1. One that **fits** found memory for everything, to its end, until its steps repeat, or for more steps than
   the program made before its memory ran out; and every weight that was trained still is (`_trains_as`).
2. Where something grows from step to step, or lies in cycles, or the program evaluates between its steps, it
   is followed through as many steps as the program was with room.
3. Where its steps asked for the same memory again, and only the allocator's layout did not repeat, `_MORE`
   steps behind the one that failed are enough; `state` then says how many they were.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.graph import Birth, Category, Death, Graph, Phase
from analyzer.options import Options
from analyzer.report.words import size
from analyzer.results.estimate import Estimate
from analyzer_programs.program import Followed, concluded, unheard, watched
from analyzer_programs.ways.script_edits import Edit
from analyzer_sandbox import apart

_SECONDS, _MORE = 90.0, 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a change. verdict: as of an estimate, "" where it does not run or train as before. state:
    how far it was followed where that is not to its end. why: what is to be said of one that does not fit.
    host_bytes: host memory that it holds at most, beyond what the program did. failed: it does not run."""

    estimate: Estimate | None = None
    verdict: str = ""
    state: str = ""
    why: str = ""
    host_bytes: int = 0
    interrupted: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Program:
    """A program that runs out of memory. analysis: of it as it is."""

    script: str
    arguments: tuple[str, ...]
    options: Options
    environment: Mapping[str, str]
    until: str | int
    analysis: Analysis

    def outcome(self, edit: Edit) -> Outcome:
        """Return what becomes of a change."""
        begun = time.monotonic()
        try:
            followed = self._followed(self.options, edit, False)
        except AnalyzerError as error:
            return Outcome(why=f"it does not run so: {error.message}", failed=True)
        except KeyboardInterrupt:
            return Outcome(interrupted=True)
        ran = followed.ran
        if isinstance(ran.error, KeyboardInterrupt):
            return Outcome(interrupted=True)
        if ran.error is not None or ran.unreached:
            is_memory = _is_memory(ran.error)
            return Outcome(why="" if is_memory else _ended(ran.error), failed=not is_memory)
        if not ran.cut and not _trains_as(self.analysis.graph, ran.graph, edit.cuts):
            return Outcome()
        estimate = concluded(followed, self.options, self.script).estimate
        if ran.cut and ran.steps <= self.least:
            took = f"{time.monotonic() - begun:.0f} s"
            why = (
                f"not known, {ran.steps} of {self.least + 1} steps were followed in {took},"
                f" {size(estimate.device_used)} until then:\n{self.command(self.least + 1)}"
            )
            return Outcome(why=why)
        if ran.cut and not _trains_as(self.analysis.graph, ran.graph, edit.cuts):
            return Outcome()
        verdict = "fits" if _has_room(estimate) else estimate.verdict()
        host = max(_host_peak(ran.graph) - self._host_peak, 0)
        why = f"{size(estimate.device_used)}, may not fit" if verdict == "may not fit" else ""
        return Outcome(estimate, verdict, self._state(followed), why, host)

    def elsewhere(self, device: str) -> Outcome:
        """Return what becomes of the program on another GPU, its need too where that has no room."""
        options = replace(self.options, device=device)
        try:
            followed = self._followed(options, Edit("as it is"), True)
        except AnalyzerError:
            return Outcome()
        except KeyboardInterrupt:
            return Outcome(interrupted=True)
        if followed.ran.error is not None or (followed.ran.cut and followed.ran.steps <= self.least):
            return Outcome(interrupted=isinstance(followed.ran.error, KeyboardInterrupt))
        estimate = concluded(followed, options, self.script).estimate
        return Outcome(estimate, estimate.verdict(), self._state(followed))

    def command(self, steps: int) -> str:
        """Return the command that follows the program through so many steps."""
        typed = ["--device", str(self.options.device), "--until", str(steps), self.script, *self.arguments]
        return f"analyze run {shlex.join(typed)}"

    @cached_property
    def least(self) -> int:
        """So many optimizer steps are not enough."""
        estimate = self.analysis.estimate
        failed = estimate.out_of_memory
        kept = failed is not None and failed.cycle_bytes + failed.exception_bytes > 0
        if estimate.growth is not None or kept or self._evaluates:
            return max((operator.step for operator in self.analysis.graph.operators), default=0)
        return self.analysis.steps

    @cached_property
    def _evaluates(self) -> bool:
        """Whether an evaluation comes behind the first step."""
        return any(
            operator.step and operator.phase in (Phase.EVALUATION, Phase.GENERATION)
            for operator in self.analysis.graph.operators
        )

    @cached_property
    def _most(self) -> int | None:
        is_known = self.analysis.estimate.growth is None and not self._evaluates
        return self.least + _MORE if is_known and _asks_the_same(self.analysis.graph) else None

    @cached_property
    def _host_peak(self) -> int:
        return _host_peak(self.analysis.graph)

    def _state(self, followed: Followed) -> str:
        ran = followed.ran
        if ran.cut or (not ran.steady and self._most is not None and ran.steps >= self._most):
            return f"followed through {ran.steps} step{'s' * (ran.steps != 1)}"
        return ""

    def _followed(self, options: Options, edit: Edit, limitless: bool) -> Followed:
        failed = self.analysis.estimate.out_of_memory
        collects = failed is None or not failed.cycle_bytes
        with apart(), unheard():
            return watched(
                self.script,
                self.arguments if edit.arguments is None else edit.arguments,
                options,
                self.environment,
                until="steady" if self.until in ("auto", "end") else self.until,
                least_steps=self.least,
                most_steps=self._most,
                seconds=_SECONDS,
                text=edit.text or None,
                limitless=limitless,
                collects=collects,  # where cycles keep memory, nothing relies on when Python looks for them
            )


def _has_room(estimate: Estimate) -> bool:
    """Return whether a followed program fits, whatever the process takes beside its allocator: one that has
    room for its workspaces as they are goes on to smaller ones where cuDNN's are larger."""
    certainty, beside = estimate.certainty, estimate.device_used - estimate.peak_reserved
    most = max((certainty.beside_range or (beside, beside))[1], beside) + certainty.kept_bytes
    within = estimate.within(estimate.allowed_bytes) and not (estimate.doubt or estimate.at_least)
    return within and estimate.peak_reserved + most <= estimate.allowed_bytes


def _is_memory(error: BaseException | None) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _ended(error: BaseException | None) -> str:
    """Return how a changed program ended, in words."""
    if error is None:
        return "it does not come so far"
    words = error.message if isinstance(error, AnalyzerError) else f"{type(error).__name__}: {error}"
    return f"it does not run so: {words.splitlines()[0] if words else ''}"


def _asks_the_same(graph: Graph) -> bool:
    """Return whether the last two whole steps have the same operators with results of the same sizes."""
    whole = sorted({operator.step for operator in graph.operators if operator.phase is Phase.OPTIMIZER})[-2:]
    if len(whole) < 2 or whole[0] == 0:
        return False
    one, other = (
        Counter(
            (
                operator.name,
                *(graph.storages[out.storage].nbytes for out in operator.outputs if out is not None),
            )
            for operator in graph.operators
            if operator.step == step
        )
        for step in whole
    )
    return one == other


def _host_peak(graph: Graph) -> int:
    """Return the most bytes of host memory that live tensors take."""
    now = most = 0
    for moment in graph.program:
        if isinstance(moment, Birth | Death) and not graph.storages[moment.storage].on_device:
            nbytes = graph.storages[moment.storage].nbytes
            now += nbytes if isinstance(moment, Birth) else -nbytes
            most = max(most, now)
    return most


def _trains_as(before: Graph, after: Graph, cuts: bool) -> bool:
    """Return whether every weight that an optimizer changes still is: a change that cuts a graph, or ends the
    program earlier, saves memory too. cuts: whether the backward pass does what it did is asked besides."""
    if not _trained(before) <= _trained(after):
        return False
    steps = [operator.step for operator in before.operators if operator.phase is Phase.BACKWARD]
    return not cuts or not steps or _backward(before, min(steps)) <= _backward(after, min(steps))


def _trained(graph: Graph) -> set[str]:
    """Return the names of the weights that optimizers wrote."""
    weights = {
        storage.index: storage.name for storage in graph.storages if storage.category is Category.PARAMETER
    }
    return {
        weights[index]
        for operator in graph.operators
        if operator.phase is Phase.OPTIMIZER
        for index in operator.writes
        if index in weights
    }


def _backward(graph: Graph, step: int) -> Counter[str]:
    """Return the operators of a step's backward passes."""
    return Counter(
        operator.name
        for operator in graph.operators
        if operator.phase is Phase.BACKWARD and operator.step == step
    )
