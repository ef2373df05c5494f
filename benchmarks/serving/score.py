"""vLLM started without a GPU, beside what its own log said on H100s.

    python -m benchmarks serving score [MODEL ...] [--python VENV]     start those engines, and put their figures beside the logged ones
    python -m benchmarks serving table                                 docs/evidence/SERVING.md, of everything that --found has

Logged: `tests/data/serving/vllm_0.19_h100.csv`, 20 public runs of vLLM 0.19.0 on H100s (llm-d-planner's accuracy runs, April 2026;
GiB to two digits). Started are those whose configuration stands in `configs/`, written from the models' public config.json. How
a run differs from the engine's defaults the log says: length, utilization, types, ranks.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

LOGGED = ROOT / "tests/data/serving/vllm_0.19_h100.csv"
CONFIGS = Path(__file__).parent / "configs"
FOUND = Path(__file__).parent / "found.json"
PAGE = ROOT / "docs/evidence/SERVING.md"
GIB = 2**30
# The log's column -> the engine's term.
TERMS = {
    "weights_memory_gib": "weights",
    "activation_memory_gib": "activations",
    "non_torch_forward_gib": "outside",
    "kv_cache_memory_gib": "cache",
    "cuda_graph_estimated_gib": "graphs_estimated",
    "cuda_graph_actual_gib": "graphs",
}
_HEAD = """<!-- serving: written by benchmarks/serving/score.py -->
# vLLM started without a GPU, beside public runs on H100s

Each row is a public run of vLLM 0.19.0 on H100s, with what its log says (GiB, to two digits; tokens to the block), and what the same
release says when `analyze serve --engine vllm` starts it on a machine without a GPU (torch 2.10.0+cu128). Made by `python -m benchmarks
serving table`, never edited; the runs that are not here have no configuration in `benchmarks/serving/configs` or were not started.

"""


def logged() -> dict[str, dict[str, str]]:
    """The public runs, by a name that says how they differ."""
    rows = {}
    for row in csv.DictReader(LOGGED.open(encoding="utf-8")):
        words = [
            row["model"].split("/")[1],
            *(f"{key}{row[key]}" for key in ("tp", "pp") if row[key] != "1"),
            row["max_model_len"],
        ]
        rows[
            "-".join(
                [
                    *words,
                    *[row["dtype"].removeprefix("torch.")] * ("float16" in row["dtype"]),
                    *[row["kv_cache_dtype"]] * (row["kv_cache_dtype"] != "auto"),
                ]
            )
        ] = row
    return rows


def arguments(row: dict[str, str]) -> list[str]:
    """The engine's, as the log says the run had them."""
    said = {
        "--max-model-len": row["max_model_len"],
        "--gpu-memory-utilization": row["gpu_memory_utilization"],
        "--dtype": row["dtype"].removeprefix("torch."),
        "--kv-cache-dtype": row["kv_cache_dtype"],
        "--tensor-parallel-size": row["tp"],
        "--pipeline-parallel-size": row["pp"],
    }
    return [word for pair in said.items() for word in pair]


def started(names: tuple[str, ...], python: Path | None, found_in: Path) -> dict[str, dict[str, Any]]:
    """What the engines said, of those named (all that have a configuration), written as they come."""
    found = json.loads(found_in.read_text()) if found_in.exists() else {}
    for name, row in logged().items():
        config = CONFIGS / row["model"].split("/")[1]
        if not config.is_dir() or (names and not any(name.startswith(word) for word in names)):
            continue
        command = [
            sys.executable,
            "-m",
            "analyzer",
            "serve",
            config,
            "--engine",
            "vllm",
            "--device",
            "h100",
            "--format",
            "json",
            "--quiet",
        ]
        with tempfile.TemporaryDirectory() as folder:
            out, begin = Path(folder) / "engine.json", time.monotonic()
            done = subprocess.run(
                [*command, "-o", out, *(["--python", python] if python else []), "--", *arguments(row)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            if not out.exists():
                print(f"{name}: {done.stderr[-2000:]}", flush=True)
                continue
            said = json.loads(out.read_text())
        found[name] = said | {"name": row["model"], "seconds": round(time.monotonic() - begin)}
        found_in.write_text(json.dumps(found, indent=1) + "\n")
        print(line(name, row, found[name]), flush=True)
    return found


def line(name: str, row: dict[str, str], found: dict[str, Any]) -> str:
    """One row of the table."""
    rank = min(found["ranks"], key=lambda one: one["cache"], default=None)
    if found["error"] or rank is None:
        return f"| {name} | {'not started: ' + str(found['error'])[:80]} |" + " |" * len(TERMS)
    cells = [
        f"{float(row[column]):.2f} / {rank[term] / GIB:.2f}" if row[column] and rank[term] is not None else ""
        for column, term in TERMS.items()
    ]
    tokens = int(row["kv_cache_tokens"])
    return f"| {name} | {tokens:,} | {100 * (found['tokens'] / tokens - 1):+.2f} % | {' | '.join(cells)} | {found['seconds']} s |"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--python", type=Path)
@click.option("--found", "found_in", type=Path, default=FOUND)
def score(names: tuple[str, ...], python: Path | None, found_in: Path) -> None:
    """Start the engines and print the rows."""
    started(names, python, found_in)


@click.command()
@click.option("--found", "found_in", type=Path, default=FOUND)
def table(found_in: Path) -> None:
    """Write the page."""
    rows, found = logged(), json.loads(found_in.read_text())
    off = [
        abs(100 * (said["tokens"] / int(rows[name]["kv_cache_tokens"]) - 1))
        for name, said in found.items()
        if not said["error"]
    ]
    text = (
        _HEAD
        + f"Tokens of the cache: {sum(part <= 0.3 for part in off)} of {len(found)} within 0.3 %, farthest {max(off, default=0):.2f} %.\n\n"
    )
    text += "Logged / started, GiB:\n\n| run | tokens logged | started | weights | activation | non-torch | KV cache | graphs, estimated | graphs, taken | time |\n"
    text += "|---|---|---|---|---|---|---|---|---|---|\n" + "".join(
        line(name, rows[name], said) + "\n" for name, said in found.items()
    )
    PAGE.write_text(text, encoding="utf-8")
