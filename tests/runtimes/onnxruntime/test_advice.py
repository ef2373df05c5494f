"""Sentences on what an arena holds."""

from __future__ import annotations

import pytest

from analyzer.runtimes.onnxruntime.advice import _requested


@pytest.mark.parametrize(
    ("nbytes", "text"), [(128, "128 bytes"), (65_536, "0.1 MiB"), (102_865_305, "98.1 MiB")]
)
def test_a_request_never_reads_as_nothing(nbytes: int, text: str) -> None:
    """ "512 MiB held for a request of 0.0 MiB" was one of 128 bytes."""
    assert _requested(nbytes) == text
