"""Which engine analyses a program or target: it is traced, and emulated where tracing leaves a doubt.

1. "trace" (or "simulate") and "emulate" are what they say. "auto" traces, and where that leaves a doubt
   (`doubt_of`) and a CUDA build of PyTorch is within reach (`reach.py`), the same is run by it on the
   emulated runtime. A note says what tracing met and whose figures these are. An ONNX file is simulated, and
   run by ONNX Runtime's own CUDA provider.
2. Where emulation gets no further either, the traced estimate stands, with what the emulated one ended in.
3. Without a CUDA build the traced estimate stands, with a note that names the command which installs one,
   unless the program ended in an error of its own, or lacks a package.
4. The second run finds nothing of what the first one wrote (`emulated.py`).

Not emulated: modules of this process, jobs of several machines, and what only `analyze TARGET`
has (`--parallel`).
"""

from __future__ import annotations

import os
import site
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

from analyzer import releases, sandbox
from analyzer.analysis import Analysis
from analyzer.engines import ENGINES, Engine
from analyzer.engines.emulated import Request, emulate
from analyzer.engines.sessions import has_sessions, has_sessions_alone
from analyzer.errors import AnalyzerError, CaptureError, MissingDependencyError, OptionError
from analyzer.options import Keywords, Options, takes_options, words_of
from analyzer.pipeline.diagnosis import diagnosed
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.spec import TensorSpec
from analyzer.targets import missing_package, parse

if TYPE_CHECKING:
    import torch

    from analyzer.emulation.inference import Provider
    from analyzer.emulation.launch import Torch

Progress = Callable[[str], None]
_BUILD_PACKAGES = ("nvidia", "torch", "triton")
_Build = TypeVar("_Build")
_PROVIDER_HINT = (
    "ONNX Runtime's own CUDA provider runs it without a GPU: analyze engine install onnxruntime-gpu"
)
_SESSIONS = "sessions of ONNX Runtime are not followed: what they take of the GPU is not in the figures"
_INTERRUPTED = "interrupted"  # `pipeline/program.py`


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


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """engine: one of `ENGINES`. python: the Python whose PyTorch is emulated, None: any available
    one. keep, network: as in `analyzer.run`. Raises OptionError for another engine."""

    engine: str = "auto"
    python: str | os.PathLike[str] | None = None
    keep: str | None = None
    network: bool = True
    progress: Progress | None = None
    unprotected: bool = False

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
        from analyzer.pipeline.program import follow

        alone, with_sessions = has_sessions_alone(script), has_sessions(script)

        def request(build: Torch | Provider) -> Request:
            from analyzer.runs import jobs

            program_options = replace(options, runtime_options={}, release={}, strict=False)
            return Request(
                os.fspath(script),
                str(build.python),
                jobs.describe("", program_options)["options"],
                tuple(map(str, args)),
                until="end" if until == "auto" else until,
                environment={**jobs.environment_of(options), **environment},
                packages=_packages(build),
                job=asdict(job or Rank()),
                keep=self.keep,
                network=self.network,
                unprotected=self.unprotected,
            )

        def trace() -> Answer:
            try:
                with sandbox.apart(self.keep, self.network, self.unprotected) as box:
                    if self.progress is not None:
                        self.progress(f"protection: {box.protected_by()}")
                    analysis, error = follow(
                        script, args, options, environment, until, progress=self.progress, job=job
                    )
            except sandbox.UnprotectedError as refused:
                raise OptionError(*refused.args) from None
            analysis = diagnosed(analysis)
            estimate = analysis.estimate
            if with_sessions:
                estimate = replace(estimate, caveats=(*estimate.caveats, _SESSIONS))
                analysis = replace(analysis, estimate=estimate)
            return Answer(estimate, analysis, error)

        several = job is not None and job.world_size > job.local_world_size
        if alone:
            return self._answer(trace, self._serving_emulation(request, options), at_once=True)
        emulation = self._torch_emulation(request, options)
        return self._answer(trace, emulation, "jobs of several machines" if several else "")

    def analyze_target(self, target: str | os.PathLike[str] | torch.nn.Module, options: Options) -> Answer:
        """Analyse a target as `analyzer.analyze` takes it. Raises AnalyzerError."""
        from analyzer import pipeline

        def trace() -> Answer:
            analysis = diagnosed(pipeline.analysis(target, options, self.progress))
            return Answer(analysis.estimate, analysis)

        if _is_session(target, options):
            return self._answer(trace, _session_emulation(target, options, self.python))

        def request(build: Torch) -> Request:
            from analyzer.runs import jobs

            described = jobs.describe(target, options)
            return Request(
                described["target"],
                str(build.python),
                described["options"],
                is_target=True,
                unprotected=self.unprotected,
            )

        not_emulated = ""
        if not isinstance(target, (str, os.PathLike)):
            not_emulated = "modules of this process"
        elif options.parallel is not None:
            not_emulated = "targets with --parallel"
        elif options.runtime not in (None, "pytorch") or _is_onnx(target):
            not_emulated = "programs of other runtimes than PyTorch"
        return self._answer(trace, self._torch_emulation(request, options), not_emulated)

    def _answer(
        self,
        trace: Callable[[], Answer],
        emulation: Emulation[_Build],
        not_emulated: str = "",
        at_once: bool = False,
    ) -> Answer:
        """Return the answer of the engine chosen. not_emulated: what it is that no engine emulates, "" for
        what can be emulated. at_once: tracing follows none of it, so that it is not tried where a build is
        within reach."""
        if self.engine == "auto" and at_once and (build := emulation.find()) is not None:
            if self.progress is not None:
                self.progress(f"sessions of ONNX Runtime are not traced; emulating {emulation.name(build)}")
            return Answer(emulation.run(build))
        if self.engine == "emulate":
            if not_emulated:
                raise OptionError(f"{not_emulated} are not emulated", "leave --engine out")
            build = emulation.find()
            if build is None:
                raise MissingDependencyError(f"no {emulation.wanted} is available", emulation.hint)
            return Answer(emulation.run(build))
        traced: Answer | AnalyzerError
        try:
            traced = trace()
            doubt = doubt_of(traced.estimate)
        except (CaptureError, MissingDependencyError) as error:
            if not emulation.after_errors:
                raise
            traced, doubt = error, error.message
        if self.engine == "auto" and doubt is not None and not not_emulated:
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

    def _serving_emulation(
        self, request: Callable[[Provider], Request], options: Options
    ) -> Emulation[Provider]:
        """Return ONNX Runtime's own CUDA provider, for a request."""
        from analyzer.engines.reach import provider_within_reach

        return Emulation(
            wanted="onnxruntime-gpu",
            hint=_PROVIDER_HINT,
            find=lambda: provider_within_reach(self.python),
            is_wanted=lambda build: _is_wanted_release("onnxruntime", build.version, options),
            name=lambda build: f"ONNX Runtime {build.version}",
            run=lambda build: self._emulate(request(build)),
        )

    def _torch_emulation(self, request: Callable[[Torch], Request], options: Options) -> Emulation[Torch]:
        """Return PyTorch's own CUDA build, for a request."""
        from analyzer.engines.reach import within_reach

        return Emulation(
            wanted="CUDA build of PyTorch",
            hint=_install_hint(),
            find=lambda: within_reach(self.python),
            is_wanted=lambda build: _is_wanted_release("torch", build.version, options),
            name=lambda build: f"torch {build.version}",
            run=lambda build: self._emulate(request(build)),
        )

    def _emulate(self, request: Request) -> Estimate:
        estimate, outside = emulate(request), sandbox.outside()
        if outside is not None and estimate.incomplete is None:
            # Of what the traced program wrote: what the emulated one did is kept.
            outside.ask("keep nothing")
        return estimate


def _is_onnx(target: object) -> bool:
    return isinstance(target, (str, os.PathLike)) and os.fspath(target).lower().endswith(".onnx")


def _is_session(target: object, options: Options) -> bool:
    """Return whether it is an ONNX file for ONNX Runtime."""
    return _is_onnx(target) and options.mode == "infer" and options.runtime in (None, "onnxruntime")


def _session_emulation(
    target: Any, options: Options, python: str | os.PathLike[str] | None
) -> Emulation[Provider]:
    """Return ONNX Runtime's own CUDA provider, for a file."""

    def find() -> Provider | None:
        from analyzer.engines.reach import provider_within_reach

        return provider_within_reach(python)

    def estimate(build: Provider) -> Estimate:
        from analyzer.runs.provider import estimate_of

        if not _is_wanted_release("onnxruntime", build.version, options):
            wanted = options.release["onnxruntime"]
            raise OptionError(
                f"ONNX Runtime {build.version} of {build.python} is not {wanted}, which --release asks for",
                f"analyze engine install onnxruntime-gpu=={wanted}, or leave --release out",
            )
        return estimate_of(parse(os.fspath(target)), options, build)

    return Emulation(
        wanted="onnxruntime-gpu",
        hint=_PROVIDER_HINT,
        find=find,
        is_wanted=lambda build: _is_wanted_release("onnxruntime", build.version, options),
        name=lambda build: f"ONNX Runtime {build.version}",
        run=estimate,
        after_errors=False,
    )


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


def _is_wanted_release(package: str, version: str, options: Options) -> bool:
    """Return whether a build is of the release whose figures are wanted."""
    wanted = options.release.get(package)
    return wanted is None or releases.parse(version) == releases.parse(wanted)


def _hinted(error: AnalyzerError, hint: str) -> AnalyzerError:
    """Return the error with another hint before its own (after it where a package is missing)."""
    hints = (error.hint, hint) if isinstance(error, MissingDependencyError) else (hint, error.hint)
    hinted = type(error)(error.message, "; ".join(filter(None, hints)))
    hinted.__cause__ = error
    return hinted


def _install_hint() -> str:
    from analyzer.engines import store

    return f"PyTorch's own CUDA build runs it without a GPU: analyze engine install {store.DEFAULT}"


def _packages(build: Torch | Provider) -> tuple[str, ...]:
    """Return this Python's package folders for an environment that this tool made with PyTorch alone."""
    from analyzer.engines import store

    if store.home() not in build.python.parents:
        return ()
    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return tuple(dict.fromkeys((*own, *site.getsitepackages())))


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


def run(
    script: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    device: str | int | None = None,
    ranks: int = 1,
    rank: int = 0,
    runtime_options: Mapping[str, Any] | None = None,
    until: Literal["end", "steady"] | int = "end",
    assume: Mapping[str, Any] | None = None,
    release: Mapping[str, str] | None = None,
    keep_outputs: str | os.PathLike[str] | None = None,
    network: bool = True,
    unprotected: bool = False,
    engine: Engine = "auto",
    python: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Predict what a program needs of a GPU, by running it on one that is not there. All sizes are in bytes.

    Example:
        >>> estimate = analyzer.run("train.py", ["--batch-size", "64"], device="24GiB", until="steady")
        >>> estimate.peak_reserved / 2**20, estimate.fits(), estimate.out_of_memory  # MiB

    script: a file, run as `python SCRIPT ARGS` would, or `-m` and a module's name as the script "-m MODULE".
    args: its arguments, in a list.
    ranks, rank: of a job started by `torchrun`, which of how many is followed (`analyzer/ranks.py`).
    environment: variables it sees besides its own. device: as in `analyzer.analyze`.
    until: "end"; a number of optimizer steps after which it ends; or "steady": after the step from which on
        steps ask for the same and the allocator is laid out as before.
    runtime_options: "cublas_workspace" and "alloc_conf", as in `analyzer.analyze`.
    assume: {"train.py:12": 512}: the value read, or the size of the result, at a line where only data tells.
    release: {"torch": "2.8"}: figures of another release than by default (`analyzer/releases.py`).
    keep_outputs: a folder for the files it writes, which are dropped otherwise: they go to an overlay
        (`analyzer/sandbox`). network: whether it may connect to other machines.
    unprotected: follow it also where nothing but Python's own functions is kept from writing: processes it
        starts are not held there (no Landlock); otherwise that is an OptionError.
    engine: "trace"; "emulate" (`analyzer.emulate`); or "auto": traced, and emulated where tracing leaves a
        doubt and a CUDA build of PyTorch is within reach. python: the Python (or its environment's folder)
        that has one; None: the one that the variable ANALYZER_PYTHON names, this one, or one that `analyze
        engine install` made. `Estimate.engine` says whose figures they are.
    Raises TargetError for a script that cannot be found, OptionError. A program that raises, ends itself with
    another exit code than 0, or cannot be followed any further, gives the estimate up to there:
    `Estimate.incomplete` says why, and such an estimate never fits. One that finds no memory says so in
    `Estimate.out_of_memory`.
    """
    options = Options.of(
        {"device": device, "runtime_options": runtime_options, "assume": assume, "release": release}
    )
    keep = None if keep_outputs is None else str(Path(keep_outputs).absolute())
    choice = EngineChoice(engine, python, keep, network, progress, unprotected)
    return choice.analyze_program(
        script, words_of(args), options, environment or {}, until, Rank.of(rank, ranks)
    ).estimate
