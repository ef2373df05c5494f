"""Which engine analyses a program or target: it is traced, and emulated where tracing leaves a doubt.

1. "trace" (or "simulate") and "emulate" are what they say. "auto" traces, and where that leaves a doubt
   (`doubt_of`) and a CUDA build of PyTorch is within reach, the same is run by it on the emulated runtime: by
   an extension (`Emulator`), where it is installed. A note says what tracing met and whose figures these are.
   An ONNX file is simulated, and run by ONNX Runtime's own CUDA provider. Whole programs are followed by an
   extension, too.
2. Where emulation gets no further either, the traced estimate stands, with what the emulated one ended in.
3. Without a CUDA build the traced estimate stands, with a note that names the command which installs one,
   unless the program ended in an error of its own, or lacks a package.
4. The second run finds nothing of what the first one wrote.

Not emulated: modules of this process, jobs of several machines, and what only `analyze TARGET`
has (`--parallel`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack

from analyzer import extensions
from analyzer.analysis import Analysis
from analyzer.engines import ENGINES, Engine
from analyzer.engines.sessions import has_sessions, has_sessions_alone
from analyzer.errors import AnalyzerError, CaptureError, MissingDependencyError, OptionError
from analyzer.options import Keywords, Options, takes_options
from analyzer.pipeline.diagnosis import diagnosed
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.spec import TensorSpec
from analyzer.targets import missing_package

if TYPE_CHECKING:
    import torch

Progress = Callable[[str], None]
_BUILD_PACKAGES = ("nvidia", "torch", "triton")
_Build = TypeVar("_Build")
_SESSIONS = "sessions of ONNX Runtime are not followed: what they take of the GPU is not in the figures"
_INTERRUPTED = "interrupted"  # `analyzer_programs/program.py`


@dataclass(frozen=True, slots=True)
class Answer:
    """estimate: known so far. analysis: of the traced program. error: what ended a program early."""

    estimate: Estimate
    analysis: Analysis | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Emulation(Generic[_Build]):
    """A CUDA build that can run something on the emulated runtime. wanted, hint: of which there is none, and
    what installs one; find: the one within reach; is_wanted: whether it is of the release asked for; name: in
    notes; run: it. after_errors: it may get further where tracing ends in an error."""

    wanted: str
    hint: str
    find: Callable[[], _Build | None]
    is_wanted: Callable[[_Build], bool]
    name: Callable[[_Build], str]
    run: Callable[[_Build], Estimate]
    after_errors: bool = True


class Emulator(Protocol):
    """The extension that emulates (entry point "emulate" of "analyzer.engines")."""

    def of_program(
        self,
        choice: EngineChoice,
        script: str | os.PathLike[str],
        args: Sequence[str],
        options: Options,
        environment: Mapping[str, str],
        until: str | int,
        job: Rank | None,
    ) -> Emulation[Any]: ...

    def of_target(self, choice: EngineChoice, target: Any, options: Options) -> Emulation[Any]: ...

    def of_session(self, choice: EngineChoice, target: Any, options: Options) -> Emulation[Any]: ...


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """engine: one of `ENGINES`. python: the Python whose PyTorch is emulated, None: any available
    one. keep, network, gpus: as in `analyzer.run`. Raises OptionError for another engine."""

    engine: str = "auto"
    python: str | os.PathLike[str] | None = None
    keep: str | None = None
    network: bool = True
    progress: Progress | None = None
    unprotected: bool = False
    gpus: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise OptionError(f"there is no engine {self.engine!r}", f"one of {', '.join(ENGINES)}")

    def analyze_program(
        self,
        script: str | os.PathLike[str],
        args: Sequence[str],
        options: Options,
        environment: Mapping[str, str],
        until: str | int = "end",
        job: Rank | None = None,
    ) -> Answer:
        """Analyse a whole program, as one rank of a job. Raises AnalyzerError."""
        if (self.gpus or 1) > 1 and job is not None and job.world_size > 1:
            raise OptionError(
                "ranks of a job have one GPU each",
                "leave --gpus out for ranks, or --nproc-per-node for one process of several GPUs",
            )
        sessions = has_sessions(script)
        alone = sessions and has_sessions_alone(script)

        counts = [self.gpus]  # and those that the program turns out to name

        def trace() -> Answer:
            follow = extensions.required("engines", "trace", "a whole program")
            analysis, error = follow(script, args, options, environment, until, job, self)
            if until != "played":  # one of many tries, whose figures alone count
                analysis = diagnosed(analysis)
            counts.append(len(analysis.estimate.devices) or self.gpus)
            if sessions:
                estimate = replace(analysis.estimate, caveats=(*analysis.estimate.caveats, _SESSIONS))
                analysis = replace(analysis, estimate=estimate)
            return Answer(analysis.estimate, analysis, error)

        several = job is not None and job.world_size > job.local_world_size
        steps = "steady" if until == "played" else until  # an emulated program plays nothing
        return self._answer(
            trace,
            lambda emulator: emulator.of_program(
                replace(self, gpus=counts[-1]), script, args, options, environment, steps, job
            ),
            "jobs of several machines" if several and not alone else "",
            at_once=alone,
        )

    def analyze_target(self, target: str | os.PathLike[str] | torch.nn.Module, options: Options) -> Answer:
        """Analyse a target as `analyzer.analyze` takes it. Raises AnalyzerError."""
        from analyzer import pipeline

        def trace() -> Answer:
            analysis = diagnosed(pipeline.analysis(target, options, self.progress))
            return Answer(analysis.estimate, analysis)

        if _is_session(target, options):
            return self._answer(trace, lambda emulator: emulator.of_session(self, target, options))

        not_emulated = ""
        if not isinstance(target, (str, os.PathLike)):
            not_emulated = "modules of this process"
        elif options.parallel is not None:
            not_emulated = "targets with --parallel"
        elif options.runtime not in (None, "pytorch") or _is_onnx(target):
            not_emulated = "programs of other runtimes than PyTorch"
        return self._answer(trace, lambda emulator: emulator.of_target(self, target, options), not_emulated)

    def _answer(
        self,
        trace: Callable[[], Answer],
        emulation_by: Callable[[Emulator], Emulation[Any]],
        not_emulated: str = "",
        at_once: bool = False,
    ) -> Answer:
        """Return the answer of the engine chosen. emulation_by: asks the extension that emulates.
        not_emulated: what it is that no engine emulates, "" for what can be emulated. at_once: tracing
        follows none of it, so that it is not tried where a build is within reach."""
        if self.engine == "auto" and at_once and (emulator := _emulator()) is not None:
            emulation = emulation_by(emulator)
            if (build := emulation.find()) is not None:
                if self.progress is not None:
                    self.progress(
                        f"sessions of ONNX Runtime are not traced; emulating {emulation.name(build)}"
                    )
                return Answer(emulation.run(build))
        if self.engine == "emulate":
            if not_emulated:
                raise OptionError(f"{not_emulated} are not emulated", "leave --engine out")
            emulation = emulation_by(extensions.required("engines", "emulate", "--engine emulate"))
            build = emulation.find()
            if build is None:
                raise MissingDependencyError(f"no {emulation.wanted} is available", emulation.hint)
            return Answer(emulation.run(build))
        traced: Answer | AnalyzerError
        try:
            traced = trace()
            doubt = doubt_of(traced.estimate)
        except (CaptureError, MissingDependencyError) as error:
            if (emulator := _emulator()) is None or not emulation_by(emulator).after_errors:
                raise
            traced, doubt = error, error.message
        doubtful = self.engine == "auto" and not not_emulated
        if doubtful and doubt is not None and (emulator := _emulator()) is not None:
            emulation = emulation_by(emulator)
            emulated, why_not = self._emulated_estimate(emulation, doubt)
            if emulated is not None:
                return Answer(emulated)
            if not (why_not == emulation.hint and _is_own(traced)):
                traced = _with_doubt(traced, doubt, why_not)
        if isinstance(traced, AnalyzerError):
            raise traced
        return traced

    def _emulated_estimate(self, emulation: Emulation[_Build], doubt: str) -> tuple[Estimate | None, str]:
        """Return the emulated estimate that replaces a doubtful one; else None, and why."""
        build = emulation.find()
        if build is None or not emulation.is_wanted(build):
            return None, emulation.hint
        name = emulation.name(build)
        if self.progress is not None:
            self.progress(f"tracing is uncertain: {doubt}; emulating {name}")
        try:
            estimate = emulation.run(build)
            ended = estimate.incomplete or next(iter(estimate.caveats), None)
        except AnalyzerError as error:
            ended = error.message
        if ended is not None:
            return None, f"emulated, {name} gets no further: {ended}"
        note = f"tracing was uncertain: {doubt}; so {name} itself was run, emulated"
        return replace(estimate, notes=(note, *estimate.notes)), ""


def _emulator() -> Emulator | None:
    emulator: Emulator | None = extensions.optional("engines", "emulate")
    return emulator


def _is_onnx(target: object) -> bool:
    return isinstance(target, (str, os.PathLike)) and os.fspath(target).lower().endswith(".onnx")


def _is_session(target: object, options: Options) -> bool:
    """Return whether it is an ONNX file for ONNX Runtime."""
    return _is_onnx(target) and options.mode == "infer" and options.runtime in (None, "onnxruntime")


def doubt_of(estimate: Estimate) -> str | None:
    """Why the figures of a traced program may not be the program's; None: no reason."""
    if estimate.incomplete is not None:
        return None if estimate.incomplete == _INTERRUPTED else estimate.incomplete
    if unknown := estimate.certainty.unknown_operators:
        return f"the memory of {', '.join(unknown)} beside its results is unknown"
    if estimate.caveats:
        return estimate.caveats[0].partition(": ")[0]
    return estimate.unreached if "caught an error" in estimate.unreached else None


def _with_doubt(traced: Answer | AnalyzerError, doubt: str, why_not: str) -> Answer | AnalyzerError:
    """Return the traced answer with a sentence on its doubt added, as a note or as a hint."""
    if isinstance(traced, AnalyzerError):
        return _hinted(traced, why_not)
    notes = (*traced.estimate.notes, f"tracing was uncertain: {doubt}; {why_not}")
    error = _hinted(traced.error, why_not) if isinstance(traced.error, AnalyzerError) else traced.error
    return replace(traced, estimate=replace(traced.estimate, notes=notes), error=error)


def _is_own(traced: Answer | AnalyzerError) -> bool:
    """Return whether it ended by itself, as it would under any build of PyTorch: in an error of its own, or
    for want of a package that none brings."""
    error = traced if isinstance(traced, AnalyzerError) else traced.error
    if getattr(error, "is_own", False):
        return True
    cause = None if error is None else error.__cause__
    return isinstance(cause, ImportError) and missing_package(cause) not in ("", *_BUILD_PACKAGES)


def _hinted(error: AnalyzerError, hint: str) -> AnalyzerError:
    """Return the error with another hint before its own (after it where a package is missing)."""
    hints = (error.hint, hint) if isinstance(error, MissingDependencyError) else (hint, error.hint)
    hinted = type(error)(error.message, "; ".join(filter(None, hints)))
    hinted.__cause__ = error
    return hinted


@takes_options
def analyze(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, TensorSpec] | None = None,
    *,
    engine: Engine = "auto",
    python: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[Keywords],
) -> Estimate:
    """Predict what `target` needs of a GPU, without running it. All sizes are in bytes.

    Example:
        >>> estimate = analyzer.analyze("models/cnn.py", batch=128, mode="train", device="rtx4090")
        >>> estimate.peak_reserved / 2**20, estimate.fits(), estimate.top(3)  # MiB, whether it fits, tensors
        >>> analyzer.analyze(model, [torch.zeros(32, 1024)], mode="train", loss="sum", optimizer="adamw")

    Args:
        target: an `nn.Module` (on any device, also meta: neither changed nor run, weights not copied),
            `model.onnx`, `file.py[:attr]`, `package.module:attr`, `program.pt2`, `config.json` (its folder,
            `hf:ORG/NAME`).
        inputs: tensors on any device or `TensorSpec`s, in the order the model takes them; only shape, strides
            and dtype are read. Or a mapping from the names of the model's parameters, or of an ONNX file's
            inputs, to them.
        engine: "trace", "emulate" or "auto", as in `analyzer.run`; python: as there.
        progress: a function that is told what is under way, in a few words.

    Returns:
        The estimate: `peak_allocated`, `peak_reserved`, `device_used`, each with its least and most
        (`allocated_range`, `reserved_range`, `device_range`: both ends the figure itself where nothing is
        assumed), `verdict()` ("fits", "may not fit", "does not fit"), `breakdown`, `fits(device)`, `top(n)`,
        `step_seconds`, `notes`, `to_json()`; `print(estimate)` shows it.

    Raises:
        AnalyzerError: for everything a user can mend, with a hint; its subclass says of which kind
            (TargetError, InputError, OptionError, CaptureError, MissingDependencyError, ...).
    """
    return (
        EngineChoice(engine, python, progress=progress, unprotected=True)
        .analyze_target(target, Options.of({"inputs": inputs, **options}))
        .estimate
    )
