"""Hand-built estimates for tests of reports and the command line: every figure is made up, and consistent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.liveness.naive import Naive
from analyzer.results.estimate import (
    Allocations,
    Certainty,
    Estimate,
    MarkRow,
    Origin,
    SegmentRow,
    TensorRow,
    Timeline,
)

MIB = 2**20

TRAINING = Estimate(
    target="models/small.py",
    framework="pytorch",
    runtime="pytorch",
    mode="train",
    batch=128,
    optimizer="sgd",
    device="h200",
    device_note="h200, assumed: no --device given and no GPU found",
    capacity_bytes=100 * MIB,
    options={"amp": None, "steps": 3},
    peak_allocated=40 * MIB,
    peak_reserved=42 * MIB,
    device_used=60 * MIB,
    peak_requested=39 * MIB,
    graph_peak=32 * MIB,
    saved_for_backward=20 * MIB,
    naive=Naive(
        data=4 * MIB,
        weights=8 * MIB,
        forward_output=16 * MIB,
        weight_gradient=8 * MIB,
        output_gradient=20 * MIB,
        precision_factor=1.0,
        ddp_factor=1,
        moments=0,
        mode="train",
    ),
    breakdown={
        "parameters": 8 * MIB,
        "saved for backward": 20 * MIB,
        "gradients": 8 * MIB,
        "inputs": 4 * MIB,
    },
    by_module={"conv": 20 * MIB, "": 20 * MIB},
    by_line={"small.py:12": 20 * MIB},
    marks=(MarkRow("model", 8 * MIB, 8 * MIB, 20 * MIB), MarkRow("0.forward", 32 * MIB, 36 * MIB, 42 * MIB)),
    tensors=(
        TensorRow(
            "aten::convolution.default",
            20 * MIB,
            "saved for backward",
            "float32",
            (128, 8, 80, 64),
            "aten::convolution.default",
            "conv",
            "small.py:12",
            "forward",
            "tensor",
        ),
        TensorRow(
            "fc.weight",
            8 * MIB,
            "parameters",
            "float32",
            (2097152,),
            "aten::_to_copy.default",
            "fc",
            "",
            "setup",
            "ort-initializer",
        ),
    ),
    timeline=Timeline(
        allocated=(8 * MIB, 8 * MIB, 40 * MIB, 40 * MIB, 8 * MIB),
        reserved=(20 * MIB, 20 * MIB, 42 * MIB, 42 * MIB, 42 * MIB),
        delta=(8 * MIB, 0, 32 * MIB, 0, -32 * MIB),
        label=("fc.weight", "model", "conv, out", "0.forward", "conv, out"),
        category=("parameters", "", "saved for backward", "", "saved for backward"),
        phase=("model", "model", "0.forward", "0.forward", "0.backward"),
        rule=("ort-initializer", "", "tensor", "", "tensor"),
    ),
    certainty=Certainty(
        exact=30 * MIB,
        measured=6 * MIB,
        bounded=4 * MIB,
        by_rule={
            "exact": {"tensor": 30 * MIB},
            "measured": {
                "cudnn-convolution": 3 * MIB,
                "topk": MIB,
                "cudnn-batch-norm": MIB,
                "sort": MIB // 2,
                "x": MIB // 2,
            },
            "bounded": {"nccl": 4 * MIB},
        },
    ),
    notes=(
        "A first note.",
        "A second note that is long enough to be wrapped somewhere before the eightieth column of the terminal.",
    ),
    peak_at="0.forward",
    allocations=Allocations(
        born=(0, 2),
        died=(-1, 4),
        nbytes=(8 * MIB, 32 * MIB),
        requested=(8 * MIB - 100, 32 * MIB),
        address=(0x7F00_0000_0000, 0x7F10_0000_0000),
        origin=(0, 1),
        origins=(
            Origin("fc.weight", "parameters", "float32", (2097152,), "aten::_to_copy.default", "fc"),
            Origin(
                "conv, out",
                "saved for backward",
                "float32",
                (128, 8, 80, 64),
                "aten::convolution.default",
                "conv",
                "small.py:12",
                "forward",
                "tensor",
            ),
        ),
    ),
    segments=(
        SegmentRow(0x7F00_0000_0000, 10 * MIB, 0),
        SegmentRow(0x7F08_0000_0000, 10 * MIB, 0, 2),
        SegmentRow(0x7F10_0000_0000, 32 * MIB, 2),
    ),
    peak_event=2,
    iterations=(1,),
)

# `TRAINING` on a terminal without colour.
GOLDEN = """\
fits: 60.0 MiB of 100.0 MiB on h200, headroom 40.0 MiB (40.0 %)
device: h200, assumed: no --device given and no GPU found

models/small.py · pytorch · training · batch 128 · sgd

estimate                  bytes    MiB
───────────────────────────────────────────────────────────────────
naive sum            58,720,256   56.0   40.0 % over peak allocated
graph liveness       33,554,432   32.0   tensors freed at last use
pytorch: allocated   41,943,040   40.0   peak in use
pytorch: reserved    44,040,192   42.0   peak held by the allocator
pytorch: device      62,914,560   60.0   what nvidia-smi shows
naive = data 4.0 + weights 8.0 + outputs 16.0 + weight grads 8.0 + output grads
20.0 MiB

At the peak (0.forward, in conv, small.py:12)
saved for backward  ██████████████████████████████  20.0 MiB  50.0 %
parameters          ████████████                     8.0 MiB  20.0 %
gradients           ████████████                     8.0 MiB  20.0 %
inputs              ██████                           4.0 MiB  10.0 %

Largest tensors at the peak (analyze explain RULE)
    size   shape, type                          tensor or module
   phase   category · rule                      operator, line
────────────────────────────────────────────────────────────────────────────────
20.0 MiB   128x8x80x64 float32                  conv
 forward   saved for backward · tensor          convolution small.py:12
 8.0 MiB   2097152 float32                      fc.weight
   setup   parameters · ort-initializer

How sure: 75.0 % of the peak by rule, 15.0 % by measurement, 10.0 % bounded
  measured: cudnn-convolution 3.0 MiB, topk 1.0 MiB, cudnn-batch-norm 1.0 MiB,
  and 2 more
  bounded: nccl 4.0 MiB

Notes
- A first note.
- A second note that is long enough to be wrapped somewhere before the eightieth
  column of the terminal.
"""

# What ran an operator that nobody described.
UNKNOWN = replace(
    TRAINING, certainty=replace(TRAINING.certainty, unknown_operators={"custom::op": 3, "mine::b": 1})
)

INFERENCE = replace(
    TRAINING,
    target="models/small.onnx",
    framework="onnx",
    runtime="onnxruntime",
    mode="infer",
    optimizer="",
    naive=replace(TRAINING.naive, mode="infer"),
    notes=(),
)


def hostile(
    text: str = "\x1b[31mred\x1b[0m\x1b]0;title\x07[bold]x[/bold]\r\n\u202eevil\u200b\x9b1mend",
) -> Estimate:
    """An estimate whose every name carries escape sequences, markup and invisible characters."""
    row = TensorRow(text, MIB, text, text, (1,), text, text, text, text, text, text, ("a variable", text))
    values: dict[str, Any] = {
        "target": text,
        "runtime": text,
        "optimizer": text,
        "device": text,
        "device_note": text,
    }
    return replace(
        TRAINING,
        **values,
        breakdown={text: MIB},
        marks=(MarkRow(text, 1, 1, 1),),
        tensors=(row,),
        timeline=Timeline((1, 1), (1, 1), (1, 0), (text, text), (text, ""), (text, text), (text, "")),
        allocations=Allocations(
            (0,), (-1,), (1,), (1,), (512,), (0,), (Origin(text, text, text, (1,), *[text] * 6),)
        ),
        segments=(SegmentRow(512, 1, 0),),
        peak_event=0,
        iterations=(-1,),
        certainty=replace(TRAINING.certainty, unknown_operators={text: 1}, by_rule={"measured": {text: MIB}}),
        notes=(text,),
        peak_at=text,
    )
