"""Runtimes: from a captured program to the requests of its allocator, and the memory beside them.

A runtime is one class with a name and `predict`; registered under its name, `--runtime NAME` takes it:

    class Mine(Runtime):
        name = "mine"

        def predict(self, source, options, profile):
            return Prediction(events=..., allocator=lambda: create("pytorch"), device_used=lambda simulation:
            ...)

    register(Mine())

The pipeline does the rest: it simulates the events, finds what is alive at the peak, and adds the textbook
sum and the graph's own need. A package announces its runtime as an entry point of the group
"analyzer.runtimes", as `analyzer_plugins` announces PaddlePaddle's and TensorFlow's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from analyzer import extensions, releases
from analyzer.allocators import Allocator
from analyzer.devices import DeviceProfile
from analyzer.devices.contexts import of_release
from analyzer.errors import OptionError, did_you_mean
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.runtimes.events import AllocationEvent, Malloc
from analyzer.runtimes.timeline import Simulation

if TYPE_CHECKING:
    from importlib import metadata

    from analyzer.onnx.model import ShapedModel
    from analyzer.runtimes.batches import Batches, ParametricCapture
    from analyzer.runtimes.rules import Rule
    from analyzer.runtimes.variants import Plain


@dataclass(frozen=True, slots=True)
class Source:
    """The captured program a runtime analyses.

    model: for an ONNX file the model itself, read once. runs: the same model at the batch of each run, where
    these differ; `model` then is the largest of them. prediction: of a program that was followed while it
    ran, so that it could ask its device (`analyzer_programs/live.py`); other runtimes than PyTorch's ask the
    graph.
    """

    graph: Graph
    model: ShapedModel | None = None
    runs: tuple[ShapedModel, ...] = ()
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Origin of an allocation in the user's terms; scope: place in the model's file. The results have these
    fields too, by the same names."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    operator: str = ""
    module: str = ""
    source: str = ""
    phase: str = ""
    scope: str = ""

    @property
    def by_name(self) -> dict[str, Any]:
        """Every field, as a result that has them takes them."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes under a cheaper setting: "arena_extend_strategy=kSameAsRequested". page_bytes: of the driver's
    pages under what is held."""

    setting: str
    peak_allocated: int
    peak_reserved: int
    page_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Capped:
    """A setting that leaves the program less than the device: usable bytes, and a sentence."""

    capacity_bytes: int
    note: str


class HeldAfter(NamedTuple):
    """Bytes after a run, by its name and batch: in use, held by the allocator, and what NVML shows."""

    event: str
    batch: int | None
    allocated: int
    reserved: int
    device_used: int


class Limit(NamedTuple):
    """Bytes an allocator may hold; of_device: the device has no more, else it is a setting."""

    nbytes: int
    of_device: bool


UNLIMITED = Limit(1 << 60, True)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A program's course under a runtime. All sizes in bytes.

    events: its allocator's requests, in order. allocator: makes a fresh one, which is to serve them.
    limited: makes one that may hold so many bytes, as the runtime's own limit bounds it or, with `device`
        true, as a device bounds it that has no more (a `Limit`); None where the runtime has no such thing.
    device_used: what NVML shows for the process, from what was simulated.
    libraries: library families it loads ("cublas", "cudnn", ...), with "@autograd" for those a second thread
        uses.
    unknown: operators of which nothing is known but their results, name -> calls.
    describe: an allocation in the user's terms; by default from the graph's operators and storages. contents:
        for a block that many tensors share, each of them with its bytes; () for any other.
    simulation: what the allocator did with the events, where they were simulated while the program ran.
    other_orders: the same events in other orders that a run may have; only where threads make them. order:
        which of the orders the events are in, in words.
    has_all_events: whether the events are all there were; iterations that were extrapolated are in none.
    savings: what cheaper settings would take. capped: where a setting leaves less than the device has.
    page_bytes: what the driver's pages under its memory take beyond what is held. beside_range: least and
        most bytes of the process beside both, on a GPU that was measured; None: where they do not differ.
    growth: a sentence on the largest piece its allocator takes at once, where that is far more than is asked
        for.
    with_room: where it runs in less than a device with room would have it take, most bytes allocated and
        held, and of the device, there.
    plain: the program in plain numbers, where only figures are asked for (`Batches.prediction`).
    after_runs: what is left after each of its runs, where it has runs.
    ranges: least and most bytes allocated and held at the peak, where they differ from process to process;
        doubt: why another process may run out of memory where this one does not, or the other way round.
    caveats, refused: as of `Estimate`, of the runtime.
    """

    events: tuple[AllocationEvent, ...]
    allocator: Callable[[], Allocator]
    device_used: Callable[[Simulation], int]
    libraries: frozenset[str] = frozenset()
    unknown: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    describe: Callable[[Malloc], Description] | None = None
    contents: Callable[[Malloc], tuple[tuple[Description, int], ...]] | None = None
    savings: tuple[Saving, ...] = ()
    capped: Capped | None = None
    limited: Callable[[int, bool], Allocator] | None = None
    simulation: Simulation | None = None
    other_orders: Callable[[], Iterable[tuple[AllocationEvent, ...]]] = tuple
    order: str = ""
    has_all_events: bool = True
    plain: Plain | None = None
    after_runs: tuple[HeldAfter, ...] = ()
    ranges: tuple[tuple[int, int], tuple[int, int]] | None = None
    doubt: str = ""
    caveats: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    page_bytes: int = 0
    beside_range: tuple[int, int] | None = None
    growth: str = ""
    with_room: tuple[int, int, int] | None = None


class Runtime(ABC):
    """One way of running a captured program.

    name: what `--runtime` calls it. frameworks: the front ends whose programs it runs ("pytorch", "onnx").
    depends_on: what its figures depend on, by the names of `analyzer/releases.py`, itself first.
    takes_limits: whether a program can be simulated under any limit (`Prediction.limited`, `Batches.at`);
        else what a batch needs is known with room alone, and whether it runs is what its analysis says.
    """

    name: ClassVar[str]
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "onnx")
    depends_on: ClassVar[tuple[str, ...]] = ()
    takes_limits: ClassVar[bool] = False

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        """Return the profile with the user's settings applied. `module`: the PyTorch model, if any.

        Raises OptionError for settings this runtime does not know; by default it knows none.
        """
        del module
        if options.runtime_options:
            raise OptionError(
                f"unknown runtime option {next(iter(options.runtime_options))!r} for {self.name}",
                "it has none",
            )
        return self.with_releases(profile, options)

    def describes(self, operator: str) -> bool:
        """Return whether it knows an operator's ("mylib::op") memory; else its body is followed."""
        del operator
        return False

    def rules(self) -> tuple[Rule, ...]:
        """Return the named rules behind its requests and its notes, for `analyze explain`: `carried_out_by`
        and `concept` of `analyzer/runtimes/rules.py` make them. By default it has none."""
        return ()

    def with_releases(
        self, profile: DeviceProfile, options: Options, *, on_gpu: bool = True
    ) -> DeviceProfile:
        """Return the profile with the release of this runtime that is to be predicted. on_gpu: whether only a
        build for GPUs could run the program. Raises OptionError for a release asked for of what the figures
        do not depend on."""
        for name in options.release:
            if name not in self.depends_on:
                raise OptionError(
                    f"what {self.name} takes does not depend on {releases.DISPLAY_NAMES[name]}",
                    f"leave --release {name}={options.release[name]} out",
                )
        releases_chosen = {
            name: releases.chosen(name, options.release, profile.releases, on_gpu=on_gpu)
            for name in self.depends_on
            if name in releases.ASKABLE
        }
        return of_release(replace(profile, releases={**profile.releases, **releases_chosen}))

    def modelled(self, prediction: Prediction, profile: DeviceProfile) -> dict[str, str]:
        """Return the packages the figures depend on with their releases; cuDNN only if it is loaded."""
        loaded = {library.partition("@")[0] for library in prediction.libraries}
        return {
            name: releases.written(profile.releases[name])
            for name in self.depends_on
            if name != "cudnn" or name in loaded
        }

    @abstractmethod
    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        """Return the program's allocation events and figures on the device. Raises AnalyzerError."""

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches | None:
        """Return the figures over a range of batches; None if each must be analysed.

        One that looks at the graph alone returns `OfGraph(self, parametric, profile, options)`. Raises
        NotTheSame where the captures are no one program to it, and AnalyzerError.
        """
        del parametric, profile, options
        return None

    def own_limit(self, options: Options) -> int | None:
        """Return the bytes that the options let its allocator hold at most; None: they name no limit."""
        del options
        return None

    def limited_to(self, options: Options, nbytes: int) -> Options:
        """Return the options with the runtime's own limit. Raises OptionError if it has none."""
        del options
        raise OptionError(
            f"{self.name} has no option for what its allocator may hold at most ({nbytes:,} bytes)",
            "say --device SIZE, or --budget",
        )


# name -> module:attribute of the built-in runtimes, imported when they are looked up.
_OWN = {
    "pytorch": "analyzer.runtimes.pytorch.runtime:PyTorch",
    "onnxruntime": "analyzer.runtimes.onnxruntime.runtime:OnnxRuntime",
}
_OF_FRAMEWORK = {"pytorch": "pytorch", "onnx": "onnxruntime"}
_registered: dict[str, Runtime] = {}


def register(runtime: Runtime) -> None:
    """Make a runtime known under its name, in this process."""
    _registered[runtime.name] = runtime


def names() -> tuple[str, ...]:
    """Return every name `named` accepts: built-in, registered and announced runtimes."""
    return tuple(dict.fromkeys((*_OWN, *plugins())))


def plugins() -> tuple[str, ...]:
    """Return the names of the registered and announced runtimes, without those that are built in."""
    all_names = dict.fromkeys((*_registered, *(entry.name for entry in extensions.entries("runtimes"))))
    return tuple(name for name in all_names if name not in _OWN)


def named(name: str) -> Runtime:
    """Return the runtime of that name. Entry points are read only where it is neither registered nor built
    in.

    Raises OptionError if there is none, or if the package that announces it cannot provide it.
    """
    if name in _registered:
        return _registered[name]
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        runtime: Runtime = getattr(import_module(module), attribute)()
        return runtime
    for entry in extensions.entries("runtimes"):
        if entry.name == name:
            return _loaded(entry)
    raise OptionError(
        f"unknown runtime {name!r}", f"{did_you_mean(name, names())}one of {', '.join(names())}"
    )


def running(name: str | None, framework: str, target: str) -> Runtime:
    """Return the runtime of that name, else the front end's own. Raises OptionError as `named`, or if it does
    not run programs of that front end."""
    runtime = named(name or _OF_FRAMEWORK[framework])
    check_runtime(runtime, framework, target)
    return runtime


def check_runtime(runtime: Runtime, framework: str, target: str) -> None:
    """Raise OptionError if the runtime does not run programs of that front end."""
    if framework in runtime.frameworks:
        return
    if framework == "onnx":
        raise OptionError(
            f"an ONNX file does not run under {runtime.name} for inference",
            "leave --runtime out, or give the PyTorch model",
        )
    raise OptionError(f"{target} is a PyTorch target", "export it to ONNX first, or use --runtime pytorch")


def _loaded(entry: metadata.EntryPoint) -> Runtime:
    """Return the runtime an entry point names. Raises OptionError."""
    try:
        runtime = entry.load()()
    except Exception as error:
        raise OptionError(
            f"the runtime {entry.name!r} cannot be loaded from {entry.value}:"
            f" {type(error).__name__}: {error}",
            "install a release of its package that goes with this one, or uninstall it",
        ) from error
    if not isinstance(runtime, Runtime):
        raise OptionError(
            f"the runtime {entry.name!r} cannot be loaded: {entry.value} is no subclass of"
            " analyzer.runtimes.base.Runtime",
            "its package must announce one; uninstall it until it does",
        )
    return runtime
