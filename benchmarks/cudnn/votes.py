"""How often the votes of `convolutions.py` are right: measured calls are left out, and the others vote on them.

Run: `python -m benchmarks cudnn votes [--calls 300] [--seed 1] [--device h200]`. Calls are drawn from each dtype and layout of the
table; each is asked about twice: with its own batch left out, and with its whole convolution (family) left out. Printed for
forward, data and weight gradient: of how many the allocation is right (in the allocator's blocks of 512 bytes), the mean
error in percent of the call's own tensors, and of how many the true figure is within the range that is told. --winners: what the
winners of benchmark mode's trials take, of the calls that were timed, cuDNN's first plan known; and of how many that is what the first takes.
"""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import click
import numpy as np

from analyzer.libraries.cudnn import convolutions, votes
from analyzer.libraries.cudnn.forms import parts_of
from analyzer.libraries.cudnn.table import (
    AS_FIRST,
    FASTEST,
    FIRST,
    MODELLED_ON,
    NOT_ASKED,
    OPERATIONS,
    Convolution,
    Integers,
    Measurements,
    convolution_of,
    member_of,
)

_BLOCK_BYTES = 512


class WithoutOne(Measurements):
    """A table from which one family is left out, or one batch of it. left_out: (row of the family, batch or None)."""

    left_out: tuple[int, int | None] | None = None
    figure = FIRST

    def batches(
        self, call: Convolution, family: int, dtype: str, figure: str = FIRST, *, known_only: bool = True
    ) -> tuple[Integers, Integers]:
        """As the whole table has them, without what is left out."""
        batches, sizes = super().batches(call, family, dtype, figure, known_only=known_only)
        if self.left_out is None or self.left_out[0] != family or figure != self.figure:
            return batches, sizes
        kept = batches != self.left_out[1] if self.left_out[1] is not None else batches < 0
        return batches[kept], sizes[kept]


def score(table: WithoutOne, group: str, operation: str, rows: list[int], batch_only: bool) -> str:
    """Right, error and within the range, of the calls in `rows` of a dtype and layout."""
    dtype, _, layout = group.partition(".")
    families, batches = table.array(f"{group}.family"), table.array(f"{group}.batch")
    right = within = count = as_first = 0
    error = 0.0
    for row in rows:
        first = true = int(table.array(f"{group}.{operation}")[row])
        if table.figure != FIRST:
            true = int(table.array(member_of(group, operation, table.figure))[row])
            true = first if true == AS_FIRST else true
        if true < 0:
            continue
        like = Convolution(operation, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ())
        family, batch = int(families[row]), int(batches[row])
        table.left_out = (family, batch if batch_only else None)
        votes.neighbours.cache_clear()
        call = convolution_of(table.families[family], batch, like)
        told = convolutions._by_vote(call, table.name, table.figure)
        as_first += -(-first // _BLOCK_BYTES) == -(-true // _BLOCK_BYTES)
        x, y, _, _ = parts_of(call, False)
        right += -(-told.nbytes // _BLOCK_BYTES) == -(-true // _BLOCK_BYTES)
        within += told.low_bytes <= true <= told.high_bytes
        error += abs(told.nbytes - true) / (x + y)
        count += 1
    if not count:
        return "none"
    shares = [right, error, within] + ([as_first] if table.figure != FIRST else [])
    return " ".join(f"{100 * share / count:.0f}" for share in shares)


@click.command("votes")
@click.option("--calls", default=300)
@click.option("--seed", default=1)
@click.option("--device", default=MODELLED_ON)
@click.option("--winners", is_flag=True)
def main(calls: int, seed: int, device: str, winners: bool) -> None:
    """Leave calls out of the table, and say how often the vote on them is right."""
    table: Any = WithoutOne(device)
    table.figure = FASTEST if winners else FIRST
    drawn = random.Random(seed)
    groups = [member.removesuffix(".batch") for member in table.members if member.endswith(".batch")]
    with mock.patch.object(convolutions, "measurements", lambda _: table):
        for group in groups:
            known = range(len(table.array(f"{group}.batch")))
            if winners:
                member = member_of(group, OPERATIONS[0], FASTEST)
                known = (
                    np.flatnonzero(table.array(member) != NOT_ASKED).tolist()
                    if member in table.members
                    else []
                )
            rows = drawn.sample(known, min(calls, len(known)))
            for batch_only in (True, False):
                told = [score(table, group, operation, rows, batch_only) for operation in OPERATIONS]
                print(
                    f"{group} {'batch' if batch_only else 'convolution'} left out: {', '.join(told)}",
                    flush=True,
                )
