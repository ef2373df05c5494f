"""A program run by the user's own CUDA build of PyTorch, on a CUDA runtime that answers without a GPU."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import AnalyzerError, InputError, OptionError, RunError, TargetError
from analyzer.options import Options
from analyzer.pipeline.devices import fullest_of
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.runtimes.pytorch import launches
from analyzer_emulation import launch
from analyzer_emulation.builds import find_build
from analyzer_emulation.exchange import Exchange
from analyzer_emulation.history import estimate_of
from analyzer_emulation.inference import SessionAnswers
from analyzer_emulation.nccl import Nccl
from analyzer_emulation.questions import QuestionServer
from analyzer_emulation.served import estimate_of_sessions
from analyzer_emulation.step import benchmark_of
from analyzer_emulation.workspaces import Workspaces
from analyzer_programs.program import place_of
from analyzer_sandbox import apart

ALONE = Rank()
MOST_RANKS = 16  # native/emulated.h, DEVICES
# ONNX Runtime loads initializers in the order of a hash table, which differs between processes: a program
# that serves runs so often more, while a run takes no longer than this.
_MORE_ORDERS, _AGAIN_SECONDS = 2, 30.0
# Of the user, found by the emulated process where it builds a target.
_MISTAKES: dict[str, type[AnalyzerError]] = {
    kind.__name__: kind for kind in (InputError, OptionError, TargetError)
}


@dataclass(frozen=True, slots=True)
class EmulatedProgram:
    """A program to run: a file, or a module by its name (`place`), with its arguments; `name`: for messages.
    packages: further folders it may import from. until: "end", a number of optimizer steps, or "steady";
    history: whether the requests and their places are kept (`inside/record.py`)."""

    name: str
    place: Path | str
    arguments: tuple[str, ...] = ()
    packages: tuple[Path, ...] = ()
    until: str | int = "end"
    history: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """The most a program's allocator held, in bytes, and notes on uncertain answers of libraries."""

    peak_reserved: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Emulated:
    """A program's estimate, and its process's record (`inside/record.py`)."""

    estimate: Estimate
    record: Mapping[str, Any]


def script(words: str | os.PathLike[str], arguments: Sequence[str]) -> EmulatedProgram:
    """Return a script as a program: a file, or "-m MODULE". Raises TargetError."""
    name, place = place_of(words)
    passed = tuple(str(argument) for argument in arguments)
    return EmulatedProgram(" ".join((name, *passed)), place, passed)


def followed(
    program: EmulatedProgram,
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    job: Rank = ALONE,
    gpus: int = 1,
) -> Emulated:
    """Return what a program takes of a GPU, as one rank of a job.

    python: the Python (or its environment's folder) whose PyTorch runs it; None: this one. environment:
    variables it sees besides its own. gpus: so many there are for it, where it is no job of ranks. When the
    rank asked for ends, the others are ended, and so does one that fails (RunError). Raises OptionError,
    MissingDependencyError, and RunError where the process was ended from outside. A program that raises gives
    the estimate up to there (`Estimate.incomplete`).
    """
    profile, note = resolve(options.device)
    record, doubts, notes = _recorded(program, options, profile, python, environment, job, gpus)
    of = estimate_of if "events" in record else estimate_of_sessions
    records = [{**record, **one} for one in record.get("gpus", ({},))]
    estimate = fullest_of([of(one, program.name, options, profile, note, doubts) for one in records])
    if job.world_size > 1:
        notes = (_one_of(job), *notes)
        estimate = replace(estimate, step_seconds=None)  # collectives are not among a step's launches
    return Emulated(replace(estimate, notes=(*estimate.notes, *notes)), record)


def held(
    program: EmulatedProgram,
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    job: Rank = ALONE,
) -> Held:
    """Return the most one rank holds, of a program that accounts for its memory itself: its history is not
    kept. Takes and raises what `followed` does."""
    profile, _ = resolve(options.device)
    record, doubts, _ = _recorded(replace(program, history=False), options, profile, python, environment, job)
    notes = (*doubts, _one_of(job)) if job.world_size > 1 else doubts
    return Held(int(record["peak_reserved_bytes"]), notes)


def _one_of(job: Rank) -> str:
    return f"rank {job.rank} of {job.world_size}, all of them emulated"


def _recorded(
    program: EmulatedProgram,
    options: Options,
    profile: DeviceProfile,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    job: Rank,
    gpus: int = 1,
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return the process's record, libraries' answers that were not measured on this GPU, and notes on files
    the program wrote."""
    if job.world_size > MOST_RANKS:
        raise OptionError(
            f"{job.world_size} ranks; emulated are {MOST_RANKS} at most", "the ranks of one machine"
        )
    build = find_build(python)
    cudnn, workspaces, communicators, exchange = (
        SessionAnswers(profile, str(build.python)),
        Workspaces(profile),
        Nccl(profile),
        Exchange(),
    )
    topics = {**cudnn.topics, **workspaces.topics, **communicators.topics, "benchmark": benchmark_of(profile)}
    with apart() as box:
        with (
            tempfile.TemporaryDirectory(prefix="analyze-emulate-") as folder,
            QuestionServer(topics, exchange.topics) as questions,
            launch.environment(
                build.cuda,
                build.device(profile),
                {**environment, **questions.environment},
                max(job.world_size, gpus),
                build.libraries,
            ) as variables,
        ):
            begun = time.monotonic()
            record = _ran(program, options, job, exchange, build.python, variables, Path(folder), gpus=gpus)
            serves = bool(record.get("session_marks")) and ("events" not in record or record["sessions"])
            if serves and time.monotonic() - begun < _AGAIN_SECONDS and record["ended"]["how"] == "ended":
                record["others"] = others = list[dict[str, Any]]()
                for _ in range(_MORE_ORDERS):
                    with suppress(RunError):  # it was ended: what is known is of those that were not
                        others.append(
                            _ran(program, options, job, exchange, build.python, variables, Path(folder), True)
                        )
        notes = box.notes()  # on the program's files: the emulation's own are gone
    if "events" not in record and not serves:
        message = record["ended"].get("message", "")
        if "hint" in record["ended"]:
            raise _MISTAKES.get(record["ended"]["kind"], RunError)(message, record["ended"]["hint"])
        raise RunError(
            f"{program.name} put nothing on the GPU"
            + (f": {record['ended'].get('kind', 'it ended')}: {message}" if message else ""),
            "emulation is for programs that use cuda; analyze run follows others, too",
        )
    doubts = (
        *(f"cuDNN: {doubt}" for doubt in cudnn.doubts(*record.get("cudnn", ()))),
        *workspaces.doubts(),
        *communicators.doubts(),
    )
    return record, doubts, notes


def _ran(
    program: EmulatedProgram,
    options: Options,
    job: Rank,
    exchange: Exchange,
    python: Path,
    variables: Mapping[str, str],
    folder: Path,
    silent: bool = False,
    gpus: int = 1,
) -> dict[str, Any]:
    """Return what the process of the rank asked for wrote down. silent: what it prints is dropped. gpus: it
    has so many. Raises RunError."""
    outs = [folder / f"seen{rank}.json" for rank in range(job.world_size)]
    processes = []
    port = _free_port() if job.launched else 0
    for rank, out in enumerate(outs):
        one = replace(job, rank=rank)
        job_file = folder / f"job{rank}.json"
        job_file.write_text(
            json.dumps(
                {
                    "script": str(program.place),
                    "module": not isinstance(program.place, Path),
                    "arguments": program.arguments,
                    "packages": [str(path) for path in program.packages],
                    "kernels": launches.by_name(),
                    "assume": dict(options.assume),
                    "until": program.until,
                    "history": program.history,
                    "device": one.local_rank,
                    "gpus": gpus,
                    "figures": rank == job.rank,
                }
            ),
            "utf-8",
        )
        own = {**variables, **one.environment()}
        if job.launched:
            own["MASTER_PORT"] = str(port)
        if job.world_size > 1:  # torchrun's default (torch/distributed/run.py)
            own.setdefault("OMP_NUM_THREADS", "1")
        processes.append(launch.LaunchedProcess([python, launch.INSIDE, job_file, out], own, silent))
    failed: list[int] = []

    def stops(rank: int, code: int) -> bool:
        exchange.ended(rank)
        if _ended(outs[rank], code) is not None:
            failed.append(rank)
        return bool(failed)

    codes = launch.run_together(processes, job.rank, stops)
    for rank in failed:
        raise RunError(
            f"rank {rank} of {job.world_size} ended before its end: {_ended(outs[rank], codes[rank] or 0)}",
            f"all ranks were ended with it; --rank {rank} gives the figures of that one",
        )
    code, out = codes[job.rank] or 0, outs[job.rank]
    if not out.exists():
        raise RunError(
            f"the process of {program.name} was ended {launch.way_it_ended(code)}",
            "see its last output above",
        )
    children = Path(f"{out}.children").read_text("utf-8").splitlines()
    return largest(json.loads(out.read_text("utf-8")), [json.loads(line) for line in children])


def largest(record: dict[str, Any], children: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the process saw that held most memory of the GPU, of the program's own and those it
    started."""
    if not children:
        return record
    held = [process for process in (record, *children) if "events" in process]
    *others, most = sorted(held, key=lambda process: int(process["peak_reserved_bytes"]))
    besides = sum(int(process["peak_reserved_bytes"]) for process in others)
    return {**most, "ended": record["ended"], "processes": len(held), "besides": besides}


def _ended(out: Path, code: int) -> str | None:
    """Why a process ended before its end; None: it did not."""
    if code or not out.exists():
        return f"it was ended {launch.way_it_ended(code)}"
    ended = json.loads(out.read_text("utf-8"))["ended"]
    if ended["how"] == "ended":
        return None
    return ": ".join(filter(None, (ended.get("kind"), ended.get("message", ended["how"]))))


def _free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
