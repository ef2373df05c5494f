"""How many entries sparse tensors have once they were written out, computed with and made sparse again: counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.environment import cuda_environment, watching
from analyzer.capture.pytorch.kernels.entries import on_host
from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.devices import load
from analyzer.values.budget import LIMIT, MOST_ELEMENTS

SIDE, COUNT = 300, 900
LARGE = 3000
assert LARGE**2 > MOST_ELEMENTS > SIDE**2


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Follows the test as a whole program."""
    with cuda_environment(load("h200")) as recorder:
        recorder.whole_program(())
        with watching(recorder, whole=True):
            yield recorder


def entries(side: int = SIDE, count: int = COUNT) -> torch.Tensor:
    """A COO matrix on the host, half of whose numbers are negative; some places come twice."""
    numbers = torch.arange(count)
    places = torch.stack([numbers * 7 % side, (numbers * numbers + numbers) * 3 % side])
    return torch.sparse_coo_tensor(places, (numbers % 10 - 4.5), (side, side))


def counted(recorder: Recorder) -> bool:
    return not any("depends on data" in note for note in recorder.notes)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda s: s.to_sparse(),
    "csr": lambda s: s.to_sparse_csr(),
    "csc": lambda s: s.to_sparse_csc(),
    "bsr": lambda s: s.to_sparse_bsr((2, 2)),
    "bsc": lambda s: s.to_sparse_bsc((2, 2)),
}
COMPUTED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.relu,
    lambda d: d * 3,
    lambda d: d.neg().clamp(min=-0.75),
    lambda d: torch.where(d > 1, d, 0.0),
    lambda d: d.masked_fill(d < 0, 0).t(),
    lambda d: d * (d > 0.5),
    lambda d: d.half().triu().float(),
]


def holds(recorder: Recorder, tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether the numbers of a tensor on the device are known to be these."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        strided = tensor.layout is torch.strided
        value = recorder.values.known(tensor) if strided else on_host(recorder, tensor)
        return value is not None and torch.equal(value.to_dense(), expected.to_dense())


def stored(tensor: torch.Tensor) -> int:
    values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
    return values.shape[0]


@pytest.mark.parametrize("before", LAYOUTS)
@pytest.mark.parametrize("after", LAYOUTS)
def test_a_matrix_written_out_and_rectified_has_the_entries_a_cpu_leaves(
    before: str, after: str, recorder: Recorder
) -> None:
    """Before, a place for each of 90,000 elements."""
    host = LAYOUTS[before](entries().coalesce())
    made = LAYOUTS[after](host.cuda().to_dense().relu())
    assert stored(made) == stored(LAYOUTS[after](host.to_dense().relu()))
    assert counted(recorder)


@pytest.mark.parametrize("compute", COMPUTED)
@pytest.mark.parametrize("side", [SIDE, LARGE])
def test_what_is_computed_with_a_matrix_written_out_is_counted(
    compute: Callable[[torch.Tensor], torch.Tensor], side: int, recorder: Recorder
) -> None:
    """Of 9,000,000 elements too, which are more than numbers are followed in elsewhere."""
    host = entries(side)
    assert stored(compute(host.cuda().to_dense()).to_sparse()) == int(
        compute(host.to_dense()).count_nonzero()
    )
    assert counted(recorder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_numbers_of_a_conversion_are_those_of_the_host(layout: str, recorder: Recorder) -> None:
    host = entries()
    dense = LAYOUTS[layout](host.cuda()).to_dense()
    assert holds(recorder, dense, host)


def test_a_sum_of_equal_places_is_known_number_by_number(recorder: Recorder) -> None:
    host = entries()
    summed = host.cuda().coalesce()
    assert holds(recorder, summed, host)
    assert holds(recorder, summed.indices(), host.coalesce().indices())


def test_a_large_index_of_edges_is_counted_once_it_is_a_sparse_tensors(recorder: Recorder) -> None:
    """1,200,000 integers that a program loads are not followed, but these decide a size: two of each edge."""
    half = torch.arange(300_000)
    edges = torch.stack([half, half + 1]).repeat(1, 2)
    assert edges.numel() > LIMIT
    matrix = torch.sparse_coo_tensor(edges.cuda(), torch.ones(600_000).cuda(), (400_000, 400_000))
    assert matrix.coalesce()._nnz() == 300_000
    assert counted(recorder)


def test_a_mask_that_a_program_loads_meets_numbers_of_a_sparse_tensor(recorder: Recorder) -> None:
    host, mask = entries(LARGE), torch.ones(LARGE, LARGE, dtype=torch.bool)
    mask[::2] = False
    made = (host.cuda().to_dense() * mask.cuda()).to_sparse()
    assert stored(made) == int((host.to_dense() * mask).count_nonzero())
    assert counted(recorder)


def unknown(side: int = SIDE) -> torch.Tensor:
    """900 entries of numbers drawn on the device, on the diagonal."""
    places = torch.arange(side, device="cuda").expand(2, -1)
    return torch.sparse_coo_tensor(places, torch.randn(side, device="cuda"), (side, side))


@pytest.mark.parametrize("compute", [*COMPUTED, lambda d: d + d.t(), lambda d: d.pow(2) / 3, lambda d: d])
def test_no_more_entries_than_there_were_of_unknown_numbers(
    compute: Callable[[torch.Tensor], torch.Tensor], recorder: Recorder
) -> None:
    made = compute(unknown().to_dense()).to_sparse()
    assert SIDE <= made._nnz() <= 2 * SIDE
    assert not counted(recorder)


@pytest.mark.parametrize(
    "compute", [lambda d: d + 1, torch.cos, lambda d: d.clamp(min=1), lambda d: d / 0.0, lambda d: d.pow(0)]
)
def test_what_is_not_zero_at_zero_has_an_entry_anywhere(
    compute: Callable[[torch.Tensor], torch.Tensor], recorder: Recorder
) -> None:
    assert compute(unknown().to_dense()).to_sparse()._nnz() == SIDE**2
    assert not counted(recorder)


@pytest.mark.parametrize(
    "numbers",
    [
        lambda: torch.ones(300_000) / 3,
        lambda: torch.rand(600_000)[::2],
        lambda: torch.rand(1, 300_000)[0] + 1,
    ],
)
def test_numbers_computed_on_the_host_become_a_sparse_tensors(
    numbers: Callable[[], torch.Tensor], recorder: Recorder
) -> None:
    """Before, "backend of indices (CPU) must match backend of values (Meta)" ended the program."""
    places = torch.arange(300_000).expand(2, -1)
    matrix = torch.sparse_coo_tensor(places, numbers(), (300_000, 300_000)).cuda()
    assert matrix._nnz() == 300_000 and matrix.is_cuda
    del recorder


def test_a_matrix_pruned_by_a_mask_on_the_host_is_counted(recorder: Recorder) -> None:
    pruned = torch.randn(LARGE, LARGE) * (torch.rand(LARGE, LARGE) < 0.01)
    for made in (pruned.cuda().to_sparse(), pruned.cuda().abs().to_sparse_csr()):
        assert stored(made) == int(pruned.count_nonzero())
    assert counted(recorder)


@pytest.mark.parametrize("name", ["abs", "relu", "tanh"])
def test_a_function_of_each_entry_coalesces_first(name: str, recorder: Recorder) -> None:
    host = entries()
    made: Any = getattr(torch, name)(host.cuda())
    assert made.is_coalesced() and holds(recorder, made, getattr(torch, name)(host.to_dense()))
