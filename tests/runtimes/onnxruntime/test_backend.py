"""The onnx package's own backend tests, analysed and compared with a real ONNX Runtime on the CPU provider.

A part of them runs every time; `pytest -m campaign tests/runtimes/onnxruntime/test_backend.py` runs them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

from benchmarks.onnx import backend

_EVERY = 20  # one in so many is tried each time
_PEAK, _HELD = 0.90, 0.95


def _judge(rows: list[dict[str, Any]]) -> None:
    """Nothing fails, hangs or aborts; figures are exact where they must be; what is too low says that it may be."""
    defects = [row for row in rows if row["status"] in ("failed", "late", "aborted")]
    assert not defects, defects[:3]
    ran = [row for row in rows if row["status"] == "ran"]
    assert len(ran) > len(rows) / 2
    assert sum(row["peak"] == row["real_peak"] for row in ran) >= _PEAK * len(ran)
    assert sum(row["held"] == row["real_held"] for row in ran) >= _HELD * len(ran)
    assert [row["name"] for row in ran if backend.too_low(row)] == []


def test_a_part_of_the_backend_tests(tmp_path: Path) -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    cases = backend.cases()
    assert len(cases) > 1900
    _judge([backend.examine(case, tmp_path) for case in cases[::_EVERY]])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_every_backend_test() -> None:
    _judge(backend.campaign([case.name for case in backend.cases()], 2))


@pytest.mark.parametrize(
    ("peak", "real", "warns", "low"),
    [(100, 100, False, False), (0, 4096, False, False), (0, 4097, False, True), (0, 4097, True, False),
     (95_000, 100_000, False, False), (94_999, 100_000, False, True), (200_000, 100_000, False, False)],
)  # fmt: skip
def test_what_counts_as_too_low(peak: int, real: int, warns: bool, low: bool) -> None:
    row = {"status": "ran", "peak": peak, "real_peak": real, "held": 0, "real_held": 0, "warns": warns}
    assert backend.too_low(row) is low
