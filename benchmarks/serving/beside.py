"""vLLM started without a GPU, beside the same release on an H100 of ours: what only the driver can differ in, and what not.

    python -m benchmarks serving beside --python VENV     start the recorded runs here, and keep what they say (`beside.json`)

Recorded: `tests/data/h100/engines.json`, starts of vLLM by `on_gpu.py`, with the variables and arguments each was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import ROOT
from benchmarks.serving.starting import started

RECORDED = ROOT / "tests/data/h100/engines.json"
FOUND = Path(__file__).parent / "beside.json"
# Terms of a rank by the words of the page.
TERMS = {
    "weights": "weights",
    "activations": "activation",
    "outside": "non-torch",
    "graphs_estimated": "graphs, estimated",
    "cache": "KV cache",
    "graphs": "graphs, taken",
}


def rows() -> Iterator[str]:
    """The table's: each term as the GPU's engine said it, and by how much the emulated one differs."""
    recorded, found = json.loads(RECORDED.read_text()), json.loads(FOUND.read_text())
    yield f"| run | {' | '.join(TERMS.values())} | tokens |\n"
    yield "|---" * (len(TERMS) + 2) + "|\n"
    for name, run in recorded.items():
        rank, ours = run["ranks"][0], found[name]["ranks"][0]
        cells = [difference(rank[term], ours[term]) for term in TERMS]
        yield f"| {name} ({run['engine']}) | {' | '.join(cells)} | {difference(run['tokens'], found[name]['tokens'])} |\n"


def difference(measured: int, ours: int) -> str:
    """A figure, and how far from it ours is."""
    return f"{measured:,}" + (" =" if ours == measured else f" {100 * (ours / measured - 1):+.2f} %")


@click.command()
@click.option("--python", type=Path, required=True, help="An environment with the release that was recorded.")
@click.argument("names", nargs=-1)
def beside(python: Path, names: tuple[str, ...]) -> None:
    """Start the recorded runs without a GPU."""
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for name, run in json.loads(RECORDED.read_text()).items():
        if names and name not in names:
            continue
        said = started(run["model"], run["arguments"], python, run["environment"])
        if isinstance(said, str):
            raise click.ClickException(f"{name}: {said[-2000:]}")
        if said["engine"] != run["engine"]:
            raise click.ClickException(
                f"{python} has {said['engine']}, {name} was recorded of {run['engine']}"
            )
        found[name] = {key: said[key] for key in ("engine", "torch", "ranks", "tokens", "blocks", "notes")}
        FOUND.write_text(json.dumps(found, indent=1) + "\n")
        print(
            name,
            {term: difference(run["ranks"][0][term], said["ranks"][0][term]) for term in TERMS},
            flush=True,
        )
