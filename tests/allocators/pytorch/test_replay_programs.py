"""Whole programs recorded on an H200, replayed: every exchange with the driver in its order, and the peaks to the byte.

`torch.cuda.empty_cache()` leaves nothing in a history but the segments it gave back. Where PyTorch counted no retries and
collects no garbage, a row of these is one such call; everywhere else the simulator has to give them back by itself.
"""

from __future__ import annotations

import pytest

from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create as create_pytorch
from tests.allocators.pytorch.histories import EXCHANGES, History, Recorded, histories, names

GIVEN_BACK = (3, 5)
H200_BYTES = 150_121_545_728
# These asked for memory before their first kernel: `allocators/process.py`, which a history alone cannot tell when kernels ran.
# A tie between free blocks of equal size went the other way there. With the recorded addresses both are exact.
OTHER_TIES = ("compile_gpt_eager", "lightning")


def replayed(history: History, space: AddressSpace | None) -> PyTorchAllocator:
    row = history.row
    limit = {} if row["fraction"] is None else {"per_process_memory_fraction": row["fraction"]}
    allocator = create_pytorch(row["conf"], device_total_bytes=H200_BYTES, **limit)
    if space is not None:
        allocator = type(allocator)(allocator.settings, space)
    handles: list[int] = []
    before = 0
    for action, value, stream in history.events:
        if action == 0:
            handles.append(allocator.malloc(value, stream))
        elif action == 1:
            allocator.free(handles[len(handles) - value])
        elif action in GIVEN_BACK and action != before and history.gives_back_when_told:
            allocator.empty_cache()
        before = action
    return allocator


# Of the public programs every third, the others with `-m campaign`; of those written to be unlike each other all.
@pytest.mark.parametrize(
    ("of", "name"),
    [
        *((of, name) for of in ("whole_programs", "kinds_of_programs", "ranks") for name in names(of)),
        *(
            pytest.param("public", name, marks=[pytest.mark.campaign] if number % 3 else [])
            for number, name in enumerate(names("public"))
        ),
        *(("public_2", name) for name in names("public_2")),
    ],
)
def test_every_exchange_with_the_driver_and_the_peaks(of: str, name: str) -> None:
    history = histories(of)[name]
    allocator = replayed(history, Recorded(history.addresses))
    asked = [(event.action, event.size) for event in allocator.segment_events]
    assert asked == [(EXCHANGES[action], value) for action, value, _ in history.events if action >= 2]
    assert allocator.peak_reserved == history.row["peak_reserved"]
    # PyTorch counts a block as given back when that is asked for, also where another stream keeps it from being free.
    if not history.row.get("waits"):
        assert allocator.peak_allocated == history.row["peak_allocated"]


@pytest.mark.parametrize(
    "name", ["mnist", "gpt_char_fp32", "settings_tight", "settings_resnet50_gc", *OTHER_TIES]
)
def test_reserved_where_the_drivers_addresses_are_predicted_too(name: str) -> None:
    history = histories()[name]
    exact = replayed(history, None).peak_reserved == history.row["peak_reserved"]
    assert exact == (name not in OTHER_TIES)


def test_there_are_retries_and_garbage_among_them() -> None:
    rows = [history.row for history in histories().values()]
    assert sum(row["retries"] for row in rows) == 2
    assert sum("garbage_collection" in row["conf"] for row in rows) == 2
    assert len(rows) == 45


def test_ranks_used_several_streams() -> None:
    found = histories("ranks")
    assert (
        len(found) == 46 and len([name for name in found if name.startswith(("ddp", "fsdp2", "tp."))]) == 32
    )
    assert max(stream for _, _, stream in found["fsdp2.rank0"].events) == 2
    assert [name for name in found if found[name].row["waits"]] != []
