"""From what was played to the frozen `Estimate`: attribution of the bytes at the peak, nothing recomputed later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.devices.nvml import device_used
from analyzer.estimate import Certainty, Estimate, MarkRow, TensorRow, Timeline
from analyzer.graph import Graph, TensorMeta
from analyzer.liveness.naive import Naive
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Alive, Played


@dataclass(frozen=True, slots=True)
class Description:
    """Where an allocation comes from, in the user's terms."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    operator: str
    module: str
    source: str
    phase: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the stages before made."""

    target: str
    framework: str
    runtime: str
    options: Any
    device: DeviceProfile
    device_note: str
    batch: int | None
    describe: Callable[[Malloc], Description]
    events: tuple[AllocationEvent, ...]
    played: Played
    naive: Naive
    graph_peak: int
    saved_for_backward: int
    libraries: frozenset[str] = frozenset()
    unknown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    optimizer: str = ""
    device_used: int | None = None


def assemble(parts: Parts) -> Estimate:
    """The `Estimate` of these parts."""
    played, options = parts.played, parts.options
    rows = sorted(
        ((_row(alive, parts.describe), alive.block_bytes) for alive in played.alive if alive.block_bytes),
        key=lambda r: -r[1],
    )
    basis = Counter[str]()
    for alive in played.alive:
        basis[alive.malloc.basis] += alive.block_bytes
    used = parts.device_used
    if used is None:
        used = device_used(played.peak_reserved, parts.libraries, parts.device)
    return Estimate(
        target=parts.target,
        framework=parts.framework,
        runtime=parts.runtime,
        mode=options.mode,
        batch=parts.batch if options.batch is None else options.batch,
        optimizer=parts.optimizer,
        device=parts.device.name,
        device_note=parts.device_note,
        capacity_bytes=parts.device.capacity_bytes,
        options=_plain_options(options),
        peak_allocated=played.peak_allocated,
        peak_reserved=played.peak_reserved,
        device_used=used,
        peak_requested=played.peak_requested,
        graph_peak=parts.graph_peak,
        saved_for_backward=parts.saved_for_backward,
        naive=parts.naive,
        breakdown=_sums((row.category, size) for row, size in rows),
        by_module=_sums((row.module, size) for row, size in rows),
        by_line=_sums((row.source, size) for row, size in rows),
        marks=_marks(parts.events, played),
        tensors=tuple(row for row, _ in rows),
        timeline=Timeline(
            played.allocated, played.reserved, played.delta, played.label, played.category, played.phase
        ),
        certainty=Certainty(basis["exact"], basis["measured"], basis["bounded"], dict(parts.unknown)),
        notes=parts.notes,
        peak_at=played.peak_phase,
    )


def _sums(pairs: Any) -> dict[str, int]:
    sums = Counter[str]()
    for name, size in pairs:
        sums[name] += size
    return dict(sums.most_common())


def _row(alive: Alive, describe: Callable[[Malloc], Description]) -> TensorRow:
    told = describe(alive.malloc)
    return TensorRow(
        name=told.name,
        nbytes=alive.block_bytes,
        category=alive.malloc.category.value,
        dtype=told.dtype,
        shape=told.shape,
        operator=told.operator,
        module=told.module,
        source=told.source,
        phase=told.phase,
    )


def graph_describer(graph: Graph) -> Callable[[Malloc], Description]:
    """Descriptions of allocations whose operators and storages are those of a captured graph."""

    def describe(malloc: Malloc) -> Description:
        operator = graph.operators[malloc.operator] if malloc.operator >= 0 else None
        meta: TensorMeta | None = None
        name = malloc.label
        if malloc.storage >= 0:
            name = graph.storages[malloc.storage].name or name
            if operator is not None:
                meta = next(
                    (o for o in operator.outputs if o is not None and o.storage == malloc.storage), None
                )
        module = operator.module if operator is not None else ""
        if not module and name.endswith((".weight", ".bias", ".grad")) and "." in name:
            module = name.removesuffix(".grad").rpartition(".")[0]
        return Description(
            name=name,
            dtype=meta.dtype if meta else "",
            shape=meta.shape if meta else (),
            operator=operator.name if operator else "",
            module=module,
            source=operator.source if operator else "",
            phase=operator.phase.value if operator else "",
        )

    return describe


def _marks(events: tuple[AllocationEvent, ...], played: Played) -> tuple[MarkRow, ...]:
    """Named events with what is alive by category then."""
    alive: dict[int, tuple[str, int]] = {}
    sums = Counter[str]()
    rows: list[MarkRow] = []
    states = iter(played.marks)
    for event, delta in zip(events, played.delta, strict=True):
        if isinstance(event, Malloc):
            alive[event.key] = (event.category.value, delta)
            sums[event.category.value] += delta
        elif isinstance(event, Free):
            category, size = alive.pop(event.key)
            sums[category] -= size
        elif isinstance(event, Event):
            mark = next(states)
            rows.append(
                MarkRow(
                    mark.event, mark.allocated, mark.peak, mark.reserved, {k: v for k, v in sums.items() if v}
                )
            )
    return tuple(rows)


def _plain_options(options: Any) -> dict[str, Any]:
    """What the user set, as JSON can hold it."""
    shown = {
        "amp": options.amp,
        "grad_accumulation": options.grad_accumulation,
        "checkpoint": options.checkpoint,
        "dtype": options.dtype,
        "channels_last": options.channels_last,
        "steps": options.steps,
        **{f"runtime.{name}": str(value) for name, value in options.runtime_options.items()},
    }
    return {name: value for name, value in shown.items() if value not in (None, False)}
