"""The options' meaning to PyTorch: inputs and targets, dtype and layout, loss and optimizer.

The capture and a real run (`analyzer_verify/runs/program.py`) both build their step from these.

1. An optimizer is every class of `torch.optim` by its name in lower case; `sgdm` and `momentum` are SGD with
   momentum 0.9.
2. The suffix `_fused`, `_foreach` or `_forloop` chooses the implementation (`adamw_fused`); without one
   PyTorch chooses, as it would on CUDA. `_8bit` is bitsandbytes' optimizer of that name, whose state has 8
   bits an element (`adamw_8bit`; the library keeps tensors of fewer than 4,096 elements in 32 bits).
3. `cross_entropy` takes class scores in the last dimension of sequence outputs, or in dimension 1 of image
   outputs; outputs with `logits` (Hugging Face) are scores.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from analyzer.capture.pytorch.module.blocks import matching_any
from analyzer.errors import InputError, OptionError, did_you_mean
from analyzer.nested import tensors_in, with_tensors
from analyzer.options import Options
from analyzer.spec import TensorSpec
from analyzer.targets import Program, load_function

_SUFFIXES: dict[str, dict[str, bool]] = {
    "_fused": {"fused": True},
    "_foreach": {"foreach": True},
    "_forloop": {"foreach": False},
}
_CLASSES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    name.lower(): cls
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
}
_EIGHT_BITS = "_8bit"
LOSSES = ("cross_entropy", "mse", "sum")


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of a batch in order, and the structures they come from.

    call: of a model with the inputs; given: the targets as the loss takes them, from their tensors. None
    where the tensors are simply the arguments, one after the other.
    """

    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    call: Callable[[torch.nn.Module, list[torch.Tensor]], Any] | None
    given: Callable[[Sequence[torch.Tensor]], tuple[Any, ...]] | None


def batch_for(
    program: Program, options: Options, make: Callable[[torch.Tensor | TensorSpec], torch.Tensor]
) -> Batch:
    """Return inputs and targets: those given, else of `make_batch`. Raises InputError without any.

    make: the tensor for what was given; `--dtype` and `--channels-last` are applied to it here.
    """
    inputs, targets = options.inputs, options.targets
    if isinstance(inputs, Mapping):
        inputs = _in_order(program.model, inputs, named=True)
    if inputs is not None:
        _check_batch(inputs, options.batch)
    if inputs is None:
        if program.make_batch is None:
            raise InputError(
                f"{type(program.model).__name__} does not say what its inputs are",
                "give --input NAME=3x224x224:float32 with --batch, or define make_batch(batch) in the"
                " target's file",
            )
        inputs, batch_targets = program.make_batch(
            program.own_batch if options.batch is None else options.batch
        )
        targets = batch_targets if targets is None else targets
        if isinstance(inputs, Mapping):
            inputs = _in_order(program.model, inputs)
    arguments = inputs if isinstance(inputs, Mapping) else tuple(inputs)
    wanted = tuple(targets or ())
    return Batch(
        tuple(_converted(make(x), options) for x in tensors_in(arguments)),
        tuple(_converted(make(y), options, layout=False) for y in tensors_in(wanted)),
        _caller(arguments),
        None if _are_positional(wanted) else lambda tensors: tuple(with_tensors(wanted, iter(tensors))),
    )


def _caller(arguments: Any) -> Callable[[torch.nn.Module, list[torch.Tensor]], Any] | None:
    """Return a function that calls a model with the batch's tensors; None: they are its arguments in order.
    It keeps no tensor after the call."""
    if _are_positional(arguments):
        return None
    if isinstance(arguments, Mapping):
        return lambda model, tensors: model(**with_tensors(arguments, iter(tensors)))
    return lambda model, tensors: model(*with_tensors(arguments, iter(tensors)))


def _are_positional(arguments: Any) -> bool:
    return isinstance(arguments, tuple) and all(hasattr(part, "shape") for part in arguments)


def _check_batch(inputs: Any, batch: int | None) -> None:
    """Raise InputError where given inputs are of another batch than was said. The batch is an input's first
    dimension, or the second of one with three or more (sequences first, as in `torch.nn.RNN`), or how many
    samples a list has (images of their own sizes, as detectors take)."""
    shapes = [tuple(tensor.shape) for tensor in tensors_in(inputs)]
    if batch is None or not any(shapes):
        return
    sizes = {size for shape in shapes for size in shape[: 2 if len(shape) > 2 else 1]}
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs
    if batch not in sizes | {len(part) for part in parts if isinstance(part, list)}:
        first = next(filter(None, shapes))
        raise InputError(
            f"batch is {batch:,}, and the inputs are of batch {first[0]:,} ({'x'.join(map(str, first))})",
            f"leave the batch out, or give inputs of batch {batch:,}; analyzer.sweep(target, batches, inputs)"
            " sets their batch",
        )


def _in_order(model: torch.nn.Module, inputs: Mapping[str, Any], named: bool = False) -> Any:
    """Return inputs in the order of `forward`'s parameters if they are its first ones, else by name. named:
    by the caller, who is told of a name that is none of them (InputError); a target's own names are
    keywords."""
    parameters = inspect.signature(model.forward).parameters
    kinds = {entry.kind for entry in parameters.values()}
    several, keywords = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    order = [name for name, entry in parameters.items() if entry.kind not in (several, keywords)]
    if not set(inputs) <= set(order):
        if named and keywords not in kinds and several in kinds:
            return tuple(inputs.values())  # which have no names
        if named and keywords not in kinds:
            wrong = next(name for name in inputs if name not in order)
            raise InputError(
                f"{type(model).__name__} takes no input {wrong!r}",
                f"{did_you_mean(wrong, order)}it takes {', '.join(order) or 'none'}",
            )
        return inputs
    ordered = sorted(inputs, key=order.index)
    if ordered == order[: len(ordered)]:
        return tuple(inputs[name] for name in ordered)
    return inputs


def _converted(tensor: torch.Tensor, options: Options, layout: bool = True) -> torch.Tensor:
    """Apply `--dtype` and `--channels-last` to a tensor of the batch."""
    if options.dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype_named(options.dtype))
    if layout and options.channels_last and tensor.dim() == 4:
        tensor = tensor.to(memory_format=torch.channels_last)
    return tensor


def dtype_named(name: str) -> torch.dtype:
    """Return the floating-point type of that name. Raises OptionError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"unknown dtype {name!r}", "float32, float16 or bfloat16")
    return dtype


def preparation(options: Options) -> Callable[[torch.nn.Module], None]:
    """Return a function that applies `--dtype`, `--channels-last`, `--checkpoint` to a model."""

    def prepare(model: torch.nn.Module) -> None:
        if options.dtype is not None:
            model.to(dtype_named(options.dtype))
        if options.channels_last:
            if any(parameter.dim() == 5 for parameter in model.parameters()):
                raise OptionError(
                    "channels_last: PyTorch knows no such order for weights of five dimensions, which this"
                    " model has",
                    "leave --channels-last out",
                )
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if options.checkpoint is not None:
            apply_checkpointing(model, options.checkpoint)

    return prepare


def apply_checkpointing(model: torch.nn.Module, pattern: str) -> None:
    """Change `model` so that modules whose dotted path matches (`blocks.py`) run under
    `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`. Raises OptionError when nothing matches."""
    for part in matching_any(model, pattern, "checkpoint").values():
        part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)


def loss_for(program: Program, options: Options, batch: Batch) -> tuple[Callable[..., Any], list[str]]:
    """Return the loss of output and targets, and a list of notes on an assumed one, which may grow during the
    call."""
    notes: list[str] = []
    function, targets_of = _chosen_loss(program, options, batch, notes), batch.given
    if targets_of is None:
        return function, notes
    return lambda output, *targets: function(output, *targets_of(targets)), notes


def _chosen_loss(program: Program, options: Options, batch: Batch, notes: list[str]) -> Callable[..., Any]:
    """Return the loss function of the options or the target; a default adds a note."""
    chosen = options.loss
    if callable(chosen):
        return chosen
    if isinstance(chosen, str):
        return load_function(chosen) if ":" in chosen else loss_named(chosen)
    if program.loss is not None:
        return program.loss
    if batch.targets:
        notes.append("no loss was given: cross_entropy is assumed")
        return loss_named("cross_entropy")

    def own(output: Any, *_: Any) -> Any:
        """Return the loss the model computed itself: `output.loss`, or the sum of a dictionary of losses."""
        loss = getattr(output, "loss", None)
        if loss is None and isinstance(output, Mapping):
            loss = output.get("loss")
            parts = list(output.values())
            if loss is None and parts and all(getattr(part, "shape", None) == () for part in parts):
                loss = sum(parts)
        if loss is not None:
            return loss
        if not notes:
            notes.append("no loss and no targets were given: the sum of the output is assumed")
        return loss_named("sum")(output)

    return own


def optimizer_for(chosen: Any) -> Callable[..., torch.optim.Optimizer]:
    """Return the optimizer function: of this name, or as given."""
    return optimizer_named(chosen) if isinstance(chosen, str) else chosen


def optimizer_name(chosen: Any) -> str:
    """Return the optimizer's name for reports."""
    return chosen if isinstance(chosen, str) else getattr(chosen, "__name__", type(chosen).__name__)


def optimizer_names() -> tuple[str, ...]:
    """Return the names `optimizer` accepts, without suffixes."""
    return tuple(sorted({*_CLASSES, "sgdm", "momentum"}))


def optimizer_named(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return a function from parameters to the named optimizer. Raises OptionError for an unknown name."""
    wanted, options = name.lower(), dict[str, Any]()
    if wanted.endswith(_EIGHT_BITS):
        return _of_8_bits(name, wanted.removesuffix(_EIGHT_BITS))
    for suffix, extra in _SUFFIXES.items():
        if wanted.endswith(suffix):
            wanted, options = wanted.removesuffix(suffix), dict(extra)
    if wanted in ("sgdm", "momentum", "sgd_momentum"):
        wanted, options = "sgd", {**options, "momentum": 0.9}
    if wanted not in _CLASSES:
        names = optimizer_names()
        raise OptionError(
            f"unknown optimizer {name!r}", f"{did_you_mean(wanted, names)}known: {', '.join(names)}"
        )
    return lambda parameters: _CLASSES[wanted](parameters, lr=1e-3, **options)


def _of_8_bits(name: str, wanted: str) -> Callable[..., torch.optim.Optimizer]:
    """bitsandbytes' optimizer of that name, which is imported here. Raises OptionError."""
    try:
        from bitsandbytes import optim
    except ImportError as error:
        raise OptionError(f"{name} needs bitsandbytes: {error}", "pip install bitsandbytes") from error
    classes = {
        key.lower().removesuffix("8bit"): cls for key, cls in vars(optim).items() if key.endswith("8bit")
    }
    classes = {key: cls for key, cls in classes.items() if not key.startswith("paged")}
    options = {"momentum": 0.9} if wanted in ("sgdm", "momentum", "sgd") else {}
    chosen = classes.get("sgd" if options else wanted)
    if chosen is None:
        names = ", ".join(f"{key}{_EIGHT_BITS}" for key in sorted(classes))
        raise OptionError(f"unknown optimizer {name!r}", f"bitsandbytes has {names}")
    optimizer_class: Callable[..., torch.optim.Optimizer] = chosen
    return lambda parameters: optimizer_class(parameters, lr=1e-3, **options)


def loss_named(name: str) -> Callable[..., Any]:
    """Return the named loss as `loss(output, *targets)`. Raises OptionError for an unknown name."""
    functions: dict[str, Callable[..., Any]] = {"cross_entropy": _cross_entropy, "mse": _mse, "sum": _sum}
    if name not in functions:
        raise OptionError(f"unknown loss {name!r}", f"one of {', '.join(LOSSES)}, or file.py:function")
    return functions[name]


def _logits(output: Any) -> Any:
    for attribute in ("logits", "last_hidden_state"):
        if getattr(output, attribute, None) is not None:
            return getattr(output, attribute)
    if isinstance(output, dict):
        return next(iter(output.values()))
    return output[0] if isinstance(output, (tuple, list)) else output


def _cross_entropy(output: Any, target: Any) -> Any:
    scores = _logits(output)
    if scores.dim() == 3 and not target.is_floating_point() and target.dim() == 2:
        return F.cross_entropy(scores.reshape(-1, scores.size(-1)), target.reshape(-1))
    return F.cross_entropy(scores, target)


def _mse(output: Any, target: Any) -> Any:
    return F.mse_loss(_logits(output), target)


def _sum(output: Any, *_: Any) -> Any:
    return _logits(output).sum()
