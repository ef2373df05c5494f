"""What is planned: one target with its options, opened once, at any batch.

1. A target that makes its own batches (`make_batch`, ONNX) is asked for them. `inputs` may also be a function
   from the batch to (inputs, targets).
2. Given tensors stand for one batch: their first dimension, where it is that of the first input, is the
   batch. Strides stay as they are.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import OptionError, TargetError
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.parametric.numbers import NotTheSame
from analyzer.parametric.steps import RepeatedSteps
from analyzer.pipeline import analysis
from analyzer.pipeline.assemble import Captured, assemble, check_runtime
from analyzer.runtimes import base
from analyzer.runtimes.base import Limit, Prediction, Runtime
from analyzer.runtimes.batches import Batches, ParametricCapture
from analyzer.spec import TensorSpec
from analyzer.targets import Program, Target, arguments, parse, require_torch

if TYPE_CHECKING:
    import torch

    from analyzer.onnx.model import OpenedModel

Progress = Callable[[str], None]


class Subject:
    """A target and its options without a batch.

    runtime: who runs it, where one batch can be captured by itself (`captured`); None where only an analysis
    knows what a batch is, or what is wrong with it: of a configuration, whose program is followed as a whole
    (`config`), of an ONNX file that is trained or runs at several sizes.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | torch.nn.Module,
        options: Options,
        progress: Progress | None = None,
    ) -> None:
        """Opens the target. Raises AnalyzerError."""
        self._progress = progress
        self._make: Callable[..., tuple[Any, Any]] | None = None
        inputs: Any = options.inputs
        if callable(inputs):
            self._make = inputs
            options = replace(options, inputs=None)
        self.options = options
        self._target: Any = parse(target) if isinstance(target, (str, os.PathLike)) else target
        self._program: Program | None = None
        self._file: OpenedModel | None = None
        self._before: Captured | None = None  # another capture of the file under these options
        self._captures: dict[tuple[int, int | None], list[tuple[Any, Captured]]] = {}
        # Of captured graphs what `repetition` found.
        self._repeated: list[tuple[Graph, RepeatedSteps | None]] = []
        # Of a range of batches what `intervals.py` found, on any device.
        self.intervals: dict[tuple[int, int], Any] = {}
        self._samples: int | None = None  # of a configuration's batch, where the length is what is planned
        kind = self._target.kind if isinstance(self._target, Target) else ""
        self.config = kind == "config"
        self.name = self._target.name if isinstance(self._target, Target) else type(target).__name__
        self.runtime: Runtime | None = None
        if kind == "onnx":
            if options.mode == "infer" and options.batches is None and options.parallel is None:
                self.runtime = base.named(options.runtime or "onnxruntime")
                check_runtime(self.runtime, "onnx", self.name)
        elif not self.config:
            self._open(options)

    def _open(self, options: Options) -> None:
        """Build the module of a PyTorch target."""
        if not isinstance(self._target, Target) and not hasattr(self._target, "named_parameters"):
            raise TargetError(
                f"a {self.name} is no model", "give an nn.Module, a path or package.module:attr"
            )
        runtime = base.named(options.runtime or "pytorch")
        check_runtime(runtime, "pytorch", self.name)
        self._program = (
            _built(self._target, options) if isinstance(self._target, Target) else Program(self._target)
        )
        if options.batches is None and (options.parallel is None or runtime.name == "pytorch"):
            self.runtime = runtime

    def over_length(self, batch: int) -> Subject:
        """Return the subject at one batch, with the length as variable (`make_batch(batch, length)`). Raises
        OptionError if the function takes no length."""
        if self.config:
            longer = self.under(self.options)
            longer._samples = batch
            return longer
        make, longer = self._sized(), self.under(self.options)
        longer._make = lambda length: make(batch, length)
        return longer

    def of_length(self, length: int) -> Subject:
        """Return the same, with samples of this length. Raises OptionError as `over_length`."""
        if self.config:
            return self.under(replace(self.options, length=length))
        make, longer = self._sized(), self.under(self.options)
        longer._make = lambda batch: make(batch, length)
        return longer

    def _sized(self) -> Callable[..., tuple[Any, Any]]:
        """Return the maker of (inputs, targets) for a batch and length. Raises OptionError."""
        make = self._make or (self._program.make_batch if self._program is not None else None)
        if make is None or len(inspect.signature(make).parameters) < 2:
            raise OptionError(
                f"{self.name} does not say what samples of another length are",
                "define make_batch(batch, length) in the target's file, or give inputs=function(batch,"
                " length)",
            )
        return make

    def under(self, options: Options) -> Subject:
        """Return the same with other options."""
        other = copy.copy(self)
        other.options, other._before, other._captures, other.intervals = options, None, {}, {}
        other._repeated = []
        return other

    def alike(self, runtime_options: Mapping[str, Any]) -> Subject:
        """Return the subject under other runtime settings, which a PyTorch capture does not see."""
        return self._sharing(replace(self.options, runtime_options=runtime_options))

    def on(self, device: str | int | None) -> Subject:
        """Return the subject on another device; captures of the same program are shared."""
        return self._sharing(replace(self.options, device=device))

    def _sharing(self, options: Options) -> Subject:
        """Return the subject with other options under which its captures are valid."""
        other = self.under(options)
        other._captures, other.intervals, other._repeated = self._captures, self.intervals, self._repeated
        return other

    @property
    def model(self) -> torch.nn.Module | None:
        """The PyTorch module, None for other targets."""
        return None if self._program is None else self._program.model

    def at(self, batch: int) -> Options:
        """Return the options with the batch's tensors, made or resized. Raises OptionError."""
        if self._samples is not None:
            return replace(self.options, batch=self._samples, length=batch)
        options = replace(self.options, batch=batch)
        given: Any = options.inputs
        if self._make is not None:
            import torch

            with torch.device("meta"):
                made = self._make(batch)
            if not isinstance(made, tuple) or len(made) != 2:
                raise OptionError(
                    "inputs(batch) returned no pair", "return (inputs, targets), each a tuple of tensors"
                )
            first, second = arguments(made[0]), arguments(made[1])
            second = (second,) if isinstance(second, Mapping) else second
            return replace(options, inputs=first, targets=second if options.mode == "train" else None)
        if self._program is None or not given:
            return options
        named = isinstance(given, Mapping)
        tensors = list(given.values() if named else given)
        size = tensors[0].shape[0] if len(tensors[0].shape) else None
        resized = tuple(_resized(tensor, size, batch) for tensor in tensors)
        targets = options.targets
        if targets is not None:
            targets = tuple(_resized(tensor, size, batch) for tensor in targets)
        inputs: Any = dict(zip(given, resized, strict=True)) if named else resized
        return replace(options, inputs=inputs, targets=targets)

    def has_captured(self, batch: int) -> bool:
        """Return whether the batch was captured with all steps, on any device."""
        return bool(self._captures.get((batch, None)))

    def captured_batches(self) -> set[int]:
        """Return the batches that were captured, on any device."""
        return {batch for (batch, _), found in self._captures.items() if found}

    def repetition(self) -> RepeatedSteps | None:
        """Return how later steps repeat the first, from a capture of all steps at a batch above one (one
        sample's program differs); None without such a capture or where they do not."""
        wholes = [batch for batch in self.captured_batches() if batch > 1 and self.has_captured(batch)]
        if not wholes or self._program is None or self.options.steps == 1:
            return None
        graph = self.captured(wholes[0]).source.graph
        for whole, known in self._repeated:
            if whole is graph:
                return known
        try:
            found: RepeatedSteps | None = RepeatedSteps(graph)
        except NotTheSame:
            found = None
        self._repeated.append((graph, found))
        return found

    def captured(self, batch: int, steps: int | None = None) -> Captured:
        """Return the capture at a batch, of at most the options' steps; needs a `runtime`.

        Its comparisons of sizes are recorded. Raises AnalyzerError.
        """
        assert self.runtime is not None
        known = self._captures.setdefault((batch, steps), [])
        for device, found in known:
            moved = self.moved(found, device)
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
        return captured_program(
            self._program, self.name, options, runtime, self._progress, record_guards=True
        )

    def moved(self, found: Captured, device: str | int | None) -> Captured | None:
        """Return a capture for `device` with this device's profile; None if its program differs."""
        assert self.runtime is not None
        profile, note = resolve(self.options.device)
        alike = self._program is None or profile.compute_capability in found.source.graph.alike
        if device != self.options.device and not alike:
            return None
        profile = self.runtime.profile(profile, self.options, self.model)
        return replace(found, profile=profile, device_note=note)

    def over_batches(self, parametric: ParametricCapture, profile: DeviceProfile) -> Batches | None:
        """Return the runtime's figures over a range of batches. Raises NotTheSame, AnalyzerError."""
        assert self.runtime is not None
        return self.runtime.over_batches(parametric, profile, self.options)

    def analysis(self, batch: int, limit: Limit | None = None) -> Analysis:
        """Return a fresh analysis at a batch, under a limit as `assemble` takes it. Raises AnalyzerError."""
        if self.runtime is not None:
            return self.assembled(self.captured(batch), batch, limit)
        return analysis(self._target, self.at(batch), self._progress)

    def assembled(
        self, captured: Captured, batch: int, limit: Limit | None = None, known: Prediction | None = None
    ) -> Analysis:
        """Return the analysis of a capture or joined program; limit, known: as `assemble` takes them."""
        assert self.runtime is not None
        options = replace(self.options, batch=batch)
        if self._program is not None:
            options = replace(options, inputs=None, targets=None)
        return assemble(captured, options, self.runtime, limit, known)


def _resized(tensor: Any, size: int | None, batch: int) -> Any:
    """Return a given tensor with its first dimension, where that is the batch, set to another."""
    shape = tuple(tensor.shape)
    if not shape or size is None or shape[0] != size:
        return tensor
    if isinstance(tensor, TensorSpec):
        stride: tuple[int, ...] | None = tensor.stride
    else:
        stride = tuple(tensor.stride())
    name = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec((batch, *shape[1:]), name, stride)


def _built(target: Target, options: Options) -> Program:
    """Return a PyTorch target's module. Raises MissingDependencyError without torch or as building does."""
    require_torch(f"{target.name} is a PyTorch target")
    from analyzer.pipeline.pytorch import built

    return built(target, options)
