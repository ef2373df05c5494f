"""`verify`: a function of target and options like `analyzer.analyze`; finds out who runs the target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.targets import parse, require_torch
from analyzer_verify.results import Verification


def verify(
    target: str,
    *,
    force: bool = False,
    graph: bool = True,
    progress: Callable[[str], None] | None = None,
    arrays: Path | None = None,
    **options: Any,
) -> Verification:
    """Predict `target` (options as in `analyzer.analyze`), run it, compare.

    force: run even if the estimate says that the GPU's free memory is not enough.
    graph: also execute the captured graph with every tensor freed at its last use.
    progress: told what is under way. arrays: an .npz file with inputs of an ONNX file, by their names.
    Raises DoesNotFit, RunError, MissingDependencyError without a GPU (ONNX files then run on the CPU
    provider), and what `analyzer.analyze` raises.
    """
    chosen = Options.of(options)
    tell = progress or (lambda _: None)
    if parse(target).kind == "onnx":
        from analyzer_verify.onnx import verify_onnx

        return verify_onnx(target, chosen, force, tell, arrays)
    if arrays is not None:
        raise OptionError(
            "a file of inputs is for ONNX files: a PyTorch target makes its own",
            "define make_batch(batch) in the file",
        )
    require_torch(f"{target} is a PyTorch target")
    from analyzer_verify.pytorch import verify_pytorch

    return verify_pytorch(target, chosen, force, graph, tell)
