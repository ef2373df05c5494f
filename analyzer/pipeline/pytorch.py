"""The PyTorch pipeline: module → captured graph → eager program → caching allocator → `Estimate`."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from analyzer.allocators import create
from analyzer.capture.checkpointing import apply_checkpointing
from analyzer.capture.optimizers import loss as loss_by_name
from analyzer.capture.optimizers import optimizer as optimizer_by_name
from analyzer.capture.pytorch import Captured, capture_pytorch, meta_like
from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import InputError, OptionError, TargetError, UnknownOperatorError
from analyzer.estimate import Estimate
from analyzer.liveness.lifetimes import lifetimes, peak, saved_for_backward
from analyzer.liveness.naive import from_leaves, moments_in
from analyzer.pipeline.assemble import Parts, assemble, graph_describer
from analyzer.runtimes.pytorch_eager import EagerProgram
from analyzer.runtimes.timeline import play
from analyzer.spec import TensorSpec
from analyzer.targets import Program, Target, load, load_function

_SET_BY_MONAI = ":4096:8"
_KNOWN_OPTIONS = ("cublas_workspace", "alloc_conf")


def analyze_pytorch(module: Any, target: Target | None, options: Any) -> Estimate:
    """`options` is a checked `analyze.Options`; either a module or a parsed target is given."""
    if target is not None:
        program = load(target)
        name = target.name
    else:
        if not isinstance(module, torch.nn.Module):
            raise TargetError(
                f"a {type(module).__name__} is no model", "give an nn.Module, a path or package.module:attr"
            )
        program = Program(module)
        name = type(module).__name__
    train = options.mode == "train"
    device, device_note = resolve(options.device)
    device = with_workspaces(device, options.runtime_options, program.model)
    inputs, targets = batch_for(program, options, meta_like)
    loss, notes = loss_for(program, options, targets) if train else (None, [])
    captured = capture_pytorch(
        program.model,
        inputs,
        # In inference only targets that were asked for travel to the device with the inputs.
        targets=targets if train or options.targets is not None else (),
        loss=loss,
        optimizer=optimizer_for(options.optimizer) if train else None,
        train=train,
        amp=options.amp,
        grad_accumulation=options.grad_accumulation,
        steps=options.steps,
        device=device,
        prepare=preparation(options),
        progress=options.progress,
    )
    if options.on_graph is not None:
        options.on_graph(captured.graph)
    eager = EagerProgram(captured.graph, device)
    events = tuple(eager.events())
    if options.strict and eager.unknown:
        names = ", ".join(sorted(eager.unknown))
        raise UnknownOperatorError(
            f"{name} calls operators whose own memory use is not known: {names}",
            "leave --strict out to have them bounded instead",
        )
    played = play(events, create("pytorch", conf=alloc_conf(options.runtime_options)))
    ranges = lifetimes(captured.graph)
    naive = from_leaves(
        captured.leaves,
        data_bytes=captured.input_bytes + captured.output_bytes,
        weight_bytes=captured.weight_bytes,
        moments=moments_in(captured.graph) if train else 0,
        precision_factor=0.5 if options.amp else 1.0,
        mode=options.mode,
    )
    return assemble(
        Parts(
            target=name,
            framework="pytorch",
            runtime="pytorch",
            options=options,
            device=device,
            device_note=device_note,
            batch=captured.graph.batch,
            describe=graph_describer(captured.graph),
            events=events,
            played=played,
            naive=naive,
            graph_peak=peak(captured.graph, ranges=ranges).nbytes,
            saved_for_backward=saved_for_backward(captured.graph, ranges).nbytes,
            libraries=frozenset(eager.libraries),
            unknown=eager.unknown,
            notes=(*notes, *captured.graph.notes),
            optimizer=_optimizer_name(options.optimizer) if train else "",
        )
    )


def captured_only(
    module: torch.nn.Module, inputs: Sequence[Any], options: Any, device: DeviceProfile
) -> Captured:
    """The capture without the rest, for `--dump-graph` and `verify`."""
    program = Program(module)
    targets = tuple(options.targets or ())
    loss, _ = loss_for(program, options, targets) if options.mode == "train" else (None, [])
    return capture_pytorch(
        module, inputs, targets=targets, loss=loss, optimizer=optimizer_for(options.optimizer),
        train=options.mode == "train", amp=options.amp, steps=options.steps, device=device,
        grad_accumulation=options.grad_accumulation, prepare=preparation(options),
    )  # fmt: skip


def batch_for(
    program: Program, options: Any, make: Callable[[torch.Tensor | TensorSpec], torch.Tensor]
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Inputs and targets: those given, else the target's own `make_batch`. Raises InputError when there are none.

    make: the tensor for what was given; `--dtype` and `--channels-last` are applied to it here.
    """
    inputs, targets = options.inputs, options.targets
    if isinstance(inputs, Mapping):
        inputs = _in_order(program.model, inputs)
    if inputs is None:
        if program.make_batch is None:
            raise InputError(
                f"{type(program.model).__name__} does not say what its inputs are",
                "give --input NAME=3x224x224:float32 with --batch, or define make_batch(batch) in the target's file",
            )
        inputs, made = program.make_batch(program.own_batch if options.batch is None else options.batch)
        targets = made if targets is None else targets
    targets = tuple(_converted(make(y), options, layout=False) for y in targets or ())
    return tuple(_converted(make(x), options) for x in inputs), targets


def _in_order(model: torch.nn.Module, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Inputs in the order of `forward`'s parameters, if all are called as those are; else as given."""
    order = list(inspect.signature(model.forward).parameters)
    known = set(inputs) <= set(order)
    return tuple(inputs[name] for name in (sorted(inputs, key=order.index) if known else inputs))


def _converted(tensor: torch.Tensor, options: Any, layout: bool = True) -> torch.Tensor:
    """`--dtype` and `--channels-last` applied to a tensor of the batch."""
    if options.dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype_named(options.dtype))
    if layout and options.channels_last and tensor.dim() == 4:
        tensor = tensor.to(memory_format=torch.channels_last)
    return tensor


def dtype_named(name: str) -> torch.dtype:
    """The floating-point type of that name. Raises OptionError."""
    names = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp64": "float64"}
    dtype = getattr(torch, names.get(name, name), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"unknown dtype {name!r}", "float32, float16 or bfloat16")
    return dtype


def preparation(options: Any) -> Callable[[torch.nn.Module], None]:
    """What `--dtype`, `--channels-last` and `--checkpoint` do to the model, in that order."""

    def prepare(model: torch.nn.Module) -> None:
        if options.dtype is not None:
            model.to(dtype_named(options.dtype))
        if options.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if options.checkpoint is not None:
            apply_checkpointing(model, options.checkpoint)

    return prepare


def loss_for(
    program: Program, options: Any, targets: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[str]]:
    """The loss the options or the target name, and notes on one that had to be assumed."""
    chosen = options.loss
    if callable(chosen):
        return chosen, []
    if isinstance(chosen, str):
        return (load_function(chosen) if ":" in chosen else loss_by_name(chosen)), []
    if program.loss is not None:
        return program.loss, []
    if targets:
        return loss_by_name("cross_entropy"), ["no loss was given: cross_entropy is assumed"]
    return loss_by_name("sum"), ["no loss and no targets were given: the sum of the output is assumed"]


def optimizer_for(chosen: Any) -> Callable[..., torch.optim.Optimizer]:
    """The optimizer by name, or the function given."""
    return optimizer_by_name(chosen) if isinstance(chosen, str) else chosen


def _optimizer_name(chosen: Any) -> str:
    return chosen if isinstance(chosen, str) else getattr(chosen, "__name__", type(chosen).__name__)


def alloc_conf(given: Mapping[str, Any]) -> str:
    """The caching allocator's settings: the option, else PyTorch's own environment variables."""
    variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return str(given.get("alloc_conf") or next((os.environ[v] for v in variables if os.environ.get(v)), ""))


def _cublas_variable(model: torch.nn.Module | None) -> str | None:
    """`CUBLAS_WORKSPACE_CONFIG` as the program to predict will see it.

    MONAI sets the variable when it is imported (`monai/utils/misc.py`). If that happened here only because another
    model was analysed before, it means nothing to this one: then it counts if the process was started with it.
    """
    value = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if value != _SET_BY_MONAI or model is None:
        return value
    if any(type(part).__module__.partition(".")[0] == "monai" for part in model.modules()):
        return value
    started_with = Path("/proc/self/environ")
    own = f"CUBLAS_WORKSPACE_CONFIG={value}".encode()
    return value if not started_with.exists() or own in started_with.read_bytes().split(b"\0") else None


def with_workspaces(
    device: DeviceProfile, given: Mapping[str, Any], model: torch.nn.Module | None = None
) -> DeviceProfile:
    """The profile with the cuBLAS workspace the user configured.

    `:4096:2:16:8` is PyTorch's notation (`CUBLAS_WORKSPACE_CONFIG`): pairs of KiB and count. cublasLt's own is never
    larger (`scratch/blas.py`), so a sum of zero switches both off. The library reads the variable too: it is the size
    of what each thread's handle holds outside the allocator (NVML on an H200, with 2 MiB of kernels: 2 MiB at :0:0 and
    :16:8, 10 at :4096:2:16:8, 34 at :4096:8, against 66 at the default).
    """
    for name in given:
        if name not in _KNOWN_OPTIONS:
            raise OptionError(
                f"unknown runtime option {name!r} for pytorch", f"one of {', '.join(_KNOWN_OPTIONS)}"
            )
    text = given.get("cublas_workspace", _cublas_variable(model))
    if text is None or text == "":
        return device
    if isinstance(text, int):
        total = text
    else:
        parts = str(text).strip(":").split(":")
        if len(parts) % 2 or not all(part.isdigit() for part in parts):
            raise OptionError(
                f"cublas_workspace is {text!r}",
                "give :KIB:COUNT pairs as in CUBLAS_WORKSPACE_CONFIG, :0:0 for none",
            )
        total = 1024 * sum(
            int(size) * int(count) for size, count in zip(parts[::2], parts[1::2], strict=True)
        )
    modules = {**device.modules_bytes, "cublas": min(total, device.modules_bytes.get("cublas", 0))}
    return dataclasses.replace(device, cublas_workspace_bytes=total, modules_bytes=modules)
