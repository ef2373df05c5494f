"""The curve beside fresh analyses, and what it costs: for the measured models, in training and inference.

    PYTHONPATH=. python benchmarks/sweep.py [MODEL ...] [--sizes 12] [--batches 200]

For each model the curve over `--batches` sizes is made and compared with a fresh analysis at `--sizes` of them that were not
captured, to the byte. Prints seconds of CPU: one capture, one analysis, the whole curve, one further size. Exit code 1 if a row
differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "accuracy"))
MODELS = (
    "resnet50",
    "gpt2",
    "swin_t",
    "lstm",
    "unet",
    "encoder",
    "llama_tiny",
    "mobilenet_v3_large",
    "ckpt_mlp",
    "squeezenet1_1",
)


def main() -> int:
    """A line a model and mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--sizes", type=int, default=12)
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    import torch
    import torchvision_cpu
    from sets import zoo

    from analyzer.options import Options
    from analyzer.planning.curve import Row, curve
    from analyzer.planning.pieces import figures_of
    from analyzer.planning.subject import Subject

    torchvision_cpu.enable()
    models = zoo("development")
    differ = 0
    for name in given.models:
        make_model, make_batch, loss = models.M[name]
        with torch.device("meta"):
            model = make_model()
        for mode in ("train", "infer"):
            said: dict[str, Any] = {"inputs": make_batch, "mode": mode, "device": "h200"}
            if mode == "train":
                said |= {"loss": loss, "optimizer": models.OPT["adam"]}
            subject = Subject(model, Options.of(said))
            subject.captured(2)  # what is imported and loaded once
            start = time.process_time()
            captured = subject.captured(3)
            capture = time.process_time() - start
            subject.assembled(captured, 3)
            analysis = time.process_time() - start
            start = time.process_time()
            found = curve(subject, range(2, 2 + given.batches))
            whole = time.process_time() - start
            free = [row for row in found.rows if row.batch not in found.captures]
            wrong = []
            for row in random.Random(name).sample(free, given.sizes):
                fresh = figures_of(subject.analysis(row.batch))
                same = Row(
                    row.batch, fresh.peak_allocated, fresh.peak_reserved, fresh.device_used, fresh.naive
                )
                if same != row:
                    wrong.append(row.batch)
            differ += bool(wrong)
            further = (whole - len(found.captures) * capture) / len(found.rows)
            print(
                f"{name:<20} {mode:<6} captured {len(found.captures)} pieces {1 + sum(bool(k.reason) for k in found.kinks)}  "
                f"capture {capture:.2f} s, analysis {analysis:.2f} s, {len(found.rows)} sizes {whole:.2f} s = "
                f"{whole / capture:.1f} captures, {whole / analysis:.1f} analyses, "
                f"one further size {1000 * further:.0f} ms  {'differs at ' + str(wrong) if wrong else 'exact'}",
                flush=True,
            )
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
