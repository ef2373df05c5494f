"""Write `docs/evidence/ALLOCATORS.md`: `python -m benchmarks allocators table`. Every figure in it is what a command prints now.

One model under every allocator, then document 003's strategies and flags on it, each by the command that asks for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from typing import Any

import click

from analyzer.cli import main as analyze
from benchmarks import ROOT
from benchmarks.harness.pages import MIB, table

OUT = ROOT / "docs" / "evidence" / "ALLOCATORS.md"
MODEL = "models/cnn.py --batch 128 --mode train --device rtx4090"
NAIVE = "FLAGS_allocator_strategy=naive_best_fit"
# What document 003 describes -> the runtime options that ask for it.
FLAGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("auto_growth, collected at once, in place (the default, and recommended)", ()),
    ("auto_growth, chunks of 64 MiB", ("FLAGS_auto_growth_chunk_size_in_mb=64",)),
    ("auto_growth, idle chunks given back at every free", ("FLAGS_free_idle_chunk=True",)),
    ("auto_growth, idle chunks given back at every miss", ("FLAGS_free_when_no_cache_hit=True",)),
    ("pre-allocation, 92 % of the card", (NAIVE,)),
    ("pre-allocation, 40 %", (NAIVE, "FLAGS_fraction_of_gpu_memory_to_use=0.4")),
    (
        "pre-allocation, 0.5 %: larger requests go to the device",
        (NAIVE, "FLAGS_fraction_of_gpu_memory_to_use=0.005"),
    ),
    ("pre-allocation, 0: every request goes to the device", (NAIVE, "FLAGS_fraction_of_gpu_memory_to_use=0")),
    (
        "pre-allocation, 256 MiB, then 300 MiB each time",
        (NAIVE, "FLAGS_initial_gpu_memory_in_mb=256", "FLAGS_reallocate_gpu_memory_in_mb=300"),
    ),
    ("a limit of 1,024 MiB", ("FLAGS_gpu_memory_limit_mb=1024",)),
    ("a limit of 512 MiB", ("FLAGS_gpu_memory_limit_mb=512",)),
    ("garbage collected at 0.25 GB", ("FLAGS_eager_delete_tensor_gb=0.25",)),
    ("garbage collected at 1 GB", ("FLAGS_eager_delete_tensor_gb=1",)),
    ("garbage never collected", ("FLAGS_eager_delete_tensor_gb=-1",)),
    ("the largest 60 % collected", ("FLAGS_memory_fraction_of_eager_deletion=0.6",)),
    ("nothing collected by fraction", ("FLAGS_memory_fraction_of_eager_deletion=0",)),
    ("not in place", ("enable_inplace=False",)),
    ("not in place, never collected", ("enable_inplace=False", "FLAGS_eager_delete_tensor_gb=-1")),
)
RUNTIMES = (
    ("PyTorch", "--runtime pytorch"),
    ("PaddlePaddle", "--runtime paddle"),
    ("TensorFlow, growing", "--runtime tensorflow --runtime-option allow_growth=True"),
    ("TensorFlow, its default", "--runtime tensorflow"),
)


def printed(command: str) -> tuple[int, str]:
    """Exit code and standard output of `analyze COMMAND`."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.chdir(ROOT):
        code = analyze(shlex.split(command))
    return code, stream.getvalue()


def estimated(command: str) -> dict[str, Any]:
    """The estimate of a command."""
    code, text = printed(f"{command} --format json -q")
    return {"code": code, **json.loads(text)}


def mib(nbytes: int) -> str:
    """MiB with one decimal."""
    return f"{nbytes / MIB:,.1f}"


def figures(command: str) -> tuple[str, str, str]:
    """Allocated, reserved, and whether it fits."""
    found = estimated(command)
    fits = "out of memory" if any("runs out of memory" in note for note in found["notes"]) else "fits"
    return (
        mib(found["peak_allocated"]),
        mib(found["peak_reserved"]),
        fits if found["code"] == 0 or fits != "fits" else "no",
    )


def document() -> str:
    """The page."""
    runtimes = [(name, f"`analyze {MODEL} {said}`", *figures(f"{MODEL} {said}")) for name, said in RUNTIMES]
    strategies = []
    for what, options in FLAGS:
        said = "".join(f" --runtime-option {option}" for option in options)
        shown = "<br>".join(f"`{option}`" for option in options)
        strategies.append((what, shown, *figures(f"{MODEL} --runtime paddle{said}")))
    lines = [
        "# One graph, any allocator",
        "",
        "Written by `python -m benchmarks allocators table`; a test keeps it up to date. Sizes in MiB.",
        "",
        "## The same requests under every allocator",
        "",
        "The document's CNN is captured once; the requests PyTorch makes are served by every simulator. `calls` are calls",
        "of the driver. `≥`: the driver's own pool behind cudaMallocAsync is not published, its figures are lower bounds.",
        "",
        f"    analyze allocators {MODEL}",
        "",
        "```text",
        printed(f"allocators {MODEL} -q")[1].rstrip(),
        "```",
        "",
        "## The same graph under every runtime",
        "",
        "Here each framework's own executor decides what is requested, and when it goes.",
        "",
        table(("runtime", "command", "allocated", "reserved", ""), runtimes, "llrr"),
        "What the figures of PaddlePaddle and TensorFlow assume stands under every estimate, in its notes.",
        "",
        "## PaddlePaddle's strategies and flags (document 003)",
        "",
        f"Each row is `analyze {MODEL} --runtime paddle` with these `--runtime-option`s. The same names count in the",
        "environment. `FLAGS_memory_fraction_of_eager_deletion` belongs to the executors of PaddlePaddle 1 and 2.",
        "",
        table(("strategy", "options", "allocated", "reserved", ""), strategies, "llrr"),
        "Recomputation is `--checkpoint PATTERN`, as for PyTorch: the matching modules' operators run again in the backward",
        "pass, and the executor frees what they make as anything else.",
    ]
    return "\n".join(lines) + "\n"


@click.command("table")
def main() -> None:
    """Write the page."""
    OUT.write_text(document(), encoding="utf-8")
