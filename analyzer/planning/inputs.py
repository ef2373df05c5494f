"""Inputs described by texts, "NAME=3x224x224:float32": of the option `--input`, and in a grid's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from analyzer.errors import OptionError
from analyzer.graph import dtype
from analyzer.spec import TensorSpec

_INPUT = re.compile(r"(?P<shape>\d{1,30}(x\d{1,30})*)?(:(?P<dtype>\w+))?", re.IGNORECASE)


def described_inputs(target: str, texts: Sequence[str], batch: int | None) -> dict[str, TensorSpec] | None:
    """Parse such texts of a target with that batch: name -> specification. Raises OptionError."""
    onnx = Path(target).suffix.lower() == ".onnx"
    described: dict[str, TensorSpec] = {}
    for text in texts:
        name, _, rest = text.rpartition("=")
        match = _INPUT.fullmatch(rest)
        if not name or match is None or not rest:
            raise OptionError(
                f"--input {text!r} is no input",
                "write NAME=SHAPE or NAME=SHAPE:TYPE, such as x=3x224x224:float32",
            )
        if name in described:
            raise OptionError(f"--input {name} is given twice", "describe each input once")
        kind = (match["dtype"] or "").lower()
        kind = dtype.full_name(kind)
        if kind and kind not in dtype.BITS:
            raise OptionError(
                f"--input {text!r}: unknown type {kind!r}",
                "one of float32, float16, bfloat16, int64, int32, bool, ...",
            )
        shape = tuple(int(size) for size in match["shape"].lower().split("x")) if match["shape"] else ()
        if onnx:
            described[name] = TensorSpec(shape, kind)
        else:
            described[name] = TensorSpec((1 if batch is None else batch, *shape), kind or "float32")
    return described or None
