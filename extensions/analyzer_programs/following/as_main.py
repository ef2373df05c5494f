"""A script run as `python SCRIPT` would, in this process, which is afterwards what it was."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from analyzer.capture.pytorch.device.default_device import default_device
from analyzer_programs.following.branches import Branches


def _forget(folder: str, modules_before: set[str]) -> None:
    """Forget the program's modules, and the state accelerate and bitsandbytes keep for a process."""
    for name in sys.modules.keys() - modules_before:
        # Not by its attribute: a package that imports itself when it is first used may fail to.
        file = getattr(sys.modules[name], "__dict__", {}).get("__file__")
        if isinstance(file, str) and Path(file).is_relative_to(folder) and "site-packages" not in file:
            del sys.modules[name]
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()
    optimizers = sys.modules.get("bitsandbytes.optim.optimizer")
    if optimizers is not None:
        optimizers.GlobalOptimManager._instance = None


@contextlib.contextmanager
def _streams_and_folder() -> Iterator[None]:
    """Restore standard streams (also their descriptors) and the working folder afterwards: a program may log
    to a file of its own."""
    folder, streams = Path.cwd(), (sys.stdin, sys.stdout, sys.stderr)
    copies = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):  # closed by the caller
            copies[number] = os.dup(number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr, *streams[1:]):
            with contextlib.suppress(Exception):  # whatever the program made of it
                stream.flush()
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = streams
        os.chdir(folder)


def _run(text: str | bytes, name: str, branches: Branches | None) -> object:
    """Run a text as `runpy.run_path` runs a file of this name."""
    code = compile(text, name, "exec") if branches is None else branches.compiled(text, name)
    names = None if branches is None else branches.names
    run: Callable[..., object] = vars(runpy)["_run_module_code"]
    return run(code, names, "__main__", pkg_name="", script_name=name)


def _run_file(script: Path, branches: Branches | None) -> object:
    if branches is not None and script.is_file() and script.suffix == ".py":
        return _run(script.read_bytes(), str(script), branches)
    return runpy.run_path(str(script), run_name="__main__")  # a real run; a folder, an archive


@contextlib.contextmanager
def as_main(
    script: Path | str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    text: str | None = None,
    branches: Branches | None = None,
) -> Iterator[Callable[[], object]]:
    """Yield a function that runs the script as `python SCRIPT ARGUMENTS`, or `python -m MODULE`, would.
    text: what is run in the place of the script's own. branches: hears which sides of its `if`s run;
    None: the script runs as it is.

    Arguments, path, environment, working folder, streams, `__main__` and torch's global settings are the
    caller's again afterwards.
    """
    folder = str(Path(script).resolve().parent) if isinstance(script, Path) else str(Path.cwd())
    arguments_before, path_before, environment_before = sys.argv, sys.path.copy(), os.environ.copy()
    cudnn = torch.backends.cudnn
    flags = {name: getattr(cudnn, name) for name in ("benchmark", "deterministic", "allow_tf32", "enabled")}
    dtype, grad, matmul = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.backends.cuda.matmul.allow_tf32,
    )
    device = default_device()
    deterministic = torch.are_deterministic_algorithms_enabled()
    modules_before = set(sys.modules)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, folder)
    os.environ.update(environment)
    try:
        # This process's earlier imports may have frozen cuDNN's flags; the program's own have not.
        with _streams_and_folder(), torch.backends.__allow_nonbracketed_mutation():
            if text is not None:
                yield lambda: _run(text, str(script), branches)
            elif isinstance(script, Path):
                yield lambda: _run_file(script, branches)
            else:
                yield lambda: runpy.run_module(script, run_name="__main__", alter_sys=True)
    finally:
        sys.argv, sys.path[:] = arguments_before, path_before
        _forget(folder, modules_before)
        os.environ.clear()
        os.environ.update(environment_before)
        torch.set_default_dtype(dtype)
        if device != default_device():
            torch.set_default_device(device)
        torch.set_grad_enabled(grad)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # saying it imports the compiler
            torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32 = matmul
        # Importing PyTorch's own test utilities freezes cuDNN's flags (torch/backends/__init__.py).
        with torch.backends.__allow_nonbracketed_mutation():
            for name, value in flags.items():
                setattr(cudnn, name, value)
