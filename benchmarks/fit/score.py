"""Largest batches, predicted beside those found by trial on an H200 (`tests/data/h200/fit.json`, `fit_2.json`), and every trial's peaks.

    python -m benchmarks fit score [MODEL ...] [--second]

A trial ran three steps under `torch.cuda.set_per_process_memory_fraction`; the largest was found by doubling and bisection
(`benchmarks/fit/measure.py`). --second: the twenty models of the second set. Exit code 1 if an answer is larger than what ran.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import click

from benchmarks import ROOT
from benchmarks.harness.pages import MIB

if TYPE_CHECKING:
    from analyzer.pipeline.workload import Workload

DATA = ROOT / "tests" / "data" / "h200"


def workload_of(case: dict[str, Any]) -> Workload:
    """What a trial finder searched, to be analysed."""
    import torch

    from analyzer.options import Options
    from analyzer.pipeline.workload import Workload
    from benchmarks.fit.measure import model_of
    from benchmarks.subjects.networks.kinds import OPT

    make_model, make_batch, loss = model_of(case["model"])
    try:
        with torch.device("meta"):
            model = make_model()
    except NotImplementedError:  # a model that draws random numbers of its own
        model = make_model()
    said: dict[str, Any] = {
        "inputs": make_batch,
        "mode": "train",
        "loss": loss,
        "optimizer": OPT[case["opt"]],
        "device": case.get("device", "h200"),
        "runtime_options": {"alloc_conf": case["conf"]} if "conf" in case else None,
    }
    return Workload(model, Options.of(said))


@click.command("score")
@click.argument("models", nargs=-1)
@click.option("--second", is_flag=True, help="the twenty models of the second set")
def main(models: tuple[str, ...], second: bool) -> int:
    """Predict the largest batches, and print a line a model and a line a trial; 1 if an answer is larger than what ran."""
    from benchmarks.subjects.networks import torchvision_cpu

    torchvision_cpu.enable()
    from analyzer.planning.fit import largest
    from analyzer.runtimes.base import Limit

    larger, equal, count, errors = 0, 0, 0, []
    for entry in json.loads((DATA / ("fit_2.json" if second else "fit.json")).read_text()):
        case = entry["case"]
        if models and case["model"] not in models:
            continue
        workload = workload_of(case)
        limit = case["limit_mib"] * MIB
        start = time.perf_counter()
        found = largest(workload, limit)
        seconds = time.perf_counter() - start
        count += 1
        larger += found.batch > entry["largest"]
        equal += found.batch == entry["largest"]
        print(
            f"{case['model']:<32} {case['limit_mib']:>6} MiB  predicted {found.batch:>4}  ran {entry['largest']:>4}  "
            f"{100 * (found.batch / entry['largest'] - 1):+.1f} %  {seconds:.1f} s",
            flush=True,
        )
        for batch, trial in entry["trials"].items():
            estimate = workload.analysis(int(batch), Limit(limit, False)).estimate
            runs = estimate.out_of_memory is None
            line = f"  {batch:>4} {'ran' if trial['ok'] else 'failed':<7} predicted {'to run' if runs else 'to fail':<8}"
            if trial["ok"]:
                errors.append(abs(estimate.peak_allocated / trial["allocated"] - 1))
                line += (
                    f" allocated {estimate.peak_allocated - trial['allocated']:+,} "
                    f"reserved {estimate.peak_reserved - trial['reserved']:+,} bytes"
                )
            print(line, flush=True)
    print(f"{equal} of {count} equal, {larger} larger than what ran")
    if errors:
        print(
            f"peak allocated of {len(errors)} trials that ran: median error {100 * statistics.median(errors):.3f} %"
        )
    return int(larger > 0)
