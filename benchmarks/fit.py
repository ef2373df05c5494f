"""Largest batches, predicted beside those found by trial on an H200 (`tests/data/h200/fit.json`), and every trial's peaks.

    PYTHONPATH=. python benchmarks/fit.py [MODEL ...]

A trial ran three steps under `torch.cuda.set_per_process_memory_fraction`; the largest was found by doubling and bisection.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "accuracy"))
MIB = 2**20


def main(wanted: list[str]) -> int:
    """Prints a line a model and a line a trial; 1 if an answer is larger than what ran."""
    import torch
    import torchvision_cpu
    from sets import zoo

    from analyzer.options import Options
    from analyzer.planning.fit import largest
    from analyzer.planning.subject import Subject

    torchvision_cpu.enable()
    models = zoo("development")
    larger, errors = False, []
    for entry in json.loads((ROOT / "tests" / "data" / "h200" / "fit.json").read_text()):
        case = entry["case"]
        if wanted and case["model"] not in wanted:
            continue
        make_model, make_batch, loss = models.M[case["model"]]
        with torch.device("meta"):
            model = make_model()
        said: dict[str, Any] = {
            "inputs": make_batch,
            "mode": "train",
            "loss": loss,
            "optimizer": models.OPT[case["opt"]],
            "device": "h200",
            "runtime_options": {"alloc_conf": case["conf"]} if "conf" in case else None,
        }
        subject = Subject(model, Options.of(said))
        limit = case["limit_mib"] * MIB
        start = time.perf_counter()
        found = largest(subject, limit)
        seconds = time.perf_counter() - start
        larger |= found.batch > entry["largest"]
        print(
            f"{case['model']:<20} {case['limit_mib']:>6} MiB  predicted {found.batch:>4}  ran {entry['largest']:>4}  "
            f"{100 * (found.batch / entry['largest'] - 1):+.1f} %  {seconds:.1f} s",
            flush=True,
        )
        for batch, trial in entry["trials"].items():
            estimate = subject.limited_analysis(int(batch), (limit, False)).estimate
            runs = estimate.out_of_memory is None
            line = f"  {batch:>4} {'ran' if trial['ok'] else 'failed':<7} predicted {'to run' if runs else 'to fail':<8}"
            if trial["ok"]:
                errors.append(abs(estimate.peak_allocated / trial["allocated"] - 1))
                line += (
                    f" allocated {estimate.peak_allocated - trial['allocated']:+,} "
                    f"reserved {estimate.peak_reserved - trial['reserved']:+,} bytes"
                )
            print(line, flush=True)
    if errors:
        print(
            f"peak allocated of {len(errors)} trials that ran: median error {100 * statistics.median(errors):.3f} %"
        )
    return int(larger)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
