"""`analyze pipeline FOLDER`: a diffusion pipeline's memory by stage, over sizes, frames and offloads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option, options_named, output_option, unprotected_option
from analyzer.cli._output import check_writable, deliver, keep_apart, working
from analyzer.errors import MissingPackageError, OptionError, did_you_mean
from analyzer.report import formats
from analyzer_pipelines.configurations import PROGRAM, pipeline_of

OFFLOADS = ("none", "model", "group", "sequential")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")


def _sizes(words: str | None) -> list[tuple[int, int] | None]:
    """Return widths and heights. Raises OptionError."""
    sizes: list[tuple[int, int] | None] = []
    for word in (words or "").split(","):
        match = _SIZE.fullmatch(word.strip())
        if words is not None and match is None:
            raise OptionError(f"--size {word}: no size", "write WIDTHxHEIGHT, as 832x480")
        sizes.append(None if match is None else (int(match[1]), int(match[2])))
    return sizes


def _frames(words: str | None) -> list[int | None]:
    try:
        return [None if words is None else int(word) for word in (words or "").split(",")]
    except ValueError:
        raise OptionError(f"--frames {words}: no number", "write a number, or several: 33,81") from None


def _offloads(words: str) -> list[str]:
    chosen = list(OFFLOADS) if words == "all" else words.split(",")
    for word in chosen:
        if word not in OFFLOADS:
            raise OptionError(
                f"--offload {word}: no way to offload",
                did_you_mean(word, OFFLOADS).strip() or f"one of {', '.join(OFFLOADS)}, or all",
            )
    return chosen


def _choices(options: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each run's title and its arguments."""
    same = ["--dtype", DTYPES[options["dtype"]], "--steps", str(options["steps"])]
    same += ["--batch", str(options["batch"])]
    same += [f"--{name}" for name in ("tiling", "slicing") if options[name]]
    same += ["--lora", str(options["lora"])] if options["lora"] else []
    every = product(_sizes(options["size"]), _frames(options["frames"]), _offloads(options["offload"]))
    for size, frames, offload in every:
        words, arguments = [], [*same, "--offload", offload]
        if size is not None:
            words.append(f"{size[0]}x{size[1]}")
            arguments += ["--width", str(size[0]), "--height", str(size[1])]
        if frames is not None:
            words.append(f"{frames} frames")
            arguments += ["--frames", str(frames)]
        yield ", ".join([*words, "whole" if offload == "none" else f"{offload} offload"]), arguments


@click.command(
    cls=Command,
    short_help="A diffusion pipeline by stage, size, frames and offload.",
    examples=(
        "analyze pipeline FOLDER --size 1024x1024 --device rtx4090 --offload all",
        "analyze pipeline hf:ORG/NAME --frames 33,81 --offload model --device h100",
    ),
)
@click.argument("target")
@click.option("--size", metavar="WxH[,...]", help="Width and height (default: the pipeline's own).")
@click.option("--frames", metavar="N[,...]", help="Frames of a video.")
@click.option(
    "--offload",
    default="none",
    show_default=True,
    metavar="WAY[,...]",
    help="none, model, group, sequential (diffusers' enable_..._offload), or all of them side by side.",
)
@click.option("--tiling", is_flag=True, help="Decode in tiles (vae.enable_tiling).")
@click.option("--slicing", is_flag=True, help="Decode one image at a time (vae.enable_slicing).")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="bf16", show_default=True, help="Weights.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Prompts at a time.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Denoising steps: later ones take what the second takes.",
)
@click.option("--lora", type=click.IntRange(min=1), metavar="RANK", help="With an adapter of this rank.")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of hf:ORG/NAME.")
@options_named("device", "budget")
@format_option("pipeline")
@output_option
@unprotected_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(target: str, **options: Any) -> int:
    """Build the diffusers pipeline of TARGET from its configurations, run it on a simulated GPU, and report
    its memory by stage: text encoders, denoiser, decoder.

    TARGET is a folder with a model_index.json, or hf:ORG/NAME, of which the configurations alone are
    fetched. No weights are needed. Several sizes, frames or ways to offload give one line each.

    For a script of your own that uses a pipeline: analyze run SCRIPT.

    Exit code 0: a run fits the device and budget given; 1: none does; 2: bad usage, or no run came to its
    end.
    """
    check_writable("-o", options["output"])
    choices = list(_choices(options))
    if options["revision"] is not None and not target.startswith("hf:"):
        raise OptionError("--revision is of hf:ORG/NAME", "leave it out for a folder")
    for package in ("diffusers", "transformers"):
        if find_spec(package) is None:
            raise MissingPackageError(
                f"a pipeline is built by {package}, which is not installed", f"pip install {package}"
            )
    folder, kind = pipeline_of(target, options["revision"])
    keep_apart(PROGRAM, options)
    with working(target, options["quiet"]) as tell:
        from analyzer.options import Options
        from analyzer_pipelines.follow import pipeline_memory

        parsed = Options.of({"device": options["device"], "budget": options["budget"]})
        memory = pipeline_memory(
            target, kind, folder, choices, parsed, tell, unprotected=options["unprotected"]
        )
    deliver(formats.render("pipeline", options["form"], memory), options["output"])
    if all(run.ended for run in memory.runs):
        return 2
    limited = options["device"] is not None or options["budget"] is not None
    return int(limited and all(run.verdict != "fits" for run in memory.runs))
