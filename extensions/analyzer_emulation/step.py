"""The time of a step that was emulated: what its process gave the device (`inside/launches.py`), as operators
that `analyzer_timing/` knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.graph import Category, Graph
from analyzer.graph.model import Argument, Operator, Phase, Run, Storage, TensorMeta, tensors_in
from analyzer.results.step_time import StepTime
from analyzer_emulation.questions import Question, Topic, Unanswered
from analyzer_emulation.replay import without_folder
from analyzer_timing import compiled
from analyzer_timing.step import device_seconds, step_time

_PHASES = {phase.value: phase for phase in Phase}


def time_of(launches: Sequence[Mapping[str, Any]], profile: DeviceProfile) -> StepTime | None:
    """Return the time of the step with these launches; None where nothing in it was compiled."""
    return step_time(graph_of(launches), profile) if launches else None


def benchmark_of(profile: DeviceProfile) -> Topic:
    """Return what answers how many nanoseconds launches keep a GPU busy (`inside/padding.py`)."""

    def nanoseconds(question: Question) -> Sequence[int]:
        seconds = device_seconds(graph_of(question["launches"]), profile)
        if seconds is None:
            raise Unanswered(f"the speed of {profile.name} is unknown")
        return [round(1e9 * seconds)]

    return nanoseconds


def graph_of(launches: Iterable[Mapping[str, Any]]) -> Graph:
    """Return the step as a graph: its operators, kernels and replays, in order."""
    launches = list(launches)
    # The graph of a backward pass is called only where autograd keeps what the forward one was called with.
    step = _Step(any("call" in launch and launch["place"][2] == "backward" for launch in launches))
    for launch in launches:
        step.add(launch)
    step.returned()
    operators = tuple(step.operators)
    return Graph("pytorch", tuple(step.storages), operators, tuple(Run(one.index) for one in operators))


class _Step:
    """A step under construction. A storage is known by its address and size: what lies where another lay is
    as near in the cache as that was. differentiated: it has a backward pass."""

    def __init__(self, differentiated: bool) -> None:
        self._mode = frozenset() if differentiated else frozenset({compiled.INFERENCE})
        self.operators: list[Operator] = []
        self.storages: list[Storage] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._called: Mapping[str, Any] | None = None  # the compiled graph under way

    def returned(self) -> None:
        """End the compiled graph under way, if there is one: its results are handed back."""
        if self._called is not None:
            results = (self._called.get("results", 0),)
            self._append(self._called, compiled.RETURN, results, settings=self._mode)
        self._called = None

    def add(self, launch: Mapping[str, Any], replayed: bool = False) -> None:
        """Append what one launch does. replayed: a CUDA graph does it."""
        within = "kernel" in launch or "graph" in launch or compiled.COMPILED in launch.get("settings", ())
        if not within and not replayed:
            self.returned()
        settings = frozenset((*launch.get("settings", ()), *((compiled.REPLAYED,) if replayed else ())))
        if "graph" in launch:
            self._append(launch, compiled.REPLAY, (len(launch["graph"]),), settings=settings | self._mode)
            for one in launch["graph"]:
                self.add(one, replayed=True)
        elif "call" in launch:
            self._append(launch, compiled.CALL, (launch["call"],), settings=self._mode)
            self._called = launch
        elif "kernel" in launch:
            self._kernel(launch, settings)
        else:
            self._operator(launch, settings)

    def _kernel(self, launch: Mapping[str, Any], settings: frozenset[str]) -> None:
        """Append a Triton kernel as an operator: its tensors, what it reads and writes of them, its sizes."""
        sizes = launch["sizes"]
        tensors = tuple(self._tensor(tensor) for _, tensor in launch["tensors"])
        reads, writes = (tuple(places[which] for places, _ in launch["tensors"]) for which in (0, 1))
        keywords: dict[str, Argument] = {
            "kind": launch["kind"],
            "hint": launch["hint"],
            "numel": prod(sizes.values()) if sizes else 0,
            "width": prod(size for name, size in sizes.items() if name.startswith("r")),
            "reads": reads,
            "writes": writes,
        }
        changed = tuple(t.storage for t, count in zip(tensors, writes, strict=True) if count)
        name, names = f"{compiled.DOMAIN}::{launch['kernel']}", tuple(f"{n}" for n in range(len(tensors)))
        more: dict[str, Any] = {
            "settings": settings,
            "domain": compiled.DOMAIN,
            "writes": changed,
            "names": names,
        }
        self._append(launch, name, tensors, keywords, **more)

    def _operator(self, launch: Mapping[str, Any], settings: frozenset[str]) -> None:
        """Append an ATen call as an operator, with its results and the storages that it writes."""
        arguments = tuple(self._argument(value) for value in launch["arguments"])
        keywords = {name: self._argument(value) for name, value in launch["keywords"].items()}
        results = [self._argument(value) for value in launch["results"]]
        names = tuple(launch["names"])
        changed: list[int] = []
        for place in launch["writes"]:
            value = arguments[place] if place < len(arguments) else keywords.get(names[place])
            changed += [tensor.storage for tensor in tensors_in(value)]
        outputs = tuple(value for value in results if isinstance(value, TensorMeta))
        more: dict[str, Any] = {"writes": tuple(changed), "names": names, "settings": settings}
        self._append(launch, launch["name"], arguments, keywords, outputs=outputs, **more)

    def _append(
        self,
        launch: Mapping[str, Any],
        name: str,
        arguments: tuple[Argument, ...],
        keywords: Mapping[str, Argument] | None = None,
        *,
        outputs: tuple[TensorMeta, ...] = (),
        **more: Any,
    ) -> None:
        """Append an operator at the place of its launch: line, module and phase."""
        line, module, phase = launch["place"]
        where = {"phase": _PHASES.get(phase, Phase.FORWARD), "module": module, "source": without_folder(line)}
        more = {**where, **more}
        self.operators.append(Operator(len(self.operators), name, arguments, outputs, keywords or {}, **more))

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, dict):
            return self._tensor(value)
        if isinstance(value, list):
            return tuple(self._argument(part) for part in value)
        argument: Argument = value
        return argument

    def _tensor(self, value: Mapping[str, Any]) -> TensorMeta:
        key = value["at"], value["bytes"]
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.storages)
            on_device = bool(value["at"])
            self.storages.append(Storage(number, value["bytes"], Category.ACTIVATION, on_device=on_device))
        shape, stride = tuple(value["shape"]), tuple(value["stride"])
        return TensorMeta(number, shape, stride, value["type"], value["offset"])
