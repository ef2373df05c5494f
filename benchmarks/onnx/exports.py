"""What PyTorch's two exporters write of sixteen architectures, and what is predicted for each file beside a real ONNX Runtime
on the CPU provider.

    python -m benchmarks onnx_exports score -o tests/data/onnx_exports.json    # all of them, two processes (half an hour)
    python -m benchmarks onnx_exports score --only resnet18                    # those whose name contains it, on the terminal
    python -m benchmarks onnx_exports table                            # docs/evidence/ONNX.md from the recorded results

Each architecture is exported by `torch.onnx.export` with dynamo=True and with dynamo=False (TorchScript), for operator sets
13, 17 and 20, its batch fixed or dynamic. The architectures are small ones of their kind, with random weights. What an
exporter itself cannot write is kept with its own words and counts as no file; the newer one writes operator set 18 and
converts, and where it cannot convert it says so and writes 18: the set in the file is recorded.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import onnx

from benchmarks import ROOT
from benchmarks.harness.pages import write_part
from benchmarks.subjects.exported import ARCHITECTURES, Made

RESULTS = ROOT / "tests" / "data" / "onnx_exports.json"
PAGE = ROOT / "docs" / "evidence" / "ONNX.md"
EXPORTERS = ("dynamo", "torchscript")
OPSETS = (13, 17, 20)
BATCHES = ("fixed", "dynamic")
EXPORTED_BATCH, RUN_BATCH = 2, 3  # a dynamic batch is run at another size than it was exported with


def export(made: Made, exporter: str, opset: int, batch: str) -> onnx.ModelProto:
    """One file. Raises whatever the exporter does."""
    import torch

    module, inputs = made
    values = inputs(EXPORTED_BATCH)
    names = [f"input_{place}" for place in range(len(values))]
    shapes: dict[str, Any] = {}
    if batch == "dynamic" and exporter == "dynamo":
        shapes["dynamic_shapes"] = tuple({0: torch.export.Dim("batch", min=1)} for _ in values)
    elif batch == "dynamic":
        shapes["dynamic_axes"] = {name: {0: "batch"} for name in names} | {"output": {0: "batch"}}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            module.eval(), values, path, dynamo=exporter == "dynamo", opset_version=opset, input_names=names,
            output_names=["output"], **({"verbose": False} | shapes),
        )  # fmt: skip
        return onnx.load(path)


def rows(
    architecture: str, exporters: Iterable[str] = EXPORTERS, opsets: Iterable[int] = OPSETS
) -> Iterator[dict[str, Any]]:
    """Every file of an architecture: predicted, run and compared."""
    from benchmarks.onnx.backend import warns
    from benchmarks.onnx.variants import compare
    from benchmarks.subjects.networks.torchvision_cpu import enable

    enable()
    made = ARCHITECTURES[architecture]()
    for exporter in exporters:
        for opset in opsets:
            for batch in BATCHES:
                row = {"architecture": architecture, "exporter": exporter, "asked": opset, "batch": batch}
                try:
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        model = export(made, exporter, opset, batch)
                except Exception as error:  # the exporter's own, of any kind
                    yield row | {
                        "exporter_failed": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
                    }
                    continue
                row["opset"] = next(entry.version for entry in model.opset_import if not entry.domain)
                try:
                    predicted, real = compare(model, EXPORTED_BATCH if batch == "fixed" else RUN_BATCH)
                except Exception as error:
                    if not type(error).__module__.startswith("onnxruntime."):
                        raise
                    yield row | {"not_run": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
                    continue
                yield row | {
                    "peak": predicted.peak_in_use, "real_peak": real["peak_in_use"], "held": predicted.held,
                    "real_held": real["held"], "warns": warns(predicted),
                }  # fmt: skip


def _all(architecture: str) -> list[dict[str, Any]]:
    """Every file of an architecture, in a process of its own."""
    import onnxruntime
    import torch

    onnxruntime.set_default_logger_severity(4)
    logging.disable()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return list(rows(architecture))


def campaign(names: list[str], processes: int) -> list[dict[str, Any]]:
    """Every file of these architectures, in their order; each is told on stderr when its architecture is done."""
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor(min(processes, len(names))) as pool:
        for future in as_completed([pool.submit(_all, name) for name in names]):
            found += future.result()
            for row in future.result():
                print(json.dumps(row), file=sys.stderr, flush=True)
    return sorted(found, key=lambda row: names.index(row["architecture"]))


def exact(row: dict[str, Any]) -> bool:
    """Whether both figures are right to the byte."""
    return "peak" in row and row["peak"] == row["real_peak"] and row["held"] == row["real_held"]


def summary(found: list[dict[str, Any]]) -> str:
    """A table: architectures down, exporters and batches across; how many operator sets are exact."""
    files = [row for row in found if "peak" in row]
    good = sum(map(exact, files))
    refused = [row for row in found if "exporter_failed" in row]
    not_run = [row for row in found if "not_run" in row]
    kept = sum(row["exporter"] == "dynamo" and row["opset"] != row["asked"] for row in files)
    lines = [
        f"{len(files) + len(not_run)} files of {len({row['architecture'] for row in files})} architectures, all of them analysed,",
        f"{len(files)} run; {len(not_run)} are no model ONNX Runtime loads.",
        "Of those that ran, "
        f"peak in use and held both exact in {good} ({100 * good / max(len(files), 1):.1f} %). {len(refused)} files an exporter",
        f"itself could not write; {kept} of dynamo's are of another operator set than was asked for, because it does not convert.",
        "", "Exact files of those written, for operator sets 13, 17 and 20 together; in brackets the furthest peak:", "",
        "| architecture | dynamo, fixed | dynamo, dynamic | TorchScript, fixed | TorchScript, dynamic |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for architecture in dict.fromkeys(row["architecture"] for row in found):
        cells = []
        for exporter in EXPORTERS:
            for batch in BATCHES:
                some = [row for row in files if (row["architecture"], row["exporter"], row["batch"])
                        == (architecture, exporter, batch)]  # fmt: skip
                off = max((100 * (row["peak"] / row["real_peak"] - 1) for row in some), key=abs, default=0.0)
                cells.append(f"{sum(map(exact, some))} of {len(some)}" + (f" ({off:+.2f} %)" if off else ""))
        lines.append(f"| {architecture} | {' | '.join(cells)} |")
    for title, field, some in (
        ("What the exporters said of those they could not write:", "exporter_failed", refused),
        ("What ONNX Runtime said of those it does not load:", "not_run", not_run),
    ):
        if some:
            lines += ["", title, ""]
            said: dict[str, list[str]] = {}
            for row in some:
                which = f"{row['architecture']} ({row['exporter']}, {row['asked']}, {row['batch']})"
                said.setdefault(row[field], []).append(which)
            lines += [f"- {', '.join(which)}: `{words}`" for words, which in said.items()]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--only", default="", help="architectures whose name contains this")
@click.option("--processes", default=2)
@click.option("-o", "--output", type=Path)
def score(only: str, processes: int, output: Path | None) -> None:
    """Export, run and predict every architecture, and print the table; write the rows."""
    found = campaign([name for name in ARCHITECTURES if only in name], processes)
    if output:
        output.write_text("[\n" + ",\n".join(" " + json.dumps(row) for row in found) + "\n]\n")
    print(summary(found))


@click.command()
def table() -> None:
    """Write the recorded results into their part of the page."""
    write_part(PAGE, "exports", summary(json.loads(RESULTS.read_text())))
