"""The simulated session beside ONNX Runtime's own CUDA provider: its recorded answers for random graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import files
from benchmarks.onnx import oracle

ANSWERS: dict[str, Any] = files.read(oracle.RECORDED)


@pytest.mark.parametrize("seed", range(oracle.SEEDS))
def test_graph_requests_and_peaks_are_the_provider_s(seed: int, tmp_path: Path) -> None:
    """`python -m benchmarks onnx_oracle ask --kinds r` recorded them with onnxruntime-gpu 1.30, emulated as an H200."""
    path = tmp_path / "model.onnx"
    path.write_bytes(oracle.random_graph(seed).SerializeToString())
    said, answer = oracle.simulated(path), ANSWERS[f"r_{seed}"]
    for figure in ("in_use", "held", "nodes", "requests"):
        assert said[figure] == answer[figure]
