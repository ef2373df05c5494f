"""Scripts that serve by ONNX Runtime: memory after every request on a GPU, beside the emulated script.

    python -m benchmarks onnx_served score --python venv/bin/python       # emulated, beside tests/data/h200/onnx_serving.json.gz

The scripts of `subjects/onnx_serving` were measured once, three processes each, by `onnx_served measure` of commit cf817472.
A request is within the spread where NVML's figure lies between the least and the most of the measured processes: ONNX Runtime loads
initializers in the order of a hash table, so that processes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from benchmarks import ROOT, SUBJECTS
from benchmarks.harness import files

RECORDED = ROOT / "tests/data/h200/onnx_serving.json.gz"
SCRIPTS = SUBJECTS / "onnx_serving"
MIB = 2**20


@click.command()
@click.option("--python", required=True, help="A Python with onnxruntime-gpu and onnx.")
@click.argument("scripts", nargs=-1)
def score(python: str, scripts: tuple[str, ...]) -> int:
    """Each request's memory of the device and of the arenas, emulated beside measured."""
    import analyzer

    recorded = files.read(RECORDED)
    offs: list[float] = []
    for script in scripts or sorted({row["script"] for row in recorded}):
        estimate = analyzer.emulate(SCRIPTS / script, python=python, device="h200")
        measured = [served(row["marks"]) for row in recorded if row["script"] == script]
        for after, marks in zip(estimate.after_runs, zip(*measured, strict=True), strict=False):
            device = [mark["process"] for mark in marks]
            in_use = [sum(arena["InUse"] for arena in mark["arenas"]) for mark in marks]
            offs.append(off(after.device_used, device))
            click.echo(
                f"{after.event:60.60} device {after.device_used / MIB:7,.0f} {_range(device)} {offs[-1]:6.1%}"
                f"   in use {after.allocated / MIB:7,.1f} {_range(in_use)}"
            )
    near = sum(one <= 0.01 for one in offs)
    click.echo(f"{near} of {len(offs)} within 1 % of the processes' spread, most {max(offs):.1%}")
    return 0


def served(marks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The marks of sessions and requests."""
    return [mark for mark in marks if mark["what"] in ("session", "request")]


def off(figure: int, measured: Sequence[int]) -> float:
    """How far a figure lies outside of the measured ones, of the largest."""
    return max(min(measured) - figure, figure - max(measured), 0) / max(measured)


def _range(figures: Sequence[int]) -> str:
    ends = dict.fromkeys(f"{nbytes / MIB:,.0f}" for nbytes in (min(figures), max(figures)))
    return f"[{' to '.join(ends)}]"
