"""`analyzer.emulate`: a script or a target run by the user's own CUDA build of PyTorch, without a GPU.

1. A script is run as it is (`analyzer_emulation/emulate.py`).
2. A PyTorch target (`targets.py`) becomes a program: its step, as `analyze verify` runs it on a GPU
   (`target.py`). A file is one where it is named with an attribute (net.py:make_model); alone it is a script.
3. A model's configuration becomes the program that `analyze --write-script` writes.

Not modelled: ONNX files, whose runtime is not PyTorch; `--parallel`, for which a script and `ranks` are.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Unpack

from analyzer import child
from analyzer.errors import OptionError, TargetError
from analyzer.options import Keywords, Options, words_of
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.spec import TensorSpec
from analyzer.targets import parse
from analyzer_emulation.emulate import Emulated, EmulatedProgram, followed, script
from analyzer_sandbox import UnprotectedError, apart
from analyzer_verify.runs import jobs

# Options that apply to scripts, too.
OF_SCRIPTS = ("device", "budget", "assume")


class EmulatedKeywords(Keywords, total=False):
    """Those of `analyzer.analyze`, as keywords."""

    inputs: Sequence[Any] | Mapping[str, TensorSpec] | None


def emulate(
    script_or_target: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    python: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    ranks: int | None = None,
    rank: int = 0,
    keep_outputs: str | os.PathLike[str] | None = None,
    network: bool = True,
    unprotected: bool = False,
    **options: Unpack[EmulatedKeywords],
) -> Estimate:
    """Return what a program or a model takes of a GPU, by running it with PyTorch's own CUDA build where no
    GPU is.

    script_or_target: a file, run as `python SCRIPT ARGS` would; "-m MODULE"; or a target as
    `analyzer.analyze` takes it, with its options (net.py:make_model, package.module:attr, program.pt2,
    config.json). python: the Python (or its environment's folder) whose PyTorch runs it; None: this one.
    environment: variables it sees besides its own. options: `device`, `budget` and `assume`, and of a target
    all of `analyzer.analyze`. ranks: so many processes run a script, as `torchrun --nproc-per-node` starts
    them (None: one, as Python starts it), and the estimate is that of rank `rank`; it ends them all, and so
    does one that fails (RunError). Raises TargetError, OptionError, MissingDependencyError, and RunError
    where the process was ended from outside. A program that raises gives the estimate up to there
    (`Estimate.incomplete`). keep_outputs, network, unprotected: as in `analyzer.run`.
    """
    chosen, words = Options.of(options), words_of(args)
    try:
        with apart(keep_outputs, network, unprotected):
            return _emulated(script_or_target, words, python, environment or {}, ranks, rank, chosen)
    except UnprotectedError as error:
        raise OptionError(*error.args) from None


def _emulated(
    script_or_target: str | os.PathLike[str],
    args: Sequence[str],
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    ranks: int | None,
    rank: int,
    chosen: Options,
) -> Estimate:
    """Emulate a target, or one rank of a script's job. Raises OptionError for a rank that cannot be."""
    if is_target(script_or_target):
        if args or ranks is not None or rank:
            raise OptionError(
                f"{script_or_target} is a target, which has no arguments and no ranks",
                "write a script for a job of several ranks",
            )
        return of_target(script_or_target, chosen, python, environment).estimate
    if ranks is None and rank:
        raise OptionError(f"there is no rank {rank!r} of a single process", "say how many there are: ranks=N")
    job = Rank() if ranks is None else Rank(rank, ranks, ranks, launched=True)
    return of_script(script_or_target, args, chosen, python, environment, job).estimate


def is_target(words: str | os.PathLike[str]) -> bool:
    """Return whether words name a model, not a script: an attribute, configuration, or non-.py file."""
    text = os.fspath(words)
    if text.startswith("-m "):
        return False
    path = Path(text)
    return ":" in text or path.suffix.lower() in (".onnx", ".pt2", ".json") or path.is_dir()


def of_script(
    words: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    job: Rank,
    until: str | int = "end",
    packages: Sequence[Path] = (),
    gpus: int | None = None,
) -> Emulated:
    """Emulate a script. until, gpus: as in `analyzer.run`; packages: folders it may import from behind its
    own. Raises AnalyzerError; OptionError for what means something for targets alone."""
    usual = Options()
    for field in fields(Options):
        if field.name not in OF_SCRIPTS and getattr(options, field.name) != getattr(usual, field.name):
            flag = next(iter(field.metadata["flags"][-1:]), field.name)
            raise OptionError(
                f"{flag} is of targets, and {words} is run as a script",
                f"name a model in it: {words}:make_model",
            )
    program = replace(script(words, args), until=until, packages=tuple(packages))
    return followed(program, options, python, environment, job, gpus or 1)


def of_target(
    target: str | os.PathLike[str],
    options: Options,
    python: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    compiled: float | None = None,
) -> Emulated:
    """Emulate a target; compiled: the `activation_memory_budget` of `torch.compile`, or None."""
    kind = parse(target).kind
    if kind == "onnx":
        raise TargetError(
            f"{target} is run by ONNX Runtime, and what is emulated is PyTorch",
            f"its own runtime, emulated: analyze {target} --engine emulate",
        )
    if options.parallel is not None:
        raise OptionError(
            "--parallel is not emulated for a target",
            "emulate a script: analyze emulate --nproc-per-node N train.py",
        )
    if compiled is not None and kind != "python":
        raise OptionError(
            f"{target} is not a model that this compiles", "name the module in a file: net.py:make_model"
        )
    with _program(os.fspath(target), options, kind == "config", compiled) as program:
        emulated = followed(program, options, python, {**jobs.environment_of(options), **environment})
    train = options.mode == "train"
    estimate = replace(
        emulated.estimate,
        mode=options.mode,
        batch=options.batch,
        optimizer=str(options.optimizer) if train and isinstance(options.optimizer, str) else "",
        options=options.shown(),
    )
    return replace(emulated, estimate=estimate)


@contextmanager
def _program(
    target: str, options: Options, is_config: bool, compiled: float | None
) -> Iterator[EmulatedProgram]:
    """Yield the program that runs a target, while its files exist."""
    with tempfile.TemporaryDirectory(prefix="analyze-target-") as folder:
        if is_config:
            from analyzer.pipeline.config import script_of

            path = Path(folder) / "program.py"
            path.write_text(script_of(target, options), "utf-8")
            yield EmulatedProgram(target, path)
            return
        # Of these packages' folder nothing else may be found there: it may have another torch.
        packages = Path(folder) / "packages"
        packages.mkdir()
        for package in child.packages():
            (packages / package.name).symlink_to(package)
        job = Path(folder) / "target.json"
        job.write_text(json.dumps({**jobs.describe(target, options), "compiled": compiled}), "utf-8")
        yield EmulatedProgram(target, "analyzer_emulation.target", (str(job),), (packages,))
