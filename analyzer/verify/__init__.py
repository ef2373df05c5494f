"""Run the very thing that was predicted, and put both side by side.

    estimate = analyze(target)            in this process, no GPU touched
    measured = jobs.run({...})            each real run in a process of its own
    Verification = both, compared         what the command line shows

`verify` is a function of target and options like `analyzer.analyze`. Nothing measured finds its way back into a
prediction: `calibrate` writes a profile only where it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, OptionError
from analyzer.pipeline.analyze import Options, analyze
from analyzer.report.words import size
from analyzer.targets import parse
from analyzer.verify import jobs, machine
from analyzer.verify.comparison import Figure, MarkComparison, OutOfMemory, Verification

if TYPE_CHECKING:
    from analyzer.devices import DeviceProfile
    from analyzer.estimate import Estimate
    from analyzer.graph import Graph
    from analyzer.runtimes.events import AllocationEvent

__all__ = [
    "DoesNotFit", "Figure", "MarkComparison", "OutOfMemory", "Predicted", "RunError", "Verification", "compared",
    "predict", "verify",
]  # fmt: skip


class DoesNotFit(AnalyzerError):
    """The estimate says the run would end without memory, so it was not tried."""


class RunError(AnalyzerError):
    """The real run failed for another reason than memory."""


def verify(
    target: str,
    *,
    force: bool = False,
    graph: bool = True,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Verification:
    """Predict `target` (options as in `analyzer.analyze`), run it, compare.

    force: run even if the estimate says that the GPU's free memory is not enough.
    graph: also execute the captured graph with every tensor freed at its last use.
    progress: told what is under way.
    Raises DoesNotFit, RunError, MissingDependencyError without a GPU (ONNX files then run on the CPU provider), and
    what `analyzer.analyze` raises.
    """
    known = {field.name for field in fields(Options)}
    for name in options:
        if name not in known:
            raise OptionError(f"verify knows no option {name!r}", f"options: {', '.join(sorted(known))}")
    chosen = Options(**options).check()
    tell = progress or (lambda _: None)
    if parse(target).kind == "onnx":
        from analyzer.verify.onnx import verify_onnx

        return verify_onnx(target, chosen, force, tell)
    return _verify_pytorch(target, chosen, force, graph, tell)


@dataclass(frozen=True, slots=True)
class Predicted:
    """One side of the comparison: the estimate, and the requests it was played from."""

    estimate: Estimate
    events: tuple[AllocationEvent, ...]
    graph: Graph
    profile: DeviceProfile


def _verify_pytorch(
    target: str, options: Options, force: bool, graph: bool, tell: Callable[[str], None]
) -> Verification:
    from analyzer.verify import execute

    gpu = machine.require_cuda(target)
    job = jobs.describe(target, options)
    predicted = predict(target, options, tell)
    notes = check_room(predicted.estimate.device_used, gpu, force)
    tell("running the program")
    measured = result_of(jobs.run({**job, "kind": "pytorch"}, jobs.environment_of(options)), target)
    live_peak = None
    if graph and "out_of_memory" not in measured:
        tell("executing the captured graph")
        done = jobs.run({**job, "kind": "graph"}, {**jobs.environment_of(options), **execute.ENVIRONMENT})
        if "ok" in done:
            live_peak = done["ok"]["live_peak"]
        else:
            notes.append(f"the captured graph could not be executed: {done['error']}")
    tell("comparing")
    return compared(predicted, measured, live_peak, machine.fingerprint(gpu), notes)


def predict(target: str, options: Options, tell: Callable[[str], None] | None = None) -> Predicted:
    """The estimate of a PyTorch target with what it was made from. Raises what `analyzer.analyze` raises."""
    from analyzer.devices import resolve
    from analyzer.pipeline.pytorch import with_workspaces
    from analyzer.runtimes.pytorch_eager import EagerProgram

    captured: list[Graph] = []
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    estimate = analyze(target, **{**given, "on_graph": captured.append, "progress": tell})
    profile = with_workspaces(resolve(options.device)[0], options.runtime_options)
    return Predicted(estimate, tuple(EagerProgram(captured[0], profile).events()), captured[0], profile)


def compared(
    predicted: Predicted,
    measured: Mapping[str, Any],
    live_peak: int | None,
    environment: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Verification:
    """A prediction beside what `program.run` returned, now or when it was recorded.

    live_peak: of the executed graph, None if it was not executed. environment: `machine.fingerprint` of the run.
    """
    from analyzer.verify import comparison, history

    estimate = predicted.estimate
    failed = comparison.out_of_memory(estimate, measured)
    environment = {**environment, **measured["versions"]}
    return Verification(
        target=estimate.target,
        runtime="pytorch",
        mode=estimate.mode,
        batch=estimate.batch,
        optimizer=estimate.optimizer,
        device=estimate.device,
        options=estimate.options,
        figures=comparison.figures(estimate, measured, live_peak),
        marks=comparison.marks(estimate, measured["marks"]),
        history=None if failed else history.compare(predicted.events, measured["history"], predicted.graph),
        out_of_memory=failed,
        environment=environment,
        notes=(*notes, *machine.differences(predicted.profile, environment)),
        seconds={"program": measured["seconds"]},
    )


def check_room(needed_bytes: int, gpu: machine.Gpu, force: bool) -> list[str]:
    """Notes on who else is on the GPU. Raises DoesNotFit when the free memory is less than what is needed."""
    notes = []
    others = ""
    if gpu.others:
        count = len(gpu.others)
        others = f"{count} other process{'es' if count > 1 else ''} hold{'' if count > 1 else 's'} {size(gpu.used_bytes)}"
        notes.append(f"{others} of the GPU; figures are for the verified process alone")
    if needed_bytes > gpu.free_bytes:
        if not force:
            raise DoesNotFit(
                f"the run would need {size(needed_bytes)}, and the {gpu.name} has {size(gpu.free_bytes)} free of "
                f"{size(gpu.total_bytes)}" + (f" ({others})" if others else ""),
                "choose a smaller batch, free the GPU, or run it all the same with --force",
            )
        notes.append("run with --force although the estimate says it does not fit")
    return notes


def result_of(result: dict[str, Any], what: str) -> dict[str, Any]:
    """The result of a job that went well. Raises RunError in the worker's words otherwise."""
    if "ok" in result:
        return dict(result["ok"])
    raise RunError(
        f"{what} could not be run: {result['error']}", result.get("hint", "see the program's own message")
    )
