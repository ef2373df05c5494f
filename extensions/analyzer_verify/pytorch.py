"""A PyTorch target: its analysis beside the program really run, and the captured graph executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analyzer.analysis import Analysis
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer_verify import comparison, history
from analyzer_verify.results import Verification
from analyzer_verify.runs import jobs, machine


def verify_pytorch(
    target: str, options: Options, force: bool, graph: bool, tell: Callable[[str], None]
) -> Verification:
    """Predict, run, compare; with `graph` also execute the captured graph. Raises what `verify` says."""
    from analyzer_verify.runs import execute

    if options.parallel is not None:
        raise OptionError(
            "verify runs one process on one GPU, and --parallel is for several",
            "start the script under torchrun and compare with analyze run; or leave --parallel out",
        )
    gpu = machine.require_cuda(target)
    job = jobs.describe(target, options)
    predicted = analysis(target, options, tell)
    notes = machine.check_room(predicted.estimate.device_used, gpu, force)
    tell("running the program")
    measured = jobs.result_of(jobs.run({**job, "kind": "pytorch"}, jobs.environment_of(options)), target)
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


def compared(
    predicted: Analysis,
    measured: Mapping[str, Any],
    live_peak: int | None,
    environment: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Verification:
    """Compare an analysis with a result of `program.run`, new or recorded.

    live_peak: of the executed graph, None if it was not executed. The history is None where none was
    recorded. environment: `machine.fingerprint` of the run.
    """
    estimate = predicted.estimate
    failed = comparison.out_of_memory(estimate, measured)
    environment = {**environment, **measured["versions"]}
    return Verification(
        target=estimate.target,
        runtime=estimate.runtime,
        mode=estimate.mode,
        batch=estimate.batch,
        optimizer=estimate.optimizer,
        device=estimate.device,
        options=estimate.options,
        figures=comparison.figures(estimate, measured, live_peak),
        marks=comparison.marks(estimate, measured["marks"]),
        history=None
        if failed or measured["history"] is None
        else history.compare_history(predicted.events, measured["history"], predicted.graph),
        out_of_memory=failed,
        environment=environment,
        notes=(*notes, *machine.differences(predicted.profile, environment)),
        seconds={"program": measured["seconds"]},
        modelled=estimate.modelled,
    )
