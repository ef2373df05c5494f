"""GPUs whose tensor cores lack bfloat16: networks predicted beside the same ones emulated, a table of docs/evidence/EMULATION.md.

    python -m benchmarks emulation cards PYTHON DEVICE [NETWORK ...] [--kind KIND]

PYTHON: of an environment with a CUDA build of torch that has kernels for the DEVICE (torch of CUDA 13 has none for a V100). NETWORK and
KIND: only these of the device's rows are made anew, the others are kept.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.verify.emulated import verify_script
from benchmarks import ROOT
from benchmarks.harness import pages

PAGE = ROOT / "docs/evidence/EMULATION.md"
SCRIPT = Path(__file__).parent / "scripts/one_network.py"
NETWORKS = (
    "noise_predictor", "volume_unet", "gated_unet", "variational", "keywords", "wavenet", "tied_lstm", "attentive_translator",
    "rotary", "set_transformer",
)  # fmt: skip
KINDS = ("fp32", "bf16", "fp16")


def row(python: str, device: str, network: str, kind: str) -> str:
    """One network on one GPU: its figures emulated, how far the prediction is off, and whether every request is as predicted."""
    start = f"| {device} | {network} | {kind} |"
    try:
        found = verify_script(SCRIPT, [network, kind], Options(device=device), python)
    except AnalyzerError as error:
        return f"{start} - | - | - | {str(error)[:80].replace('|', ' ')} |"
    cells = []
    for name in ("allocated", "reserved"):
        figure = found.figure(name)
        off = "exact" if not figure.error_percent else f"{figure.error_percent:+.2f} %"
        cells.append(f"{(figure.measured or 0) / pages.MIB:,.1f} MiB, {off}")
    history = found.history
    assert history is not None
    requests = f"all {history.recorded_count:,}" if history.same else "not all"
    return f"{start} {' | '.join(cells)} | {requests} | {sum('unknown (' in note for note in found.notes)} |"


def summary(rows: list[str]) -> str:
    """How many rows are the same, request for request."""
    same = sum(" | all " in line for line in rows)
    exact = sum(line.count(", exact") == len(("allocated", "reserved")) for line in rows)
    return (
        f"{same} of {len(rows)} are the same request for request, {exact} exact to the byte in both figures."
    )


def table(rows: list[str]) -> str:
    """All rows, and what they come to."""
    head = "| GPU | network | precision | allocated | reserved | requests as predicted | workspaces in a range |\n|---|---|---|---|---|---|--:|"
    return "\n".join([summary(rows), "", head, *rows])


@click.command("cards")
@click.argument("python")
@click.argument("device")
@click.argument("networks", nargs=-1)
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS)
def main(python: str, device: str, networks: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    """Predict and emulate networks in three precisions on one GPU, and write its rows."""
    os.environ["PYTHONPATH"] = str(ROOT)  # where the script finds its networks, in the other Python too
    for kind in kinds:
        for network in networks or NETWORKS:
            line = row(python, device, network, kind)
            print(line, flush=True)
            key = " | ".join(line.split(" | ")[:3])
            kept = [
                old
                for old in pages.part(PAGE, "cards").splitlines()
                if " MiB, " in old and not old.startswith(f"{key} |")
            ]
            pages.write_part(PAGE, "cards", table(sorted([*kept, line])))
