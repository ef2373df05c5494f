"""The signature and the documentation of functions that take all options, as `help` shows them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import Field
from typing import Any

from analyzer.keywords import in_python


class Signature(inspect.Signature):
    """A signature that is written with a parameter a line, as `help` shows it."""

    def __str__(self) -> str:
        lines, kind = [], None
        for parameter in self.parameters.values():
            if parameter.kind is not kind and parameter.kind is parameter.KEYWORD_ONLY:
                lines.append("*")
            kind = parameter.kind
            lines.append(str(parameter))
        result = self.return_annotation
        return "(\n    " + ",\n    ".join(lines) + f",\n) -> {getattr(result, '__name__', result)}"


# Options whose help of the command line is not enough.
_IN_PYTHON = {
    "batch": "Batch size, in samples: of targets that make their own batch, and of ONNX graphs. Given inputs"
    " have their own.",
    "inputs": "Tensors or TensorSpecs, in order, or a mapping by name; shape, strides and dtype are read.",
    "loss": '`loss(output, *targets)`, or "cross_entropy", "mse", "sum".',
    "targets": "The targets of the loss: tensors or TensorSpecs.",
    "optimizer": 'A name of torch.optim in lower case ("adamw", "adamw_fused"), or a function from parameters'
    " to an optimizer, such as a class; no instance.",
    "device": 'A GPU\'s name ("rtx4090"), a profile\'s JSON file, a size ("24GiB") or bytes; by default this'
    " machine's GPU if known, else h200.",
    "budget": 'Limit of device memory, below the device\'s own: a size ("8GiB") or bytes.',
    "steps": "Training steps followed; the peak is often not in the first.",
    "runtime_options": '"cublas_workspace" and "alloc_conf" for PyTorch; ONNX Runtime\'s provider and session'
    " options.",
    "assume": 'Values that cannot be computed: {"train.py:12": 512}, the value read or the size at a line.',
}


def described(options: Iterable[Field[Any]], without: Collection[str]) -> str:
    """Return what each option means, and the words it takes, an entry an option."""
    lines = []
    for entry in options:
        if entry.name in without and entry.name not in ("device",):
            continue
        words = entry.metadata["click"].get("choices")
        meaning = _IN_PYTHON.get(entry.name, in_python(entry.metadata["help"]).replace(" Repeatable.", ""))
        text = f"{entry.name}: {meaning}" + (f" One of {', '.join(map(repr, words))}." if words else "")
        lines += textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)
