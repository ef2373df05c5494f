"""`analyzer.emulate`: a program run by the user's own CUDA build of PyTorch, on a CUDA runtime that answers without a GPU."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.devices import resolve
from analyzer.emulation import launch
from analyzer.emulation.cudnn import Cudnn
from analyzer.emulation.exchange import Exchange
from analyzer.emulation.history import estimate_of
from analyzer.emulation.kernels import Kernels
from analyzer.emulation.nccl import Nccl
from analyzer.emulation.questions import Questions
from analyzer.errors import OptionError, RunError
from analyzer.options import Options
from analyzer.pipeline.program import place_of
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.runtimes.pytorch import launches

ALONE = Rank()
MOST_RANKS = 16  # native/emulated.h, DEVICES


def emulate(
    script: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    python: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    device: str | int | None = None,
    ranks: int | None = None,
    rank: int = 0,
) -> Estimate:
    """What a program takes of a GPU, by running it with PyTorch's own CUDA build where no GPU is.

    script: a file, run as `python SCRIPT ARGS` would, or `-m` and a module's name as the script "-m MODULE". python: the Python (or its
    environment's folder) whose PyTorch runs it; None: this one. environment: variables it sees besides its own. device: as in
    `analyzer.analyze`. ranks: so many processes run it, as `torchrun --nproc-per-node` starts them (None: one, as Python starts it), and
    the estimate is that of rank `rank`; it ends them all, and so does one that fails (RunError). Raises TargetError, OptionError, MissingDependencyError, and RunError where the process was ended from outside. A program
    that raises gives the estimate up to there (`Estimate.incomplete`).
    """
    job = Rank() if ranks is None else Rank(rank, ranks, ranks, launched=True)
    if ranks is None and rank:
        raise OptionError(f"there is no rank {rank!r} of a single process", "say how many there are: ranks=N")
    return followed(script, args, Options.of({"device": device}), python, environment or {}, job)


def followed(
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    job: Rank = ALONE,
) -> Estimate:
    """As `emulate`, with the options of an analysis, as one rank of a job."""
    name, place = place_of(script)
    if job.world_size > MOST_RANKS:
        raise OptionError(
            f"{job.world_size} ranks; emulated are {MOST_RANKS} at most", "the ranks of one machine"
        )
    profile, note = resolve(options.device)
    torch = launch.find_torch(python)
    cudnn, exchange, communicators = Cudnn(profile), Exchange(), Nccl(profile)
    topics = {**cudnn.topics, **Kernels(torch.packages).topics, **communicators.topics}
    with (
        tempfile.TemporaryDirectory(prefix="analyze-emulate-") as folder,
        Questions(topics, exchange.topics) as questions,
        launch.environment(
            torch, profile, {**environment, **questions.environment}, job.world_size
        ) as variables,
    ):
        outs = [Path(folder) / f"seen{rank}.json" for rank in range(job.world_size)]
        processes = []
        port = _free_port() if job.launched else 0
        for rank, out in enumerate(outs):
            one = replace(job, rank=rank)
            told = Path(folder) / f"job{rank}.json"
            told.write_text(
                json.dumps(
                    {
                        "script": str(place),
                        "module": not isinstance(place, Path),
                        "arguments": [str(argument) for argument in args],
                        "kernels": launches.by_name(),
                        "device": one.local_rank,
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
            processes.append(launch.Process([torch.python, launch.INSIDE, told, out], own))
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
            raise RunError(f"the process of {name} was ended {_by(code)}", "what it wrote last stands above")
        found = json.loads(out.read_text("utf-8"))
    if "events" not in found:
        message = found["ended"].get("message", "")
        raise RunError(
            f"{name} put nothing on the GPU"
            + (f": {found['ended'].get('kind', 'it ended')}: {message}" if message else ""),
            "programs that use cuda are emulated; analyze run follows others, too",
        )
    doubts = tuple(f"cuDNN: {doubt}" for doubt in cudnn.doubts(*found["cudnn"])) + communicators.doubts()
    estimate = estimate_of(found, " ".join((name, *map(str, args))), options, profile, note, doubts)
    if job.world_size == 1:
        return estimate
    return replace(
        estimate, notes=(*estimate.notes, f"rank {job.rank} of {job.world_size}, all of them emulated")
    )


def _by(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _ended(out: Path, code: int) -> str | None:
    """Why a process ended before its end; None: it did not."""
    if code or not out.exists():
        return f"it was ended {_by(code)}"
    ended = json.loads(out.read_text("utf-8"))["ended"]
    if ended["how"] == "ended":
        return None
    return ": ".join(filter(None, (ended.get("kind"), ended.get("message", ended["how"]))))


def _free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
