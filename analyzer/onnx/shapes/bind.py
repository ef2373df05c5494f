"""Sizes of an ONNX model's inputs: the batch and the user's own descriptions, whatever the export calls them.

1. A described input (`inputs[name] = (shape, dtype)`) has that shape; one dimension fewer than declared means
   the batch goes in front. The names of its dimensions are bound everywhere else. A description may also name
   a dimension instead of an input and give its one size (`inputs["sequence"] = ((128,), None)`).
2. `batch` binds, if any dimension has a name like "batch" or "N", every dimension of such a name on any axis;
   otherwise the name at axis 0 of the first input that has one; and in both cases every unnamed dimension at
   axis 0.
3. If no dimension is dynamic there, the batch is hard-coded: the first input's size at axis 0 is taken for it
   and rebound in every input that has the same. Every Reshape is then checked (`infer`).
4. Dimensions that are still unknown are an error that names them and the option that binds them.

Not modelled: batches that sit inside a product ("batch*seq" as one dimension).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from analyzer.errors import InputError, did_you_mean
from analyzer.onnx.types import Dim, ValueType, display, display_shape

Described = Mapping[str, tuple[Sequence[int], str | None]]

# Names that exporters and people give to the batch dimension, lower case.
_BATCH_NAME = re.compile(r"[\w.:]*batch[\w.:]*|(n|b|bs|bsz)(_?\d+)?")
_LARGEST_RANK = 64
_NAMED = 20  # open dimensions that an error names


@dataclass(frozen=True, slots=True)
class Binding:
    """Concrete types of all inputs, sizes of dimension names, and the hard-coded batch that was replaced.

    refused: which of the notes say that ONNX Runtime refuses these sizes.
    """

    inputs: Mapping[str, ValueType]
    symbols: Mapping[str, int]
    hard_coded: int | None = None
    notes: tuple[str, ...] = field(default=())
    refused: tuple[str, ...] = field(default=())


def check_batch(batch: int | None) -> None:
    """Raises InputError unless `batch` is None or a positive integer."""
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise InputError(
            f"batch {batch!r} is not a positive integer", "give a batch of 1 or more, such as --batch 64"
        )


def bind(declared: Mapping[str, ValueType], batch: int | None, described: Described | None = None) -> Binding:
    """Return the inputs' concrete types (rules of the module). Raises InputError for missing ones."""
    check_batch(batch)
    shapes, symbols = _described(declared, batch, described or {})
    open_inputs = {name: value for name, value in declared.items() if name not in shapes}
    refused = _refused(declared, shapes)
    notes: list[str] = []
    hard_coded = None
    unnamed: set[str] = set()
    if batch is not None:
        names = _batch_names(open_inputs)
        for name in names:
            _bind_symbol(symbols, name, batch, "the batch")
        unnamed = {name for name, value in open_inputs.items() if value.shape and value.shape[0] == ""}
        if not open_inputs and shapes and not any(batch in (value.sizes or ()) for value in shapes.values()):
            name, value = next(iter(shapes.items()))
            raise InputError(
                f"the batch is {batch:,}, and no input has it: {display(name)} is described as"
                f" {display_shape(value.shape)}",
                "leave --batch out, or describe the inputs with it",
            )
        if not names and not unnamed and not shapes:
            hard_coded = next(
                (v.shape[0] for v in open_inputs.values() if v.shape and isinstance(v.shape[0], int)), None
            )
            if hard_coded is None:
                notes.append("no input has a batch dimension: the batch changes nothing")
            elif hard_coded == batch:
                hard_coded = None
            else:
                which = [display(n) for n, v in open_inputs.items() if v.shape and v.shape[0] == hard_coded]
                refused.append(
                    f"the export has a hard-coded batch of {hard_coded}, rebound to {batch} (inputs"
                    f" {', '.join(which)}); ONNX Runtime refuses that batch until the model is exported with"
                    " a dynamic batch dimension"
                )
    missing: list[str] = []
    for name, value in open_inputs.items():
        if value.shape is None:
            missing.append(
                f"{display(name)} (rank unknown{'' if value.kind == 'tensor' else ': a ' + value.kind})"
            )
            continue
        sizes: list[Dim] = [
            symbols.get(size, size) if isinstance(size, str) else size for size in value.shape
        ]
        if (sizes and name in unnamed and batch is not None) or (
            sizes and hard_coded is not None and sizes[0] == hard_coded and batch is not None
        ):
            sizes[0] = batch
        missing += [
            f"{display(name)} axis {axis}" + (f" ({display(size)!r})" if size else "")
            for axis, size in enumerate(sizes)
            if isinstance(size, str)
        ]
        shapes[name] = ValueType(value.dtype, tuple(sizes))
    if missing:
        unbound = {name: shapes.get(name, value) for name, value in open_inputs.items()}
        more = f"; and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
        raise InputError(
            f"unknown input dimensions: {'; '.join(missing[:_NAMED])}{more}",
            _binding_hint(declared, unbound, batch),
        )
    return Binding(
        {name: shapes[name] for name in declared}, symbols, hard_coded, (*refused, *notes), tuple(refused)
    )


def _described(
    declared: Mapping[str, ValueType], batch: int | None, described: Described
) -> tuple[dict[str, ValueType], dict[str, int]]:
    """Check the described inputs; return their types and the sizes of named dimensions. Raises InputError."""
    shapes: dict[str, ValueType] = {}
    symbols: dict[str, int] = {}
    dimensions = {
        size for value in declared.values() for size in value.shape or () if isinstance(size, str) and size
    }
    for name, (shape, dtype) in described.items():
        sizes = tuple(shape)
        if (
            any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes)
            or len(sizes) > _LARGEST_RANK
        ):
            raise InputError(
                f"input {display(name)}: {sizes} is not a shape",
                f"for example --input {display(name)}=3x224x224",
            )
        if name not in declared and name in dimensions and len(sizes) == 1:
            _bind_symbol(symbols, name, sizes[0], f"--input {display(name)}")
            continue
        if name not in declared:
            names = ", ".join(display(other) for other in declared) or "none"
            named = ", ".join(sorted(map(display, dimensions)))
            raise InputError(
                f"the model has no input {display(name)!r}",
                f"{did_you_mean(name, [*declared, *dimensions])}its inputs are: {names}"
                + (f"; its named dimensions: {named}" if named else ""),
            )
        value = declared[name]
        if dtype and value.dtype and dtype != value.dtype:
            raise InputError(
                f"input {display(name)} takes {value.dtype}, not {dtype}",
                "leave the type away, or export the model with that type",
            )
        if value.shape is not None and len(sizes) == len(value.shape) - 1 and batch is not None:
            sizes = (batch, *sizes)
        if value.shape is not None and len(sizes) != len(value.shape):
            raise InputError(
                f"input {display(name)} has rank {len(value.shape)} {display_shape(value.shape)}, not"
                f" {len(sizes)}",
                "give every dimension, or all but the batch together with --batch",
            )
        for wanted, size in _sizes_by_name(value.shape or (), sizes):
            _bind_symbol(symbols, wanted, size, f"--input {display(name)}")
        shapes[name] = ValueType(dtype or value.dtype, sizes, value.kind, value.proto)
    return shapes, symbols


def _sizes_by_name(declared: Sequence[Dim], sizes: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the named dimensions with their sizes, but for a name that stands for several in this input: ONNX
    Runtime does not compare sizes by name (`?` is an exporter's word for any)."""
    by_name: dict[str, set[int]] = {}
    for wanted, size in zip(declared, sizes, strict=False):
        if isinstance(wanted, str) and wanted:
            by_name.setdefault(wanted, set()).add(size)
    yield from ((name, size) for name, own in by_name.items() if len(own) == 1 for size in own)


def _bind_symbol(symbols: dict[str, int], name: str, size: int, origin: str) -> None:
    if symbols.setdefault(name, size) != size:
        raise InputError(
            f"dimension {display(name)!r} is {symbols[name]} and {size} ({origin})",
            "give the same size wherever the name occurs",
        )


def _batch_names(inputs: Mapping[str, ValueType]) -> set[str]:
    """Return the names of the batch dimension: like "batch" or "N", else the first at axis 0."""
    everywhere = {
        size for value in inputs.values() for size in value.shape or () if isinstance(size, str) and size
    }
    named = {name for name in everywhere if _BATCH_NAME.fullmatch(name.lower())}
    first = next(
        (v.shape[0] for v in inputs.values() if v.shape and isinstance(v.shape[0], str) and v.shape[0]), None
    )
    return named or ({first} if isinstance(first, str) else set())


def _refused(declared: Mapping[str, ValueType], shapes: Mapping[str, ValueType]) -> list[str]:
    """Notes on described sizes that differ from those the file fixes: ONNX Runtime does not take them."""
    notes = []
    for name, value in shapes.items():
        fixed = declared[name].shape
        if fixed is not None and any(
            isinstance(size, int) and size != bound
            for size, bound in zip(fixed, value.shape or (), strict=True)
        ):
            notes.append(
                f"{display(name)} is described as {display_shape(value.shape)}, the file fixes"
                f" {display_shape(fixed)}; ONNX Runtime refuses that until the model is exported with those"
                " dimensions dynamic"
            )
    return notes


def _binding_hint(
    declared: Mapping[str, ValueType], missing: Mapping[str, ValueType], batch: int | None
) -> str:
    """Return the options that bind what is missing, as they would be typed."""
    batch_names = _batch_names(declared) if batch is None else set()
    options: dict[str, None] = {}
    for name, value in missing.items():
        unnamed = value.shape is None
        for axis, size in enumerate(value.shape or ()):
            if size in batch_names or (size == "" and axis == 0 and batch is None):
                options["--batch N"] = None
            elif isinstance(size, str) and size:
                options[f"--input {display(size)}=SIZE"] = None
            elif size == "":
                unnamed = True
        if unnamed:
            sizes = "AxBxC" if value.shape is None else "x".join(str(size or "SIZE") for size in value.shape)
            options[f"--input {display(name)}={display(sizes)}"] = None
    return "give " + " ".join([*islice(options, _NAMED), *(["..."] if len(options) > _NAMED else [])])
