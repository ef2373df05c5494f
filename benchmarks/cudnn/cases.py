"""Which convolutions a measured set runs that nobody asked cuDNN about, written as a list of calls for `ask.py`.

Run: `python -m benchmarks cudnn cases held_out_3 ... --output CALLS.npz`. Each case is followed as `report.py` follows it;
no measured figure is needed.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from benchmarks.accuracy.cases import SETS
from benchmarks.accuracy.predict import predict
from benchmarks.accuracy.sets import NAMES, load, unmeasured
from benchmarks.cudnn.programs import Met, met_while, write


@click.command("cases")
@click.option("--output", type=Path, required=True, help="the list (.npz)")
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(dict.fromkeys((*NAMES, *SETS)))))
def main(output: Path, names: tuple[str, ...]) -> None:
    """List what the cases of these sets run and nobody asked about."""
    seen: set[Met] = set()
    for case in (case for name in names for case in (load(name) if name in NAMES else unmeasured(name))):
        found = met_while(partial(predict, case))
        seen |= found
        print(f"{case.tag}: {len(found)}", file=sys.stderr)
    write(seen, (), output)
