"""The cases of `tests/data/h200/configurations.json`, as scripts for a GPU: python -m benchmarks language_models measure FOLDER

Writes for each case of `measured_cases.json` FOLDER/NAME.py, the script that `analyze config.json --write-script` writes, with the
folder of its configuration beside it, and FOLDER/jobs.json. Then, on the machine with the GPU and from the same folder as here:

    python -m benchmarks programs measure OUT --jobs FOLDER/jobs.json

and back here `joined OUT/rows.json` joins the cases with what was measured, as the test reads them; `score` analyses each and
writes docs/evidence/CONFIGURATIONS.md.
"""

from __future__ import annotations

import datetime
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import click

import analyzer
from analyzer.options import Options
from analyzer.pipeline.config import script_of
from benchmarks import ROOT
from benchmarks.harness.pages import table

HERE = ROOT / "benchmarks/language_models"
CASES = HERE / "measured_cases.json"
MEASURED = ROOT / "tests/data/h200/configurations.json"
AGAIN = ROOT / "tests/data/h200/configurations_again.json"
PAGE = ROOT / "docs/evidence/CONFIGURATIONS.md"
_FIGURES = ("peak_allocated", "peak_reserved", "nvml_peak")


def shapes(name: str, cases: dict[str, Any]) -> dict[str, Any]:
    """A configuration of the cases' own, or a public model's."""
    found = cases["configs"].get(name)
    return found or json.loads((HERE / "configs" / name / "config.json").read_text())


@click.command("measure")
@click.argument("folder", type=Path)
def measure(folder: Path) -> None:
    """Write the scripts and their jobs."""
    cases = json.loads(CASES.read_text())
    jobs = []
    for case in cases["rows"]:
        config = folder / "configs" / case["config"]
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.json").write_text(json.dumps(shapes(case["config"], cases)))
        program = folder / f"{case['name']}.py"
        program.write_text(script_of(str(config), Options.of(case["options"])))
        jobs.append(
            {"name": case["name"], "program": str(Path.cwd() / program), "args": [], "environment": {}}
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))


@click.command("joined")
@click.argument("rows", type=Path)
def joined(rows: Path) -> None:
    """Keep the cases that were measured, with what they took: now, or as the file has it."""
    cases = json.loads(CASES.read_text())
    took = {
        row["name"]: row for row in (*json.loads(MEASURED.read_text())["rows"], *json.loads(rows.read_text()))
    }
    measured = [
        {**case, **{name: took[case["name"]][name] for name in _FIGURES}}
        for case in cases["rows"]
        if not took.get(case["name"], {"error": True}).get("error")
    ]
    used = sorted({case["config"] for case in measured})
    said = {"configs": {name: shapes(name, cases) for name in used}, "rows": measured}
    MEASURED.write_text(json.dumps({**cases["measured"], **said}, indent=1) + "\n")


@click.command("score")
def score() -> None:
    """Analyse every case, and write the page: as it was measured, and how far the analysis is from it."""
    cases = json.loads(MEASURED.read_text())
    rows, errors, predicted = [], [], {}
    for case in cases["rows"]:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config.json"
            config.write_text(json.dumps(cases["configs"][case["config"]]))
            begun = time.monotonic()
            found = analyzer.analyze(config, release={"torch": "2.11"}, device="h200", **case["options"])
        taken = predicted[case["name"]] = (found.peak_allocated, found.peak_reserved, found.device_used)
        off = [100 * (ours / case[name] - 1) for ours, name in zip(taken, _FIGURES, strict=True)]
        errors.append([abs(ours - case[name]) for ours, name in zip(taken, _FIGURES, strict=True)] + off)
        measured = " | ".join(f"{case[name] / 2**20:,.1f}" for name in _FIGURES)
        shown = " | ".join("0" if not round(one, 3) else f"{one:+.3f} %" for one in off)
        seconds = time.monotonic() - begun
        rows.append((case["name"], case["config"], measured, shown, f"{seconds:.1f}"))
        print(*rows[-1], sep=" | ", flush=True)
    exact = [sum(not error[place] for error in errors) for place in range(2)]
    worst = [sorted(abs(error[3 + place]) for error in errors) for place in range(3)]
    p95 = [values[min(round(0.95 * len(values)), len(values) - 1)] for values in worst]
    head = ["case", "configuration", *2 * ("allocated", "reserved", "NVML"), "s"]
    text = "\n".join(
        [
            "# Configurations, measured",
            "",
            f"{len(rows)} uses of configurations on an {cases['gpu']} (torch {cases['torch']}, transformers {cases['transformers']}, "
            f"{cases['date']}), each by the script that `--write-script` writes, and what `analyze config.json` says of them, "
            f"{datetime.datetime.now(datetime.UTC):%d %B %Y}. Measured in MiB: allocated, reserved, NVML; then the errors; then "
            "seconds of analysis.",
            "",
            f"**To the byte: allocated {exact[0]} of {len(rows)}, reserved {exact[1]}. 95 % are within {p95[0]:.3f} % allocated, "
            f"{p95[1]:.2f} % reserved, {p95[2]:.2f} % NVML.** transformers loads experts (`moe_*`, `latent_*`, `hybrid_*`) in threads, "
            "in an order that only a run has: figures are of a likely one, `reserved_range` of others too.",
            "",
            table(head, rows, "llrrrrrrr"),
            *_again(cases["rows"], predicted),
            "Made by `python -m benchmarks language_models score`.",
            "",
        ]
    )
    PAGE.write_text(text)


def _again(measured: list[dict[str, Any]], predicted: dict[str, tuple[int, ...]]) -> list[str]:
    """The cases that were run more often, as a table: between what their runs took, and what is predicted."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(AGAIN.read_text())["rows"]:
        runs.setdefault(row["name"], []).append(row)
    lines, within = [], 0
    for case in measured:
        if case["name"] not in runs:
            continue
        took = [case, *runs[case["name"]]]
        cells = []
        for place, name in enumerate(_FIGURES[:2]):
            figures = sorted(row[name] for row in took)
            ours = predicted[case["name"]][place]
            same = figures.count(ours)
            said = (
                f"as {same} of them" if same else "between" if figures[0] < ours < figures[-1] else "outside"
            )
            within += place == 0 and said != "outside"
            cells.append(
                f"{figures[0] / 2**20:,.1f} to {figures[-1] / 2**20:,.1f} | {ours / 2**20:,.1f}, {said}"
            )
        lines.append((case["name"], len(took), *cells))
    return [
        "## Models of experts, run again",
        "",
        f"The same script, the same machine: no two runs load in the same order. Allocated is what a run took, or between two, in {within} of "
        f"{len(lines)}.",
        "",
        table(("case", "runs", "allocated", "here", "reserved", "here"), lines, "lr"),
    ]
