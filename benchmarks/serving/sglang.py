"""SGLang started without a GPU: which releases start, what they say, and one public run on an H100 beside the same release.

    python -m benchmarks serving sglang VENV [VENV ...]     start the models by each release, and the public runs of that release (`sglang.json`)

Logged: `tests/data/serving/sglang_h100.csv`, GiB to two digits, from a public server's log (`source`). `serving table` writes the page.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.serving.starting import GIB, started

LOGGED = ROOT / "tests/data/serving/sglang_h100.csv"
FOUND = Path(__file__).parent / "sglang.json"
MODELS = {
    "Llama-3.1-8B-Instruct": "",
    "Qwen3-8B": "",
    "Qwen1.5-MoE-A2.7B": "",
    "gpt-oss-20b": "",
    "Llama-3.1-8B-Instruct, 2 GPUs": "--tp-size 2",
}
_KEPT = ("engine", "torch", "error", "ranks", "settings", "tokens", "notes", "seconds", "host_bytes")
# A rank's terms by the columns of the log.
TERMS = {"free": "free", "weights": "weights", "cache": "cache", "graphs": "graphs", "left": "left"}


def logged() -> list[dict[str, str]]:
    """The public runs."""
    return list(csv.DictReader(LOGGED.open(encoding="utf-8")))


def rows() -> Iterator[str]:
    """The releases' table: one row for each model and release."""
    yield "| model | release | share | tokens | weights | KV cache | tables, states | graphs, taken | left | time | host memory |\n"
    yield "|---" * 11 + "|\n"
    for model, releases in json.loads(FOUND.read_text()).items():
        for said in releases.values():
            yield _row(f"| {model} | {said['engine']} (torch {said['torch']}) |", said)


def _row(name: str, said: dict[str, Any]) -> str:
    if said["error"] or not said["ranks"]:
        return f"{name} ends in {str((said['error'] or ['nothing'])[-1])[:100]} {'|' * 9}\n"
    rank, share = said["ranks"][0], said["settings"]["mem_fraction_static"]
    cells = [f"{rank[term] / GIB:.2f}" for term in ("weights", "cache", "pools", "graphs", "left")]
    host = f"{said['host_bytes'] / GIB:.1f} GiB"
    return f"{name} {share:g} | {said['tokens']:,} | {' | '.join(cells)} | {said['seconds']} s | {host} |\n"


def beside_rows() -> Iterator[str]:
    """The public runs' table: logged / started."""
    found = json.loads(FOUND.read_text())
    yield f"| run | tokens logged | started | {' | '.join(TERMS)} |\n"
    yield "|---" * (3 + len(TERMS)) + "|\n"
    for run in logged():
        said = found[_named(run)][run["release"]]
        rank, tokens = said["ranks"][0], int(run["tokens"])
        cells = [f"{float(run[column]):.2f} / {rank[term] / GIB:.2f}" for term, column in TERMS.items()]
        more = f"{100 * (said['tokens'] / tokens - 1):+.2f} %"
        yield f"| [{_named(run)}]({run['source']}) ({run['release']}) | {tokens:,} | {more} | {' | '.join(cells)} |\n"


def _named(run: dict[str, str]) -> str:
    return f"{run['model']} {run['arguments']}".strip()


@click.command()
@click.argument("pythons", nargs=-1, type=Path, required=True)
@click.option("--model", "models", multiple=True, help="Of those alone.")
def sglang(pythons: tuple[Path, ...], models: tuple[str, ...]) -> None:
    """Start every model by each environment's release."""
    runs = {_named(run): (run["model"], run["arguments"], run["release"]) for run in logged()}
    starts = {name: (name.partition(",")[0], arguments, "") for name, arguments in MODELS.items()} | runs
    for python in pythons:
        release = ""
        for name, (model, arguments, only) in starts.items():
            if (models and name not in models) or (only and release and only != release):
                continue
            said = started(model, arguments.split(), python, engine="sglang")
            if isinstance(said, str):
                raise click.ClickException(f"{name}: {said[-2000:]}")
            release = said["engine"]
            if only and only != release:
                continue
            found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
            found.setdefault(name, {})[release] = {key: said[key] for key in _KEPT}
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(name, release, said["tokens"], said["error"], said["seconds"], flush=True)
