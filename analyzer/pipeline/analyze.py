"""The public entry: checks the options, finds out what the target is, and hands over to its pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, OptionError
from analyzer.estimate import Estimate
from analyzer.spec import TensorSpec
from analyzer.targets import Target, parse

if TYPE_CHECKING:
    import torch

    from analyzer.graph import Graph

MODES = ("infer", "train")
RUNTIMES = ("pytorch", "onnxruntime")
AMP = (None, "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Options:
    """Everything a user can say about an analysis besides the target."""

    inputs: Sequence[Any] | Mapping[str, TensorSpec] | None = None
    batch: int | None = None
    mode: str = "infer"
    targets: Sequence[Any] | None = None
    loss: Callable[..., Any] | str | None = None
    optimizer: str | Callable[..., Any] = "sgd"
    amp: str | None = None
    grad_accumulation: int = 1
    checkpoint: str | None = None
    steps: int = 3
    device: str | int | None = None
    dtype: str | None = None
    channels_last: bool = False
    runtime: str | None = None
    runtime_options: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    progress: Callable[[str], None] | None = None
    on_graph: Callable[[Graph], None] | None = None

    def check(self) -> Options:
        """Return self. Raises InputError or OptionError naming the first value that makes no sense."""
        if self.mode not in MODES:
            raise OptionError(f"unknown mode {self.mode!r}", f"one of {', '.join(MODES)}")
        if self.amp not in AMP:
            raise OptionError(f"unknown autocast type {self.amp!r}", "bf16 or fp16")
        if self.runtime is not None and self.runtime not in RUNTIMES:
            raise OptionError(f"unknown runtime {self.runtime!r}", f"one of {', '.join(RUNTIMES)}")
        if not isinstance(self.checkpoint, str | None):
            raise OptionError(f"checkpoint is {self.checkpoint!r}", "give one pattern, such as 'layers.*'")
        for name in ("batch", "grad_accumulation", "steps"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} is {value!r}", "give a whole number of at least 1")
        return self


def analyze(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, TensorSpec] | None = None,
    *,
    batch: int | None = None,
    mode: str = "infer",
    targets: Sequence[Any] | None = None,
    loss: Callable[..., Any] | str | None = None,
    optimizer: str | Callable[..., Any] = "sgd",
    amp: str | None = None,
    grad_accumulation: int = 1,
    checkpoint: str | None = None,
    steps: int = 3,
    device: str | int | None = None,
    runtime: str | None = None,
    runtime_options: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    channels_last: bool = False,
    strict: bool = False,
    progress: Callable[[str], None] | None = None,
    on_graph: Callable[[Graph], None] | None = None,
) -> Estimate:
    """Predict what `target` needs of a GPU.

    target: an `nn.Module` (on any device, also meta: neither changed nor run, weights not copied), `model.onnx`,
        `file.py[:attr]`, `package.module:attr`, `program.pt2`.
    inputs, targets: tensors on any device or `TensorSpec`s, in the order the model and the loss take them; only
        shape, strides and dtype are read. For ONNX a mapping from input name to TensorSpec.
    batch: for targets that make their own batch, and for ONNX graphs.
    loss: `loss(output, *targets)`, or "cross_entropy", "mse", "sum". optimizer: a name of `torch.optim` in lower case
        (with "_fused" for the fused kernels), or a function from parameters to an optimizer.
    device: a profile's name, a profile's JSON file, or a size ("24GiB"); this machine's GPU if known, else h200.
    on_graph: called with the captured graph (`pipeline.dump` turns it into text).
    runtime_options: "cublas_workspace" and "alloc_conf" for PyTorch; ONNX Runtime's provider and session options.
    Raises AnalyzerError (a subclass says which kind) for everything a user can mend.
    """
    if not isinstance(runtime_options, Mapping | None):
        raise OptionError(f"runtime_options is {runtime_options!r}", "give a mapping from name to value")
    options = Options(
        _several(inputs), batch, mode, _several(targets), loss, optimizer, amp, grad_accumulation, checkpoint, steps, device, dtype,
        channels_last, runtime, dict(runtime_options or {}), strict, progress, on_graph,
    ).check()  # fmt: skip
    if not isinstance(target, (str, Path, os.PathLike)):
        return _pytorch(target, None, options)
    parsed = parse(target)
    if parsed.kind == "onnx":
        from analyzer.pipeline.onnx import analyze_onnx

        if options.runtime == "pytorch" and options.mode == "infer":
            raise OptionError(
                "an ONNX file runs under ONNX Runtime", "leave --runtime out, or give the PyTorch model"
            )
        return analyze_onnx(parsed, options)
    if options.runtime == "onnxruntime":
        raise OptionError(
            f"{parsed.name} is a PyTorch target", "export it to ONNX first, or use --runtime pytorch"
        )
    return _pytorch(None, parsed, options)


def _several(given: Any) -> Any:
    """One tensor, or one TensorSpec, as a sequence of one."""
    return (given,) if hasattr(given, "shape") else given


def _pytorch(module: Any, target: Target | None, options: Options) -> Estimate:
    from analyzer.pipeline.pytorch import analyze_pytorch

    return analyze_pytorch(module, target, options)
