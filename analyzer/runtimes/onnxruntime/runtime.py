"""ONNX Runtime as a runtime: what its session takes of the arena, what it takes besides, and why. It takes
the model, not the captured graph.

    prepare (load, rewrite, plan) → record (allocation events) → typical order, simulated → figures and
    advice

Device memory is the driver's pages under the arena's regions, and what lies outside the arena (`outside`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.devices import DeviceProfile
from analyzer.onnx.model import ShapedModel, read
from analyzer.options import Options
from analyzer.releases import Release
from analyzer.runtimes.base import Capped, Description, HeldAfter, Prediction, Runtime, Saving, Source
from analyzer.runtimes.batches import Batches, ParametricCapture
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.onnxruntime import advice, outside, reads
from analyzer.runtimes.onnxruntime.batches import SessionBatches
from analyzer.runtimes.onnxruntime.course import Recorded, Requests, course
from analyzer.runtimes.onnxruntime.frame import Frame, prepare
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.options import SessionOptions, parse
from analyzer.runtimes.onnxruntime.recorder import Recording
from analyzer.runtimes.onnxruntime.rewrite import unmodelled
from analyzer.runtimes.onnxruntime.session import RUNS
from analyzer.runtimes.onnxruntime.simulation import (
    ArenaRegion,
    Orders,
    RunFigures,
    SessionFailure,
    SimulatedSession,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPrediction(Prediction):
    """A session's memory. All sizes in bytes.

    failure: the first request that device or limit cannot serve; the figures are then what it would take
    without one.
    peak_in_use, held, device_bytes: after the steady run; `session`, `first_run`, `steady` the stages by
    themselves.
    runs: every run by name, in order. regions: every extension of the arena with its reason. settings: of the
    session.
    graph: as it really runs, at the largest batch; run_graphs: at the batch of each run.
    """

    peak_in_use: int
    held: int
    device_bytes: int
    session: RunFigures
    first_run: RunFigures
    steady: RunFigures
    runs: tuple[tuple[str, RunFigures], ...]
    regions: tuple[ArenaRegion, ...]
    failure: SessionFailure | None
    settings: SessionOptions
    graph: RuntimeGraph
    run_graphs: tuple[RuntimeGraph, ...]

    @property
    def figures(self) -> tuple[int, int, int]:
        """Most bytes in use and held, and those of the device."""
        held = max(stage.held_most for stage in (self.session, *(run for _, run in self.runs)))
        return self.peak_in_use, held, self.device_bytes


def predict(
    path_or_model: Any,
    *,
    batch: int | None = None,
    options: Mapping[str, Any],
    device: DeviceProfile,
    inputs: Any = None,
    runs: Sequence[ShapedModel] = (),
) -> SessionPrediction:
    """Predict a session of what `onnx.model.read` takes; a model read before keeps its batch.

    runs: the same model as each run finds it, where runs differ; by default it runs twice alike.
    Raises TargetError, InputError and OptionError for what the user got wrong.
    """
    settings = parse(options)
    model = read(path_or_model, batch, inputs)
    release = device.releases["onnxruntime"]
    prepared = prepare(model, None, settings, release=release)
    graph = prepared.graph
    frames = _frames(prepared, model, runs, settings)
    others = _sharing_sessions(settings, model.batch, release)
    sessions = [frames, *([other] * len(frames) for other in others)]
    recorded = Recorded(sessions, settings, device)
    return predicted(
        recorded,
        settings,
        device,
        graph=graph,
        run_graphs=tuple(frame.graph for frame in frames) if runs else (graph,) * 3,
        batches=[run.batch for run in runs] or [model.batch],
        savings=lambda used: advice.savings(sessions, recorded, used, device),
        notes=(
            *graph.notes,
            *unmodelled.notes(graph, settings.provider, settings.graph_optimization_level),
        ),
        caveats=advice.not_simulated(settings),
        refused=(*reads.refusals(model.ir_version, model.opset, release), *graph.refusals),
    )


def predicted(
    requests: Requests,
    settings: SessionOptions,
    device: DeviceProfile,
    *,
    graph: RuntimeGraph,
    run_graphs: tuple[RuntimeGraph, ...],
    batches: Sequence[int | None],
    savings: Callable[[SessionOptions], Sequence[Saving]],
    notes: Sequence[str],
    caveats: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
    local_bytes: int = 0,
    bodies: int | None = None,
) -> SessionPrediction:
    """Predict from a session's requests. graph, run_graphs: as of `SessionPrediction`; batches: of every run,
    or one of all; savings: under cheaper settings than those given; notes, caveats, refused: on the requests.
    local_bytes: of the threads' own memory, beside the context's. bodies: subgraphs that ran
    kernels there; None: those that the graph says."""
    on_gpu = settings.provider == "cuda"
    session_bytes, bound_bytes = outside.outside_arena(graph, settings, device, bodies)
    outside_bytes = session_bytes + bound_bytes + local_bytes
    result = course(requests, settings, device.usable_bytes if on_gpu else None, outside_bytes)
    simulation, failure = result.simulation, result.failure
    recording = requests.without(simulation.blocks)
    held = simulation.held_most
    pages = max(held, simulation.page_bytes)
    cheaper = tuple(savings(result.settings)) if on_gpu and failure is None else ()
    all_notes = [
        # The device or the arena's limit is too small: say so, but also what it would take.
        *([advice.out_of_memory(failure, settings)] if failure is not None else []),
        *advice.refused(result),
        *advice.explanation(simulation),
        *filter(None, (advice.saving_sentence(saving, held, pages) for saving in cheaper)),
        *notes,
        *advice.unmeasured(recording.events),
        *advice.limits(result.settings, result.orders),
        *(
            [f"{bound_bytes:,} bytes of bound inputs and outputs are the caller's, beside the arena"]
            if bound_bytes
            else []
        ),
    ]
    stages = dict(simulation.stages)
    session = stages.pop(SESSION)
    run_figures = tuple(stages.items())
    return SessionPrediction(
        events=simulation.events,
        allocator=lambda: result.settings.arena(result.memory),
        device_used=lambda simulated: max(pages, simulated.peak_reserved) + outside_bytes,
        unknown=recording.unknown,
        notes=tuple(dict.fromkeys(all_notes)),
        describe=_describer(recording),
        contents=_contents(recording),
        savings=cheaper,
        capped=None
        if failure is None
        else Capped(failure.limit + pages + outside_bytes - held, "gpu_mem_limit caps the arena"),
        ranges=_with_values(result.orders, recording.bounded_bytes()),
        doubt=result.orders.doubt,
        caveats=caveats,
        refused=tuple(dict.fromkeys(refused)),
        page_bytes=pages - held,
        beside_range=outside.around(outside_bytes, graph, settings),
        growth=advice.largest_region(simulation),
        after_runs=_after_runs(simulation, batches, outside_bytes),
        peak_in_use=simulation.peak_in_use,
        held=simulation.held,
        device_bytes=pages + outside_bytes,
        session=session,
        first_run=run_figures[0][1],
        steady=run_figures[-1][1],
        runs=run_figures,
        regions=simulation.regions,
        failure=failure,
        settings=result.settings,
        graph=graph,
        run_graphs=run_graphs,
    )


def _with_values(orders: Orders, bounded_bytes: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ranges of in use and held. bounded_bytes: that may not be there; the arena then holds at
    least what is in use."""
    if not bounded_bytes:
        return orders.peaks, orders.held
    least = max(orders.peaks[0] - bounded_bytes, 0)
    return (least, orders.peaks[1]), (least, orders.held[1])


def within_budget(
    ask: Callable[[DeviceProfile], SessionPrediction], profile: DeviceProfile, budget_bytes: int | None
) -> SessionPrediction:
    """Return a session's course on a device of which it may use so many bytes (None: all). ask: the session
    on a device.

    The arena follows what there is, so that a session may run in less than it takes with more: its figures
    are then those. Where it does not, they do not depend on the budget.
    """
    prediction = ask(profile)
    on_gpu = prediction.settings.provider == "cuda"
    if budget_bytes is None or budget_bytes >= profile.usable_bytes or not on_gpu:
        return prediction
    _, held, device_bytes = prediction.figures
    assert prediction.ranges is not None
    if prediction.failure is None and max(prediction.ranges[1]) + device_bytes - held <= budget_bytes:
        return prediction
    less = ask(profile.of_memory(budget_bytes))
    if less.failure is None and less.device_bytes <= budget_bytes:
        return replace(less, with_room=prediction.figures) if less.figures != prediction.figures else less
    return replace(prediction, doubt=less.doubt)


def _after_runs(
    simulation: SimulatedSession, batches: Sequence[int | None], outside_bytes: int
) -> tuple[HeldAfter, ...]:
    """Return what is left after each run. batches: of every run, or one of all."""
    rows = []
    for name, figures in simulation.stages.items():
        if name != SESSION:
            number = int(name.split()[1])
            device_bytes = max(figures.held, simulation.pages_after[name]) + outside_bytes
            batch = batches[min(number, len(batches)) - 1]
            rows.append(HeldAfter(name, batch, figures.in_use, figures.held, device_bytes))
    return tuple(rows)


def _frames(
    prepared: Frame, model: ShapedModel, runs: Sequence[ShapedModel], settings: SessionOptions
) -> list[Frame]:
    """Return a frame per run: one twice, or those of `runs`; equal batches share one."""
    if not runs:
        return [prepared] * len(RUNS)
    by_batch = {model.batch: prepared}
    for run in runs:
        if run.batch not in by_batch:
            by_batch[run.batch] = prepare(run, None, settings, release=prepared.graph.release)
    return [by_batch[run.batch] for run in runs]


def _sharing_sessions(settings: SessionOptions, batch: int | None, release: Release) -> list[Frame]:
    """Return the sessions that share the arena. Raises InputError if a file refuses the batch."""
    return [prepare(path, batch, settings, release=release) for path in settings.shared_with]


def _contents(recording: Recording) -> Callable[[Malloc], tuple[tuple[Description, int], ...]]:
    """Return a function from a memory pattern's block to its tensors with their bytes."""

    def contents(malloc: Malloc) -> tuple[tuple[Description, int], ...]:
        if malloc.key not in recording.contents:
            return ()
        graph, members = recording.contents[malloc.key]
        makers = graph.producers()
        return tuple((_described(name, graph.values[name], makers.get(name)), size) for name, size in members)

    return contents


def _described(name: str, value: Value | None, node: Node | None) -> Description:
    return Description(
        name=name,
        dtype=value.dtype if value else "",
        shape=tuple(value.shape or ()) if value else (),
        operator=node.op if node else "",
        module=node.name if node else "",
        phase="forward" if node else "setup",
    )


def _describer(recording: Recording) -> Callable[[Malloc], Description]:
    """Allocations by the names of the values and nodes that really run."""

    def describe(malloc: Malloc) -> Description:
        graph = recording.graphs[malloc.key]
        return _described(malloc.label, graph.values.get(malloc.label), graph.nodes.get(malloc.operator))

    return describe


class OnnxRuntime(Runtime):
    """A session under the CUDA provider, or under the CPU provider with the option provider=cpu."""

    name = "onnxruntime"
    frameworks = ("onnx",)
    depends_on = ("onnxruntime", "cuda", "cudnn")

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        del module
        return self.with_releases(profile, options, on_gpu=parse(options.runtime_options).provider == "cuda")

    def modelled(self, prediction: Prediction, profile: DeviceProfile) -> dict[str, str]:
        """The CPU provider's figures depend on ONNX Runtime alone."""
        releases = super().modelled(prediction, profile)
        assert isinstance(prediction, SessionPrediction)
        return releases if prediction.settings.provider == "cuda" else {self.name: releases[self.name]}

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> SessionPrediction:
        assert source.model is not None  # `frameworks` lets nothing else come here
        model, settings, runs = source.model, options.runtime_options, source.runs

        def ask(device: DeviceProfile) -> SessionPrediction:
            return predict(model, options=settings, device=device, runs=runs)

        return within_budget(ask, profile, options.budget_bytes)

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches | None:
        """Return figures over batches for a session that does not share its arena; else None."""
        settings = parse(options.runtime_options)
        if len(parametric.batches) == 1 or options.strict or settings.shared_with:
            return None
        return SessionBatches(parametric, settings, profile)

    def own_limit(self, options: Options) -> int | None:
        return parse(options.runtime_options).gpu_mem_limit

    def limited_to(self, options: Options, nbytes: int) -> Options:
        """Set the arena's own limit."""
        limited: dict[str, Any] = {"gpu_mem_limit": nbytes}
        return replace(options, runtime_options={**options.runtime_options, **limited})
