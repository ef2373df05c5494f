"""GPUs whose tensor cores lack bfloat16: networks predicted beside the same ones emulated, a table of docs/evidence/EMULATION.md.

    python -m benchmarks emulation cards PYTHON DEVICE [NETWORK ...] [--kind KIND]

PYTHON: of an environment with a CUDA build of torch that has kernels for the DEVICE (torch of CUDA 13 has none for a V100). NETWORK and
KIND: only these of the device's rows are made anew, the others are kept (`kept.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer_emulation.beside import verify_script
from benchmarks import ROOT, SUBJECTS
from benchmarks.emulation import kept
from benchmarks.harness import pages

SCRIPT = SUBJECTS / "emulation/one_network.py"
NETWORKS = (
    "noise_predictor", "volume_unet", "gated_unet", "variational", "keywords", "wavenet", "tied_lstm", "attentive_translator",
    "rotary", "set_transformer",
)  # fmt: skip
KINDS = ("fp32", "bf16", "fp16")


def row(python: str, device: str, network: str, kind: str) -> list[str]:
    """One network on one GPU: its figures emulated, how far the prediction is off, and whether every request is as predicted."""
    try:
        found = verify_script(SCRIPT, [network, kind], Options(device=device), python)
    except AnalyzerError as error:
        return [*"---", str(error)[:80].replace("|", " ")]
    cells = []
    for name in ("allocated", "reserved"):
        figure = found.figure(name)
        off = "exact" if not figure.error_percent else f"{figure.error_percent:+.2f} %"
        cells.append(f"{(figure.measured or 0) / pages.MIB:,.1f} MiB {off}")
    history = found.history
    assert history is not None
    requests = f"all {history.recorded_count:,}" if history.same else "not all"
    return [*cells, requests, str(sum("unknown (" in note for note in found.notes))]


def text(cases: Sequence[kept.Case]) -> str:
    """What the page says of the networks: how many are the same, and a line a GPU and precision."""
    same = sum(cells[2].startswith("all ") for _, cells in cases)
    exact = sum(cells[0].endswith("exact") and cells[1].endswith("exact") for _, cells in cases)

    def kind(case: str) -> str:
        gpu, _, precision = case.split(" ")
        return f"{gpu}, {precision}"

    return (
        f"{same} of {len(cases)} are the same request for request, {exact} exact to the byte in both figures.\n\n"
        + kept.by_kind(cases, kind, kept.FIGURES[:2])
    )


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
            rows = kept.load("cards")
            name = f"{device} {network} {kind}"
            rows[name] = row(python, device, network, kind)
            print(name, *rows[name], flush=True)
            kept.keep("cards", dict(sorted(rows.items())), text)
