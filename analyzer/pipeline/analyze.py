"""From a target to its `Analysis`: finds out what the target is and who runs it, captures it, asks the
runtime."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from analyzer.analysis import Analysis
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline.assemble import assemble
from analyzer.runtimes import base
from analyzer.targets import Target, parse, require_torch

if TYPE_CHECKING:
    import torch


def _check_batches(options: Options, what: str) -> None:
    """Raise OptionError for several batches of anything but an ONNX session."""
    if options.batches is not None:
        raise OptionError(
            f"--batches are the runs of an ONNX session, and this is {what}",
            "give one --batch; a script with several is followed by `analyze run`",
        )


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
        from analyzer.pipeline.config import followed

        return followed(parsed.name, options, progress, needs)
    check_no_config(parsed, options)
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


def check_no_config(target: Target | object, options: Options) -> None:
    """Raise OptionError for options that only a configuration has."""
    given = [*options.of_configs(), *(["mode"] if options.mode == "generate" else [])]
    if given:
        name = target.name if isinstance(target, Target) else type(target).__name__
        flag = f"--{given[0].replace('_', '-')}" + (" generate" if given[0] == "mode" else "")
        raise OptionError(f"{flag} is for a configuration, and {name} is none", f"leave {flag} out")


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
