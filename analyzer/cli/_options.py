"""The options every command shares that analyses a target, and what they mean to `analyzer.analyze`.

    @click.command()
    @analysis_options
    def command(target, **options):
        estimate = analyzer.analyze(target, **analysis_keywords(target, options))

1. `--input NAME=3x224x224:float32`: the shape of one sample. For an ONNX file it may also have every dimension of the
   model's input, or NAME may be a dimension's name (`sequence=128`). A PyTorch target's inputs get the batch in front
   and are taken in the order given.
2. Values are checked where they mean something: here only their form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from analyzer.errors import OptionError
from analyzer.spec import TensorSpec

_Function = TypeVar("_Function", bound=Callable[..., Any])
_INPUT = re.compile(r"(?P<shape>\d{1,30}(x\d{1,30})*)?(:(?P<dtype>\w+))?", re.IGNORECASE)
DTYPE_ALIASES = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
}

_OPTIONS = (
    click.argument("target"),
    click.option("-b", "--batch", type=int, metavar="N", help="Batch size."),
    click.option("--mode", type=click.Choice(["infer", "train"]), default="infer", show_default=True, help="A forward pass, or whole training steps."),
    click.option("--input", "inputs", multiple=True, metavar="NAME=SHAPE[:TYPE]", help="An input's shape, such as x=3x224x224:float32. Repeatable."),
    click.option("--loss", metavar="NAME", help="cross_entropy, mse, sum, or file.py:function."),
    click.option("--optimizer", metavar="NAME", help="sgd (default), adam, adamw, ...: a name of torch.optim."),
    click.option("--dtype", metavar="TYPE", help="Weights and inputs in this type."),
    click.option("--amp", type=click.Choice(["bf16", "fp16"]), help="Automatic mixed precision."),
    click.option("--channels-last", is_flag=True, help="Channels-last memory format."),
    click.option("--grad-accumulation", type=int, default=1, metavar="N", help="Batches a training step."),
    click.option("--checkpoint", metavar="PATTERN", help="Recompute the modules whose path matches in backward."),
    click.option("--device", metavar="NAME|SIZE", help="A GPU ('analyze devices' lists them), a profile.json, or a size such as 24GiB."),
    click.option("--runtime", metavar="NAME", help="pytorch or onnxruntime."),
    click.option("--runtime-option", "runtime_options", multiple=True, metavar="K=V", help="A setting of the runtime. Repeatable."),
)  # fmt: skip


def analysis_options(function: _Function) -> _Function:
    """TARGET and the options in `_OPTIONS`, in that order in the help."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def analysis_keywords(target: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `analyzer.analyze` the parsed options stand for. Raises OptionError."""
    keywords = {
        name: options[name]
        for name in (
            "batch",
            "mode",
            "loss",
            "amp",
            "channels_last",
            "grad_accumulation",
            "checkpoint",
            "device",
            "runtime",
        )
    }
    keywords["inputs"] = described_inputs(target, options["inputs"], options["batch"])
    keywords["runtime_options"] = settings(options["runtime_options"])
    keywords["dtype"] = DTYPE_ALIASES.get(options["dtype"], options["dtype"])
    if options["optimizer"] is not None:
        keywords["optimizer"] = options["optimizer"]
    return keywords


def described_inputs(target: str, texts: Sequence[str], batch: int | None) -> dict[str, TensorSpec] | None:
    """`--input` as a mapping from name to what it describes (rule 1). Raises OptionError."""
    from analyzer.graph import dtype

    onnx = Path(target).suffix.lower() == ".onnx"
    described: dict[str, TensorSpec] = {}
    for text in texts:
        name, _, rest = text.rpartition("=")
        found = _INPUT.fullmatch(rest)
        if not name or found is None or not rest:
            raise OptionError(
                f"--input {text!r} is no input",
                "write NAME=SHAPE or NAME=SHAPE:TYPE, such as x=3x224x224:float32",
            )
        if name in described:
            raise OptionError(f"--input {name} is given twice", "describe each input once")
        kind = (found["dtype"] or "").lower()
        kind = DTYPE_ALIASES.get(kind, kind)
        if kind and kind not in dtype.BITS:
            raise OptionError(
                f"--input {text!r}: unknown type {kind!r}",
                "one of float32, float16, bfloat16, int64, int32, bool, ...",
            )
        shape = tuple(int(size) for size in found["shape"].lower().split("x")) if found["shape"] else ()
        if onnx:
            described[name] = TensorSpec(shape, kind)
        else:
            described[name] = TensorSpec((1 if batch is None else batch, *shape), kind or "float32")
    return described or None


def settings(texts: Sequence[str]) -> dict[str, str]:
    """`--runtime-option K=V` as a mapping. Raises OptionError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(
                f"--runtime-option {text!r} is no setting", "write NAME=VALUE, such as cublas_workspace=:0:0"
            )
        found[name] = value
    return found
