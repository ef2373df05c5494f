"""What NCCL takes by rule, beside what NCCL itself logged of 16 ranks on two H200 (`tests/data/h200/nccl_log.json`)."""

from __future__ import annotations

import json

import pytest

from analyzer.devices import load
from analyzer.graph import Communicator
from analyzer.libraries.nccl import memory_of
from tests.paths import ROOT

LOG = json.loads((ROOT / "tests/data/h200/nccl_log.json").read_text())
PAGE_BYTES = 2**21
ALONE = {"of one rank": Communicator(1)}


def uses(program: str, rank: int) -> dict[str, Communicator]:
    """What the programs of `benchmarks/subjects/ranks/programs` do with their communicators on two GPUs."""
    other = frozenset({1 - rank})
    if program.startswith("pipeline"):
        return {"world": Communicator(2, False, other, other)}
    # DTensor sends rank 0's random state to the others (`tensor/_random.py`): a scatter.
    to, source = (other, frozenset()) if rank == 0 else (frozenset(), other)
    if program == "sequence_parallel":
        return {"world": Communicator(2, True, to, source)}
    if program == "tensor_and_shard":
        return {"world": Communicator(2, True, to, source), **ALONE}
    return {"world": Communicator(2, True), **(ALONE if program == "hybrid" else {})}


@pytest.mark.parametrize("name", LOG)
def test_the_modelled_buffers_are_those_nccl_logs(name: str) -> None:
    """Allocations below a page take one each; code, which the driver loads, is in no log."""
    program, rank = name.split()
    communicators = uses(program, int(rank))
    topology = load("h200").nccl[0]
    exchanges = any(use.sent_to or use.received_from for use in communicators.values())
    code_bytes = topology.code_bytes + (topology.exchange_code_bytes if exchanges else 0)
    logged = sum(count * (PAGE_BYTES if size == "small" else int(size)) for size, count in LOG[name].items())
    assert memory_of(communicators, load("h200")).nbytes - code_bytes == logged


@pytest.mark.parametrize(
    ("ranks", "gpu", "more"), [(2, "h100", 0), (4, "h100", 50), (8, "h200", 50), (4, "a100-80gb", 0)]
)
def test_more_than_two_ranks_behind_switches_have_nvlink_sharp(ranks: int, gpu: str, more: int) -> None:
    """A page for each of 24 channels and one of credits, beside what two ranks take."""
    two, several = (memory_of({"world": Communicator(size)}, load(gpu)).nbytes for size in (2, ranks))
    assert several - two == more * 2**20
