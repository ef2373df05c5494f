"""Run the very thing that was predicted, and put both side by side.

    estimate = analyze(target)            in this process, no GPU touched
    measured = jobs.run({...})            each real run in a process of its own
    Verification = both, compared         what the command line shows

`verify` is a function of target and options like `analyzer.analyze`. Nothing measured finds its way back into a
prediction: `calibrate` writes a profile only where it is told to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from analyzer.errors import AnalyzerError, OptionError
from analyzer.pipeline.analyze import Options, analyze
from analyzer.report.words import size
from analyzer.targets import parse
from analyzer.verify import jobs, machine
from analyzer.verify.comparison import Figure, MarkComparison, OutOfMemory, Verification

__all__ = ["DoesNotFit", "Figure", "MarkComparison", "OutOfMemory", "RunError", "Verification", "verify"]


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


def _verify_pytorch(
    target: str, options: Options, force: bool, graph: bool, tell: Callable[[str], None]
) -> Verification:
    from analyzer.devices import resolve
    from analyzer.graph import Graph
    from analyzer.pipeline.pytorch import with_workspaces
    from analyzer.runtimes.pytorch_eager import EagerProgram
    from analyzer.verify import comparison, execute, history

    gpu = machine.require_cuda(target)
    job = jobs.describe(target, options)
    captured: list[Graph] = []
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    estimate = analyze(target, **{**given, "on_graph": captured.append, "progress": tell})
    notes = check_room(estimate.device_used, gpu, force)
    tell("running the program")
    measured = result_of(jobs.run({**job, "kind": "pytorch"}, jobs.environment_of(options)), target)
    failed = comparison.out_of_memory(estimate, measured)
    live_peak = None
    if graph and failed is None:
        tell("executing the captured graph")
        done = jobs.run({**job, "kind": "graph"}, {**jobs.environment_of(options), **execute.ENVIRONMENT})
        if "ok" in done:
            live_peak = done["ok"]["live_peak"]
        else:
            notes.append(f"the captured graph could not be executed: {done['error']}")
    environment = {**machine.fingerprint(gpu), **measured["versions"]}
    profile = with_workspaces(resolve(options.device)[0], options.runtime_options)
    notes += machine.differences(profile, environment)
    tell("comparing")
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
        history=None
        if failed
        else history.compare(EagerProgram(captured[0], profile).events(), measured["history"], captured[0]),
        out_of_memory=failed,
        environment=environment,
        notes=tuple(notes),
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
