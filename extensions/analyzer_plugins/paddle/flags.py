"""PaddlePaddle's flags that decide memory, by their own names, from `--runtime-option` or the environment.

A flag may be written with or without "FLAGS_"; an option wins over the environment variable of the flag's
full name, as `paddle.set_flags` wins over it. `enable_inplace` is BuildStrategy's switch, and the same as
FLAGS_pir_apply_inplace_pass, which replaced it. Sizes in "mb" and "gb" are binary (2^20 and 2^30 bytes).

Source: the defaults of PaddlePaddle 3.3.1 (`tests/data/paddle_cpu.json`), which are document 003's for those
it names; `paddle/common/flags.cc` for the two a CPU build has not.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import OptionError, did_you_mean

PREFIX = "FLAGS_"
STRATEGIES = ("auto_growth", "naive_best_fit")
_ALIASES = {"enable_inplace": "pir_apply_inplace_pass"}
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Flags:
    """Every flag that decides memory, without its prefix."""

    allocator_strategy: str = "auto_growth"
    auto_growth_chunk_size_in_mb: int = 0
    free_idle_chunk: bool = False
    free_when_no_cache_hit: bool = False
    # PaddlePaddle writes 0.92 as a C `float`.
    fraction_of_gpu_memory_to_use: float = 0.9200000166893005
    initial_gpu_memory_in_mb: int = 0
    reallocate_gpu_memory_in_mb: int = 0
    gpu_memory_limit_mb: int = 0
    eager_delete_tensor_gb: float = 0.0
    memory_fraction_of_eager_deletion: float = 1.0
    fast_eager_deletion_mode: bool = True
    pir_apply_inplace_pass: bool = True
    conv_workspace_size_limit: int = 512

    def __post_init__(self) -> None:
        if self.allocator_strategy not in STRATEGIES:
            raise OptionError(
                f"FLAGS_allocator_strategy is {self.allocator_strategy!r}",
                f"{did_you_mean(self.allocator_strategy, STRATEGIES)}one of {', '.join(STRATEGIES)}",
            )
        for name in ("fraction_of_gpu_memory_to_use", "memory_fraction_of_eager_deletion"):
            if not 0 <= getattr(self, name) <= 1:
                raise OptionError(f"FLAGS_{name} is {getattr(self, name)}", "it must lie between 0 and 1")
        for field in dataclasses.fields(self):
            if field.type == "int" and getattr(self, field.name) < 0:
                raise OptionError(
                    f"FLAGS_{field.name} is {getattr(self, field.name)}", "it must not be negative"
                )

    @property
    def garbage_threshold_bytes(self) -> int | None:
        """Bytes of garbage at which it is collected; None: never."""
        if self.eager_delete_tensor_gb < 0 or self.memory_fraction_of_eager_deletion == 0:
            return None
        return int(self.eager_delete_tensor_gb * 2**30)


def parse(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Flags:
    """Return the flags as the program sees them. Raises OptionError for a bad name or value."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(Flags)}
    flags: dict[str, Any] = {}
    for name, kind in fields.items():
        if PREFIX + name in environment:
            flags[name] = _value(PREFIX + name, environment[PREFIX + name], kind)
    for name, value in options.items():
        plain = _ALIASES.get(name, name.removeprefix(PREFIX))
        if plain not in fields:
            known = [*_ALIASES, *(PREFIX + field for field in fields)]
            raise OptionError(
                f"unknown runtime option {name!r} for paddle",
                f"{did_you_mean(name, known) or did_you_mean(PREFIX + name, known)}one of {', '.join(known)}",
            )
        flags[plain] = _value(name, value, fields[plain])
    return Flags(**flags)


def _value(name: str, value: Any, kind: str) -> Any:
    text = str(value).strip()
    try:
        match kind:
            case "bool":
                if text.lower() not in (*_ON, *_OFF):
                    raise ValueError
                return text.lower() in _ON
            case "int":
                return int(text)
            case "float":
                if not math.isfinite(float(text)):
                    raise ValueError
                return float(text)
        return text
    except ValueError:
        what = {"bool": "True or False", "int": "a whole number", "float": "a number"}[kind]
        raise OptionError(f"{name} is {text!r}", f"give {what}") from None
