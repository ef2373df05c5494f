"""NCCL's interface in the emulated runtime: the ranks are threads here, which call as PyTorch's processes do."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.graph import Communicator
from analyzer.libraries import nccl
from analyzer.runtimes.pytorch.settings import STREAM_POOL_BYTES
from analyzer_emulation.device import described
from analyzer_emulation.exchange import Exchange
from analyzer_emulation.nccl import Nccl
from analyzer_emulation.questions import QuestionServer
from tests.extensions.emulation.native import loaded, malloc

H200 = load("h200")
INT32, INT64, HALF, FLOAT, DOUBLE = 2, 4, 6, 7, 8
CODES = {INT32: "i", INT64: "q", FLOAT: "f", DOUBLE: "d"}
SUM, PROD, MAX, MIN, AVG = range(5)
SYSTEM_ERROR, INVALID_ARGUMENT = 2, 4


class UniqueId(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char * 128),)


class Rank:
    """One rank's side: a communicator, and a tensor on each end of a collective."""

    def __init__(self, library: ctypes.CDLL, rank: int, size: int, unique: UniqueId) -> None:
        self.library, self.number, self.size = library, rank, size
        self.comm = ctypes.c_void_p()
        assert library.ncclCommInitRank(ctypes.byref(self.comm), size, unique, rank) == 0
        address, into = malloc(library, 4 << 20), malloc(library, 4 << 20)
        assert address is not None and into is not None
        self.given, self.taken = ctypes.c_void_p(address), ctypes.c_void_p(into)

    def give(self, dtype: int, *values: float) -> None:
        data = struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
        self.library.emulated_poke(self.given, ctypes.c_uint64(len(data)), data)

    def got(self, dtype: int, count: int) -> list[float] | None:
        nbytes = struct.calcsize(f"<{count}{CODES[dtype]}")
        data = ctypes.create_string_buffer(nbytes)
        if not self.library.emulated_peek(self.taken, ctypes.c_uint64(nbytes), data):
            return None
        return list(struct.unpack(f"<{count}{CODES[dtype]}", data.raw))

    def call(self, name: str, *arguments: Any) -> int:
        """A collective from `given` to `taken`; integers are sizes where they come first, else int."""
        count, *others = arguments
        return int(
            getattr(self.library, f"nccl{name}")(
                self.given, self.taken, ctypes.c_size_t(count), *others, self.comm, None
            )
        )

    def send(self, count: int, dtype: int, peer: int) -> int:
        return int(self.library.ncclSend(self.given, ctypes.c_size_t(count), dtype, peer, self.comm, None))

    def receive(self, count: int, dtype: int, peer: int) -> int:
        return int(self.library.ncclRecv(self.taken, ctypes.c_size_t(count), dtype, peer, self.comm, None))


class Job:
    """Ranks that act at the same time."""

    def __init__(self, library: ctypes.CDLL, exchange: Exchange) -> None:
        self.library, self.exchange = library, exchange

    def ranks(self, size: int) -> list[Rank]:
        unique = UniqueId()
        assert self.library.ncclGetUniqueId(ctypes.byref(unique)) == 0
        return self.each(lambda rank: Rank(self.library, rank, size, unique), range(size))

    @staticmethod
    def each(act: Callable[[Any], Any], ranks: Sequence[Any]) -> list[Any]:
        with ThreadPoolExecutor(len(ranks)) as threads:
            return list(threads.map(act, ranks))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    exchange = Exchange(longest=20)
    with QuestionServer(Nccl(H200).topics, exchange.topics) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield Job(loaded(described(H200, (13, 0), 2)), exchange)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [(SUM, [9, -60]), (PROD, [24, -6000]), (MAX, [4, -10]), (MIN, [2, -30]), (AVG, [3, -20])],
)
@pytest.mark.parametrize("dtype", [INT32, INT64])
def test_integers_are_combined(job: Job, dtype: int, operation: int, expected: list[int]) -> None:
    ranks = job.ranks(3)
    for rank in ranks:
        rank.give(dtype, rank.number + 2, -10 * (rank.number + 1))
    assert job.each(lambda rank: rank.call("AllReduce", 2, dtype, operation), ranks) == [0, 0, 0]
    assert [rank.got(dtype, 2) for rank in ranks] == [expected] * 3


def test_a_single_number_is_combined_and_of_several_nobody_waits(job: Job) -> None:
    ranks = job.ranks(2)
    for rank in ranks:
        rank.give(DOUBLE, 0.5 + rank.number, 7)
    job.each(lambda rank: rank.call("AllReduce", 1, DOUBLE, SUM), ranks)
    assert [rank.got(DOUBLE, 1) for rank in ranks] == [[2.0], [2.0]]
    assert ranks[0].call("AllReduce", 2, DOUBLE, SUM) == 0  # the other one never calls
    assert ranks[0].got(DOUBLE, 2) is None


def test_what_one_rank_does_not_know_nobody_knows(job: Job) -> None:
    ranks = job.ranks(2)
    ranks[0].give(INT32, 1, 2)
    for rank in ranks:
        rank.library.emulated_poke(rank.taken, ctypes.c_uint64(8), b"\1" * 8)
    assert job.each(lambda rank: rank.call("AllReduce", 2, INT32, SUM), ranks) == [0, 0]
    assert [rank.got(INT32, 2) for rank in ranks] == [None, None]
    job.each(lambda rank: rank.call("AllGather", 2, INT32), ranks)
    assert [rank.got(INT32, 2) for rank in ranks] == [[1, 2], [1, 2]]
    assert [rank.got(INT32, 4) for rank in ranks] == [None, None]


def test_a_stand_in_stays_one_on_other_ranks(job: Job) -> None:
    ranks = job.ranks(2)
    for rank in ranks:
        rank.give(INT64, 5)
    ranks[1].library.emulated_mark(ranks[1].given, ctypes.c_uint64(8))
    job.each(lambda rank: rank.call("AllGather", 1, INT64), ranks)
    asks = job.library.emulated_was_sent_a_stand_in
    second = ctypes.c_uint64((ranks[0].taken.value or 0) + 8)
    assert ranks[0].got(INT64, 2) == [5, 5]
    assert (asks(ranks[0].taken, ctypes.c_uint64(8)), asks(second, ctypes.c_uint64(8))) == (0, 1)


def test_every_collective_brings_what_nccl_h_says(job: Job) -> None:
    ranks = job.ranks(3)
    for rank in ranks:
        rank.give(INT32, *range(10 * rank.number, 10 * rank.number + 3))

    def results(count: int, name: str, *arguments: Any) -> list[Any]:
        assert job.each(lambda rank: rank.call(name, *arguments), ranks) == [0, 0, 0]
        return [rank.got(INT32, count) for rank in ranks]

    assert results(2, "Broadcast", 2, INT32, 1) == [[10, 11]] * 3
    assert results(6, "AllGather", 2, INT32) == [[0, 1, 10, 11, 20, 21]] * 3
    assert results(1, "ReduceScatter", 1, INT32, SUM) == [[30], [33], [36]]
    assert results(3, "AlltoAll", 1, INT32) == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]
    assert results(1, "Scatter", 1, INT32, 2) == [[20], [21], [22]]
    assert results(2, "Reduce", 2, INT32, MAX, 1)[1] == [20, 21]
    assert results(6, "Gather", 2, INT32, 0)[0] == [0, 1, 10, 11, 20, 21]


def test_messages_cross_within_a_group(job: Job) -> None:
    ranks = job.ranks(2)

    def swap(rank: Rank) -> int:
        rank.give(INT64, 100 + rank.number)
        job.library.ncclGroupStart()
        rank.receive(1, INT64, 1 - rank.number)  # it would wait for ever, were the group not sent as one
        rank.send(1, INT64, 1 - rank.number)
        return int(job.library.ncclGroupEnd())

    assert job.each(swap, ranks) == [0, 0]
    assert [rank.got(INT64, 1) for rank in ranks] == [[101], [100]]
    assert job.library.ncclGroupEnd() != 0


def test_what_it_holds_of_the_device_follows_the_rules(job: Job) -> None:
    """The figures of `analyze run`, at each moment, less PyTorch's pool of streams, which they contain; what goes with the
    communicator counts as given back."""
    used = job.library.emulated_used_bytes
    job.library.emulated_given_back_bytes.restype = ctypes.c_uint64
    unique = UniqueId()
    job.library.ncclGetUniqueId(ctypes.byref(unique))
    context = used(0) + (8 << 20)  # the tensors of one rank

    def act(number: int) -> list[int]:
        job.library.cudaSetDevice(number)
        rank, seen = Rank(job.library, number, 2, unique), []
        for call in (
            lambda: 0,
            lambda: rank.call("AllReduce", 1000, HALF, SUM),
            lambda: rank.call("AllReduce", 1000, HALF, SUM),
            lambda: (
                rank.send(1000, HALF, 1 - number) if number == 0 else rank.receive(1000, HALF, 1 - number)
            ),
        ):
            assert call() == 0
            seen.append(used(number) - context)
        assert job.library.ncclCommDestroy(rank.comm) == 0
        return [*seen, used(number) - context, job.library.emulated_given_back_bytes(number)]

    def taken(*use: Any) -> int:
        return nccl.memory_of({"": Communicator(2, *use)}, H200).nbytes - STREAM_POOL_BYTES

    def expected(last: int) -> list[int]:
        code = H200.nccl[0].code_bytes + H200.nccl[0].exchange_code_bytes - STREAM_POOL_BYTES
        return [taken(), taken(True), taken(True), last, code, last - code]

    first, second = job.each(act, range(2))
    assert first == expected(taken(True, frozenset({1})))
    assert second == expected(taken(True, frozenset(), frozenset({0})))


def test_a_split_is_ordered_by_key(job: Job) -> None:
    ranks = job.ranks(4)
    colors, keys = [1, 1, -1, 1], [5, 3, 0, 3]

    def split(rank: Rank) -> tuple[int, int] | None:
        made, number, count = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        assert (
            job.library.ncclCommSplit(
                rank.comm, colors[rank.number], keys[rank.number], ctypes.byref(made), None
            )
            == 0
        )
        if made.value is None:
            return None
        job.library.ncclCommUserRank(made, ctypes.byref(number))
        job.library.ncclCommCount(made, ctypes.byref(count))
        rank.comm = made
        return number.value, count.value

    assert job.each(split, ranks) == [(2, 3), (0, 3), None, (1, 3)]
    for rank in ranks:
        rank.give(INT32, rank.number)
    left = [ranks[0], ranks[1], ranks[3]]
    assert job.each(lambda rank: rank.call("AllGather", 1, INT32), left) == [0, 0, 0]
    assert ranks[0].got(INT32, 3) == [1, 3, 0]


def test_one_process_may_have_all_ranks(job: Job) -> None:
    comms = (ctypes.c_void_p * 2)()
    assert job.library.ncclCommInitAll(comms, 2, None) == 0
    for number, comm in enumerate(comms):
        device = ctypes.c_int(-1)
        assert job.library.ncclCommCuDevice(ctypes.c_void_p(comm), ctypes.byref(device)) == 0
        assert device.value == number


def test_a_rank_that_ended_is_not_waited_for(job: Job) -> None:
    ranks = job.ranks(2)
    ranks[0].give(INT32, 1)
    job.exchange.ended(0)  # threads of one process are all rank 0 of the job
    job.library.ncclGetLastError.restype = ctypes.c_char_p
    assert ranks[0].call("AllReduce", 1, INT32, SUM) == SYSTEM_ERROR
    assert job.library.ncclGetLastError(None) == b"another rank took no part in a collective"


def test_wrong_arguments_are_refused(job: Job) -> None:
    comm, unique = ctypes.c_void_p(), UniqueId(b'"}')
    assert job.library.ncclCommInitRank(ctypes.byref(comm), 2, unique, 0) == INVALID_ARGUMENT
    job.library.ncclGetUniqueId(ctypes.byref(unique))
    assert job.library.ncclCommInitRank(ctypes.byref(comm), 2, unique, 2) == INVALID_ARGUMENT
    (rank,) = job.ranks(1)
    assert rank.call("AllReduce", 1, 12, SUM) == INVALID_ARGUMENT
    assert rank.call("Broadcast", 1, INT32, 1) == INVALID_ARGUMENT


def test_topologies_nobody_measured_are_named() -> None:
    answers = Nccl(load("a100-80gb"))
    for size in (1, 4):
        answers.figures({"size": size})
    (said,) = answers.doubts()
    assert said.startswith(
        "NCCL bounded: what it takes for 4 ranks is as measured for 2 ranks on NVLink (h200)"
    )
    measured = Nccl(H200)
    measured.figures({"size": 2})
    assert measured.doubts() == ()


def test_its_own_memory_takes_whole_pages(job: Job) -> None:
    address, before = ctypes.c_void_p(), job.library.emulated_page_bytes(0)
    assert job.library.ncclMemAlloc(ctypes.byref(address), ctypes.c_size_t(1)) == 0
    assert job.library.emulated_page_bytes(0) == before + (2 << 20)
    assert job.library.ncclMemFree(address) == 0
    assert job.library.emulated_page_bytes(0) == before
    assert job.library.ncclMemFree(address) == INVALID_ARGUMENT


def _on(name: str, act: Callable[[], Any]) -> Any:
    """What `act` returns on a thread of this name."""
    system = ctypes.CDLL(None)

    def run() -> Any:
        assert system.prctl(15, ctypes.c_char_p(name.encode())) == 0  # PR_SET_NAME
        return act()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


class Reduction:
    """A reduction of a backward pass, with the event that ends it."""

    def __init__(self, rank: Rank) -> None:
        self._rank, self._event = rank, ctypes.c_void_p()
        assert rank.library.cudaEventCreateWithFlags(ctypes.byref(self._event), 2) == 0

    def runs(self, thread: str = "pt_autograd_0") -> None:
        def act() -> None:
            assert self._rank.call("AllReduce", 1000, FLOAT, SUM) == 0
            assert self._rank.library.cudaEventRecord(self._event, None) == 0

        _on(thread, act)

    def seen_by(self, thread: str) -> bool:
        told = _on(thread, lambda: self._rank.library.cudaEventQuery(self._event))
        assert told in (0, 600)
        return told == 0

    @property
    def watched(self) -> bool:
        return self.seen_by("pt_nccl_watchdg")


def test_the_watchdog_sees_a_reduction_when_the_next_step_reduces(job: Job) -> None:
    rank = job.ranks(1)[0]
    first, second, third, other = (Reduction(rank) for _ in range(4))
    first.runs()
    assert first.seen_by("python") and not first.watched
    job.library.emulated_stepped()
    other.runs(
        "python"
    )  # outside of the backward pass: the first step's is seen by now, after a look that is waited for
    assert other.watched and first.watched
    second.runs()
    job.library.emulated_stepped()
    other.runs("python")
    assert not second.watched  # a later step's is not
    third.runs()
    assert second.watched and not third.watched


def test_a_watchdog_that_is_to_end_sees_all(job: Job) -> None:
    """It no longer pauses between its looks (`terminateProcessGroup_`, ProcessGroupNCCL.cpp)."""
    last = Reduction(job.ranks(1)[0])
    last.runs()
    assert not last.watched
    assert any(last.watched for _ in range(100))


def test_a_collective_waits_until_the_watchdog_has_looked(job: Job) -> None:
    rank = job.ranks(1)[0]
    first, second = Reduction(rank), Reduction(rank)
    first.runs()
    job.library.emulated_stepped()
    with ThreadPoolExecutor(1) as threads:
        later = threads.submit(second.runs)
        time.sleep(0.2)
        assert not later.done()
        assert first.watched
        later.result(timeout=20)
