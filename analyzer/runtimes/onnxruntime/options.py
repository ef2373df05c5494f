"""Options of a session and of the CUDA provider, by ONNX Runtime's own names.

Each option is spelt once: a field of `SessionOptions`, whose metadata says how its text is read. Unknown names and values
are errors, so that a misspelt option never passes for its default.

Sources: `OrtCUDAProviderOptionsV2`, `onnxruntime_session_options_config_keys.h`, `SessionOptions` (1.30).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from analyzer.devices import parse_size
from analyzer.errors import OptionError, did_you_mean

_LEVELS = {
    "0": 0, "disable_all": 0, "ort_disable_all": 0,
    "1": 1, "basic": 1, "ort_enable_basic": 1,
    "2": 2, "extended": 2, "ort_enable_extended": 2,
    "3": 99, "layout": 99, "ort_enable_layout": 99, "99": 99, "all": 99, "ort_enable_all": 99,
}  # fmt: skip
_NO_LIMIT = ("", "0", "18446744073709551615")

Reader = Callable[[str, str], Any]


def _switch(name: str, text: str) -> bool:
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise OptionError(f"{name} is {text!r}", "write 1 or 0")


def _choice(*values: str) -> Reader:
    def read(name: str, text: str) -> str:
        for value in values:
            if text.lower() == value.lower():
                return value
        raise OptionError(f"{name} is {text!r}", f"values: {', '.join(values)}")

    return read


def _provider(name: str, text: str) -> str:
    """The provider by its short or its full name; others are not modelled."""
    short = text.lower().removesuffix("executionprovider")
    if short in ("cuda", "cpu"):
        return short
    raise OptionError(
        f"{name} {text!r} is not modelled", "providers: cuda, cpu (not TensorRT, OpenVINO and others)"
    )


def _level(name: str, text: str) -> int:
    if text.lower() not in _LEVELS:
        raise OptionError(f"{name} is {text!r}", "values: disable_all, basic, extended, all")
    return _LEVELS[text.lower()]


def _limit(name: str, text: str) -> int | None:
    if text in _NO_LIMIT:
        return None
    size = int(text) if text.isdigit() else parse_size(text)
    if size <= 0:
        raise OptionError(f"{name} is {text!r}", "give bytes or a size like 4GiB")
    return size


def _count(name: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise OptionError(f"{name} is {text!r}", "give a number from 1")
    return int(text)


def _shrinkage(name: str, text: str) -> bool:  # noqa: ARG001
    """A list of arenas such as "gpu:0"; any but an empty one shrinks the arena that is predicted."""
    return text not in ("", "0", "false")


def _option(default: Any, read: Reader, *aliases: str) -> Any:
    """A field with its default, how its text is read, and ONNX Runtime's other names for it."""
    return field(default=default, metadata={"read": read, "aliases": aliases})


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options that change memory, with ONNX Runtime's defaults. gpu_mem_limit in bytes, None for no limit."""

    provider: str = _option("cuda", _provider)
    arena_extend_strategy: str = _option("kNextPowerOfTwo", _choice("kNextPowerOfTwo", "kSameAsRequested"))
    gpu_mem_limit: int | None = _option(None, _limit)
    cudnn_conv_algo_search: str = _option("EXHAUSTIVE", _choice("EXHAUSTIVE", "HEURISTIC", "DEFAULT"))
    prefer_nhwc: bool = _option(False, _switch)
    enable_mem_pattern: bool = _option(True, _switch, "enable_memory_pattern")
    enable_mem_reuse: bool = _option(True, _switch)
    graph_optimization_level: int = _option(99, _level, "opt_level")
    use_device_allocator_for_initializers: bool = _option(False, _switch)
    enable_memory_arena_shrinkage: bool = _option(False, _shrinkage)
    threads: int = _option(1, _count, "intra_op_num_threads")


_OPTIONS = {item.name: item for item in fields(SessionOptions)}
_ALIASES = {alias: item.name for item in _OPTIONS.values() for alias in item.metadata["aliases"]}


def parse(options: Mapping[str, Any]) -> SessionOptions:
    """Options from text, as `--runtime-option NAME=VALUE` gives them. Raises OptionError."""
    chosen: dict[str, Any] = {}
    for name, text in options.items():
        plain = name.removeprefix("session.").removeprefix("memory.")
        known = _ALIASES.get(plain, plain)
        if known not in _OPTIONS:
            raise OptionError(
                f"unknown ONNX Runtime option {name!r}",
                f"{did_you_mean(plain, _OPTIONS)}options: {', '.join(sorted(_OPTIONS))}",
            )
        chosen[known] = _OPTIONS[known].metadata["read"](name, str(text))
    return SessionOptions(**chosen)
