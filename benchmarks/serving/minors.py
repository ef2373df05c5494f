"""Whether releases of vLLM start without a GPU, and what they say: one model of each kind, by every release given.

    python -m benchmarks serving minors VENV [VENV ...]     start them, and keep what they say (`minors.json`)

Run it whenever a release comes out; `serving table` writes the page. Nothing is compared with a GPU here: `score.py` and `beside.py` do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.serving.host import watched

CONFIGS = Path(__file__).parent / "configs"
FOUND = Path(__file__).parent / "minors.json"
GIB = 2**30
MODELS = ("Llama-3.1-8B-Instruct", "Qwen3-8B", "Qwen1.5-MoE-A2.7B")
_ARGUMENTS = ("--max-model-len", "8192", "--gpu-memory-utilization", "0.95")
_TERMS = ("weights", "activations", "outside", "graphs_estimated", "cache", "graphs")


def started(model: str, python: Path) -> dict[str, Any]:
    """What the engine says of itself, or the end of what it wrote; with the seconds and the host's memory it took."""
    with tempfile.TemporaryDirectory() as folder:
        out, told, begin = Path(folder) / "engine.json", Path(folder) / "told.txt", time.monotonic()
        command = [sys.executable, "-m", "analyzer", "serve", CONFIGS / model, "--engine", "vllm", "--python", python, "--device", "h100"]  # fmt: skip
        with told.open("w") as log:
            given = [*command, "--format", "json", "--quiet", "-o", out, "--", *_ARGUMENTS]
            most = watched(subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=log))
        took = {"seconds": round(time.monotonic() - begin), "host_bytes": most}
        said = json.loads(out.read_text()) if out.exists() else {"error": ["", told.read_text()[-300:]]}
    return {key: said.get(key) for key in ("engine", "torch", "error", "ranks", "tokens", "notes")} | took


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
            said = started(model, python)
            found.setdefault(model, {})[said["engine"] or str(python)] = said
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(model, said["engine"], said["tokens"], said["error"], f"{said['seconds']} s", flush=True)
