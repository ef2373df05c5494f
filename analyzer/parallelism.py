"""One model spread over the GPUs of a job: `--parallel` is parsed and checked before there is a model.

    KIND:SIZE[,NAME=VALUE...]    fsdp2:8,mixed=bf16    ddp:4,gradient_as_bucket_view=true    tp:2

1. KIND is PyTorch's way to spread it (`KINDS`), SIZE the number of ranks, one GPU each. The batch is that of
   one rank.
2. Settings have the names PyTorch gives them. `wrap=PATTERN` says which modules are sharded together
   (`fnmatch` rules, as `--checkpoint`), `mixed` the type parameters are gathered in, `rank` which rank is
   shown. By default it is the one that takes the most: the first, which holds the largest shard where they
   differ; with tensor parallelism the second, which takes as much, and gets its shards from the first (NCCL's
   buffers for receiving are larger than those for sending).
3. Machines have 8 GPUs where that comes out even (`Rank.of`).

Their effect on a model is in `capture/pytorch/module/wrapping.py`.
Not modelled: several kinds at once (a mesh of two dimensions), pipelines: `analyze run` follows scripts that
do these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.errors import OptionError, did_you_mean
from analyzer.ranks import Rank

FORM = "write KIND:SIZE[,NAME=VALUE...], such as fsdp2:8,mixed=bf16"
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_TYPES = _SHORT | {name: name for name in _SHORT.values()}


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _type(text: str) -> str:
    return _TYPES[text.lower()]


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def _rank(text: str) -> int:
    return int(text)


def _non_empty(text: str) -> str:
    if not text:
        raise ValueError
    return text


_WORDS: dict[Callable[[str], Any], str] = {
    _truth: "true or false",
    _type: "bf16, fp16 or fp32",
    _count: "a whole number of at least 1",
    _rank: "a whole number",
    _non_empty: "a pattern, such as layers.*",
}
# Kind -> setting -> how it is read.
KINDS: dict[str, dict[str, Callable[[str], Any]]] = {
    "ddp": {
        "bucket_cap_mb": _count,
        "gradient_as_bucket_view": _truth,
        "static_graph": _truth,
        "find_unused_parameters": _truth,
        "no_sync": _truth,
        "zero": _truth,
        "rank": _rank,
    },
    "fsdp2": {
        "wrap": _non_empty,
        "mixed": _type,
        "reduce_dtype": _type,
        "reshard_after_forward": _truth,
        "offload": _truth,
        "no_sync": _truth,
        "rank": _rank,
    },
    "tp": {"wrap": _non_empty, "rank": _rank},
}
NAMES = {"ddp": "DDP", "fsdp2": "FSDP2", "tp": "tensor parallelism"}


@dataclass(frozen=True, slots=True)
class Parallelism:
    """One way to spread a model. settings: those given, by name and typed. text: as the user wrote it."""

    kind: str
    size: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def rank(self) -> Rank:
        """The rank that is shown. Raises OptionError for one that is not among them."""
        most = 1 if self.kind == "tp" and self.size > 1 else 0
        return Rank.of(self.settings.get("rank", most), self.size)

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} on {self.size} GPU{'s' * (self.size != 1)}"


def parse(text: str) -> Parallelism:
    """Parse `--parallel`. Raises OptionError naming the word that means nothing."""
    if not isinstance(text, str):
        raise OptionError(f"parallel is {text!r}", FORM)
    head, *rest = text.split(",")
    kind, colon, size = head.strip().partition(":")
    kind = kind.lower()
    if kind not in KINDS:
        raise OptionError(
            f"--parallel {text!r}: unknown way to spread a model {kind!r}",
            f"{did_you_mean(kind, KINDS)}{FORM}; kinds: {', '.join(KINDS)}",
        )
    if not colon or not size.isdigit() or int(size) < 1:
        problem = f"{size!r} is not a number of GPUs" if size else "missing GPU count"
        raise OptionError(f"--parallel {text!r}: {problem}, e.g. {kind}:8", FORM)
    known_settings, settings = KINDS[kind], dict[str, Any]()
    for part in rest:
        name, equals, value = part.strip().partition("=")
        if name not in known_settings:
            raise OptionError(
                f"--parallel {text!r}: {kind} has no setting {name!r}",
                f"{did_you_mean(name, known_settings)}settings: {', '.join(known_settings)}",
            )
        if name in settings:
            raise OptionError(f"--parallel {text!r}: {name} is given twice", "give it once")
        try:
            settings[name] = known_settings[name](value if equals else "")
        except (ValueError, KeyError):
            raise OptionError(
                f"--parallel {text!r}: {name} is {value!r}", f"give {_WORDS[known_settings[name]]}"
            ) from None
    parallelism = Parallelism(kind, int(size), settings, text)
    _ = parallelism.rank  # says so where there is no such rank
    return parallelism
