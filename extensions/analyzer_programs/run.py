"""`analyzer.run`: a whole program, as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import analyzer_sandbox as sandbox
from analyzer.analysis import Analysis
from analyzer.engines import Engine
from analyzer.engines.choice import EngineChoice, Progress
from analyzer.errors import OptionError
from analyzer.options import Options, words_of
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer_programs.program import follow


def traced(
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    job: Rank | None,
    choice: EngineChoice,
) -> tuple[Analysis, BaseException | None]:
    """Follow a program in the sandbox, as `follow` (entry point "trace" of "analyzer.engines"). Raises
    AnalyzerError."""
    try:
        with sandbox.apart(choice.keep, choice.network, choice.unprotected) as box:
            if choice.progress is not None:
                choice.progress(f"protection: {box.protected_by()}")
            return follow(
                script, args, options, environment, until, progress=choice.progress, job=job, gpus=choice.gpus
            )
    except sandbox.UnprotectedError as refused:
        raise OptionError(*refused.args) from None


def run(
    script: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    device: str | int | None = None,
    ranks: int = 1,
    rank: int = 0,
    gpus: int | None = None,
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
    gpus: so many there are for its one process (None: one, or as many as it names): `Estimate.devices`.
    environment: variables it sees besides its own. device: as in `analyzer.analyze`.
    until: "end"; a number of optimizer steps after which it ends; or "steady": after the step from which on
        steps ask for the same and the allocator is laid out as before.
    runtime_options: "cublas_workspace" and "alloc_conf", as in `analyzer.analyze`.
    assume: {"train.py:12": 512}: the value read, or the size of the result, at a line where only data tells.
    release: {"torch": "2.8"}: figures of another release than by default (`analyzer/releases.py`).
    keep_outputs: a folder for the files it writes, which are dropped otherwise: they go to an overlay
        (`extensions/analyzer_sandbox`). network: whether it may connect to other machines.
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
    choice = EngineChoice(engine, python, keep, network, progress, unprotected, gpus)
    return choice.analyze_program(
        script, words_of(args), options, environment or {}, until, Rank.of(rank, ranks)
    ).estimate
