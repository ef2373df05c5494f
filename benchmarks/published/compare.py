"""Figures other people published, beside what is predicted for the same program: `python -m benchmarks published`.

Writes `docs/evidence/PUBLISHED.md`. Each figure is reproduced as a small program (`programs/`), followed on the GPU it was measured on;
nothing is tuned for a figure. The stacks are older than those that are modelled, which the table says.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.devices import load

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "PUBLISHED.md"
_MIB = 1 << 20
_PEAKS = re.compile(r"^PEAKS (\d+) (\d+)$", re.M)
_ENTRY = "import sys; from benchmarks.published.compare import followed; followed(sys.argv[1], sys.argv[2], sys.argv[3:])"


@dataclass(frozen=True)
class Figure:
    """One run that was published. Sizes in MiB; None: not said. loose: why its reserved bytes are not those of the program alone."""

    name: str
    program: tuple[str, ...]
    device: str
    source: str
    allocated: float | None
    reserved: float | None
    loose: str = ""


_VRAMEXP = "WSShiro/vramexp, vramexp1.ipynb: RTX 4090, torch 2.0.1, CUDA 11.8, cuDNN 8.9"
_ANATOMY = (
    "huggingface/transformers v4.21, perf_train_gpu_one.mdx: V100 16 GB, torch 1.10, CUDA 11.2; what nvidia-smi shows less the "
    "1,343 MiB it shows after the first tensor"
)
_SUMMARY = "a forward pass before the run left blocks"


def _vramexp(name: str, model: str, allocated: float, reserved: float, loose: str = "") -> Figure:
    return Figure(name, ("vramexp.py", model), "rtx4090", _VRAMEXP, allocated, reserved, loose)


def _anatomy(name: str, used: int, *arguments: str) -> Figure:
    return Figure(name, ("bert_large.py", *arguments), "v100", _ANATOMY, None, used - 1343)


FIGURES = (
    _vramexp("CNN, batch 128, SGD", "cnn", 530.9, 604.0),
    _vramexp("VGG-16-BN, batch 128, SGD", "vgg16_bn", 17231.9, 18752.0),
    _vramexp("ResNet-50, batch 128, SGD", "resnet50", 11738.2, 12982.0),
    _vramexp("ViT-B/16, batch 128, SGD", "vit_b_16", 17218.1, 18142.0),
    _vramexp("UNETR, batch 8, SGD", "unetr", 5177.9, 9268.0, _SUMMARY),
    _anatomy("BERT-large, batch 4, AdamW", 14949, "4", "1"),
    _anatomy("BERT-large, 4 of batch 1", 8681, "1", "4"),
    _anatomy("BERT-large, 4 of batch 1, checkpoints", 6775, "1", "4", "checkpoint"),
    _anatomy("BERT-large, batch 4, fp16", 13939, "4", "1", "fp16"),
    _anatomy("BERT-large, 4 of batch 1, checkpoints, fp16", 7275, "1", "4", "checkpoint", "fp16"),
    _anatomy("BERT-large, batch 4, Adafactor", 12295, "4", "1", "adafactor"),
    _anatomy(
        "BERT-large, 4 of 1, checkpoints, fp16, Adafactor", 4847, "1", "4", "checkpoint", "fp16", "adafactor"
    ),
)
# Contexts with kernels and cuBLAS, from which `benchmarks/gpu_profiles.py` takes what it says.
CONTEXTS = {
    "rtx3090ti": 421.6, "a100-40gb": 501, "rtx4090": 495, "l40": 507, "rtx-pro-5000": 421.6, "t4": 141,
}  # fmt: skip


def followed(device: str, program: str, arguments: Sequence[str]) -> None:
    """Follow a program; it prints its own peaks."""
    import torch

    if (
        torch.version.cuda is None
    ):  # torchvision's wheel is built for CUDA: two of its schemas must be there first
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import analyzer

    estimate = analyzer.run(program, list(arguments), device=device)
    print(f"ENDED {estimate.incomplete or ''}")


def predicted(figure: Figure) -> tuple[float, float]:
    """What the program would say of itself: MiB allocated and reserved at most. Raises RuntimeError where it does not get there."""
    program, *arguments = figure.program
    command = [sys.executable, "-c", _ENTRY, figure.device, str(HERE / "programs" / program), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    peaks = _PEAKS.search(ran.stdout + ran.stderr)
    if peaks is None:
        raise RuntimeError(f"{figure.name}: {ran.stderr[-2000:]}")
    return int(peaks[1]) / _MIB, int(peaks[2]) / _MIB


def page(found: Sequence[tuple[Figure, float, float]]) -> str:
    """The page, from each figure with what is predicted for it."""
    rows, errors = [], {"allocated": list[float](), "reserved": list[float]()}
    for figure, *told in found:
        for what, value in zip(errors, told, strict=True):
            published: float | None = getattr(figure, what)
            if published is None:
                continue
            error = 100 * (value / published - 1)
            loose = figure.loose if what == "reserved" else ""
            if not loose:
                errors[what].append(abs(error))
            rows.append(
                f"| {figure.name} | {figure.device} | {what} | {published:,.1f} | {value:,.1f} | {error:+.1f} % | {loose} |"
            )
    sources = "\n".join(f"- {source}" for source in dict.fromkeys(figure.source for figure, *_ in found))
    return "\n".join(
        (
            "# Published figures",
            "",
            "Figures other people measured, beside what is predicted for the same program on the same GPU, as `python -m benchmarks published`",
            "writes it. Nothing is tuned for a figure. The stacks are older than what is modelled (torch 2.6, CUDA 13.0, cuDNN 9.19).",
            "",
            *_summary(errors),
            "",
            "| program | GPU | what | published MiB | predicted MiB | error | loose |",
            "|---|---|---|---:|---:|---:|---|",
            *rows,
            "",
            "Sources:",
            "",
            sources,
            "",
            "## Beside the allocator",
            "",
            "What processes with lazily loaded kernels and cuBLAS held. These are what the profiles rest on (`benchmarks/gpu_profiles.py` names",
            "the sources), so they say how well one rule covers them, not how it does elsewhere.",
            "",
            "| GPU | published MiB | taken MiB | range MiB |",
            "|---|---:|---:|---:|",
            *_contexts(),
            "",
        )
    )


def _summary(errors: dict[str, list[float]]) -> Iterator[str]:
    for what, values in errors.items():
        ordered = sorted(values)
        yield (
            f"- {what}: {len(ordered)} figures, median error {statistics.median(ordered):.1f} %, largest {ordered[-1]:.1f} %"
        )


def _contexts() -> Iterator[str]:
    for name, published in CONTEXTS.items():
        profile = load(name)
        code = profile.modules_bytes["kernels"] + profile.modules_bytes["cublas"]
        taken, *ends = ((end + code) / _MIB for end in (profile.context_bytes, *profile.context_range_bytes))
        yield f"| {name} | {published:,.1f} | {taken:,.1f} | {ends[0]:,.0f} to {ends[1]:,.0f} |"


def main(_: Sequence[str] = ()) -> int:
    """Follow every program and write the page."""
    PAGE.write_text(page([(figure, *predicted(figure)) for figure in FIGURES]), encoding="utf-8")
    print(PAGE)
    return 0
