"""The curve beside fresh analyses, and what it costs: for the measured models, in training and inference, and four ONNX files.

    python -m benchmarks sweep score [MODEL|FILE.onnx ...] [--sizes 12] [--batches 200]

For each model the curve over `--batches` sizes is made and compared with a fresh analysis at `--sizes` of them that were not
captured, to the byte. Prints seconds of CPU: one capture, one analysis, the whole curve, one further size. Exit code 1 if a row
differs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from benchmarks import ROOT

if TYPE_CHECKING:
    from analyzer.pipeline.workload import Workload

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


ONNX = ("resnet50.onnx", "bert.onnx", "vit_b_16.onnx", "cnn.onnx")


@click.command("score")
@click.argument("models", nargs=-1)
@click.option("--sizes", default=12)
@click.option("--batches", default=200)
def main(models: tuple[str, ...], sizes: int, batches: int) -> int:
    """A line a model and mode, of those named or all; 1 if a row differs."""
    differ = 0
    for name in models or (*MODELS, *ONNX):
        for mode, workload in workloads(name):
            wrong = compare(f"{name:<20} {mode:<6}", workload, sizes, batches)
            differ += bool(wrong)
    return int(differ > 0)


def workloads(name: str) -> Iterator[tuple[str, Workload]]:
    """A measured model in training and in inference, an ONNX file in inference."""
    from analyzer.options import Options
    from analyzer.pipeline.workload import Workload

    if name.endswith(".onnx"):
        yield "infer", Workload(ROOT / "models" / name, Options.of({"device": "h200"}))
        return
    import torch

    from benchmarks.accuracy.sets import zoo
    from benchmarks.subjects.networks import torchvision_cpu

    torchvision_cpu.enable()
    models = zoo("development")
    make_model, make_batch, loss = models.M[name]
    with torch.device("meta"):
        model = make_model()
    for mode in ("train", "infer"):
        said: dict[str, Any] = {"inputs": make_batch, "mode": mode, "device": "h200"}
        if mode == "train":
            said |= {"loss": loss, "optimizer": models.OPT["adam"]}
        yield mode, Workload(model, Options.of(said))


def compare(shown: str, workload: Workload, sizes: int, batches: int) -> list[int]:
    """Prints what the curve costs. Returns the batches, of so many looked at, at which a row differs from an analysis."""
    from analyzer.planning.curve import curve
    from analyzer.planning.intervals import figures_of
    from analyzer.results.curve import Row

    workload.analysis(batches + 2)  # what is imported and loaded once
    captures, analyses = [], []
    for _ in range(3):  # the middle one of three: what Python collects in between takes its time too
        start = time.process_time()
        captured = workload.captured(3)
        captures.append(time.process_time() - start)
        workload.assembled(captured, 3)
        analyses.append(time.process_time() - start)
    capture, analysis = sorted(captures)[1], sorted(analyses)[1]
    start = time.process_time()
    found = curve(workload, range(2, 2 + batches))
    whole = time.process_time() - start
    free = [row for row in found.rows if row.batch not in found.captures]
    wrong = []
    for row in random.Random(shown).sample(free, sizes):
        fresh = figures_of(workload.analysis(row.batch))
        same = Row(row.batch, fresh.peak_allocated, fresh.peak_reserved, fresh.device_used, fresh.naive)
        if same != row:
            wrong.append(row.batch)
    further = max(whole - len(found.captures) * capture, 0) / len(found.rows)
    print(
        f"{shown} captured {len(found.captures)} pieces {1 + sum(bool(k.reason) for k in found.kinks)}  "
        f"capture {capture:.2f} s, analysis {analysis:.2f} s, {len(found.rows)} sizes {whole:.2f} s = "
        f"{whole / capture:.1f} captures, {whole / analysis:.1f} analyses, "
        f"one further size {1000 * further:.0f} ms  {'differs at ' + str(wrong) if wrong else 'exact'}",
        flush=True,
    )
    return wrong
