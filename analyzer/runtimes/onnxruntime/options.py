"""Options of a session and of the CUDA provider, by ONNX Runtime's own names.

Sources: `OrtCUDAProviderOptionsV2`, `onnxruntime_session_options_config_keys.h`, `SessionOptions` (1.30).
Unknown names and values are errors, so that a misspelt option never passes for its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import OptionError

_LEVELS = {
    "0": 0, "disable_all": 0, "ort_disable_all": 0,
    "1": 1, "basic": 1, "ort_enable_basic": 1,
    "2": 2, "extended": 2, "ort_enable_extended": 2,
    "3": 99, "layout": 99, "ort_enable_layout": 99, "99": 99, "all": 99, "ort_enable_all": 99,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The options that change memory, with ONNX Runtime's defaults. provider: "cuda" or "cpu"; gpu_mem_limit in bytes, None for no limit."""

    provider: str = "cuda"
    arena_extend_strategy: str = "kNextPowerOfTwo"
    gpu_mem_limit: int | None = None
    cudnn_conv_algo_search: str = "EXHAUSTIVE"
    prefer_nhwc: bool = False
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    graph_optimization_level: int = 99
    use_device_allocator_for_initializers: bool = False
    enable_memory_arena_shrinkage: bool = False
    threads: int = 1


def parse(options: Mapping[str, Any]) -> Options:
    """Options from text, as `--runtime-option NAME=VALUE` gives them. Raises OptionError."""
    chosen: dict[str, Any] = {}
    for name, text in options.items():
        plain = name.removeprefix("session.").removeprefix("memory.")
        known = _ALIASES.get(plain, plain)
        if known not in _PARSERS:
            raise OptionError(
                f"unknown ONNX Runtime option {name!r}", f"options: {', '.join(sorted(_PARSERS))}"
            )
        chosen[known] = _PARSERS[known](name, str(text))
    return Options(**chosen)


def _switch(name: str, text: str) -> bool:
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise OptionError(f"{name} is {text!r}", "write 1 or 0")


def _choice(*values: str) -> Callable[[str, str], str]:
    def parse_choice(name: str, text: str) -> str:
        for value in values:
            if text.lower() == value.lower():
                return value
        raise OptionError(f"{name} is {text!r}", f"values: {', '.join(values)}")

    return parse_choice


def _level(name: str, text: str) -> int:
    if text.lower() not in _LEVELS:
        raise OptionError(f"{name} is {text!r}", "values: disable_all, basic, extended, all")
    return _LEVELS[text.lower()]


def _limit(name: str, text: str) -> int | None:
    from analyzer.devices import parse_size

    if text in ("", "0", "18446744073709551615"):
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
    return text not in ("", "0", "false")


_ALIASES = {
    "enable_memory_pattern": "enable_mem_pattern",
    "intra_op_num_threads": "threads",
    "opt_level": "graph_optimization_level",
}
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "provider": _choice("cuda", "cpu"),
    "arena_extend_strategy": _choice("kNextPowerOfTwo", "kSameAsRequested"),
    "gpu_mem_limit": _limit,
    "cudnn_conv_algo_search": _choice("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "prefer_nhwc": _switch,
    "enable_mem_pattern": _switch,
    "enable_mem_reuse": _switch,
    "graph_optimization_level": _level,
    "use_device_allocator_for_initializers": _switch,
    "enable_memory_arena_shrinkage": _shrinkage,
    "threads": _count,
}
