"""Figures other people published, beside what is predicted for the same program: `python -m benchmarks published table [--again] [WORD ...]`.

Writes `docs/evidence/PUBLISHED.md`. Each figure of `figures.py` is reproduced as a small program (`programs/`), followed on the GPU and
with the release it was measured on, as near as that is modelled; nothing is tuned for a figure. What was predicted is kept in
`predicted.json`: without `--again` only what is missing there is followed; WORD: only figures whose name or program has it.
Needs transformers, torchvision, timm, monai, peft and bitsandbytes beside the rest.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from analyzer.devices import load
from analyzer.devices.loader import PROFILES
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.ranges import beside_range
from benchmarks import SUBJECTS
from benchmarks.harness.pages import prose
from benchmarks.published.figures import FIGURES, Figure

_TEXT = prose(__file__)

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "PUBLISHED.md"
KEPT = HERE / "predicted.json"
KINDS = ("allocated", "reserved", "device")
_MIB = 1 << 20
_PEAKS = re.compile(r"^PEAKS (\d+) (\d+)$", re.M)
_TOLD = re.compile(r"^TOLD (\{.*\})$", re.M)
_ENTRY = (
    "import sys; from benchmarks.published.compare import followed; followed(*sys.argv[1:4], sys.argv[4:])"
)
# Contexts with kernels and one handle of cuBLAS, from which `benchmarks/gpu_profiles.py` takes what it says: the least and the most published.
CONTEXTS = {
    "t4": (115, 164), "l4": (251, 251), "rtx3080": (257, 257), "rtx3090": (307, 353), "rtx4060": (115, 115), "rtx4090": (440, 495),
    "a6000": (358, 358), "v100-32gb": (379, 399), "l40": (495, 514), "rtx-pro-5000": (421.6, 421.6), "a100-40gb": (489, 522),
    "h100-pcie": (599, 601), "rtx5090": (619, 654),
}  # fmt: skip

# What is predicted for a figure, in bytes: what the program says ("allocated", "reserved"), what the process holds beside ("beside"), how far
# both may be off ("off", "beside_range"), and the verdict.
Told = Mapping[str, Any]


def followed(gpu: str, torch_release: str, program: str, arguments: Sequence[str]) -> None:
    """Follow a program; it prints its own peaks."""
    import torch

    if (
        torch.version.cuda is None
    ):  # torchvision's wheel is built for CUDA: two of its schemas must be there first
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import analyzer

    estimate = analyzer.run(program, list(arguments), device=gpu, release={"torch": torch_release})
    held = estimate.peak_reserved
    told = {
        "beside": estimate.device_used - held,
        "beside_range": [
            device - reserved
            for device, reserved in zip(estimate.device_range, estimate.reserved_range, strict=True)
        ],
        "off": [end - held for end in estimate.reserved_range],
        "verdict": estimate.verdict(),
        "ended": estimate.incomplete or "",
    }
    print(f"TOLD {json.dumps(told)}")


def predicted(figure: Figure) -> Told:
    """What the program would say of itself, and what is said of it. Raises RuntimeError where it does not get there."""
    program, *arguments = figure.program
    with tempfile.TemporaryDirectory() as folder:
        return _run(figure, _gpu(figure, Path(folder)), str(SUBJECTS / "published" / program), *arguments)


def _gpu(figure: Figure, folder: Path) -> str:
    """The GPU as the program finds it: a profile with the memory that others leave."""
    if not figure.others:
        return figure.gpu
    profile = json.loads((PROFILES / f"{figure.gpu}.json").read_text(encoding="utf-8"))
    others = int(figure.others * _MIB)
    profile["capacity_bytes"] -= others
    if "capacity_range_bytes" in profile:
        profile["capacity_range_bytes"] = [end - others for end in profile["capacity_range_bytes"]]
    path = folder / f"{figure.gpu}.json"
    path.write_text(json.dumps(profile), encoding="utf-8")
    return str(path)


def _run(figure: Figure, gpu: str, *program: str) -> Told:
    command = [sys.executable, "-c", _ENTRY, gpu, figure.torch, *program]
    paths = os.pathsep.join(one for one in (str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")) if one)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    peaks, told = _PEAKS.search(ran.stdout + ran.stderr), _TOLD.search(ran.stdout)
    if peaks is None or told is None:
        raise RuntimeError(f"{figure.name}: {(told or [ran.stderr[-2000:]])[0]}")
    return {"allocated": int(peaks[1]), "reserved": int(peaks[2]), **json.loads(told[1])}


def device(told: Told) -> tuple[int, int, int]:
    """What NVML shows when the program says its figures: taken, least and most."""
    reserved, (less, more), (least, most) = told["reserved"], told["off"], told["beside_range"]
    return reserved + told["beside"], reserved + less + least, reserved + more + most


def key(figure: Figure) -> str:
    """What a prediction is kept under."""
    return " ".join((figure.gpu, figure.torch, *figure.program))


def page(found: Sequence[tuple[Figure, Told]]) -> str:
    """The page, from each figure with what is predicted for it."""
    rows, errors = [], {kind: list[float]() for kind in KINDS}
    inside, widths, verdicts = list[bool](), list[float](), list[str]()
    for figure, told in found:
        verdicts.append(told["verdict"])
        for kind in KINDS:
            published: float | None = getattr(figure, kind)
            if published is None:
                continue
            loose, span = dict(figure.loose).get(kind, ""), ""
            value, least, most = (
                part / _MIB for part in (device(told) if kind == "device" else (told[kind],) * 3)
            )
            error = 100 * (value / published - 1)
            if kind == "device":
                span = f"{least:,.0f} to {most:,.0f}"
                if not loose:
                    inside.append(least <= published <= most)
                    widths.append(100 * (most - least) / published)
            if not loose:
                errors[kind].append(abs(error))
            rows.append(
                f"| {figure.name} | {figure.gpu} | {figure.torch} | {kind} | {published:,.1f} | {value:,.1f} | {error:+.1f} % | {span} | {loose} |"
            )
    sources = "\n".join(f"- {source}" for source in dict.fromkeys(figure.source for figure, *_ in found))
    return "\n".join(
        (
            "# Published figures",
            "",
            "Figures other people measured, beside what is predicted for the same program on the same GPU with the same release of torch, as",
            "`python -m benchmarks published table` writes it. Nothing is tuned for a figure. What makes one loose is said by its source alone. Programs",
            "were corrected where a miss showed that they were not what the source had run, which is listed below. The oldest torch that is",
            "modelled is 2.6, CUDA's and cuDNN's own figures are of 13.0 and 9.19.",
            "",
            *_summary(errors),
            *_ranges(inside, widths, verdicts),
            "",
            "| program | GPU | torch | what | published MiB | predicted MiB | error | range MiB | loose |",
            "|---|---|---|---|---:|---:|---:|---|---|",
            *rows,
            "",
            _TEXT["misses"],
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


def _summary(errors: Mapping[str, Sequence[float]]) -> Iterator[str]:
    for kind, values in errors.items():
        if ordered := sorted(values):
            near = ordered[max(-(-95 * len(ordered) // 100) - 1, 0)]
            yield (
                f"- {kind}: {len(ordered)} figures, median error {statistics.median(ordered):.2f} %, "
                f"95 % within {near:.1f} %, largest {ordered[-1]:.1f} %"
            )


def _ranges(inside: Sequence[bool], widths: Sequence[float], verdicts: Sequence[str]) -> Iterator[str]:
    if inside:
        yield (
            f"- device: {sum(inside)} of {len(inside)} inside the range, which is {statistics.median(widths):.0f} % of the figure wide in the "
            f"median and {max(widths):.0f} % at most"
        )
    wrong = verdicts.count("does not fit")
    yield f'- all of them ran: {len(verdicts) - wrong} of {len(verdicts)} verdicts say "fits" or "may not fit"'


def _contexts() -> Iterator[str]:
    for name, ends in CONTEXTS.items():
        profile = load(name)
        held = device_used(0, ["cublas"], profile)
        published = " to ".join(f"{end:,.0f}" for end in dict.fromkeys(ends))
        least, most = (end / _MIB for end in beside_range(profile, held))
        yield f"| {name} | {published} | {held / _MIB:,.0f} | {least:,.0f} to {most:,.0f} |"


@click.command("table")
@click.argument("words", nargs=-1)
@click.option("--again", is_flag=True, help="Also what was followed before.")
def main(words: tuple[str, ...], again: bool) -> int:
    """Follow what is asked for and write the page."""
    kept: dict[str, Told] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for figure in FIGURES:
        wanted = not words or any(word in f"{figure.name} {key(figure)}" for word in words)
        if not wanted or (key(figure) in kept and not again):
            continue
        try:
            kept[key(figure)] = predicted(figure)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        print(figure.name, kept[key(figure)], flush=True)
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page([(one, kept[key(one)]) for one in FIGURES if key(one) in kept]), encoding="utf-8")
    print(PAGE)
    return 0
