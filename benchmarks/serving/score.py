"""vLLM started without a GPU, beside what its own log said on H100s.

    python -m benchmarks serving score [MODEL ...] [--python VENV]     start those engines, and put their figures beside the logged ones
    python -m benchmarks serving table                                 docs/evidence/SERVING.md, of everything that --found has

Logged: `tests/data/serving/vllm_0.19_h100.csv`, 20 public runs of vLLM 0.19.0 on H100s (llm-d-planner's accuracy runs, April 2026;
GiB to two digits). Started are those whose configuration stands in `configs/`, written from the models' public config.json (of models
that see images with what their processor reads, and a tokenizer of its special words alone). How a run differs from the engine's
defaults the log says: length, utilization, types, ranks. Of several ranks it shows one's lines, whichever came first: here the rank
whose weights are nearest, and the first rank's cache.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness.pages import prose
from benchmarks.serving import beside, minors, sglang, starting
from benchmarks.serving.starting import CONFIGS, GIB

_TEXT = prose(__file__)

LOGGED = ROOT / "tests/data/serving/vllm_0.19_h100.csv"
FOUND = Path(__file__).parent / "found.json"
PAGE = ROOT / "docs/evidence/SERVING.md"
# The log's column -> the engine's term.
TERMS = {
    "weights_memory_gib": "weights",
    "activation_memory_gib": "activations",
    "non_torch_forward_gib": "outside",
    "kv_cache_memory_gib": "cache",
    "cuda_graph_estimated_gib": "graphs_estimated",
    "cuda_graph_actual_gib": "graphs",
}
# Of Mistral's own repositories vLLM takes Mistral's files, which it knows by those of the weights.
_MISTRAL = ("--config-format", "mistral", "--tokenizer-mode", "mistral")


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
        own = _MISTRAL if (config / "params.json").exists() else ()
        said = starting.started(config.name, [*arguments(row), *own], python)
        if isinstance(said, str):
            print(f"{name}: {said[-2000:]}", flush=True)
            continue
        found[name] = said | {"name": row["model"]}
        found_in.write_text(json.dumps(found, indent=1) + "\n")
        print(line(name, row, found[name]), flush=True)
    return found


def line(name: str, row: dict[str, str], found: dict[str, Any]) -> str:
    """One row of the table."""
    rank = shown(row, found)
    if found["error"] or rank is None:
        return f"| {name} | {'not started: ' + str(found['error'])[:80]} |" + " |" * (len(TERMS) + 3)
    cells = [
        f"{float(row[column]):.2f} / {rank[term] / GIB:.2f}" if row[column] and rank[term] is not None else ""
        for column, term in TERMS.items()
    ]
    tokens = int(row["kv_cache_tokens"])
    host = f"{found['host_bytes'] / GIB:.1f} GiB" if "host_bytes" in found else ""
    return f"| {name} | {tokens:,} | {100 * (found['tokens'] / tokens - 1):+.2f} % | {' | '.join(cells)} | {found['seconds']} s | {host} |"


def shown(row: dict[str, str], found: dict[str, Any]) -> dict[str, Any] | None:
    """The rank whose lines the log shows, with the first rank's cache."""
    if not found["ranks"]:
        return None
    logged_weights = float(row["weights_memory_gib"]) * GIB
    rank = min(found["ranks"], key=lambda one: abs(one["weights"] - logged_weights))
    return {**rank, "cache": found["ranks"][0]["cache"]}


def verdicts(rows: dict[str, dict[str, str]], found: dict[str, Any]) -> Iterator[str]:
    """What the page begins with, by the terms of its acceptance."""
    able = {name: said for name, said in found.items() if not said["error"] and said["ranks"]}
    off = [100 * (said["tokens"] / int(rows[name]["kv_cache_tokens"]) - 1) for name, said in able.items()]
    pairs = {
        column: [
            (float(rows[name][column]), rank[term] / GIB)
            for name, said in able.items()
            if rows[name][column] and (rank := shown(rows[name], said)) and rank[term] is not None
        ]
        for column, term in TERMS.items()
    }
    yield f"{len(able)} of {len(rows)} public runs started."
    yield (
        f"Tokens of the cache: {sum(abs(part) <= 0.3 for part in off)} of {len(off)} within 0.3 %;"
        f" most over {max(off, default=0):+.2f} %, most under {min(off, default=0):+.2f} %."
    )
    for column in ("weights_memory_gib", "activation_memory_gib", "non_torch_forward_gib"):
        near = sum(abs(logged - ours) <= 0.0251 for logged, ours in pairs[column])
        yield f"{column.removesuffix('_gib').replace('_', ' ')}: {near} of {len(pairs[column])} equal to 0.02 GiB."
    graphs = pairs["cuda_graph_actual_gib"]
    near = sum(abs(ours / logged - 1) <= 0.15 for logged, ours in graphs)
    yield f"CUDA graphs taken: {near} of {len(graphs)} within 15 %; median {median(ours / logged for logged, ours in graphs):.2f} of what was logged."
    ranges = [
        (float(rows[name]["cuda_graph_actual_gib"]), rank["graphs"] / GIB, rank["graphs_most"] / GIB)
        for name, said in able.items()
        if (rank := shown(rows[name], said)) and rank.get("graphs_most")
    ]
    inside = sum(least <= logged <= most for logged, least, most in ranges)
    yield f"CUDA graphs, from what is measured to the most a driver since CUDA 12.4 takes: {inside} of {len(ranges)} whose nodes are known."


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
    found = {name: found[name] for name in rows if name in found}
    text = _TEXT["head"] + "".join(f"- {said}\n" for said in verdicts(rows, found))
    text += _TEXT["beside"] + "\n" + "".join(beside.rows())
    text += _TEXT["minors"] + "\n" + "".join(minors.rows())
    text += _TEXT["sglang"] + "\n" + "".join(sglang.rows())
    text += _TEXT["sglang_beside"] + "\n" + "".join(sglang.beside_rows())
    text += _TEXT["sglang_short"] + _TEXT["graphs"]
    text += "\nLogged / started, GiB:\n\n| run | tokens logged | started | weights | activation | non-torch | KV cache | graphs, estimated | graphs, taken | time | host memory |\n"
    text += "|---|---|---|---|---|---|---|---|---|---|---|\n" + "".join(
        line(name, rows[name], said) + "\n" for name, said in found.items()
    )
    PAGE.write_text(text, encoding="utf-8")
