"""Quick starts of libraries, each followed as `analyze run` in a process of its own, beside what it took on an H200.

    python -m benchmarks libraries score [NAME ...] [--ten] [--seconds 300]
    python -m benchmarks libraries list

`quick_starts.json`: the programs (written for this, with random data and weights), the packages they import and what an H200 took under torch
2.11. One whose packages are not installed is passed over, and named. `first.json`: what came of following each for the first time; it is never
edited. --ten: the ten that take least time, for continuous integration; all of them: a nightly run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import processes

PROGRAMS = ROOT / "benchmarks/libraries/quick_starts.json"
FIRST = ROOT / "benchmarks/libraries/first.json"
TEN = (
    "fastai_learner", "heavyball_soap", "keras_text", "liger_losses", "skorch_classifier", "torchao_dynamic", "torchao_float8", "torchao_int8",
    "torchao_qat", "torchmetrics_gpu",
)  # fmt: skip


def programs() -> dict[str, dict[str, Any]]:
    """The quick starts by name: "needs" (packages), "measured" (bytes; null where the GPU refused it), "program" (lines)."""
    found: dict[str, dict[str, Any]] = json.loads(PROGRAMS.read_text("utf-8"))
    return found


def absent(needs: list[str]) -> list[str]:
    """The packages of these that are not installed."""
    return [name for name in needs if importlib.util.find_spec(name) is None]


def followed(name: str) -> dict[str, Any]:
    """{"code", "allocated", "reserved"} of a quick start, followed in this process."""
    from benchmarks.networks.torchvision_cpu import enable

    from analyzer.cli import main

    enable()
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder, f"{name}.py"), Path(folder, "estimate.json")
        script.write_text("\n".join(programs()[name]["program"]), "utf-8")
        os.chdir(folder)
        words = ["run", "--device", "h200", "-q", "--format", "json", "-o", str(out), str(script)]
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            code = main(words)
        document = json.loads(out.read_text("utf-8")) if out.exists() else {}
        os.chdir(ROOT)
    return {
        "code": code,
        "allocated": document.get("peak_allocated"),
        "reserved": document.get("peak_reserved"),
    }


def outcome(measured: dict[str, int] | None, found: dict[str, Any]) -> str:
    """What came of following one, in a few words: "exact", the shares it is off by, or "not followed"."""
    code = found.get("code")
    if measured is None:
        return (
            "refused, as on the GPU"
            if found.get("fails") or code not in (0, 1)
            else "followed, which the GPU refused"
        )
    if code not in (0, 1):
        return f"not followed ({code})"
    shares = {name: 100 * (found[name] / nbytes - 1) for name, nbytes in measured.items()}
    if not any(shares.values()):
        return "exact"
    return ", ".join(f"{name} {share:+.3f} %" for name, share in shares.items())


@click.command("score")
@click.argument("names", nargs=-1)
@click.option("--ten", is_flag=True, help="The ten that take least time.")
@click.option("--seconds", default=300.0, show_default=True, help="At most so long each.")
def score(names: tuple[str, ...], ten: bool, seconds: float) -> int:
    """Print what comes of following each quick start now, beside the first time; 1 if one is not followed."""
    every, first = programs(), json.loads(FIRST.read_text("utf-8"))["programs"]
    if unknown := set(names) - every.keys():
        raise click.BadParameter(
            f"no quick start of this name: {', '.join(sorted(unknown))}", param_hint="NAME"
        )
    failed = 0
    for name in names or (TEN if ten else tuple(every)):
        if missing := absent(every[name]["needs"]):
            click.echo(f"{name:22} passed over: {', '.join(missing)} not installed")
            continue
        try:
            found = processes.answer("benchmarks.libraries.quick_starts:followed", name, seconds=seconds)
        except processes.ProcessError as error:
            found = {"code": str(error)}
        now, then = (outcome(every[name]["measured"], one) for one in (found, first[name]))
        failed += now.startswith(("not followed", "followed"))
        click.echo(f"{name:22} now {now:48} first {then}")
    return int(failed > 0)


@click.command("list")
def listed() -> None:
    """Print each quick start with its packages, and those of them that are not installed."""
    for name, entry in programs().items():
        missing = absent(entry["needs"])
        click.echo(
            f"{name:22} {', '.join(entry['needs'])}"
            + (f" (not installed: {', '.join(missing)})" if missing else "")
        )
