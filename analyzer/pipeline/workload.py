"""From a target to its `Analysis`: finds out what it is and who runs it, captures it, asks the runtime.
Opened once, it is a workload at any batch and on any device.

1. A target that makes its own batches (`make_batch`, ONNX) is asked for them. `inputs` may also be a function
   from the batch to (inputs, targets).
2. Given tensors stand for one batch: their first dimension, where it is that of the first input, is the
   batch. Strides stay as they are.
3. A batch is captured once: with all steps, or with the first alone where later ones repeat it
   (`parametric/steps.py`). A capture for one device serves those on which the program is the same.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from analyzer import extensions
from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import AnalyzerError, OptionError
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.parametric.numbers import NotTheSame
from analyzer.parametric.steps import RepeatedSteps
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.runtimes import base
from analyzer.runtimes.base import Limit, Prediction, Runtime
from analyzer.runtimes.batches import Batches, ParametricCapture
from analyzer.targets import Program, Target, parse, require_torch

if TYPE_CHECKING:
    import torch

    from analyzer.onnx.model import OpenedModel

Progress = Callable[[str], None]


@dataclass
class _Known:
    """Results for any device. captures: by batch and number of steps (None: all), with the device each was
    made for; repeated: by a graph's id the graph, which stays alive, and how its later steps repeat the
    first, None where they do not; intervals: those of `planning/intervals.py`, by range of batches."""

    captures: dict[tuple[int, int | None], list[tuple[Any, Captured]]] = field(default_factory=dict)
    repeated: dict[int, tuple[Graph, RepeatedSteps | None]] = field(default_factory=dict)
    intervals: dict[tuple[int, int], Any] = field(default_factory=dict)


class Workload:
    """A target and its options without a batch.

    runtime: who runs it, where one batch can be captured by itself (`captured`); None where only an analysis
    knows what a batch is, or what is wrong with it: of a configuration, whose program is followed as a whole
    (`config`), of an ONNX file that is trained or runs at several sizes. progress: is told of captures.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | torch.nn.Module,
        options: Options,
        progress: Progress | None = None,
    ) -> None:
        """Opens the target. Raises AnalyzerError."""
        self.progress = progress
        self._make: Callable[..., tuple[Any, Any]] | None = None
        inputs: Any = options.inputs
        if callable(inputs):
            self._make, options = inputs, replace(options, inputs=None)
        self.options = options
        self._target: Any = parse(target) if isinstance(target, (str, os.PathLike)) else target
        self._program: Program | None = None
        self._file: OpenedModel | None = None
        self._before: Captured | None = None  # another capture of the file under these options
        self._samples: int | None = None  # of a configuration's batch, where the length is what is planned
        self._known = _Known()
        self._kind = self._target.kind if isinstance(self._target, Target) else ""
        self.config = self._kind == "config"
        self.name = self._target.name if isinstance(self._target, Target) else type(target).__name__
        if not self.config:
            _check_no_config(self._target, options)
        self.runtime = self._runtime()
        if self._kind not in ("config", "onnx"):
            require_torch(f"{self.name} is a PyTorch target")
            from analyzer.pipeline.pytorch import built

            self._program = built(self._target, options)

    def _runtime(self) -> Runtime | None:
        options, framework = self.options, "onnx" if self._kind == "onnx" else "pytorch"
        if self.config or (framework == "onnx" and (options.mode != "infer" or options.parallel is not None)):
            return None
        runtime = base.running(options.runtime, framework, self.name)
        alone = options.parallel is None or runtime.name == "pytorch"
        return runtime if alone and options.batches is None else None

    @property
    def model(self) -> torch.nn.Module | None:
        """The PyTorch module, None for other targets."""
        return None if self._program is None else self._program.model

    @property
    def intervals(self) -> dict[tuple[int, int], Any]:
        """Of a range of batches what `planning/intervals.py` found, on any device."""
        return self._known.intervals

    def under(self, options: Options) -> Workload:
        """Return the same with other options. Raises OptionError."""
        other = copy.copy(self)
        other.options, other._before, other._known = options, None, _Known()
        other.runtime = other._runtime()
        return other

    def alike(self, **changes: Any) -> Workload:
        """Return the same with other options under which its captures are valid: another device, or settings
        of a runtime, which a PyTorch capture does not see."""
        other = self.under(replace(self.options, **changes))
        other._known = self._known
        return other

    def on(self, device: str | int | None) -> Workload:
        """Return the same on another device."""
        return self.alike(device=device)

    def fixed(self, batch: int | None = None, length: int | None = None) -> Workload:
        """Return the same with samples of this length, or with so many samples, whose length then is the
        variable (`make_batch(batch, length)`). Raises OptionError if the function takes no length."""
        other = self.under(self.options)
        if self.config:
            other._samples = batch
            return other if length is None else self.under(replace(self.options, length=length))
        make = self._make or (self._program.make_batch if self._program is not None else None)
        if make is None or len(inspect.signature(make).parameters) < 2:
            if self._kind == "onnx":
                raise OptionError(
                    f"{self.name} is an ONNX file, whose lengths are dimensions of its inputs",
                    "ask for the largest batch at each: --input NAME=LENGTH, without --longest",
                )
            raise OptionError(
                f"{self.name} does not say what samples of another length are",
                "define make_batch(batch, length) in the target's file, or give inputs=function(batch,"
                " length)",
            )
        other._make = lambda size: make(size, length) if batch is None else make(batch, size)
        return other

    def at(self, batch: int) -> Options:
        """Return the options with the batch's tensors, made or resized. Raises OptionError."""
        if self._samples is not None:
            return replace(self.options, batch=self._samples, length=batch)
        options = replace(self.options, batch=batch)
        if self._make is None and (self._program is None or not options.inputs):
            return options
        from analyzer.pipeline import pytorch

        return pytorch.resized(options) if self._make is None else pytorch.with_made(options, self._make)

    def captured_batches(self) -> set[int]:
        """Return the batches that were captured, on any device."""
        return {batch for (batch, _), captures in self._known.captures.items() if captures}

    def repetition(self) -> RepeatedSteps | None:
        """Return how later steps repeat the first, from a capture of all steps at a batch above one (one
        sample's program differs); None without such a capture or where they do not."""
        keys, known = self._known.captures, self._known.repeated
        wholes = [batch for batch, steps in keys if keys[batch, steps] and steps is None and batch > 1]
        if not wholes or self._program is None or self.options.steps == 1:
            return None
        graph = self.captured(wholes[0]).source.graph
        if id(graph) not in known:
            try:
                known[id(graph)] = graph, RepeatedSteps(graph)
            except NotTheSame:
                known[id(graph)] = graph, None
        return known[id(graph)][1]

    def repeated(self, batch: int) -> Captured:
        """Return the capture at a batch, of one step if steps repeat. Raises AnalyzerError."""
        repetition = None if self._known.captures.get((batch, None)) else self.repetition()
        if repetition is not None:
            try:
                first = self.captured(batch, steps=1)
                graph = repetition.with_all_steps(first.source.graph)
                return replace(first, source=replace(first.source, graph=graph))
            except (AnalyzerError, NotTheSame):
                pass  # what all steps say of it is what the user should read
        return self.captured(batch)

    def captured(self, batch: int, steps: int | None = None) -> Captured:
        """Return the capture at a batch, of at most the options' steps; needs a `runtime`.

        Its comparisons of sizes are recorded. Raises AnalyzerError.
        """
        assert self.runtime is not None
        known = self._known.captures.setdefault((batch, steps), [])
        for device, capture in known:
            moved = self.moved(capture, device)
            if moved is not None:
                return moved
        made = self._made(self.at(batch), self.runtime, steps)
        known.append((self.options.device, made))
        return made

    def _made(self, options: Options, runtime: Runtime, steps: int | None) -> Captured:
        """Make a new capture."""
        if self._program is None:
            from analyzer.onnx.model import opened
            from analyzer.pipeline.onnx import captured_onnx

            self._file = self._file or opened(self._target.path)
            self._before = captured_onnx(self._target, options, runtime, self._file, self._before)
            return self._before
        from analyzer.pipeline.pytorch import captured_program

        if steps is not None:
            options = replace(options, steps=min(steps, options.steps))
        return captured_program(self._program, self.name, options, runtime, self.progress, record_guards=True)

    def moved(self, capture: Captured, device: str | int | None) -> Captured | None:
        """Return a capture for `device` with this device's profile; None if its program differs."""
        assert self.runtime is not None
        profile, note = resolve(self.options.device)
        alike = self._program is None or profile.compute_capability in capture.source.graph.alike
        if device != self.options.device and not alike:
            return None
        profile = self.runtime.profile(profile, self.options, self.model)
        return replace(capture, profile=profile, device_note=note)

    def over_batches(self, parametric: ParametricCapture, profile: DeviceProfile) -> Batches | None:
        """Return the runtime's figures over a range of batches. Raises NotTheSame, AnalyzerError."""
        assert self.runtime is not None
        return self.runtime.over_batches(parametric, profile, self.options)

    def analysis(self, batch: int, limit: Limit | None = None, needs: bool = True) -> Analysis:
        """Return a fresh analysis at a batch, under a limit as `assemble` takes it; needs: as of `analysis`.
        Raises AnalyzerError."""
        if self.runtime is not None:
            return self.assembled(self.captured(batch), batch, limit)
        return analysis(self._target, self.at(batch), self.progress, needs)

    def assembled(
        self, captured: Captured, batch: int, limit: Limit | None = None, known: Prediction | None = None
    ) -> Analysis:
        """Return the analysis of a capture or joined program; limit, known: as `assemble` takes them."""
        assert self.runtime is not None
        options = replace(self.options, batch=batch)
        if self._program is not None:
            options = replace(options, inputs=None, targets=None)
        return assemble(captured, options, self.runtime, limit, known)


def analysis(
    target: str | os.PathLike[str] | torch.nn.Module,
    options: Options,
    progress: Callable[[str], None] | None = None,
    needs: bool = True,
) -> Analysis:
    """Analyse `target` and keep everything made on the way. needs: a configuration's figures with room too,
    where the device has less; else they end where it runs out. Raises AnalyzerError."""
    parsed = parse(target) if isinstance(target, (str, os.PathLike)) else target
    if options.parallel is not None:
        _check_parallel(parsed, options)
    if isinstance(parsed, Target) and parsed.kind == "config":
        followed = extensions.required("extensions", "configuration", "a model's configuration")
        analysed: Analysis = followed(parsed.name, options, progress, needs)
        return analysed
    _check_no_config(parsed, options)
    if isinstance(parsed, Target) and parsed.kind == "onnx":
        from analyzer.pipeline.onnx import captured_onnx, captured_onnx_training

        if options.mode == "train":
            runtime = base.named("pytorch" if options.runtime in (None, "onnxruntime") else options.runtime)
            if "pytorch" not in runtime.frameworks:
                raise OptionError(
                    f"{runtime.name} does not train an ONNX file: that is a PyTorch program",
                    "leave --runtime out",
                )
            _check_batches(options, "training")
            return assemble(captured_onnx_training(parsed, options, runtime, progress), options, runtime)
        runtime = base.running(options.runtime, "onnx", parsed.name)
        return assemble(captured_onnx(parsed, options, runtime), options, runtime)
    _check_batches(options, "a PyTorch target")
    name = parsed.name if isinstance(parsed, Target) else type(parsed).__name__
    runtime = base.running(options.runtime, "pytorch", name)
    require_torch(f"{name} is a PyTorch target")
    from analyzer.pipeline.pytorch import captured_pytorch

    return assemble(captured_pytorch(parsed, options, runtime, progress), options, runtime)


def _check_batches(options: Options, what: str) -> None:
    """Raise OptionError for several batches of anything but an ONNX session."""
    if options.batches is not None:
        raise OptionError(
            f"--batches are the runs of an ONNX session, and this is {what}",
            "give one --batch; a script with several is followed by `analyze run`",
        )


def _check_no_config(target: Target | object, options: Options) -> None:
    """Raise OptionError for options that only a configuration has."""
    given = [*options.config_only(), *(["mode"] if options.mode == "generate" else [])]
    if given:
        name = target.name if isinstance(target, Target) else type(target).__name__
        flag = f"--{given[0].replace('_', '-')}" + (" generate" if given[0] == "mode" else "")
        raise OptionError(f"{flag} needs a config.json, and {name} is none", f"leave {flag} out")


def _check_parallel(target: Target | object, options: Options) -> None:
    """Raise OptionError for targets that cannot be spread over GPUs."""
    if isinstance(target, Target) and target.kind == "onnx":
        raise OptionError(
            f"{target.name} is an ONNX file, which runs on one GPU: --parallel is for PyTorch models",
            "leave --parallel out, or give the PyTorch model",
        )
    if options.runtime not in (None, "pytorch"):
        raise OptionError(
            f"{options.runtime} runs one process: --parallel is PyTorch's",
            "leave --parallel or --runtime out",
        )
