"""The curve: every row is what a fresh analysis says, whatever the program does between the captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import analyzer
from analyzer.errors import CaptureError, InputError
from analyzer.planning.curve import sweep
from analyzer.results.curve import Curve, Row
from analyzer.results.estimate import Estimate
from tests.paths import MODELS
from tests.planning.targets import Small, Stepped, small_batch, stepped_batch


def row_of(batch: int, estimate: Estimate) -> Row:
    return Row(
        batch,
        estimate.peak_allocated,
        estimate.peak_reserved,
        estimate.device_used,
        estimate.naive.total,
    )


def check(curve: Curve, fresh: Any, batches: tuple[int, ...]) -> None:
    rows = {row.batch: row for row in curve.rows}
    for batch in batches:
        assert batch not in curve.captures
        assert rows[batch] == row_of(batch, fresh(batch))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_rows_are_fresh_analyses(mode: str) -> None:
    """A similarity matrix is quadratic in the batch: three captures cannot check it, so more are made."""
    curve = sweep(Small(), range(1, 129), small_batch, mode=mode, optimizer="adam", device="h200")

    def fresh(batch: int) -> Estimate:
        with torch.device("meta"):
            inputs, _ = small_batch(batch)
        return analyzer.analyze(Small(), inputs, mode=mode, optimizer="adam", device="h200")

    check(curve, fresh, (3, 17, 40, 66, 101, 127))
    assert len(curve.rows) == 128
    assert len(curve.captures) < 8


def test_a_language_model_of_two_blocks(tmp_path: Path) -> None:
    """All operators of GPT-2, whose blocks are alike; the whole model is the campaign's."""
    target = tmp_path / "two_blocks.py"
    whole = (MODELS / "gpt2.py").read_text()
    assert "return GPT2()" in whole
    target.write_text(whole.replace("return GPT2()", "return GPT2(depth=2)"))
    check_model(target)


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["gpt2.py", "resnet50.py"])
def test_models_of_this_repository(name: str) -> None:
    check_model(MODELS / name)


def check_model(target: Path) -> None:
    """Two rows of a curve in training are fresh analyses."""
    curve = sweep(target, range(2, 60), mode="train", optimizer="adamw", device="h200")
    check(
        curve,
        lambda batch: analyzer.analyze(target, batch=batch, mode="train", optimizer="adamw", device="h200"),
        (5, 23),
    )


def test_another_program_is_another_piece_and_a_failure_is_kept() -> None:
    curve = sweep(Stepped(), range(1, 41), stepped_batch, device="h200")
    assert [row.batch for row in curve.rows] == [batch for batch in range(1, 41) if batch != 31]
    assert list(curve.failures) == [31]
    assert "bad luck" in curve.failures[31]
    change = next(kink for kink in curve.kinks if kink.after == 20)
    assert "relu" in change.reason

    def fresh(batch: int) -> Estimate:
        with torch.device("meta"):
            inputs, _ = stepped_batch(batch)
        return analyzer.analyze(Stepped(), inputs, device="h200")

    check(curve, fresh, (7, 15, 25, 35))


def test_tensors_stand_for_one_batch() -> None:
    x = torch.empty(4, 3, 32, 32, device="meta").to(memory_format=torch.channels_last)
    curve = sweep(Small(), [2, 3, 4, 5, 6, 7, 8, 9], (x,), device="h200")
    resized = torch.empty(7, 3, 32, 32, device="meta").to(memory_format=torch.channels_last)
    assert curve.rows[5] == row_of(7, analyzer.analyze(Small(), (resized,), device="h200"))


def test_onnx_targets() -> None:
    target = MODELS / "cnn.onnx"
    curve = sweep(target, range(1, 20), device="h200")
    for row in curve.rows[::6]:
        assert row == row_of(row.batch, analyzer.analyze(target, batch=row.batch, device="h200"))


@pytest.mark.parametrize(
    "options",
    [{}, {"arena_extend_strategy": "kSameAsRequested"}, {"provider": "cpu"}, {"gpu_mem_limit": "1GiB"}],
)
def test_a_session_is_read_at_three_batches(options: dict[str, str]) -> None:
    """Its rows are fresh analyses; where its arena has other rules, they are analyses."""
    target = MODELS / "cnn.onnx"
    curve = sweep(target, range(2, 40), device="h200", runtime_options=options)
    plain = "provider" not in options and "gpu_mem_limit" not in options
    assert curve.captures == ((2, 21, 39) if plain else tuple(range(2, 40)))
    for row in curve.rows[1:-1:9]:
        fresh = analyzer.analyze(target, batch=row.batch, device="h200", runtime_options=options)
        assert row == row_of(row.batch, fresh)


def test_a_file_that_fixes_its_batch_is_planned_at_each(tmp_path: Path) -> None:
    """ONNX Runtime then sees numbers: whether two are equal depends on the batch."""
    import onnx

    model = onnx.load(MODELS / "cnn.onnx", load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "fixed.onnx")
    curve = sweep(tmp_path / "fixed.onnx", range(2, 12), device="h200")
    assert curve.captures == tuple(range(2, 12))
    row = curve.rows[7]
    assert row == row_of(9, analyzer.analyze(tmp_path / "fixed.onnx", batch=9, device="h200"))


def test_bad_input() -> None:
    for batches in ([], [0], [True], [2.5]):
        with pytest.raises(InputError):
            sweep(Small(), batches, small_batch)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="many batches"):
        sweep(Small(), [1], small_batch, batch=3)
    with pytest.raises(CaptureError, match="bad luck"):
        sweep(Stepped(), [31], stepped_batch)


def test_a_target_that_is_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Opened once, whatever the number of captures; what it writes goes to an overlay."""
    file = tmp_path / "counted.py"
    file.write_text(
        "import torch\nfrom pathlib import Path\n"
        "def make_model():\n"
        "    log = Path(__file__).with_suffix('.log')\n"
        "    log.write_text('x')\n    print('opened', flush=True)\n"
        "    return torch.nn.Linear(8, 8)\n"
        "def make_batch(batch):\n    return (torch.randn(batch, 8),), ()\n"
    )
    sweep(file, range(1, 30))
    assert capfd.readouterr().out.count("opened") == 1 and not file.with_suffix(".log").exists()
