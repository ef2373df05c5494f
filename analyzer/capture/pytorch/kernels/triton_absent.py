"""Triton for a program that is followed where it is not installed: what can be said of a kernel without
compiling it.

1. `triton.jit` makes a kernel of a function, which is kept and never called; launching it is told to whoever
   follows the program. `triton.heuristics` adds nothing to that. `triton.autotune` times its configurations
   as `triton/runtime/autotuner.py` does: with more than one of them, once for each key and the types of the
   tensors.
2. Functions the program calls on the host are right: `cdiv`, `next_power_of_2`, the release, the target of
   the driver.
3. The language is only read by the compiler: every name in it, and below it, is there and means nothing. So
   it is with the other parts a program may import. A module that Triton does not have is missing here too.

Source: Triton 3.6, the files named; `torch`'s own requirements say which release of Triton each brings.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from analyzer.devices import DeviceProfile

_NAME = "triton"
# The release that each release of torch requires for Linux; one not listed brings that of the nearest before
# it.
_RELEASES = {
    (2, 6): "3.2.0",
    (2, 7): "3.3.1",
    (2, 8): "3.4.0",
    (2, 9): "3.5.1",
    (2, 10): "3.6.0",
    (2, 11): "3.6.0",
    (2, 12): "3.7.0",
    (2, 13): "3.7.1",
    (2, 14): "3.8.0",
    (2, 15): "3.9.0",
}
_PARTS = """
    backends backends.compiler backends.driver backends.nvidia compiler compiler.compiler compiler.errors
    errors knobs runtime runtime.autotuner runtime.cache runtime.driver runtime.errors runtime.jit testing
    tools tools.tensor_descriptor
"""
_MODULES = frozenset({_NAME, *(f"{_NAME}.{part}" for part in _PARTS.split())})
_OPEN = "triton.language"
_WARP = 32

Launch = Callable[..., None]


def release(torch: tuple[int, int]) -> str:
    """Return the release of Triton that a release of torch brings."""
    return _RELEASES[max((version for version in _RELEASES if version <= torch), default=min(_RELEASES))]


class _Anything(type):
    """A name without meaning here: it can be called, subclassed, indexed, and written as a type."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = _Anything(name, (), {})
        setattr(cls, name, attribute)
        return attribute

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Module(ModuleType):
    """A module of which every name means something, or nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = _Anything(name, (), {})
        setattr(self, name, attribute)
        return attribute


class ConstantExpression:
    """`tl.constexpr`: a value the compiler knows."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, ConstantExpression) else value

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, ConstantExpression) else other))

    def __hash__(self) -> int:
        return hash(self.value)


class Config:
    """`triton.Config`: a choice of meta-parameters, with what is to happen before each launch."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], object] | None = None,
        **_: Any,
    ) -> None:
        self.kwargs, self.pre_hook = kwargs, pre_hook
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = (
            num_warps,
            num_stages,
            num_ctas,
            maxnreg,
        )

    def all_kwargs(self) -> dict[str, Any]:
        """Return the meta-parameters, and how the kernel is to be compiled."""
        more = {name: getattr(self, name) for name in ("num_warps", "num_ctas", "num_stages", "maxnreg")}
        return {**self.kwargs, **{name: value for name, value in more.items() if value is not None}}


class KernelInterface:
    """Base of everything launched as `kernel[grid](...)`."""

    fn: Any

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel."""
        return self.fn.run(*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile the kernel without a launch."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)


class JITFunction(KernelInterface):
    """A kernel function. `launch` receives each launch; None when no program is followed."""

    launch: Launch | None = None

    def __init__(self, fn: Any, **_: Any) -> None:
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)
        self.__name__, self.__module__, self.__doc__ = fn.__name__, fn.__module__, fn.__doc__

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def add_pre_run_hook(self, hook: Callable[..., object]) -> None:
        """Ignore the hook: hooks read what only the compiler knows."""

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch it, or (warmup) only compile it."""
        launch = type(self).launch
        if launch is None:
            raise RuntimeError("0 active drivers ([]). There should only be one.")
        if not warmup:
            launch(self, *args, **kwargs)
        return _Anything("CompiledKernel", (), {})


class Heuristics(KernelInterface):
    """A kernel some of whose meta-parameters are computed."""

    def __init__(self, fn: Any, arg_names: Sequence[str] = (), values: Any = None) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names or fn.arg_names), values


class Autotuner(KernelInterface):
    """A kernel of several configurations. `time` measures one, as `do_bench` does."""

    time: Callable[..., Any]

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: dict[str, Any] | None = None,
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Any = None,
        post_hook: Any = None,
        **_: Any,
    ) -> None:
        self.fn, self.arg_names = fn, fn.arg_names
        self.configs, self.keys = list(configs) or [Config({})], list(key)
        self.cache: dict[Any, Config] = {}
        self._prune = (prune_configs_by or {}).get("early_config_prune")
        self._zeroed, self._restored = reset_to_zero or (), restore_value or ()
        self._before = pre_hook or self._hook
        self._after = post_hook or self._restore
        self._copies: dict[str, Any] = {}

    def _hook(self, named: dict[str, Any], reset_only: bool = False) -> None:
        """Before a trial: clear the arguments in `reset_to_zero` and copy those in `restore_value`."""
        for name in self._zeroed:
            named[name].zero_()
        if not reset_only:
            self._copies = {name: named[name].clone() for name in self._restored}

    def _restore(self, named: dict[str, Any], exception: Exception | None = None) -> None:
        """After a trial: write the copies back."""
        for name in self._restored:
            named[name].copy_(self._copies[name])
        self._copies = {}

    def run(self, *args: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch it with one of its configurations, found by timing all of them where it was not before."""
        named = dict(zip(self.arg_names, args, strict=False))
        config = self.configs[0]
        if len(self.configs) > 1 and not warmup:
            arguments = {name: value for name, value in {**named, **kwargs}.items() if name in self.arg_names}
            types = [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
            key = (*(arguments[name] for name in self.keys if name in arguments), *types)
            if key not in self.cache:
                self.cache[key] = self._timed(args, named, kwargs)
            config = self.cache[key]
        if config.pre_hook is not None:
            config.pre_hook({**named, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, warmup=warmup, **kwargs, **config.all_kwargs())

    def _timed(self, args: Any, named: dict[str, Any], kwargs: dict[str, Any]) -> Config:
        """Time every configuration; any of them may be the fastest."""
        configs: list[Config] = self._prune(self.configs, named, **kwargs) if self._prune else self.configs
        for config in configs:
            every = {**named, **kwargs, **config.all_kwargs()}

            def call(config: Config = config, every: dict[str, Any] = every) -> None:
                if config.pre_hook:
                    config.pre_hook(every)
                self._before(every)
                self.fn.run(*args, **kwargs, **config.all_kwargs())
                self._after(every, exception=None)

            type(self).time(call, quantiles=(0.5, 0.2, 0.8))
        if self._zeroed:
            self._before({**named, **kwargs}, reset_only=True)
        return configs[0]


def jit(fn: Any = None, **options: Any) -> Any:
    """`triton.jit`, with and without settings."""
    return JITFunction(fn) if fn is not None else lambda function: jit(function, **options)


def heuristics(values: Any) -> Callable[[Any], Heuristics]:
    """Replace `triton.heuristics`."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)


def autotune(
    configs: Sequence[Config], key: Sequence[str], *settings: Any, **more: Any
) -> Callable[[Any], Autotuner]:
    """Replace `triton.autotune`."""
    return lambda fn: Autotuner(fn, configs, key, *settings, **more)


def cdiv(x: int, y: int) -> int:
    """Return x / y rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


class _Distribution(importlib.metadata.Distribution):
    """Metadata of the absent package, as `importlib.metadata` reads it."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> str | None:
        """Return METADATA, the only file of the package."""
        metadata = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {self._version}\n"
        return metadata if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        """Raise FileNotFoundError: the package has no files."""
        raise FileNotFoundError(path)


class Absent:
    """Finds and makes the modules. `launch` and `time`: what kernels and tuners are told to do, until it is
    closed; None: nothing is launched, only imported. A kernel stays one when it is closed, and is launched by
    the next."""

    def __init__(self, device: DeviceProfile, launch: Launch | None, time: Callable[..., Any] | None) -> None:
        self._version = release(device.releases["torch"])
        self._active = _driver(device)
        JITFunction.launch = None if launch is None else staticmethod(launch)
        if time is not None:
            Autotuner.time = staticmethod(time)

    def close(self) -> None:
        """Remove the modules; kernels still held are launched nowhere."""
        JITFunction.launch = None
        for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
            del sys.modules[name]

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the package's modules, as an import finder does."""
        if name in _MODULES or name == _OPEN or name.startswith(f"{_OPEN}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def find_distributions(self, context: Any) -> Iterator[_Distribution]:
        """Find the package's metadata, as a metadata finder does."""
        if context.name == _NAME:
            yield _Distribution(self._version)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make an empty module, as an import loader does."""
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with its names, as an import loader does."""
        classes = (JITFunction, KernelInterface, Autotuner, Heuristics, Config)
        kinds = {kind.__name__: kind for kind in (*classes, jit, autotune, heuristics)}
        names: dict[str, dict[str, Any]] = {
            "triton": {
                **kinds,
                "cdiv": cdiv,
                "next_power_of_2": next_power_of_2,
                "__version__": self._version,
            },
            "triton.runtime": kinds,
            "triton.runtime.jit": kinds,
            "triton.runtime.autotuner": kinds,
            "triton.runtime.driver": {"driver": self._active, "active": self._active.active},
            "triton.testing": {"do_bench": _timed},
            _OPEN: {"constexpr": ConstantExpression},
            f"{_OPEN}.core": {"constexpr": ConstantExpression},
        }
        vars(module).update(names.get(module.__name__, {}))
        for part in {
            "triton": ("language", "runtime", "testing"),
            "triton.runtime": ("driver", "jit", "autotuner"),
        }.get(module.__name__, ()):
            setattr(module, part, importlib.import_module(f"{module.__name__}.{part}"))


def _timed(call: Callable[[], object], *settings: Any, **more: Any) -> Any:
    """Replace `triton.testing.do_bench`."""
    return Autotuner.time(call, *settings, **more)


def _driver(device: DeviceProfile) -> Any:
    """`triton.runtime.driver`: the GPU kernels are made for."""
    import torch

    major, minor = device.compute_capability
    active = SimpleNamespace(
        get_current_target=lambda: SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=_WARP),
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_current_device=lambda: 0,
        get_device_interface=lambda: torch.cuda,
        utils=SimpleNamespace(
            get_device_properties=lambda _: {"multiprocessor_count": device.sm_count, "warpSize": _WARP}
        ),
    )
    return SimpleNamespace(active=active)
