"""PyTorch's own tests as cases: every operator, module and optimizer it tests itself, with the arguments it tests it on.

1. The lists are `op_db`, `module_db` and `optim_db` of `torch.testing._internal`. Their samples are made on the CPU, from a seed of the
   sample's own, so that two processes with the same torch make the same ones.
2. Scaled by a number, the sizes the lists are written in (S, M, L) are that many times as large; where a sample says its sizes as
   numbers, every dimension of its tensors is, if the operator takes it so.
3. A layout says how the tensors then lie on the device. A way says what is run: forward and backward ("plain"), or a backward pass that
   is differentiated itself ("double").

This module runs under both Pythons, the emulated and the traced one: it imports torch alone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import sys
import types
import unittest
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils._pytree import tree_leaves, tree_map

_COMPUTE_CAPABILITY = 90  # an H100's or H200's, which both sides are

if "expecttest" not in sys.modules:  # which the lists' module imports for tests nobody runs here
    _stand_in = types.ModuleType("expecttest")
    _stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["expecttest"] = _stand_in

if __package__:
    from benchmarks.operators import kernels
else:
    import kernels  # beside this file, where the emulated Python runs it

from torch.testing._internal import common_cuda  # noqa: E402

for _name in vars(common_cuda):  # the types the lists name go by these; this process may see no GPU
    if _name.startswith("SM") and _name.endswith("OrLater"):
        setattr(common_cuda, _name, int(_name[2:-7]) <= _COMPUTE_CAPABILITY)

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torch.testing._internal.common_optimizers import optim_db  # noqa: E402

LAYOUTS = ("contiguous", "transposed", "channels_last", "sliced")
WAYS = ("plain", "double")
_SIZES = ("S", "M", "L", "XS")  # in `common_methods_invocations` and `opinfo/definitions`
_MOST_BYTES = 2**31  # a sample that is larger, scaled, is left out
_OPTIMIZED = ((40, 30), (17,), (3, 5, 7, 2), ())  # shapes of the parameters an optimizer is given
_STEPS = 2


class Group(NamedTuple):
    """The samples of one entry: database is "op", "kernel", "module" or "optim"; name the entry's, with its variant."""

    database: str
    name: str
    dtype: str
    scale: int = 1


class Sample(NamedTuple):
    """What is called with what. words: the arguments; differentiable: whether a backward pass runs, and whether it can be differentiated
    itself."""

    make: Callable[[Callable[[torch.Tensor], torch.Tensor]], Callable[[], Any]]
    tensors: tuple[torch.Tensor, ...]
    words: str
    differentiable: tuple[bool, bool]


def entries(database: str) -> dict[str, Any]:
    """Every entry of a list by its name."""
    if database == "op":
        for entry in op_db:
            if hasattr(
                entry.op, "is_cuda_available"
            ):  # a jiterator's, which looks for a GPU when it is imported
                entry.op.is_cuda_available = True
        return {entry.full_name: entry for entry in op_db}
    if database == "kernel":
        return dict(kernels.ENTRIES)
    if database == "module":
        return {entry.name: entry for entry in module_db}
    return {entry.optim_cls.__name__: entry for entry in optim_db}


def dtypes(database: str, name: str) -> tuple[str, ...]:
    """The types a list tests an entry in on CUDA."""
    entry = entries(database)[name]
    if database == "optim":
        return ("float32",)
    if database == "kernel":
        return ("float32", "bfloat16", "float64")
    found = (
        entry.dtypesIfCUDA
        if database == "op"
        else entry.dtypes_if_cuda
        if hasattr(entry, "dtypes_if_cuda")
        else entry.dtypes
    )
    return tuple(sorted(str(dtype)[6:] for dtype in found))


def samples(group: Group, limit: int) -> Iterator[Sample | str]:
    """The first samples of a group, evenly chosen where there are more than `limit`; a string: why one cannot be made."""
    try:
        found = sum(1 for _ in _made(group))
        wanted = {int(number * max(found / limit, 1)) for number in range(min(found, limit))}
        # All of them at once may be more than the machine has.
        kept = [
            sample if isinstance(sample, Sample) else sample()
            for number, sample in enumerate(_made(group))
            if number in wanted
        ]
    except Exception as error:  # a list's own function, which may need anything
        yield f"{type(error).__name__}: {error}"
        return
    yield from kept


def _made(group: Group) -> Iterator[Sample | Callable[[], Sample]]:
    """A group's samples, each time the same."""
    seed = zlib.crc32(repr(group).encode())
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    make = {"op": _operator, "kernel": _kernel, "module": _module, "optim": _optimizer}[group.database]
    with _sizes(group.scale):
        yield from itertools.islice(make(entries(group.database)[group.name], group), 2000)


@contextlib.contextmanager
def _sizes(scale: int) -> Iterator[None]:
    """While open, the lists' own sizes are so many times as large, and a GPU is there."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith(("torch.testing._internal.common_methods", "torch.testing._internal.opinfo"))
    ]
    before = [
        (m, name, vars(m)[name]) for m in modules for name in _SIZES if isinstance(vars(m).get(name), int)
    ]
    there = torch.cuda.is_available
    try:
        torch.cuda.is_available = lambda: True
        for module, name, value in before:
            setattr(module, name, scale * value)
        yield
    finally:
        torch.cuda.is_available = there
        for module, name, value in before:
            setattr(module, name, value)


def _operator(entry: Any, group: Group) -> Iterator[Callable[[], Sample]]:
    """Each is made when it is asked for: many are counted and few looked at."""
    dtype = getattr(torch, group.dtype)
    floats = dtype.is_floating_point or dtype.is_complex
    differentiable = floats and entry.supports_autograd and dtype in entry.supported_backward_dtypes("cuda")
    twice = bool(differentiable and entry.supports_gradgrad)
    plain = None if group.scale == 1 else _described(entry, dtype, differentiable)
    for number, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=differentiable)):
        arguments = (sample.input, sample.args, sample.kwargs)
        small = plain is not None and number < len(plain) and description(arguments) == plain[number]
        scale = group.scale if small else 1
        if sum(_larger_bytes(value, scale) for value in tree_leaves(arguments)) <= _MOST_BYTES:
            yield functools.partial(_of_operator, entry, sample, scale, (differentiable, twice))


def _of_operator(entry: Any, sample: Any, scale: int, differentiable: tuple[bool, bool]) -> Sample:
    arguments = (sample.input, sample.args, sample.kwargs)
    if scale != 1:
        arguments = tree_map(lambda value: _larger(value, scale), arguments)
    tensors = tuple(t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor))

    def make(place: Callable[..., Any]) -> Any:
        first, rest, keywords = tree_map(place, arguments)
        return lambda: sample.output_process_fn_grad(entry.op(first, *rest, **keywords))

    return Sample(make, tensors, description(arguments), differentiable)


def _kernel(entry: Any, group: Group) -> Iterator[Sample]:
    name, _, overload_name = group.name.partition(".")
    overload = getattr(getattr(torch.ops.aten, name), overload_name or "default")
    for arguments in entry(kernels.Made(getattr(torch, group.dtype), group.scale)):
        tensors = tuple(t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor))

        def make(place: Callable[..., Any], given: Any = arguments) -> Any:
            there = tree_map(place, given)
            named = there[-1] if isinstance(there[-1], dict) else {}
            return functools.partial(overload, *there[: len(there) - bool(named)], **named)

        yield Sample(make, tensors, description(arguments), (False, False))


def _described(entry: Any, dtype: torch.dtype, differentiable: bool) -> list[str]:
    """The samples of an entry at their own sizes, each in words."""
    with _sizes(1), torch.random.fork_rng(devices=[]):
        found = entry.sample_inputs("cpu", dtype, requires_grad=differentiable)
        return [description((sample.input, sample.args, sample.kwargs)) for sample in found]


def description(value: Any) -> str:
    """Arguments in words: of tensors type, shape and layout, of anything else its text."""

    def one(part: Any) -> str:
        if isinstance(part, torch.Tensor):
            return f"{part.dtype}{tuple(part.shape)}{'' if part.layout is torch.strided else part.layout}"
        return getattr(part, "__name__", None) or str(part)

    return ", ".join(one(part) for part in tree_leaves(value))


def _larger(value: Any, scale: int) -> Any:
    """A tensor with every dimension so many times as large, those of size 1 aside; its numbers are the same over and over."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() == 0:
        return value
    repeats = [1 if size == 1 else scale for size in value.shape]
    return value.detach().repeat(repeats).requires_grad_(value.requires_grad)


def _larger_bytes(value: Any, scale: int) -> int:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return 0
    return value.element_size() * math.prod(size if size == 1 else scale * size for size in value.shape)


def _module(entry: Any, group: Group) -> Iterator[Sample]:
    dtype = getattr(torch, group.dtype)
    inputs = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=True, training=True)
    for found in inputs:
        call = found.forward_input
        if call is None:
            continue
        given = (call.args, call.kwargs)
        if group.scale > 1:
            given = tree_map(lambda value: _larger(value, group.scale), given)
        tensors = tuple(t for t in tree_leaves(given) if isinstance(t, torch.Tensor))

        def make(place: Callable[..., Any], made: Any = found.constructor_input, given: Any = given) -> Any:
            args, keywords = made.args, made.kwargs
            module = entry.module_cls(*args, **keywords).to("cuda", dtype)
            rest, named = tree_map(place, given)
            return lambda: (module(*rest, **named), *module.parameters())

        yield Sample(
            make,
            tensors,
            description((found.constructor_input.args, found.constructor_input.kwargs, given)),
            (True, bool(entry.supports_gradgrad)),
        )


def _optimizer(entry: Any, group: Group) -> Iterator[Sample]:
    dtype = getattr(torch, group.dtype)
    shapes = [tuple(group.scale * size for size in shape) for shape in _OPTIMIZED]
    ways = [{}, *({name: True} for name in entry.supported_impls)]
    for found, way in itertools.product(entry.optim_inputs_func("cpu"), ways):
        if "capturable" in found.kwargs or (way and any(name in found.kwargs for name in way)):
            continue
        tensors = tuple(torch.ones(shape, dtype=dtype) for shape in shapes)
        keywords = {**found.kwargs, **way}

        def make(place: Callable[..., Any], keywords: Any = keywords, given: Any = tensors) -> Any:
            parameters = [place(tensor).requires_grad_() for tensor in given]
            optimizer = entry.optim_cls(parameters, **keywords)

            def run() -> list[torch.Tensor]:
                for _ in range(_STEPS):
                    for parameter in parameters:
                        parameter.grad = torch.ones_like(parameter)
                    optimizer.step(parameters[0].sum)
                    optimizer.zero_grad()
                return parameters

            return run

        yield Sample(make, tensors, description([*found.kwargs.items(), *way]), (False, False))


EVERY = ("every first", "every second", "every third")  # of the tensors given is spread, no other


def placed(tensor: Any, layout: str) -> Any:
    """A tensor of a sample on the device, lying as it is said."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    plain, wants = tensor.detach(), tensor.requires_grad
    if layout == "spread" and plain.dim() and plain.layout is torch.strided:
        there = torch.stack([plain, plain], -1).to("cuda")[..., 0]
    elif plain.layout is not torch.strided or plain.dim() < 2 or plain.numel() == 0 or layout == "contiguous":
        there = plain.to("cuda")
    elif layout == "sliced":
        there = torch.cat([plain[..., :1], plain], -1).to("cuda")[..., 1:]
    elif layout == "channels_last" and plain.dim() in (4, 5):
        format_ = torch.channels_last if plain.dim() == 4 else torch.channels_last_3d
        there = plain.contiguous(memory_format=format_).to("cuda")
    elif layout == "transposed":
        there = plain.transpose(-1, -2).contiguous().to("cuda").transpose(-1, -2)
    else:
        there = plain.to("cuda")
    return there.requires_grad_(wants) if wants else there


def differs(sample: Sample, layout: str) -> bool:
    """Whether a layout puts any of a sample's tensors otherwise than the first one does."""
    least = {"channels_last": 4, "spread": 1, **dict.fromkeys(EVERY, 1)}.get(layout, 2)
    return any(t.layout is torch.strided and t.dim() >= least and t.numel() for t in sample.tensors)


def run(sample: Sample, layout: str, way: str, tell: Callable[[str], None]) -> None:
    """One case: tells when the forward and backward passes begin, when they are over, and when all that they made is gone."""
    call = sample.make(lambda value: placed(value, layout))
    tell("forward")
    out = call()
    results = [
        t
        for t in tree_leaves(out)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None
    ]
    if sample.differentiable[0] and results:
        tell("backward")
        if way == "plain":
            torch.autograd.backward(results, [torch.ones_like(result) for result in results])
        else:
            leaves = _leaves(results)
            ones = [torch.ones_like(result).requires_grad_() for result in results]
            grads = torch.autograd.grad(results, leaves, ones, create_graph=True, allow_unused=True)
            again = [
                grad for grad in grads if grad is not None and grad.requires_grad and grad.grad_fn is not None
            ]
            del grads
            tell("double")
            if again:
                torch.autograd.backward(again, [torch.ones_like(grad) for grad in again])
            del leaves, ones, again
    tell("gone")
    del out, results
    tell("end")


class Case(NamedTuple):
    """One call of a group's sample."""

    group: Group
    number: int
    layout: str
    way: str


def cases(
    group: Group, layouts: Sequence[str], ways: Sequence[str], limit: int
) -> Iterator[tuple[Case, Sample | str]]:
    """The cases of a group; a string: why there are none."""
    for number, sample in enumerate(samples(group, limit)):
        if isinstance(sample, str):
            yield Case(group, number, "contiguous", "plain"), sample
            continue
        for layout in layouts:
            if layout != "contiguous" and not differs(sample, layout):
                continue
            for way in ways:
                if way == "plain" or sample.differentiable[1]:
                    yield Case(group, number, layout, way), sample


def described_call(call: functools.partial[Any], out: Any) -> dict[str, Any]:
    """The tensors of a kernel's call: by name shape, bytes of an element, and whether it is contiguous; of what it made likewise, and where."""

    def one(tensor: torch.Tensor) -> Any:
        return [list(tensor.shape), tensor.element_size(), tensor.is_contiguous()]

    names = [argument.name for argument in call.func._schema.arguments]
    given = {**dict(zip(names, call.args, strict=False)), **call.keywords}
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    known = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    results = [
        t
        for t in tree_leaves(out)
        if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in known
    ]
    return {
        "given": {name: one(t) for name, t in tensors.items()},
        "made": [[*one(t), t.untyped_storage().data_ptr()] for t in results],
    }


def _leaves(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """What gradients would be accumulated in."""
    found: dict[int, torch.Tensor] = {}
    todo, seen = [result.grad_fn for result in results], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        todo.extend(other for other, _ in node.next_functions)
    return list(found.values())
