"""Whether releases of vLLM start without a GPU, and what they say: one model of each kind, by every release given.

    python -m benchmarks serving minors VENV [VENV ...]     start them, and keep what they say (`minors.json`)

Run it whenever a release comes out; `serving table` writes the page. Nothing is compared with a GPU here: `score.py` and `beside.py` do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.serving.starting import GIB, started

FOUND = Path(__file__).parent / "minors.json"
MODELS = ("Llama-3.1-8B-Instruct", "Qwen3-8B", "Qwen1.5-MoE-A2.7B")
_ARGUMENTS = ("--max-model-len", "8192", "--gpu-memory-utilization", "0.95")
_KEPT = ("engine", "torch", "error", "ranks", "tokens", "notes", "seconds", "host_bytes")
_TERMS = ("weights", "activations", "outside", "graphs_estimated", "cache", "graphs")


def rows() -> Iterator[str]:
    """The table's: one for each model and release."""
    yield "| model | release | tokens | weights | activation | non-torch | graphs, estimated | KV cache | graphs, taken | time | host memory |\n"
    yield "|---" * 11 + "|\n"
    for model, releases in json.loads(FOUND.read_text()).items():
        for said in releases.values():
            name = f"| {model} | {said['engine']} (torch {said['torch']}) |"
            if said["error"] or not said["ranks"]:
                yield f"{name} ends in {str((said['error'] or ['nothing'])[-1])[:100]} {'|' * 9}\n"
                continue
            rank = said["ranks"][0]
            cells = [f"{rank[term] / GIB:.2f}" if rank.get(term) else "" for term in _TERMS]
            yield f"{name} {said['tokens']:,} | {' | '.join(cells)} | {said['seconds']} s | {said['host_bytes'] / GIB:.1f} GiB |\n"


@click.command()
@click.argument("pythons", nargs=-1, type=Path, required=True)
@click.option("--model", "models", multiple=True, default=MODELS)
def minors(pythons: tuple[Path, ...], models: tuple[str, ...]) -> None:
    """Start every model by each environment's release."""
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for python in pythons:
        for model in models:
            all_said = started(model, _ARGUMENTS, python)
            if isinstance(all_said, str):
                all_said = {"error": ["", all_said[-300:]]}
            said = {key: all_said.get(key) for key in _KEPT}
            found.setdefault(model, {})[said["engine"] or str(python)] = said
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(model, said["engine"], said["tokens"], said["error"], said["seconds"], flush=True)
