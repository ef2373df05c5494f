"""Made-up inputs suit the model: real sessions take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("onnxruntime")

from analyzer.cli import main
from analyzer.errors import DoesNotFit, InputError, OptionError, RunError
from analyzer_verify.runs import machine
from analyzer_verify.verify import verify
from tests.paths import MODELS


def saved(folder: Path, text: str, **weights: Any) -> str:
    model = parser.parse_model('<ir_version: 10, opset_import: ["":20]> ' + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        # An index into one place, behind two operators that only move it: 1 would be out of range.
        ("(int64[N] i) => (float[N,4] y) { a = Identity(i) b = Cast<to=6>(a) y = Gather(t, b) }",
         {"t": np.ones((1, 4), np.float32)}),
        # A token among many.
        ("(int64[N] i) => (float[N,4] y) { y = Gather(t, i) }", {"t": np.ones((9, 4), np.float32)}),
        # Lengths of sequences, which must not be 0.
        ("(float[5,N,4] x, int32[N] lengths) => (float[5,1,N,3] y) { y = LSTM<hidden_size=3>(x, w, r, , lengths) }",
         {"w": np.ones((1, 12, 4), np.float32), "r": np.ones((1, 12, 3), np.float32)}),
        ("(string[N] s) => (string[N] y) { y = StringConcat(s, s) }", {}),
        ("(bfloat16[N,4] x) => (float[N,4] y) { a = Cast<to=1>(x) y = Sin(a) }", {}),
        ("(float8e4m3fn[N,4] x) => (float[N,4] y) { a = Cast<to=1>(x) y = Sin(a) }", {}),
        ("(bool[N,4] c, float[N,4] x) => (float[N,4] y) { y = Where(c, x, x) }", {}),
    ],
)  # fmt: skip
def test_inputs_suit_the_model(tmp_path: Path, text: str, weights: dict[str, Any]) -> None:
    found = verify(saved(tmp_path, "g " + text, **weights), batch=3)
    assert found.figure("held").measured is not None


GATHER = "g (int64[N] i) => (float[N,4] y) { y = Gather(t, i) }"


def test_inputs_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, GATHER, t=np.ones((9, 4), np.float32))
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, i=np.array([8, 0, 8], np.int64))
    np.savez(bad, i=np.array([9], np.int64))
    assert main(["verify", path, "--inputs", str(good), "-q"]) == 0
    assert "exact" in capsys.readouterr().out
    assert (
        main(["verify", path, "--inputs", str(bad), "-q"]) == 2
    )  # the file's own numbers are used: 9 is out of range
    assert "out of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"j": np.ones(3, np.int64)}, "no input 'j'"),
        ({"i": np.ones(3, np.float32)}, "takes int64, the file holds float32"),
    ],
)
def test_inputs_of_a_file_that_are_not_the_models(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    path = saved(tmp_path, GATHER, t=np.ones((9, 4), np.float32))
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises((InputError, RunError), match=said):
        verify(path, arrays=tmp_path / "in.npz")


def test_a_file_that_holds_no_arrays(tmp_path: Path) -> None:
    path = saved(tmp_path, GATHER, t=np.ones((9, 4), np.float32))
    (tmp_path / "in.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"is no file of arrays"):
        verify(path, arrays=tmp_path / "in.npz")
    with pytest.raises(InputError, match=r"is no file of arrays"):
        verify(path, arrays=tmp_path / "nowhere.npz")
    with pytest.raises(OptionError, match="makes its own"):
        verify(MODELS / "linear.py", arrays=tmp_path / "in.npz")


def test_a_number_that_was_said_is_fed(tmp_path: Path) -> None:
    """With k = 1, as other integers are, the result would have another shape."""
    path = saved(
        tmp_path, "g (float[N,64] x, int64[1] k) => (float[N,M] y, int64[N,M] z) { y, z = TopK(x, k) }"
    )
    found = verify(path, batch=64, values={"k": 64})
    assert found.figure("peak in use").error_percent == 0


def test_a_model_of_which_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(
        tmp_path, "g (float[2] x) => (float[4] y) { y = Concat<axis=0>(a, a) }", a=np.ones(2, np.float32)
    )
    assert main(["verify", path, "-q"]) == 2
    said = capsys.readouterr().err
    assert "no kernel is left in this model" in said and "nothing to measure" in said


def test_memory_is_checked_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(
        tmp_path,
        "g (float[N,256] x) => (float[N,256] y) { y = MatMul(x, w) }",
        w=np.ones((256, 256), np.float32),
    )
    monkeypatch.setattr(machine, "host_free_bytes", lambda: 1 << 20)
    with pytest.raises(DoesNotFit, match=r"memory of this machine, and 1\.0 MiB are free"):
        verify(path, batch=4096)
    assert any("--force although" in note for note in verify(path, batch=8192, force=True).notes)


def test_what_this_machine_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = machine.host_free_bytes()
    assert free is None or 1 << 20 < free < 1 << 50
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    monkeypatch.setattr(machine, "_CONTROLLERS", ((tmp_path, "memory.max", "memory.current"),))
    assert machine.host_free_bytes() == 100
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.host_free_bytes() != 100
