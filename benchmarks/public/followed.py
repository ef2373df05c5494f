"""A public program followed here, as a user would: `analyze run SCRIPT ARGS` in the copy that `prepared.py` made, in a process."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from analyzer import child
from benchmarks.public.prepared import Prepared, found, prepare, terminal
from benchmarks.subjects.networks import torchvision_cpu

_SAID = 3000  # characters kept of what it said


def command(job: dict[str, Any], ready: Prepared, out: Path, rank: int, device: str) -> list[str]:
    """What is run: `analyze run` with the job's options."""
    words = ["run", "--device", device, "--format", "json", "-o", str(out)]
    words += ["--until", str(job["until"])] if job["until"] else []
    if job["processes"] > 1:
        words += ["--nproc-per-node", str(job["processes"]), "--rank", str(rank)]
    words += ["-m"] if ready.module else []
    return child.command("analyzer", *words, ready.script, *ready.args)


def _last_words(said: str) -> str:
    """Of what it said, the error with its hint; else the last lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    start = next((n for n, line in enumerate(lines) if line.startswith("analyze: error:")), len(lines) - 3)
    return " / ".join(lines[max(0, start) :][:3])


def follow(
    job: dict[str, Any],
    sources: Path,
    copies: Path,
    seconds: float = 600.0,
    rank: int = 0,
    again: bool = False,
    device: str = "h200",
) -> dict[str, Any]:
    """{"allocated", "reserved", "device", "notes", "code", "seconds", "said"}, or {"error": the last lines it said, ...}; `again`:
    in the copy that is there."""
    torchvision_cpu.enable()  # data makers import what imports torchvision
    name = job["name"] if job["processes"] == 1 else f"{job['name']}.rank{rank}"
    copies.mkdir(parents=True, exist_ok=True)
    try:
        ready = (
            found(job, copies) if again and (copies / job["name"]).exists() else prepare(job, sources, copies)
        )
    except Exception as error:
        return {"error": f"not prepared: {type(error).__name__}: {error}", "seconds": 0.0, "said": ""}
    out = copies / f"{name}.json"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **ready.environment}
    started = time.monotonic()
    try:
        with terminal() as keyboard:
            done = subprocess.run(
                command(job, ready, out, rank, device), cwd=ready.folder, env=environment, timeout=seconds, check=False,
                stdin=keyboard, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        code, said = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        code, said = (
            None,
            (late.stdout or b"").decode(errors="replace") + f"\nnot ended after {seconds:.0f} s",
        )
    (copies / f"{name}.txt").write_text(said)
    told = {"code": code, "seconds": round(time.monotonic() - started, 1), "said": said[-_SAID:]}
    if code not in (0, 1) or not out.exists():
        return {**told, "error": _last_words(said) or f"exit code {code}"}
    estimate = json.loads(out.read_text())
    figures = {
        "allocated": estimate["peak_allocated"],
        "reserved": estimate["peak_reserved"],
        "device": estimate["device_used"],
        "bounded": estimate["certainty"]["bounded"],
        "measured": estimate["certainty"]["measured"],
        "unknown": estimate["certainty"]["unknown_operators"],
        "notes": estimate["notes"],
    }
    return {**told, **figures}
