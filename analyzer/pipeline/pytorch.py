"""The PyTorch front end: a module or a parsed target is captured, ready for a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from analyzer.capture.pytorch.capture import capture_pytorch
from analyzer.capture.pytorch.device.no_compiler import without_compiler
from analyzer.capture.pytorch.kernels.triton_kernels import triton_found
from analyzer.capture.pytorch.module.from_options import (
    batch_for,
    loss_for,
    optimizer_for,
    optimizer_name,
    preparation,
)
from analyzer.capture.pytorch.module.twin import meta_like
from analyzer.devices import resolve
from analyzer.errors import OptionError, TargetError
from analyzer.liveness.naive import from_leaves, moments_in
from analyzer.options import Options
from analyzer.parallelism import Parallelism, parse
from analyzer.pipeline.assemble import Captured
from analyzer.protection import apart
from analyzer.runtimes.base import Runtime, Source
from analyzer.spec import TensorSpec
from analyzer.targets import Program, Target, arguments, load


def captured_pytorch(
    target: torch.nn.Module | Target,
    options: Options,
    runtime: Runtime,
    progress: Callable[[str], None] | None = None,
) -> Captured:
    """Capture a training step or forward passes of `target`. Raises AnalyzerError."""
    name = target.name if isinstance(target, Target) else type(target).__name__
    with without_compiler(), apart() if isinstance(target, Target) else nullcontext():
        return captured_program(built(target, options), name, options, runtime, progress)


def built(target: torch.nn.Module | Target, options: Options) -> Program:
    """Return a module, or build a target's, whose file finds Triton. Raises AnalyzerError."""
    if isinstance(target, torch.nn.Module):
        return Program(target)
    if not isinstance(target, Target):
        raise TargetError(
            f"a {type(target).__name__} is no model", "give an nn.Module, a path or package.module:attr"
        )
    with triton_found(resolve(options.device)[0]), apart():
        return load(target, trust=options.trust)


def with_made(options: Options, make: Callable[..., tuple[Any, Any]]) -> Options:
    """Return the options with the tensors a function makes of their batch. Raises OptionError."""
    with torch.device("meta"):
        made = make(options.batch)
    if not isinstance(made, tuple) or len(made) != 2:
        raise OptionError(
            "inputs(batch) returned no pair", "return (inputs, targets), each a tuple of tensors"
        )
    inputs, targets = arguments(made[0]), arguments(made[1])
    targets = (targets,) if isinstance(targets, Mapping) else targets
    return replace(options, inputs=inputs, targets=targets if options.mode == "train" else None)


def resized(options: Options) -> Options:
    """Return the options with given tensors set to their batch: of each the first dimension, where that is
    the batch."""
    given: Any = options.inputs
    batch: Any = options.batch
    named = isinstance(given, Mapping)
    tensors = tuple(given.values() if named else given)
    size = tuple(tensors[0].shape[:1])

    def of_batch(tensor: Any) -> Any:
        shape = tuple(tensor.shape)
        if not shape or shape[:1] != size:
            return tensor
        stride = tensor.stride if isinstance(tensor, TensorSpec) else tuple(tensor.stride())
        return TensorSpec((batch, *shape[1:]), str(tensor.dtype).removeprefix("torch."), stride)

    every = tuple(map(of_batch, tensors))
    inputs: Any = dict(zip(given, every, strict=True)) if named else every
    targets = None if options.targets is None else tuple(map(of_batch, options.targets))
    return replace(options, inputs=inputs, targets=targets)


def captured_program(
    program: Program,
    name: str,
    options: Options,
    runtime: Runtime,
    progress: Callable[[str], None] | None = None,
    record_guards: bool = False,
) -> Captured:
    """Capture a built target; `name` is for reports. record_guards: record size comparisons.

    Writes of a file's code go to an overlay (`protection.py`). Raises AnalyzerError.
    """
    if not program.is_file:
        return _captured_program(program, name, options, runtime, progress, record_guards)
    with apart() as box:
        captured = _captured_program(program, name, options, runtime, progress, record_guards)
        return replace(captured, notes=(*captured.notes, *_notes_of(box)))


def _notes_of(box: Any) -> tuple[str, ...]:
    return () if box is None else tuple(box.notes(whole=False))


def _captured_program(
    program: Program,
    name: str,
    options: Options,
    runtime: Runtime,
    progress: Callable[[str], None] | None,
    record_guards: bool,
) -> Captured:
    train = options.mode == "train"
    parallel = None if options.parallel is None else parse(options.parallel)
    profile, device_note = resolve(options.device)
    profile = runtime.profile(profile, options, program.model)
    batch = batch_for(program, options, meta_like)
    loss, notes = loss_for(program, options, batch) if train else (None, [])
    captured = capture_pytorch(
        program.model,
        batch.inputs,
        # In inference only targets that were asked for travel to the device with the inputs.
        targets=batch.targets if train or options.targets is not None else (),
        loss=loss,
        optimizer=optimizer_for(options.optimizer) if train else None,
        train=train,
        amp=options.amp,
        grad_accumulation=options.grad_accumulation,
        steps=options.steps,
        device=profile,
        prepare=preparation(options),
        parallel=parallel,
        assume=options.assume,
        progress=progress,
        record_guards=record_guards,
        call=batch.call,
        described=runtime.describes,
    )
    naive = from_leaves(
        captured.leaves,
        data_bytes=captured.input_bytes + captured.output_bytes,
        weight_bytes=captured.weight_bytes,
        moments=moments_in(captured.graph, captured.trainable_bytes) if train else 0,
        precision_factor=0.5 if options.amp else 1.0,
        ddp_factor=2 if parallel is not None and parallel.kind == "ddp" else 1,
        mode=options.mode,
        trainable_bytes=captured.trainable_bytes,
    )
    return Captured(
        target=name,
        framework="pytorch",
        batch=captured.graph.batch,
        source=Source(captured.graph),
        profile=profile,
        device_note=device_note,
        naive=naive,
        notes=(*notes, *_notes_on_ranks(parallel)),
        optimizer=optimizer_name(options.optimizer) if train else "",
    )


def _notes_on_ranks(parallel: Parallelism | None) -> tuple[str, ...]:
    """Return a note on which rank is shown and whose batch it is."""
    if parallel is None:
        return ()
    return (f"{parallel}: the batch, and every figure, is one rank's", *parallel.rank.notes())
