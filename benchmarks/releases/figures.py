"""What is predicted of the programs of `programs.py`, in the order of the figures that `observe.py` writes down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from analyzer.capture.pytorch.kernels.attention import CUDNN_DROPS_OUT, PREFERS_CUDNN
from analyzer.capture.pytorch.kernels.decisions import HAS_KERNELS
from analyzer.capture.pytorch.kernels.slices import SLICES_WHOLE
from analyzer.devices import load
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.pipeline.pytorch import captured_pytorch
from analyzer.releases import parse
from analyzer.runtimes.base import named
from benchmarks.subjects.releases import OPTIMIZERS, PROGRAMS


def predicted(device: str, name: str, releases: list[str]) -> Iterator[list[int]]:
    """What is predicted of a program under each release, in the order of the observed figures. It is captured once for those
    releases that run the same operators (`kernels/decisions.py`, `kernels/attention.py`, `kernels/slices.py`)."""
    program = PROGRAMS[name]
    with torch.device("meta"):
        model = program.make_model()
        inputs, target = program.make_batch()
    train = program.optimizer is not None
    runtime = named("pytorch")
    captures: dict[tuple[bool, ...], Captured] = {}
    for release in releases:
        options = Options(
            inputs=inputs,
            targets=(target,),
            loss=program.loss,
            mode="train" if train else "infer",
            optimizer=OPTIMIZERS[program.optimizer] if program.optimizer else None,
            amp=program.amp,
            device=device,
            release={"torch": release},
        )
        spans = (
            HAS_KERNELS,
            PREFERS_CUDNN,
            CUDNN_DROPS_OUT,
            SLICES_WHOLE,
            load(device).architecture.wide_heads,
        )
        alike = tuple(parse(release) in span for span in spans)
        if alike not in captures:
            captures[alike] = captured_pytorch(model.train(train), options, runtime)
        profile = runtime.profile(load(device), options)
        estimate = assemble(replace(captures[alike], profile=profile), options, runtime).estimate
        assert estimate.modelled["torch"] == release
        blocks = estimate.allocations
        peaks = [estimate.peak_allocated, estimate.peak_reserved, estimate.peak_requested]
        yield [*peaks, len(blocks.nbytes), sum(blocks.requested)]
