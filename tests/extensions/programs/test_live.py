"""A program followed while it runs, by hand: where its requests land, a request without room, and the device's total."""

from __future__ import annotations

import pytest

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.driver import MIB
from analyzer.allocators.process import KernelNeeds, Process
from analyzer.devices import load
from analyzer.graph import (
    Birth,
    Category,
    Communicator,
    Death,
    Graph,
    Moment,
    Operator,
    Run,
    Storage,
    TensorMeta,
)
from analyzer.runtimes.pytorch.settings import STREAM_POOL_BYTES
from analyzer_programs.live import Live
from tests.runtimes.pytorch.scratch.handwritten import tensor
from tests.schemas import called

H200 = load("h200")


def at(storage: int, *shape: int, dtype: str = "float32") -> TensorMeta:
    of = tensor(*shape, dtype=dtype)
    return TensorMeta(storage, of.shape, of.stride, of.dtype)


def storage(index: int, nbytes: int) -> Storage:
    return Storage(index, nbytes, Category.ACTIVATION)


def following(
    conf: str, storages: tuple[Storage, ...], operators: tuple[Operator, ...], *moments: Moment
) -> Live:
    live = Live(H200, conf)
    live.attach(storages, operators)
    for moment in moments:
        live.follow(moment)
    return live


def address(live: Live, index: int) -> int:
    _, (address,) = live.layout([index])  # type: ignore[misc]
    return address


def test_a_cublas_handle_lies_between_the_product_and_its_workspace() -> None:
    side = 4096
    product = called(0, "aten::mm", (at(0, side, side), at(0, side, side)), (at(1, side, side),))
    live = following(
        "",
        (storage(0, 64 * MIB), storage(1, 64 * MIB), storage(2, 96 * MIB)),
        (product,),
        Birth(0),
        Run(0),
        Birth(2),
    )
    process = Process()
    for _ in range(2):
        process.take(64 * MIB)
    process.cublas()
    process.take(H200.cublas_workspace_bytes)
    process.launch(KernelNeeds.PLAIN)
    assert address(live, 2) == process.take(96 * MIB)


def test_the_scratch_of_an_operator_without_room_is_given_back() -> None:
    """A count makes a mask of a byte an element, then its result, then eight bytes an element: the last has no room."""
    count = 4096 * 1024
    operator = called(
        0, "aten::count_nonzero.dim_IntList", (at(0, 4096, 1024), (1,)), (at(1, 4096, dtype="int64"),)
    )
    live = following("", (storage(0, 4 * count), storage(1, 8 * 4096)), (operator,), Birth(0))
    before = live.allocator.allocated
    live.allocator.end_event("set_per_process_memory_fraction", 40 * MIB / live.capacity)
    with pytest.raises(OutOfMemoryError):
        live.follow(Run(0))
    assert live.allocator.peak_allocated >= before + count, "the mask was served"
    assert live.failures == 1
    live.follow(Death(1))
    assert live.allocator.allocated == before


def test_a_pool_of_streams_is_counted_once() -> None:
    """A communicator counts the pool with its own bytes; a program without streams has none."""

    def device(**facts: object) -> int:
        storages = (storage(0, 64 * MIB),)
        live = following("", storages, (), Birth(0))
        prediction = live.prediction(Graph("pytorch", storages, (), (Birth(0),), **facts))  # type: ignore[arg-type]
        return prediction.device_used(prediction.simulation)

    alone = device()
    assert device(own_streams=True) == alone + STREAM_POOL_BYTES
    communicators = {"world": Communicator(2, collective=True)}
    assert (
        device(communicators=communicators) == device(communicators=communicators, own_streams=True) > alone
    )
