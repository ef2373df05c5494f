"""What Inductor times to pad a product: the analyzer's figures answer, this machine's clock where they do not know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from analyzer.devices import resolve
from analyzer_emulation.inside import padding
from analyzer_emulation.questions import VARIABLE, QuestionServer
from analyzer_emulation.step import benchmark_of

_CLOCK_MS = 77.0


def product(m: int, n: int, k: int) -> dict[str, Any]:
    """A product's launch in bfloat16, as the emulated process writes it down."""

    def matrix(at: int, rows: int, columns: int) -> dict[str, Any]:
        return {
            "at": at, "bytes": 2 * rows * columns, "type": "bfloat16", "shape": [rows, columns], "stride": [columns, 1], "offset": 0,
        }  # fmt: skip

    return {
        "name": "aten::mm.default", "names": ["self", "mat2"], "writes": [], "settings": [], "keywords": {}, "place": ["", "", "forward"],
        "arguments": [matrix(1, m, k), matrix(2, k, n)], "results": [matrix(3, m, n)],
    }  # fmt: skip


class Launches:
    """What sees operators: those that a call of the benchmark makes."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def aside(self) -> Iterator[list[dict[str, Any]]]:
        self.found = []
        yield self.found


def timed(
    device: str, monkeypatch: pytest.MonkeyPatch, *sizes: tuple[int, int, int]
) -> tuple[list[float], int]:
    """Milliseconds that the benchmark of a stand-in module says of products of these sizes, and how often each ran."""
    launches, runs = Launches(), 0

    def benchmark(call: Callable[[], Any], **_: Any) -> float:
        for _ in range(3):
            call()
        return _CLOCK_MS

    module = SimpleNamespace(get_do_bench=lambda: benchmark)
    padding.answer(module, launches)
    said = []
    with QuestionServer({"benchmark": benchmark_of(resolve(device)[0])}) as server:
        monkeypatch.setenv(VARIABLE, server.environment[VARIABLE])
        for size in sizes:

            def call(size: tuple[int, int, int] = size) -> None:
                nonlocal runs
                runs += 1
                launches.found.append(product(*size))

            said.append(module.get_do_bench()(call))
    return said, runs


def test_a_product_takes_what_the_tables_say_however_fast_this_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a vocabulary of 50,257 rows begin at odd places: the padded product is the faster one by more than a tenth."""
    (odd, padded), runs = timed("h100", monkeypatch, (3072, 50257, 768), (3072, 50264, 768))
    assert padded * 1.1 < odd < 10.0
    assert runs == 6  # as often as without an answer: what the benchmark takes of the allocator stays


def test_of_a_gpu_nobody_knows_the_clock_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed("24GiB", monkeypatch, (64, 64, 64))[0] == [_CLOCK_MS]


def test_without_the_analyzer_and_without_a_launch_the_clock_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert padding.nanoseconds([product(8, 8, 8)]) is None
    assert padding.nanoseconds([]) is None


def test_another_release_without_that_benchmark_is_left_alone() -> None:
    module = SimpleNamespace()
    padding.answer(module, Launches())
    assert not vars(module)
