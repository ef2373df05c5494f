"""Files and nodes that ONNX Runtime refuses: the verdict says so, with the exit code of bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from analyzer.cli import main
from analyzer.releases import parse
from analyzer.runtimes.onnxruntime.reads import refusals


def saved(folder: Path, ir_version: int, opset: int, operator: str = "Relu") -> Path:
    text = (
        f'<ir_version: {ir_version}, opset_import: ["":{opset}]>'
        f" g (float[4] x) => (float[4] y) {{ y = {operator} (x) }}"
    )
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("ir_version", "opset", "release", "count"),
    [(10, 21, "1.20", 0), (11, 22, "1.20", 2), (13, 26, "1.31", 0), (14, 26, "1.31", 1), (14, 28, "1.32", 0),
     (9, 27, "1.30", 1), (10, 21, "1.18", 0), (15, 29, "1.40", 2)],
)  # fmt: skip
def test_formats_by_release(ir_version: int, opset: int, release: str, count: int) -> None:
    assert len(refusals(ir_version, opset, parse(release))) == count


def test_the_installed_release_says_the_same(tmp_path: Path) -> None:
    onnxruntime.set_default_logger_severity(4)
    release = parse(onnxruntime.__version__)
    for ir_version in range(8, onnx.IR_VERSION + 1):
        path = saved(tmp_path, ir_version, 13)
        try:
            onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            reads = True
        except Exception as error:  # its own kinds of errors are not part of its interface
            assert "Unsupported model IR version" in str(error)
            reads = False
        assert reads == (not refusals(ir_version, 13, release))


def test_the_verdict_is_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = str(saved(tmp_path, onnx.IR_VERSION, 13))
    assert main([newer, "--device", "h200", "--release", "onnxruntime=1.22", "-q"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("refused by onnxruntime: the file has IR version") and "1.22 reads is 10" in out


def test_a_node_without_a_kernel_is_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was a note below "fits". ONNX Runtime has Softsign since operator set 1, Add since 7."""
    path = tmp_path / "old.onnx"
    text = '<ir_version: 6, opset_import: ["":6]> g (float[4] x) => (float[4] y) { y = Add (x, x) }'
    onnx.save(parser.parse_model(text), path)
    assert main([str(path), "--device", "h200", "-q"]) == 2
    assert capsys.readouterr().out.startswith("refused by onnxruntime: no kernel for Add")


@pytest.mark.parametrize(("sequences", "runs"), [(4, True), (1, False)])
def test_a_rotation_without_positions_has_a_cache_for_every_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sequences: int, runs: bool
) -> None:
    """An exporter's file with one for all of them: "fits" before; ONNX Runtime itself says no."""
    path = tmp_path / "rotation.onnx"
    cache = f"float[{sequences},5,8]"
    text = (
        '<ir_version: 10, opset_import: ["":23]>'
        f" g (float[4,2,5,16] x, {cache} c, {cache} s) => (float[4,2,5,16] y) {{ y = RotaryEmbedding (x, c, s) }}"
    )
    onnx.save(parser.parse_model(text), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {one.name: np.zeros(one.shape, np.float32) for one in session.get_inputs()}
    if runs:
        session.run(None, feeds)
    else:
        with pytest.raises(Exception, match="expected to have the same shape as input 'x', got 1 and 5"):
            session.run(None, feeds)
    assert main([str(path), "--device", "h200", "-q"]) == (0 if runs else 2)
    refused = "refused by onnxruntime: RotaryEmbedding" in capsys.readouterr().out
    assert refused == (not runs)
