"""`analyzer.emulate`: a program run by the user's own CUDA build of PyTorch, on a CUDA runtime that answers without a GPU."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzer.devices import resolve
from analyzer.emulation import launch
from analyzer.emulation.cudnn import Cudnn
from analyzer.emulation.history import estimate_of
from analyzer.emulation.kernels import Kernels
from analyzer.emulation.questions import Questions
from analyzer.errors import OptionError, RunError
from analyzer.estimate import Estimate
from analyzer.options import Options
from analyzer.pipeline.program import place_of
from analyzer.runtimes.pytorch import launches


def emulate(
    script: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    python: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    device: str | int | None = None,
    ranks: int = 1,
    rank: int = 0,
) -> Estimate:
    """What a program takes of a GPU, by running it with PyTorch's own CUDA build where no GPU is.

    script: a file, run as `python SCRIPT ARGS` would, or `-m` and a module's name as the script "-m MODULE". python: the Python (or its
    environment's folder) whose PyTorch runs it; None: this one. environment: variables it sees besides its own. device: as in
    `analyzer.analyze`. Raises TargetError, OptionError, MissingDependencyError, and RunError where the process was ended from outside. A program
    that raises gives the estimate up to there (`Estimate.incomplete`).
    """
    if (ranks, rank) != (1, 0):
        raise OptionError(
            "analyze emulate runs one process", "follow ranks with analyze run --nproc-per-node N"
        )
    return followed(script, args, Options.of({"device": device}), python, environment or {})


def followed(
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
) -> Estimate:
    """As `emulate`, with the options of an analysis."""
    name, place = place_of(script)
    profile, note = resolve(options.device)
    torch = launch.find_torch(python)
    cudnn = Cudnn(profile)
    with (
        tempfile.TemporaryDirectory(prefix="analyze-emulate-") as folder,
        Questions({**cudnn.topics, **Kernels(torch.packages).topics}) as questions,
        launch.environment(torch, profile, {**environment, **questions.environment}) as variables,
    ):
        job, out = Path(folder) / "job.json", Path(folder) / "seen.json"
        job.write_text(
            json.dumps(
                {
                    "script": str(place),
                    "module": not isinstance(place, Path),
                    "arguments": [str(argument) for argument in args],
                    "kernels": launches.by_name(),
                }
            ),
            "utf-8",
        )
        code = launch.run([torch.python, launch.INSIDE, job, out], variables)
        if not out.exists():
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise RunError(f"the process of {name} was ended {how}", "what it wrote last stands above")
        found = json.loads(out.read_text("utf-8"))
    if "events" not in found:
        message = found["ended"].get("message", "")
        raise RunError(
            f"{name} put nothing on the GPU"
            + (f": {found['ended'].get('kind', 'it ended')}: {message}" if message else ""),
            "programs that use cuda are emulated; analyze run follows others, too",
        )
    doubts = tuple(f"cuDNN: {doubt}" for doubt in cudnn.doubts(*found["cudnn"]))
    return estimate_of(found, " ".join((name, *map(str, args))), options, profile, note, doubts)
