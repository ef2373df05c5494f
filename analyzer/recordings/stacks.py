"""Recorded stacks in short: the user's line, the operator, and what a block was for, as far as they tell.

1. The **place** is the innermost line of Python outside installed packages; without one, the outermost line.
2. The **operator** is the first that PyTorch's dispatcher calls (`at::_ops::NAME`), else the innermost Python
   function.
3. The **category** is the snapshot's own, where entries have one (names of
   `torch/profiler/_memory_profiler.py`). Else: what an optimizer makes in `_init_group` is its state, the
   rest of its step scratch; what `Module._apply` makes (`.cuda()`, `.to()`) are parameters; libraries'
   workspaces by their functions' names; what a thread without a Python stack makes, or autograd's engine, are
   gradients; all else activations. That is inferred, and said so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from analyzer.graph import Category
from analyzer.recordings.trace import Frame

NO_STACK = "no Python line (autograd's thread, or a library)"
NONE_RECORDED = "not known (no stacks were recorded)"
_RECORDED = {
    "parameter": Category.PARAMETER,
    "input": Category.INPUT,
    "activation": Category.ACTIVATION,
    "temporary": Category.SCRATCH,
    "gradient": Category.GRADIENT,
    "autograd_detail": Category.SAVED,
    "optimizer_state": Category.OPTIMIZER_STATE,
}
_PACKAGES = ("/site-packages/", "/dist-packages/", "/torch/", "<frozen", "/lib/python3")
_WORKSPACES = ("getCUDABlasLtWorkspace", "getNewWorkspace", "getNewCUDABlasLtWorkspace", "cublasLtWorkspace")


def line_of(frame: Frame) -> str:
    """Return file and line, without the file's folder."""
    return f"{PurePath(frame.filename).name}:{frame.line}"


def place(frames: Sequence[Frame]) -> str:
    """Return the user's line behind a request; "" for none."""
    python = [frame for frame in frames if frame.filename.endswith(".py") or frame.filename.startswith("<")]
    own = (frame for frame in python if not any(part in frame.filename for part in _PACKAGES))
    frame = next(own, python[-1] if python else None)
    return "" if frame is None else line_of(frame)


def operator(frames: Sequence[Frame]) -> str:
    """Return the operator or the innermost Python function behind a request; "" for none."""
    for frame in frames:
        _, separator, rest = frame.name.partition("at::_ops::")
        if separator:
            return f"aten::{rest.partition('::')[0]}"
    return next((frame.name for frame in frames if frame.filename.endswith(".py")), "")


def written(frames: Sequence[Frame]) -> str:
    """Return the place and what was called there: "train.py:12 (linear.py:134 forward)"."""
    where = place(frames)
    if not where:
        return NO_STACK
    inner = next((frame for frame in frames if frame.filename.endswith(".py")), None)
    if inner is None or line_of(inner) == where:
        return where
    return f"{where} ({line_of(inner)} {inner.name})"


def category(frames: Sequence[Frame], recorded: str, has_stacks: bool) -> Category:
    """Return what a block is for. has_stacks: whether the recording keeps stacks at all."""
    if recorded.lower() in _RECORDED:
        return _RECORDED[recorded.lower()]
    if not frames:
        return Category.GRADIENT if has_stacks else Category.ACTIVATION
    names = {frame.name for frame in frames}
    if any("/torch/optim/" in frame.filename for frame in frames):
        return Category.OPTIMIZER_STATE if "_init_group" in names else Category.SCRATCH
    if any("/torch/nn/modules/module.py" in frame.filename and frame.name == "_apply" for frame in frames):
        return Category.PARAMETER
    if any(word in frame.name for frame in frames for word in _WORKSPACES):
        return Category.WORKSPACE
    if any("torch::autograd::Engine::" in frame.name for frame in frames):
        return Category.GRADIENT
    return Category.ACTIVATION
