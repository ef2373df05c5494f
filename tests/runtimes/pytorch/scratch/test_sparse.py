"""What cuSPARSE takes for products of two sparse matrices, beside requests of a recorded run."""

from __future__ import annotations

import pytest

from analyzer.runtimes.pytorch.scratch import Take, kernel_allocations
from tests.runtimes.pytorch.scratch.handwritten import H200, call, tensor


def workspaces(entries: int, pairs: int) -> list[int]:
    """Bytes of both buffers for a matrix of so many entries on 2,708 nodes, times itself."""
    operator = call("aten::_sparse_sparse_matmul.default", (), (), values=tensor(entries), pairs=pairs)
    return [step.nbytes for step in kernel_allocations(operator, H200).steps if isinstance(step, Take)]


@pytest.mark.parametrize(
    ("entries", "nbytes"),
    [(13_264, 160_247), (11_164, 135_047), (22_396, 270_087), (46_660, 561_767), (110_902, 1_333_695)],
)
def test_the_first_is_as_in_graph_u_nets_run(entries: int, nbytes: int) -> None:
    """As requested in `pyg_graph_unet` (`histories_public.xz`), on 2,708, 2,000 and 1,000 nodes."""
    assert workspaces(entries, 1)[0] == nbytes


def test_the_second_is_no_less_than_in_that_run() -> None:
    """The whole graph's square has 75,538 pairs: cuSPARSE asked for 1,840,831 bytes."""
    assert 0 <= workspaces(13_264, 75_538)[1] - 1_840_831 < 10_000


def test_the_second_has_place_and_value_of_every_pair_twice() -> None:
    """12 bytes a pair of 32-bit values, twice; the sort is bounded by a quarter byte a pair and 16 KiB."""
    assert workspaces(100, 1)[1] == 2 * 12 + 16 * 1024
    assert workspaces(100, 8)[1] == 2 * 8 * 12 + 2 + 16 * 1024
    assert workspaces(100, 4_000_000)[1] == 96_000_000 + 1_000_000 + 16 * 1024
