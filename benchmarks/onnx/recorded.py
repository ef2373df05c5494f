"""Every measurement of ONNX Runtime under the CUDA provider that this repository has, beside what is stated for it.

    python -m benchmarks onnx_recorded score                  # networks, single operators and the onnx package's tests
    python -m benchmarks onnx_recorded score --variants       # and half-precision and quantised networks, made anew: some minutes
    python -m benchmarks onnx_recorded score --list           # each that is not exact

1. A prediction states more than two figures: the range its figures take with the order of initializers (`ranges`), how
   many bytes at the peak are only bounded (they may be absent), and in words that memory may be more.
2. A measured peak or held figure is **exact**; **inside** that range; **warned**, above it, where a note says that it may be; or
   **outside**: above it without a word, or below it. Within 0.1 % or 4 KiB of the range counts as inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import onnx

from analyzer.devices import load
from analyzer.errors import AnalyzerError
from analyzer.runtimes.events import AllocationEvent, Free, Malloc
from analyzer.runtimes.onnxruntime import SessionPrediction, predict
from benchmarks import ROOT
from benchmarks.harness import files

RUNS = ROOT / "tests" / "data" / "ort" / "h200_runs.json.gz"
CASES = ROOT / "tests" / "data" / "h200" / "onnx_cuda.json.gz"
CLOSE, CLOSE_BYTES = 0.001, 4096
VERDICTS = ("exact", "inside", "warned", "outside")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement beside its prediction, in bytes. verdict: one of `VERDICTS`, or the prediction's refusal."""

    name: str
    verdict: str
    peak: int = 0
    real_peak: int = 0
    held: int = 0
    real_held: int = 0


def bounded_bytes(events: tuple[AllocationEvent, ...]) -> int:
    """Bytes at the fullest moment that are only bounded."""
    alive: dict[int, Malloc] = {}
    total = most = found = bounded = 0
    for event in events:
        if isinstance(event, Malloc):
            alive[event.key] = event
            total += event.nbytes
            bounded += event.nbytes * (event.basis == "bounded")
            if total > most:
                most, found = total, bounded
        elif isinstance(event, Free):
            gone = alive.pop(event.key)
            total -= gone.nbytes
            bounded -= gone.nbytes * (gone.basis == "bounded")
    return found


def verdict(mine: SessionPrediction, peak: int, held: int) -> str:
    """What rule 2 says of these measured figures."""
    if (mine.peak_in_use, mine.held) == (peak, held):
        return "exact"
    absent = bounded_bytes(mine.events)
    any_bounded = any(isinstance(event, Malloc) and event.basis == "bounded" for event in mine.events)
    warns = bool(mine.unknown) or any("may be more" in note for note in mine.notes)
    found = "inside"
    assert mine.ranges is not None  # every session has them
    for real, (least, most), may_lack in zip(
        (peak, held), mine.ranges, (absent, held if any_bounded else 0), strict=True
    ):
        slack = max(CLOSE * real, CLOSE_BYTES)
        if real < least - may_lack - slack or (real > most + slack and not warns):
            return "outside"
        if real > most + slack:
            found = "warned"
    return found


def compared(name: str, model: Any, batch: int | None, options: dict[str, Any], peak: int, held: int) -> Row:
    """One measurement beside its prediction."""
    try:
        mine = predict(model, batch=batch, options=options, device=load("h200"))
    except AnalyzerError as error:
        return Row(name, f"refused: {error.message}")
    return Row(name, verdict(mine, peak, held), mine.peak_in_use, peak, mine.held, held)


def networks() -> Iterator[Row]:
    """Runs of exported networks, with options."""
    from tests.runtimes.onnxruntime import ort_reference as reference

    recorded = files.read(RUNS)
    for row in (*recorded["cases"], *recorded["heldout"]):
        case = row["case"]
        name = " ".join(str(value) for key, value in case.items() if key != "exporter")
        options = reference.options_of(case)
        yield compared(name, reference.graph(case["model"]), case["batch"], options, row["peak"], row["held"])


@lru_cache(maxsize=1)
def _recorded() -> dict[str, list[dict[str, Any]]]:
    rows = [row for row in files.read(CASES)["cases"] if row.get("peak") is not None]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)
    return found


def _rows(name: str, model: onnx.ModelProto, batch: int | None) -> Iterator[Row]:
    for row in _recorded().get(name, ()):
        told = "/".join([name, *row["provider"].values()])
        yield compared(told, model, batch, row["provider"], row["peak"], row["held"])


def operators() -> Iterator[Row]:
    """Single operators of every type."""
    from benchmarks.subjects.onnx_operators import operators as made

    for name, model, _ in made():
        yield from _rows(f"o_{name}", model, None)


def backend(every: int = 1) -> Iterator[Row]:
    """Every such of the onnx package's own tests, where the installed package makes the models that were recorded."""
    from benchmarks.onnx.backend import cases

    for case in cases()[::every]:
        yield from _rows(f"b_{case.name}", case.model, None)


def variants(folder: Path | None) -> Iterator[Row]:
    """Networks in half precision and quantised, at batch 4; from the folder that `cuda.py` packed, or made anew."""
    if folder is not None:
        for path in sorted(folder.glob("v_*.onnx")):
            yield from _rows(path.stem, onnx.load(path), 4)
        return
    from benchmarks.onnx.variants import variants as made

    for name, model in made():
        yield from _rows(f"v_{name}", model, 4)


@click.command()
@click.option("--variants", "with_variants", is_flag=True, help="also half-precision and quantised networks")
@click.option(
    "--packed", type=Path, metavar="FOLDER", help="take these from where `onnx_cuda pack` wrote them"
)
@click.option("--list", "every", is_flag=True, help="each that is not exact")
def score(with_variants: bool, packed: Path | None, every: bool) -> None:
    """Predict every recorded run, and print how many are exact and those outside of what is stated."""
    groups: dict[str, Iterator[Row]] = {
        "networks": networks(),
        "operators": operators(),
        "backend": backend(),
    }
    if with_variants or packed:
        groups["variants"] = variants(packed)
    for name, found in groups.items():
        rows = list(found)
        counts = Counter(row.verdict.partition(":")[0] for row in rows)
        told = ", ".join(f"{counts[word]} {word}" for word in (*VERDICTS, "refused") if counts[word])
        print(f"{name}: {len(rows)} measured: {told}")
        for row in rows:
            if row.verdict.startswith(("outside", "refused")) or (every and row.verdict != "exact"):
                off = 100 * (row.peak / row.real_peak - 1) if row.real_peak else 0.0
                print(
                    f"  {row.name}: {row.verdict}, peak {row.peak:,} for {row.real_peak:,} ({off:+.2f} %), "
                    f"held {row.held:,} for {row.real_held:,}"
                )
