"""Options of a session and of the CUDA provider, by ONNX Runtime's own names.

Each option is spelt once: a field of `SessionOptions`, whose metadata says how its text is read. Unknown
names and values are errors, so that a misspelt option never passes for its default.

Sources: `OrtCUDAProviderOptionsV2`, `onnxruntime_session_options_config_keys.h`, `SessionOptions` (1.30).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from analyzer.allocators.onnxruntime_bfc import StreamArena
from analyzer.devices import parse_size
from analyzer.errors import OptionError, did_you_mean
from analyzer.tables import by_name

_NAMES_OF_LEVEL = {
    0: "0 disable_all ort_disable_all",
    1: "1 basic ort_enable_basic",
    2: "2 extended ort_enable_extended",
    99: "3 layout ort_enable_layout 99 all ort_enable_all",
}
_LEVELS = by_name(_NAMES_OF_LEVEL)
FOLLOWED_ON_CPU = 2  # the CPU provider's blocked layouts, which the highest level chooses, are not predicted
_ARENAS = {"cuda": "gpu", "cpu": "cpu"}
_NO_LIMIT = ("", "0", "18446744073709551615")
# Options that change no memory of the GPU's, of the provider and of a session.
_WITHOUT_EFFECT = frozenset(
    [
        "device_id",
        "do_copy_in_default_stream",
        "enable_cpu_mem_arena",
        "enable_profiling",
        "enable_skip_layer_norm_strict_mode",
        "has_user_compute_stream",
        "inter_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "profile_file_prefix",
        "tunable_op_max_tuning_duration_ms",
        "tunable_op_tuning_enable",
        "use_ep_level_unified_stream",
        "user_compute_stream",
    ]
)
# Provider options that choose kernels or their workspaces, and their defaults: ONNX Runtime itself takes
# them, emulated; the simulation does not follow them.
_NOT_SIMULATED = {
    "cudnn_conv1d_pad_to_nc1d": "0",
    "cudnn_conv_use_max_workspace": "1",
    "fuse_conv_bias": "0",
    "sdpa_kernel": "0",
    "tunable_op_enable": "0",
    "use_tf32": "1",
}

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
    """Return the provider by its short or its full name; others are not modelled."""
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
    """Return a list of arenas such as "gpu:0"; any but an empty one shrinks the arena that is predicted."""
    return text not in ("", "0", "false")


def _files(name: str, text: str) -> tuple[str, ...]:
    """Names of files with commas between them."""
    files = tuple(part.strip() for part in text.split(","))
    if not all(files):
        raise OptionError(
            f"{name} is {text!r}", "write the files of the other sessions: shared_with=a.onnx,b.onnx"
        )
    return files


def _option(default: Any, read: Reader, *aliases: str) -> Any:
    """Return a field with its default, how its text is read, and ONNX Runtime's other names for it."""
    return field(default=default, metadata={"read": read, "aliases": aliases})


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options that change memory, with ONNX Runtime's defaults. gpu_mem_limit: bytes or None.

    Two are no options of ONNX Runtime's, but say how it is used. io_binding: "caller", inputs and outputs lie
    in memory of the caller's; "device", so do inputs, and outputs are bound by their device alone
    (`bind_output(name)`). shared_with: files of other sessions of the process that take the same arena
    (`use_env_allocators`). not_simulated: provider options that the simulation does not follow, where they
    are not the default.
    """

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
    io_binding: str = _option("none", _choice("none", "caller", "device"))
    enable_cuda_graph: bool = _option(False, _switch)
    use_env_allocators: bool = _option(False, _switch)
    shared_with: tuple[str, ...] = _option((), _files)
    threads: int = _option(1, _count, "intra_op_num_threads")
    not_simulated: tuple[tuple[str, str], ...] = ()

    def arena(self, device_bytes: int | None = None) -> StreamArena:
        """Return a session's unused arena. device_bytes: of the device's memory; None: no end."""
        return StreamArena(
            arena_extend_strategy=self.arena_extend_strategy,
            gpu_mem_limit=self.gpu_mem_limit,
            device_bytes=device_bytes,
            enable_memory_arena_shrinkage=self.enable_memory_arena_shrinkage,
        )

    def attributes(self) -> dict[str, int]:
        """Return what goes into `onnxruntime.SessionOptions`, by its attributes' names."""
        return {
            "graph_optimization_level": self.graph_optimization_level,
            "enable_mem_pattern": self.enable_mem_pattern,
            "enable_mem_reuse": self.enable_mem_reuse,
            "intra_op_num_threads": self.threads,
        }

    def entries(self) -> dict[str, str]:
        """Return the session's configuration (`add_session_config_entry`)."""
        name = "use_device_allocator_for_initializers"
        return {f"session.{name}": "1"} if self.use_device_allocator_for_initializers else {}

    def provider_options(self) -> dict[str, str]:
        """Return the CUDA provider's options, as text."""
        names = ("arena_extend_strategy", "gpu_mem_limit", "cudnn_conv_algo_search", "prefer_nhwc")
        values = {name: getattr(self, name) for name in names}
        return {
            name: str(int(value) if isinstance(value, bool) else value)
            for name, value in values.items()
            if value is not None
        } | dict(self.not_simulated)

    def run_entries(self) -> dict[str, str]:
        """Return each run's configuration (`add_run_config_entry`): whether the arena frees idle regions."""
        if not self.enable_memory_arena_shrinkage:
            return {}
        return {"memory.enable_memory_arena_shrinkage": f"{_ARENAS[self.provider]}:0"}


_OPTIONS = {item.name: item for item in fields(SessionOptions) if "read" in item.metadata}
_ALIASES = {alias: item.name for item in _OPTIONS.values() for alias in item.metadata["aliases"]}


def parse(options: Mapping[str, Any]) -> SessionOptions:
    """Options from text, as `--runtime-option NAME=VALUE` gives them. Raises OptionError."""
    chosen: dict[str, Any] = {}
    others: dict[str, str] = {}
    for name, text in options.items():
        plain = name.removeprefix("session.").removeprefix("memory.")
        option = _ALIASES.get(plain, plain)
        if option in _WITHOUT_EFFECT:
            continue
        if option in _NOT_SIMULATED:
            number = str(int(_switch(name, str(text)))) if option != "sdpa_kernel" else str(text)
            if number != _NOT_SIMULATED[option]:
                others[option] = number
            continue
        if option not in _OPTIONS:
            raise OptionError(
                f"unknown ONNX Runtime option {name!r}",
                f"{did_you_mean(plain, _OPTIONS)}options: {', '.join(sorted(_OPTIONS))}",
            )
        chosen[option] = _OPTIONS[option].metadata["read"](name, str(text))
    settings = SessionOptions(**chosen, not_simulated=tuple(sorted(others.items())))
    if settings.enable_cuda_graph:
        if settings.provider != "cuda":
            raise OptionError(
                "enable_cuda_graph is an option of the CUDA provider", "leave it out, or provider=cpu"
            )
        if settings.io_binding == "none":  # ONNX Runtime demands that inputs and outputs keep their addresses
            settings = replace(settings, io_binding="caller")
    return replace(settings, use_env_allocators=True) if settings.shared_with else settings
