"""The options of an analysis: each one documented once, checked once, passed by name.

The dataclass below is the only place an option is spelt. `analyzer.analyze` and `analyzer.run` take its
fields as keywords; the command line makes an option of every field with `flags`.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypedDict, TypeVar, get_args

from analyzer import parallelism, releases
from analyzer.devices import check_bare, parse_size
from analyzer.errors import InputError, OptionError, did_you_mean
from analyzer.signature import Signature, described
from analyzer.spec import TensorSpec

Mode = Literal["infer", "train", "generate"]
MODES: tuple[str, ...] = get_args(Mode)
LARGEST_SIZE = 2**63 - 1  # dimensions are int64, in PyTorch as in ONNX
Amp = Literal["bf16", "fp16"]
AMP: tuple[str, ...] = get_args(Amp)
# Of configurations (`recipes/recipe.py`): tasks by transformers' pipelines and TRL's trainers
# (`recipes/trainers.py`), and the caches of `generate(cache_implementation=...)`
# (transformers/generation/configuration_utils.py, ALL_CACHE_IMPLEMENTATIONS).
Task = Literal["causal-lm", "seq2seq", "classification", "vision", "speech", "sft", "dpo", "reward", "grpo"]
Attention = Literal["sdpa", "eager"]
Cache = Literal["dynamic", "static", "offloaded", "offloaded_static", "quantized"]
Loading = Literal["device-map", "cpu", "gpu"]
TASKS: tuple[str, ...] = get_args(Task)
ATTENTION: tuple[str, ...] = get_args(Attention)
CACHES: tuple[str, ...] = get_args(Cache)
LOADING: tuple[str, ...] = get_args(Loading)
# Options of configurations alone, and of all other targets alone.
_CONFIG_ONLY = (
    "task length new_tokens lora load_in_8bit load_in_4bit no_double_quant dequantize gradient_checkpointing"
    " attn cache prefill_chunk beams sample packed precompute_reference load revision"
)
CONFIG_ONLY = tuple(_CONFIG_ONLY.split())
NON_CONFIG = ("batches", "inputs", "values", "targets", "loss", "channels_last", "checkpoint", "runtime")
_LINE = re.compile(r"[^:=]+\.py:\d+")
_NUMBERS = ("batch", "grad_accumulation", "steps", "length", "new_tokens", "prefill_chunk", "beams")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _option(default: Any, help_text: str, /, *flags: str, **click: Any) -> Any:
    """Return a dataclass field with its help; with `flags` it is a command-line option (`click`: click's
    arguments). default: a value, or what makes one; False makes a flag."""
    default_field = {"default_factory" if callable(default) else "default": default}
    click |= {"is_flag": True} if default is False else {}
    return field(**default_field, metadata={"help": help_text, "flags": flags, "click": click})


class OverridableDefault(str):
    """Defaults for most targets; a kind of target may have another default."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of an analysis, besides the target. An instance is always valid.

    inputs, targets: tensors on any device or `TensorSpec`s, in the order the model and the loss take them
        (one alone counts as one); only shape, strides and dtype are read. For ONNX a mapping from input name
        to TensorSpec.
    assume: "FILE.py:LINE" (the end of a path counts) -> the value read, or the size of the result, at this
        line.
    parallel: how the model is spread over the GPUs of a job, as `analyzer/parallelism.py` reads it.
    loss: `loss(output, *targets)` or a name. optimizer: a name, or a function from parameters to an
        optimizer. Raises InputError or OptionError naming the first value that makes no sense.
    """

    batch: int | None = _option(None, "Batch size.", "-b", "--batch", type=int, metavar="N")
    batches: Sequence[int] | None = _option(
        None,
        "The batches of an ONNX session's runs, one after the other (1,64,8), instead of --batch.",
        "--batches",
        metavar="N,N,...",
    )
    mode: Mode = _option(  # noqa: RUF009, a field
        "infer",
        "A forward pass, training steps, or tokens to generate.",
        "--mode",
        choices=MODES,
        show_default=True,
    )
    inputs: Sequence[Any] | Mapping[str, TensorSpec] | None = _option(
        None,
        "Shape of an input (x=3x224x224:float32), or size of an ONNX dimension (sequence=128). Repeatable.",
        "--input",
        multiple=True,
        metavar="NAME=SHAPE[:TYPE]",
    )
    values: Mapping[str, float] = _option(
        dict,
        "The number in an ONNX file's scalar input, such as sr=16000. Repeatable.",
        "--value",
        multiple=True,
        metavar="INPUT=NUMBER",
    )
    assume: Mapping[str, Any] = _option(
        dict,
        "Set a value the tool cannot compute: the value read, or the size, at a line; the branch of an ONNX"
        " If, by its condition's or its node's name. Repeatable.",
        "--assume",
        multiple=True,
        metavar="FILE.py:LINE=VALUE|CONDITION=true|false",
    )
    targets: Sequence[Any] | None = _option(None, "The targets of the loss.")
    loss: Callable[..., Any] | str | None = _option(  # noqa: RUF009, a field
        None, "cross_entropy, mse, sum, or file.py:function.", "--loss", metavar="NAME"
    )
    optimizer: str | Callable[..., Any] | None = _option(  # noqa: RUF009, a field
        OverridableDefault("sgd"),
        "sgd (default), adamw, ...: a name of torch.optim. For a config.json one of transformers:"
        " adamw_torch_fused (default), adamw_8bit, paged_adamw_8bit, ...",
        "--optimizer",
        metavar="NAME",
    )
    dtype: str | None = _option(None, "Weights and inputs in this type.", "--dtype", metavar="TYPE")
    amp: Amp | None = _option(None, "Automatic mixed precision.", "--amp", choices=AMP)  # noqa: RUF009, a field
    channels_last: bool = _option(False, "Channels-last memory format.", "--channels-last")
    grad_accumulation: int = _option(
        1,
        "Micro-batches a training step; --batch is one of them.",
        "--grad-accumulation",
        type=int,
        metavar="N",
    )
    checkpoint: str | None = _option(
        None,
        "Recompute modules with a matching path in the backward pass.",
        "--checkpoint",
        metavar="PATTERN[,PATTERN]",
    )
    parallel: str | None = _option(
        None,
        "Spread over the GPUs of a job, one rank of which is shown; the batch is that rank's: ddp:8,"
        " tp:2, fsdp2:8,wrap=PATTERN,mixed=bf16 (docs/PARALLEL.md).",
        "--parallel",
        metavar="KIND:GPUS[,NAME=VALUE]",
    )
    steps: int = _option(3, "Iterations followed; the peak is often not in the first.")
    device: str | int | None = _option(
        None,
        "A GPU ('analyze devices' lists them), a profile.json, or a size such as 24GiB.",
        "--device",
        metavar="NAME|SIZE",
    )
    budget: str | int | None = _option(
        None,
        "Limit of device memory, below the device's own: exit code 1 if it does not run in that.",
        "--budget",
        metavar="SIZE",
    )
    runtime: str | None = _option(
        None, "pytorch, onnxruntime, paddle or tensorflow.", "--runtime", metavar="NAME"
    )
    runtime_options: Mapping[str, Any] = _option(
        dict,
        "A setting of the runtime, or a JSON file of settings. Repeatable.",
        "--runtime-options",
        "--runtime-option",
        multiple=True,
        metavar="K=V",
    )
    release: Mapping[str, str] = _option(
        dict,
        "Estimate for another release than the installed one: torch=2.8, onnxruntime=1.32. Repeatable.",
        "--release",
        multiple=True,
        metavar="NAME=VERSION",
    )
    trust: bool = _option(False, "Open a program.pt2 even if it runs code of its own.", "--trust")
    strict: bool = _option(False, "Fail when an operator's own memory use is unknown.", "--strict")

    task: Task | None = _option(  # noqa: RUF009, a field
        None,
        "The model's task; by default that of its architecture.",
        "--task",
        choices=TASKS,
        default=None,
    )
    length: int | None = _option(
        None,
        "Tokens of a sequence, or of the prompt (default: 512, or as many as it takes).",
        "--length",
        type=int,
        metavar="N",
    )
    new_tokens: int = _option(
        128, "With --mode generate: number of new tokens.", "--new-tokens", type=int, metavar="N"
    )
    lora: str | None = _option(
        None,
        "Train peft's adapters: r=16,alpha=32,dropout=0.05,targets=q_proj+v_proj (or all-linear).",
        "--lora",
        metavar="NAME=VALUE,...",
    )
    load_in_8bit: bool = _option(False, "Weights in 8 bits (LLM.int8) by bitsandbytes.", "--load-in-8bit")
    load_in_4bit: bool = _option(False, "Weights in bitsandbytes' 4 bits (nf4, double).", "--load-in-4bit")
    no_double_quant: bool = _option(
        False, "With --load-in-4bit: its constants stay in float32.", "--no-double-quant"
    )
    dequantize: bool = _option(False, "Dequantize weights stored in 8 or 4 bits on loading.", "--dequantize")
    gradient_checkpointing: bool = _option(
        False, "transformers' gradient checkpointing.", "--gradient-checkpointing"
    )
    attn: Attention | None = _option(  # noqa: RUF009, a field
        None,
        "transformers' implementation of attention; by default its own choice.",
        "--attn",
        choices=ATTENTION,
        default=None,
    )
    cache: Cache | None = _option(  # noqa: RUF009, a field
        None, "With --mode generate: the cache of keys and values.", "--cache", choices=CACHES, default=None
    )
    prefill_chunk: int | None = _option(
        None,
        "With --mode generate: tokens of the prompt read at a time.",
        "--prefill-chunk",
        type=int,
        metavar="N",
    )
    beams: int = _option(1, "With --mode generate: number of beams.", "--beams", type=int, metavar="N")
    sample: bool = _option(
        False, "With --mode generate: draw tokens instead of taking the likeliest.", "--sample"
    )
    packed: bool = _option(False, "With --task sft: documents packed into sequences of --length.", "--packed")
    precompute_reference: bool = _option(
        False,
        "With --task dpo: compute the reference's log-probabilities first, and keep no second model.",
        "--precompute-reference",
    )
    load: Loading = _option(  # noqa: RUF009, a field
        LOADING[0],
        "How the model is loaded: from_pretrained with a device_map; loaded on the CPU, then .cuda(); made"
        " on the GPU in float32, then cast.",
        "--load",
        choices=LOADING,
        show_default=True,
    )
    revision: str | None = _option(
        None, "Branch, tag or commit of hf:ORG/NAME.", "--revision", metavar="NAME"
    )

    def __post_init__(self) -> None:
        for name, words in (("task", TASKS), ("attn", ATTENTION), ("cache", CACHES), ("load", LOADING)):
            word = getattr(self, name)
            if word not in words and (word is not None or name == "load"):
                raise OptionError(f"unknown {name} {word!r}", f"one of {', '.join(words)}")
        if self.mode not in MODES:
            raise OptionError(f"unknown mode {self.mode!r}", f"one of {', '.join(MODES)}")
        if self.amp is not None and self.amp not in AMP:
            raise OptionError(f"unknown autocast type {self.amp!r}", " or ".join(AMP))
        if not isinstance(self.checkpoint, str | None):
            raise OptionError(f"checkpoint is {self.checkpoint!r}", "give one pattern, such as 'layers.*'")
        if self.parallel is not None:
            parallelism.parse(self.parallel)
        if not isinstance(self.runtime_options, Mapping | None):
            raise OptionError(
                f"runtime_options is {self.runtime_options!r}", "give a mapping from name to value"
            )
        if self.batches is not None:
            batches: Any = self.batches
            if not isinstance(batches, list | tuple):
                raise OptionError(f"batches is {batches!r}", "give a list of numbers, such as (1, 64, 8)")
            object.__setattr__(self, "batches", tuple(self.batches))
            if not self.batches or self.batch is not None:
                raise OptionError(
                    "batches are given beside a batch, or none is", "give --batches 1,64,8 alone"
                )
        numbers = [(name, getattr(self, name)) for name in _NUMBERS]
        for name, value in [*numbers, *(("a batch", size) for size in self.batches or ())]:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} is {value!r}", "give a whole number of at least 1")
            if value is not None and value > LARGEST_SIZE:
                raise InputError(
                    f"{name} is larger than a dimension of a tensor can be",
                    f"give a whole number of at most {LARGEST_SIZE:,}",
                )
        for name, wanted in (
            ("loss", "a function"),
            ("optimizer", "a function from parameters to an optimizer"),
        ):
            given = getattr(self, name)
            if not (given is None or isinstance(given, str) or callable(given)):
                raise OptionError(
                    f"{name} is an instance of {type(given).__name__}",
                    f"give a name, or {wanted}"
                    + (": lambda parameters: torch.optim.Adam(parameters, lr=1e-3)" * (name == "optimizer")),
                )
        if isinstance(self.device, int) and self.device > 0:
            check_bare(self.device)
        if self.budget_bytes is not None and self.budget_bytes < 1:
            raise OptionError(f"a budget of {self.budget} bytes holds nothing", 'write a size such as "8GiB"')
        if self.dtype is not None:
            from analyzer.graph.dtype import full_name

            object.__setattr__(self, "dtype", full_name(self.dtype))
        object.__setattr__(self, "runtime_options", dict(self.runtime_options or ()))
        if not isinstance(self.release, Mapping | None):
            raise OptionError(f"release is {self.release!r}", 'give a mapping such as {"torch": "2.8"}')
        object.__setattr__(self, "release", releases.checked(self.release or {}))
        for name, kind, wanted in (("values", int | float, "a number"), ("assume", bool, "True or False")):
            entries = getattr(self, name)
            if entries is not None and not isinstance(entries, Mapping):
                raise OptionError(f"{name} is {entries!r}", f"give a mapping from name to {wanted}")
            lines = name == "assume"
            entries = {
                key: _assumed(key, v) if lines and _is_line(key) else v for key, v in (entries or {}).items()
            }
            object.__setattr__(self, name, entries)
            for key, value in entries.items():
                if lines and _is_line(key):
                    continue
                if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
                    raise OptionError(f"{name}: {key} is {value!r}", f"give {wanted}")
        for name in ("inputs", "targets"):
            given = getattr(self, name)
            if hasattr(given, "shape"):  # one tensor, or one TensorSpec
                object.__setattr__(self, name, (given,))
            elif not (isinstance(given, Mapping | Sequence | None) or callable(given)) or isinstance(
                given, str
            ):
                raise InputError(f"{name} is {given!r}", "give tensors, or TensorSpec((64, 3, 224, 224))")

    @property
    def budget_bytes(self) -> int | None:
        """Return the budget in bytes. Raises OptionError."""
        if isinstance(self.budget, str):
            return parse_size(self.budget)
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | None):
            raise OptionError(f"budget is {self.budget!r}", 'write bytes, or a size such as "8GiB"')
        if self.budget:
            check_bare(self.budget)
        return self.budget

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Options:
        """Return the options a caller named. Raises OptionError for an unknown name."""
        names = [entry.name for entry in fields(cls)]
        for name in keywords:
            if name not in names:
                raise OptionError(
                    f"there is no option {name!r}",
                    f"{did_you_mean(name, names)}options: {', '.join(sorted(names))}",
                )
        return cls(**keywords)

    def config_only(self) -> dict[str, Any]:
        """Options set that apply to configurations alone, without those at their default."""
        return _other_than_default(self, CONFIG_ONLY)

    def non_config(self) -> dict[str, Any]:
        """Options set that do not apply to a configuration."""
        return _other_than_default(self, NON_CONFIG)

    def shown(self) -> dict[str, Any]:
        """Options of a step and its runtime that the user set, as JSON values for the estimate."""
        names = "batches amp grad_accumulation checkpoint dtype channels_last parallel steps strict"
        chosen = {name: getattr(self, name) for name in names.split()}
        chosen |= self.config_only()
        chosen["loss"] = getattr(self.loss, "__name__", None) if callable(self.loss) else self.loss
        if isinstance(self.inputs, Mapping):
            chosen |= {
                f"input.{name}": "x".join(map(str, s.shape)) + (f":{s.dtype}" if s.dtype else "")
                for name, s in self.inputs.items()
            }
        chosen |= {f"value.{name}": value for name, value in self.values.items()}
        chosen |= {f"runtime.{name}": str(value) for name, value in self.runtime_options.items()}
        chosen |= {f"assume.{place}": str(value) for place, value in self.assume.items()}
        return {name: value for name, value in chosen.items() if value not in (None, False)}


class _Keywords(TypedDict, total=False):
    """The fields of `Options` as keywords, for type checkers: but `inputs`, which may stand by position, and
    those that functions have themselves."""

    batch: int | None
    mode: Mode
    values: Mapping[str, float]
    assume: Mapping[str, Any]
    targets: Sequence[Any] | None
    loss: Callable[..., Any] | str | None
    optimizer: str | Callable[..., Any] | None
    dtype: str | None
    amp: Amp | None
    channels_last: bool
    grad_accumulation: int
    checkpoint: str | None
    parallel: str | None
    steps: int
    budget: str | int | None
    runtime: str | None
    runtime_options: Mapping[str, Any]
    release: Mapping[str, str]
    strict: bool
    trust: bool
    task: Task | None
    length: int | None
    new_tokens: int
    lora: str | None
    load_in_8bit: bool
    load_in_4bit: bool
    no_double_quant: bool
    dequantize: bool
    gradient_checkpointing: bool
    attn: Attention | None
    cache: Cache | None
    prefill_chunk: int | None
    beams: int
    sample: bool
    packed: bool
    precompute_reference: bool
    load: Loading
    revision: str | None


class KeywordsButDevice(_Keywords, total=False):
    """All but `inputs` and `device`."""

    batches: Sequence[int] | None


class KeywordsButBatches(_Keywords, total=False):
    """All but `inputs` and `batches`."""

    device: str | int | None


class Keywords(KeywordsButDevice, KeywordsButBatches, total=False):
    """All but `inputs`."""


def _other_than_default(options: Options, names: Sequence[str]) -> dict[str, Any]:
    by_name = {entry.name: entry for entry in fields(Options)}
    chosen = {name: getattr(options, name) for name in names}
    return {name: value for name, value in chosen.items() if value and value != by_name[name].default}


def _is_line(key: Any) -> bool:
    """Return whether an assumption is for a line of a program."""
    return isinstance(key, str) and _LINE.fullmatch(key) is not None


def _assumed(place: str, value: Any) -> bool | int | float:
    """Return a number or a flag, also from text. Raises OptionError."""
    if isinstance(value, (bool, int, float)):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    raise OptionError(f"assume: {place} is {value!r}", "give a number, true or false")


def words_of(args: Any) -> tuple[str, ...]:
    """Return a program's arguments, as given in a list. Raises OptionError for one text, which would be split
    into letters, and for anything else that is no list."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        parts = args.split() if isinstance(args, str) else ["--batch-size", "64"]
        with contextlib.suppress(ValueError):  # a quotation mark that is not closed
            parts = shlex.split(args) if isinstance(args, str) else parts
        raise OptionError(f"args is {args!r}, which is no list of arguments", f"give a list: {parts!r}")
    return tuple(map(str, args))


def takes_options(function: _Function) -> _Function:
    """Show the fields of `Options` in the signature of a function that takes them as `**options`."""
    own = inspect.signature(function)
    kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    named = {p.name for p in kept}
    parameters = [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=f.type,
            default=None if f.default is MISSING else f.default,
        )
        for f in fields(Options)
        if f.name not in named
    ]
    shown = Signature([*kept, *parameters], return_annotation=own.return_annotation)
    function.__signature__ = shown  # type: ignore[attr-defined]
    function.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n{described(fields(Options), named)}"
    return function
