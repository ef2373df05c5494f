"""A whole program: run as it is on a GPU that is not there, followed by the runtime while it runs.

One that runs out of memory is followed once more on a card without a limit, as far as `_AGAIN_SECONDS`
reach: its figures are then those with room, and everything alive at the peak is judged by what really reads
it. Where that does not succeed, the program is judged by how far it got (`Graph.unfinished`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import AnalyzerError, OptionError, TargetError, file_like
from analyzer.graph import Category, Death, Graph
from analyzer.notes import WITH_ROOM
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.pipeline.devices import with_devices
from analyzer.ranks import Post, Rank
from analyzer.report.verdicts import DOES_NOT_FIT, verdicts
from analyzer.runtimes import base
from analyzer.runtimes.base import Limit, Source
from analyzer.runtimes.events import Malloc
from analyzer.targets import require_torch
from analyzer_programs.peers import Peers, Work
from analyzer_sandbox import apart, current

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.memory import Memory
    from analyzer_programs.following.script import Ran
    from analyzer_programs.gpus import LiveGpus
    from analyzer_programs.live import Live

_AGAIN_SECONDS = 60.0
_MOST_GPUS = 16
_FEW_STEPS = 3  # the most memory held is often not reached before


def follow(
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int = "end",
    ranks: int = 1,
    rank: int = 0,
    progress: Callable[[str], None] | None = None,
    whole: bool = False,
    job: Rank | None = None,
    post: Post | None = None,
    gpus: int | None = None,
) -> tuple[Analysis, BaseException | None]:
    """Return the analysis of a program, and what ended it before its end (None: nothing), an AnalyzerError
    where it failed or cannot be followed. whole: steps that repeat are stored like any other. job: the rank
    where its machine has another number of them than `Rank.of` takes it to have. post: brings what other
    ranks say by value (None: they are followed beside this one where it asks). gpus: so many there are for
    it; None: one, or as many as it turns out to use. Raises AnalyzerError."""
    one = job or Rank.of(rank, ranks)
    name = " ".join((place_of(script)[0], *map(str, args)))
    follow_on = partial(
        watched, script, args, options, environment, progress=progress, whole=whole, job=one, post=post
    )
    begun = time.monotonic()
    count, notes = gpus or 1, tuple[str, ...]()
    while True:
        with apart() as box:
            followed = follow_on(until=until, gpus=count)
            notes = (*box.notes(), *_counted(count, gpus))
        needed = getattr(followed.ran.error, "needed", 0)
        if gpus is not None or not count < needed <= _MOST_GPUS or one.world_size > 1:
            break
        if progress is not None:
            progress(f"the program uses GPU {needed - 1}: following it with {needed}")
        count = needed
    error = followed.ran.error
    if progress is not None:
        progress(f"computing the figures after {followed.ran.steps:,} steps")
    analysis = concluded(followed, options, name, one, notes)
    if error is None or not _is_out_of_memory(error) or one.world_size > 1:
        return analysis, error
    if progress is not None:
        known = "out of memory" if until == "played" else f"{DOES_NOT_FIT}{verdicts(analysis.estimate)[0][1]}"
        progress(f"{known}; following it with room, for what it would take")
    seconds = max(_AGAIN_SECONDS, 3 * (time.monotonic() - begun))
    with apart(), unheard():
        until = "steady" if until in ("auto", "end") else until
        again = follow_on(
            until=until,
            gpus=count,
            limitless=True,
            least_steps=followed.ran.steps,
            seconds=seconds,
            collects=not _late_garbage(followed.ran.graph),
        )
    if again.ran.error is not None:
        return replace(analysis, steps=followed.ran.steps), error
    free = concluded(again, options, name, one, notes)
    if free.estimate.out_of_memory is not None:
        analysis = with_room(analysis, free)
    return replace(analysis, steps=followed.ran.steps), error


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """While open, a program that is followed once more does not say again what it said: to standard output,
    in warnings, in log records to standard streams."""
    streams = {id(stream) for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}
    emit, show = logging.StreamHandler.emit, warnings.showwarning

    def emit_elsewhere(handler: Any, record: logging.LogRecord) -> None:
        if id(handler.stream) not in streams:
            emit(handler, record)

    logging.StreamHandler.emit = emit_elsewhere  # type: ignore[assignment, method-assign]
    warnings.showwarning = lambda *_, **__: None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.StreamHandler.emit = emit  # type: ignore[method-assign]
        warnings.showwarning = show


def with_room(analysis: Analysis, free: Analysis) -> Analysis:
    """Merge the analysis on the device with one with room, whose figures count if memory ran out."""
    tight, needed = analysis.estimate, free.estimate.needed
    if tight.out_of_memory is None:
        return replace(analysis, estimate=replace(tight, with_room=needed))
    return replace(free, estimate=replace(free.estimate, out_of_memory=tight.out_of_memory))


@dataclass(frozen=True, slots=True)
class Followed:
    """A program that was followed, and the memory it had: what an analysis is made of. lives: the memories of
    its GPUs, where it has several."""

    ran: Ran
    live: Live
    profile: DeviceProfile
    device_note: str
    lives: tuple[Live, ...] = ()


def watched(
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    *,
    until: str | int = "end",
    progress: Callable[[str], None] | None = None,
    whole: bool = False,
    job: Rank | None = None,
    post: Post | None = None,
    limitless: bool = False,
    least_steps: int = 0,
    seconds: float | None = None,
    most_steps: int | None = None,
    text: str | None = None,
    collects: bool = True,
    gpus: int = 1,
) -> Followed:
    """Follow the program, as `follow`. limitless: serve every request, whatever the device has. least_steps:
    it is not steady before more than so many; seconds: end it after so long; most_steps: and after so many
    where it does not get steady. text: what is run in the place of the script's own. collects: Python's
    garbage collector runs by itself. gpus: so many there are for it."""
    one = job or Rank()
    if until not in ("auto", "end", "steady", "played") and (isinstance(until, (bool, str)) or until < 1):
        raise OptionError(
            f"until is {until!r}", 'give "auto", "end", "steady", or a number of optimizer steps'
        )
    name, place = place_of(script)
    require_torch(f"{name} is a PyTorch program")
    from analyzer.runtimes.pytorch.settings import alloc_conf
    from analyzer_programs.following.as_main import as_main
    from analyzer_programs.following.branches import Branches
    from analyzer_programs.following.extent import Until
    from analyzer_programs.following.script import follow as captured_while_it_runs
    from analyzer_programs.gpus import LiveGpus
    from analyzer_programs.live import Live

    workspace = environment.get("CUBLAS_WORKSPACE_CONFIG")
    if workspace is not None:
        options = replace(options, runtime_options={"cublas_workspace": workspace, **options.runtime_options})
    runtime = base.named(options.runtime or "pytorch")
    profile, device_note = resolve(options.device)
    arguments = [str(argument) for argument in args]
    branches = Branches()
    work = Work(os.fspath(script), tuple(arguments), options, environment, until, one)
    with (
        Peers(work) if post is None and one.world_size > 1 else contextlib.nullcontext(post) as peers,
        as_main(place, arguments, {**one.environment(), **environment}, text, branches) as main,
    ):
        begun = os.environ.get("CUBLAS_WORKSPACE_CONFIG")

        def current_settings() -> tuple[DeviceProfile, str]:
            chosen = options
            workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
            if workspace and workspace != begun:  # by the program: no doubt that it is meant
                chosen = replace(
                    options, runtime_options={"cublas_workspace": workspace, **options.runtime_options}
                )
            return runtime.profile(profile, chosen), alloc_conf(chosen.runtime_options)

        lives = [Live(*current_settings(), current_settings, limitless) for _ in range(gpus)]
        live, memory = lives[0], lives[0] if gpus == 1 else LiveGpus(lives)
        ran = captured_while_it_runs(
            main,
            live.profile,
            cast("Memory", memory),  # of several GPUs nothing is repeated or extrapolated
            gpus=gpus,
            rank=one,
            post=peers,
            until=Until(None if until == "end" else until, least_steps, seconds, most_steps),
            assume=options.assume,
            progress=_steps(progress, memory),
            whole=whole,
            described=runtime.describes,
            collects=collects,
            branches=branches,
        )
        if (box := current()) is not None:
            box.ended()
    if ran.error is not None and _is_out_of_memory(ran.error):
        memory.caught_nothing()
    return Followed(ran, live, live.profile, device_note, tuple(lives) if gpus > 1 else ())


def concluded(
    followed: Followed,
    options: Options,
    name: str,
    one: Rank | None = None,
    notes: Sequence[str] = (),
    limit: Limit | None = None,
) -> Analysis:
    """Return the analysis of a followed program: of several GPUs that of the one that decides, with all of
    them in `Estimate.devices`. notes: notes to add."""
    if followed.lives:
        analyses = [concluded(part, options, name, one, notes, limit) for part in _by_gpu(followed)]
        return with_devices(analyses)
    ran, one = followed.ran, one or Rank()
    graph = _awaited(ran)
    captured = Captured(
        target=name + (f" (rank {one.rank} of {one.world_size})" if one.world_size > 1 else ""),
        framework="pytorch",
        batch=None,
        source=Source(graph, prediction=followed.live.prediction(graph)),
        profile=followed.profile,
        device_note=followed.device_note,
        naive=_naive(ran),
        notes=(*_notes(ran), *_given_back(followed), *one.notes(), *ran.caveats, *notes),
        incomplete=_incomplete(ran.error),
        caveats=ran.caveats,
        unreached=ran.unreached,
    )
    if ran.trained:
        options = replace(options, mode="train")
    return _with_held(assemble(captured, options, base.named(options.runtime or "pytorch"), limit), graph)


def _by_gpu(followed: Followed) -> Iterator[Followed]:
    """Yield a program as each of its GPUs sees it."""
    from analyzer_programs.gpus import graph_of

    for gpu, live in enumerate(followed.lives):
        ran = replace(followed.ran, graph=graph_of(followed.ran.graph, gpu))
        yield replace(followed, ran=ran, live=live, lives=())


def _counted(count: int, gpus: int | None) -> Iterator[str]:
    """Yield a note on a number of GPUs that the program itself decided."""
    if gpus is None and count > 1:
        yield f"the program names cuda:{count - 1}: it was followed with {count} GPUs (--gpus {count})"


def _given_back(followed: Followed) -> tuple[str, ...]:
    """Return a note on memory given back to the device, of a program that found room for everything."""
    count = followed.live.retries
    if not count or followed.live.failures:
        return ()
    requests = "1 request was" if count == 1 else f"{count:,} requests were"
    return (
        f"near the GPU's limit {requests} served after freed memory was given back to it, which takes time:"
        " with room the program holds more, and so may a smaller batch",
    )


def _with_held(analysis: Analysis, graph: Graph) -> Analysis:
    """Return the analysis with what cycles and exceptions held where memory ran out."""
    failed = analysis.estimate.out_of_memory
    if failed is None or not (graph.garbage or graph.excepted):
        return analysis
    mallocs = (event for event in analysis.events if isinstance(event, Malloc))
    served = {event.storage for event in mallocs if not event.fails}
    failed = replace(
        failed,
        cycle_bytes=_bytes_of(graph, _late_garbage(graph) & served),
        exception_bytes=_bytes_of(graph, graph.excepted & served),
    )
    return replace(analysis, estimate=replace(analysis.estimate, out_of_memory=failed))


def _late_garbage(graph: Graph) -> frozenset[int]:
    """Return what lay in cycles when the program ended: what died in them behind its last operator."""
    from analyzer.liveness.holders import last_run

    behind = graph.program[last_run(graph) + 1 :]
    late = (moment.storage for moment in behind if isinstance(moment, Death))
    return graph.garbage & set(late)


def _bytes_of(graph: Graph, storages: Collection[int]) -> int:
    return sum(graph.storages[index].nbytes for index in storages if graph.storages[index].on_device)


def _awaited(ran: Ran) -> Graph:
    """Return the program's graph, with what a training that ended early had saved for its backward pass."""
    from analyzer.liveness.holders import awaiting_backward

    graph = ran.graph
    if not (graph.unfinished and ran.trained):
        return graph
    storages = list(graph.storages)
    for index in awaiting_backward(graph):
        category = storages[index].category
        kept = Category.SAVED if category is Category.ACTIVATION else category
        storages[index] = replace(storages[index], saved=True, category=kept)
    return replace(graph, storages=tuple(storages))


_MODELS = (".pt2", ".onnx", ".json")


def place_of(script: str | os.PathLike[str]) -> tuple[str, Path | str]:
    """Return the program's name, and its file or module. Raises TargetError."""
    name = os.fspath(script)
    if name.startswith("-m "):
        return name, name.removeprefix("-m ").strip()
    path = Path(name)
    if path.is_dir():
        raise TargetError(f"{path} is a folder", "give a Python file in it")
    if not path.exists():
        raise TargetError(
            f"{path}: no such file",
            file_like(path).strip() or "give a Python file: analyze run train.py --its-options",
        )
    if path.suffix.lower() in _MODELS:
        raise TargetError(
            f"{path} is a model, not a Python program",
            f"analyze {path} predicts it; run takes a Python file that loads it",
        )
    return name, path


def _steps(progress: Callable[[str], None] | None, live: Live | LiveGpus) -> Callable[[str], None] | None:
    """Progress with the pace of the program's steps, and the most it has held so far."""
    if progress is None:
        return None
    started = time.monotonic()
    count = 0

    def tell(text: str) -> None:
        nonlocal count
        count += 1
        pace = count / (time.monotonic() - started)
        allocated, reserved = (f"{nbytes / 2**20:,.0f} MiB" for nbytes in live.peaks[:2])
        progress(f"{text}, {pace:.1f} a second, peak {allocated} allocated, {reserved} reserved")

    return tell


def _incomplete(error: BaseException | None) -> str | None:
    """Return `Estimate.incomplete` for the error that ended a program."""
    if isinstance(error, AnalyzerError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit) and error.code not in (None, 0):
        # A text is printed and the code is 1 (Python's documentation of sys.exit).
        status = f"exit code {error.code}" if isinstance(error.code, int) else f"{error.code}"
        return f"the program ended itself: {status}"
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _naive(ran: Ran) -> Any:
    """Return the textbook's sum for the first forward pass of each model; nothing of a program without a
    module, whose layers nobody can name."""
    from analyzer.liveness.naive import formula, from_leaves, moments_in

    if not ran.leaves and not ran.weight_bytes:
        return formula(data_bytes=0, weight_bytes=0, output_bytes=0, mode="infer")

    inputs = sum(s.nbytes for s in ran.graph.storages if s.category is Category.INPUT and s.on_device)
    return from_leaves(
        ran.leaves,
        data_bytes=inputs,
        weight_bytes=ran.weight_bytes,
        moments=moments_in(ran.graph, ran.trainable_bytes) if ran.trained else 0,
        precision_factor=1.0,
        mode="train" if ran.trained else "infer",
        trainable_bytes=ran.trainable_bytes,
    )


def _notes(ran: Ran) -> tuple[str, ...]:
    """Return notes on how the program ended and after how many steps."""
    steps = f"{ran.steps} optimizer step{'' if ran.steps == 1 else 's'}"
    if ran.cut:
        text = f"followed with room through {steps}, then ended to save time: what comes after may need more"
        return (WITH_ROOM.note(text, steps=ran.steps),)
    few = ran.trained and 0 < ran.steps < _FEW_STEPS and not ran.repeated
    short = ("fewer than three steps: a longer run may hold more",) if few else ()
    if ran.part and ran.error is None:
        return (ran.part, *short)
    if ran.repeated:
        steps += f", {ran.repeated} of which repeat others to the byte and are shown once"
    if ran.error is None:
        return (f"followed through {steps}", *short)
    if isinstance(ran.error, SystemExit):
        code = ran.error.code
        return (
            f"the program ended itself after {steps} (exit code"
            f" {code if isinstance(code, int) else int(bool(code))})",
        )
    if isinstance(ran.error, KeyboardInterrupt):
        return (f"interrupted after {steps}: figures are for what ran until then",)
    if isinstance(ran.error, AnalyzerError):
        hint = (ran.error.hint,) if ran.error.hint else ()
        return (f"the program ended in an error after {steps}: figures are for what ran until then", *hint)
    return (f"the program ran out of memory after {steps}",)
