"""What an estimate of an ONNX file says besides its figures, and what is asked back of those who ask for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

import analyzer
from analyzer.cli import main
from analyzer.errors import OptionError, TargetError
from analyzer.report import formats
from analyzer.report.sentences import estimate_rows
from analyzer.results.estimate import Estimate
from tests.paths import MODELS
from tests.runtimes.onnxruntime import limited

_HEADER = '<ir_version: 9, opset_import: ["":17]> '


def saved(folder: Path, text: str, **weights: Any) -> str:
    """A file of this graph with these weights."""
    model = parser.parse_model(_HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.fixture
def two_convolutions(tmp_path: Path) -> str:
    """One channel becomes 64 and then 128, on 32 by 32 points; the batch is 1 for good."""
    return saved(
        tmp_path,
        "g (float[1,3,32,32] x) => (float[1,8,32,32] y) { a = Conv<pads=[1,1,1,1]>(x, u) b = Sin(a)"
        " c = Conv<pads=[1,1,1,1]>(b, v) d = Sin(c) y = Conv<pads=[1,1,1,1]>(d, w) }",
        u=ones(64, 3, 3, 3), v=ones(128, 64, 3, 3), w=ones(8, 128, 3, 3),
    )  # fmt: skip


def test_the_memory_pattern_shows_its_layers(two_convolutions: str) -> None:
    """c and d, 128 channels of 32 x 32 floats, live together: 2 x 524,288 bytes, in the block the second run takes."""
    estimate = analyzer.analyze(two_convolutions, device="h200", runtime_options={"provider": "cpu"})
    assert estimate.peak_at == "run 2"
    inside = {row.name: row for row in estimate.tensors if row.rule == "ort-memory-pattern"}
    assert {name for name in inside if not name.startswith("rest of")} == {"c", "d"}
    assert inside["c"].nbytes == inside["d"].nbytes == 524_288
    assert (inside["d"].operator, inside["d"].shape, inside["d"].dtype) == (
        "Sin",
        (1, 128, 32, 32),
        "float32",
    )
    assert sum(row.nbytes for row in estimate.tensors) == estimate.peak_allocated
    assert sum(estimate.by_module.values()) == estimate.peak_allocated


def test_a_batch_the_file_does_not_take_stands_beside_the_verdict(two_convolutions: str) -> None:
    estimate = analyzer.analyze(two_convolutions, batch=8, device="h200")
    (said,) = estimate.refused
    assert "hard-coded batch of 1, rebound to 8" in said
    assert estimate.notes.count(said) == 1
    lines = formats.render("estimate", "text", estimate).splitlines()
    assert lines[0].startswith("refused by onnxruntime: the export has a hard-coded batch of 1")
    assert any(line.startswith("if it ran: fits: ") for line in lines[1:4])
    assert sum("hard-coded" in line for line in lines) == 1
    again = formats.render("estimate", "html", estimate)
    assert again.index("hard-coded batch") < again.index("<h2")
    assert analyzer.analyze(two_convolutions, batch=1, device="h200").refused == ()


def test_refusals_are_kept_in_json(two_convolutions: str) -> None:
    from analyzer.report.json import loads

    estimate = analyzer.analyze(two_convolutions, batch=8, device="h200")
    assert loads(estimate.to_json()).refused == estimate.refused


def test_notes_are_said_once(two_convolutions: str) -> None:
    for provider in ("cpu", "cuda"):
        notes = analyzer.analyze(
            two_convolutions, batch=8, device="h200", runtime_options={"provider": provider}
        ).notes
        assert len(notes) == len(set(notes))


@pytest.mark.parametrize(
    ("held", "refused"),
    [(64, True), (127, True), (128, False), (200, False), (None, False)],
)
def test_external_data_that_ends_too_early(
    tmp_path: Path, held: int | None, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two weights of 64 bytes each: the file must have 128."""
    model = parser.parse_model(
        _HEADER + "g (float[N,4] x) => (float[N,4] y) { a = MatMul(x, v) y = MatMul(a, w) }"
    )
    for place, name in enumerate("vw"):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4, 4])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "data.bin"), ("offset", 64 * place), ("length", 64)):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    onnx.save(model, tmp_path / "model.onnx")
    if held is not None:
        (tmp_path / "data.bin").write_bytes(bytes(held))
    estimate = analyzer.analyze(str(tmp_path / "model.onnx"), batch=2, device="h200")
    assert len(estimate.refused) == refused
    assert estimate.fits() is not refused
    for command in ([], ["fit"]):
        sized = [] if command else ["--batch", "2"]
        code = main([*command, str(tmp_path / "model.onnx"), *sized, "--device", "h200", "-q"])
        out = capsys.readouterr().out
        assert code == (2 if refused else 0)
        assert out.startswith("refused by onnxruntime: ") is refused
        assert out.count("refused") == refused
    if refused:
        assert f"data.bin holds {held} bytes, 'w' ends at byte 128" in estimate.refused[0]


@pytest.mark.parametrize(
    ("text", "weights", "said"),
    [
        ("y = Relu(x)", {}, "it has no weights"),
        (
            "d = DequantizeLinear(q, s) y = MatMul(x, d)",
            {"q": np.ones((4, 4), np.int8), "s": np.float32(0.1)},
            "it is quantised, 1 weight of type int8",
        ),
        (
            "y = BatchNormalization(x, s, b, b, s)",
            {"s": np.ones(4, np.float32), "b": np.ones(4, np.float32)},
            "its floating-point weights are running statistics or settings",
        ),
    ],
)
def test_training_what_cannot_be_trained(
    tmp_path: Path, text: str, weights: dict[str, Any], said: str
) -> None:
    path = saved(tmp_path, f"g (float[N,4] x) => (float[N,4] y) {{ {text} }}", **weights)
    with pytest.raises(TargetError) as caught:
        analyzer.analyze(path, batch=2, mode="train", device="h200")
    assert said in caught.value.message
    assert "shape" not in str(caught.value)


def test_training_beside_quantised_weights_says_so(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        "g (float[N,4] x) => (float[N,4] y) { d = DequantizeLinear(q, s) a = MatMul(x, d) y = MatMul(a, w) }",
        q=np.ones((4, 4), np.uint8), s=np.float32(0.1), w=ones(4, 4),
    )  # fmt: skip
    estimate = analyzer.analyze(path, batch=2, mode="train", device="h200")
    assert any(note.endswith("whole numbers: 1 weight of type uint8") for note in estimate.notes)


def test_statistics_computed_from_weights_are_not_trained(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        "g (float[N,4,8] x) => (float[N,4,8] y) { m = Mul(s, s) y = BatchNormalization(x, s, b, m, v) }",
        s=ones(4), b=ones(4), v=ones(4),
    )  # fmt: skip
    estimate = analyzer.analyze(path, batch=2, mode="train", device="h200")
    assert estimate.breakdown["parameters"] == 2 * 512  # s and b, a block of 512 bytes each


def test_a_budget_of_eight_bytes_is_questioned(
    two_convolutions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([two_convolutions, "-q", "--budget", "8"]) == 2
    assert "'8' would be 8 bytes" in (said := capsys.readouterr().err)
    assert '"8GiB", or "8B"' in said
    assert main([two_convolutions, "-q", "--budget", "8B"]) == 1
    assert main([two_convolutions, "-q", "--budget", "8GiB"]) == 0
    with pytest.raises(OptionError):
        analyzer.devices.parse_size("1048575")
    assert analyzer.devices.parse_size("1048576") == 1 << 20


def test_debug_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--debug" in capsys.readouterr().out


def test_small_models_are_shown_in_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }", w=ones(4, 4))
    estimate = analyzer.analyze(path, batch=2, device="h200")
    text = formats.render("estimate", "text", estimate)
    assert "naive = data 64 + weights 64 + outputs 0 bytes" in text
    narrow = formats.render("estimate", "text", estimate, formats.View(width=40)).splitlines()
    row = next(line for line in narrow if line.startswith("naive sum"))
    assert row.split()[-1] == "128"
    assert next(line for line in narrow if line.startswith("estimate")).split()[-1] == "bytes"


@pytest.mark.parametrize("width", [40, 41, 47, 60, 79, 80, 120])
def test_every_line_fits_the_columns(two_convolutions: str, width: int) -> None:
    estimate: Estimate = analyzer.analyze(two_convolutions, batch=8, device="h200")
    text = formats.render("estimate", "text", estimate, formats.View(width=width, by="module"))
    assert max(map(len, text.splitlines())) <= width
    assert "ort-memory-pattern" in text  # the name that `analyze explain` takes stays whole


def test_the_order_of_initializers_is_in_the_ranges_and_in_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The order of loading changes from process to process: the ranges are what the note says, and where the
    device has room for some orders only, nothing is said to fit."""
    model = str(MODELS / "cnn.onnx")
    estimate = analyzer.analyze(model, batch=4, device="h200")
    (least, most), (fewest, largest) = estimate.allocated_range, estimate.reserved_range
    assert least < estimate.peak_allocated < most and fewest <= estimate.peak_reserved < largest
    more_code = 2 << 20  # `runtimes/onnxruntime/outside.py`
    assert estimate.device_range[1] - estimate.device_used == largest - estimate.peak_reserved + more_code
    shown = json.loads(formats.render("estimate", "json", estimate))
    assert shown["allocated_range"] == [least, most] and shown["reserved_range"] == [fewest, largest]

    tight = [model, "--batch", "4", "--device", "697MiB"]
    assert main(tight) == 1
    shown_text = capsys.readouterr().out
    assert shown_text.startswith("may not fit: ") and "driver may have" not in shown_text
    assert "it may run nevertheless: each process loads initializers in its own order" in shown_text
    assert analyzer.analyze(model, batch=4, device="712MiB").verdict() == "fits"
    saved_estimate = tmp_path / "tight.json"
    assert main([*tight, "--format", "json", "-o", str(saved_estimate)]) == 1
    main(["report", str(saved_estimate)])
    assert capsys.readouterr().out.startswith("may not fit: ")


LIMITED = {"target": MODELS / "cnn.onnx", "batch": 64, "device": "h200"}


def test_a_budget_below_what_lies_beside_the_arena_lets_no_order_run() -> None:
    """Context and libraries are 679 MiB (`outside.py`): an arena would hold all of the session within 500 MiB alone."""
    free = analyzer.analyze(**LIMITED)
    assert free.peak_reserved < 500 * 2**20 < free.device_used - free.peak_reserved
    tight = analyzer.analyze(**LIMITED, budget="500MiB")
    assert (tight.verdict(), tight.doubt) == ("does not fit", "") and not tight.fits()
    large = analyzer.analyze(LIMITED["target"], batch=1024, device="500MiB")
    assert large.verdict() == "does not fit" and not large.doubt
    assert any("with 0 of 0 held" in note for note in large.notes)


def test_a_device_without_room_says_what_the_arena_has_there() -> None:
    """16 MiB beside context and libraries: the request that fails is the arena's of so much."""
    free = analyzer.analyze(LIMITED["target"], batch=1024, device="h200")
    beside = free.device_used - free.peak_reserved
    small = analyzer.analyze(LIMITED["target"], batch=1024, device=beside + 16 * 2**20)
    (note,) = [note for note in small.notes if note.startswith("out of memory")]
    assert f" of {16 * 2**20:,} held" in note


@pytest.mark.parametrize("part", [0.1, 0.5, 0.8, 0.95, 0.99])
def test_a_budget_changes_neither_the_need_nor_the_cards_verdict(part: float) -> None:
    """Over it: figures and notes are those without a budget. Within it: those of the budget, and the card's beside them."""
    large = {**LIMITED, "batch": 1024}
    free = analyzer.analyze(**large)
    beside = free.device_used - free.peak_reserved
    budget = beside + int(free.peak_reserved * part)
    found = analyzer.analyze(**large, budget=budget)
    assert found.needed.device_used == free.device_used
    assert found.verdict(found.usable_bytes) == free.verdict() == "fits"
    if not found.fits():
        assert found.device_used == free.device_used and found.notes == free.notes
    assert found.fits() == analyzer.analyze(large["target"], batch=1024, device=budget).fits()


def test_a_doubt_about_the_budget_is_none_about_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    """Some orders run within 697 MiB, and all of them on the card."""
    asked = {"target": MODELS / "cnn.onnx", "batch": 4, "device": "h200"}
    free, found = analyzer.analyze(**asked), analyzer.analyze(**asked, budget="697MiB")
    assert " of 21 run" in found.doubt and found.verdict() == "may not fit"
    assert found.verdict(found.usable_bytes) == "fits" and found.device_used == free.device_used
    argv = [str(asked["target"]), "--batch", "4", "--device", "h200", "--budget", "697MiB", "-q"]
    assert main(argv) == 1
    assert capsys.readouterr().out.startswith("may be over budget: ")


def test_a_budget_within_which_the_arena_takes_less_shows_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last region doubles with room (as here); within the budget it is as large as there is room for."""
    path = tmp_path / "tower.onnx"
    limited.tower(4, path)
    free = analyzer.analyze(path, batch=256, device="h200")
    budget = free.device_used - free.peak_reserved // 10
    found = analyzer.analyze(path, batch=256, device="h200", budget=budget)
    assert found.fits() and found.device_used <= budget < free.device_used
    assert found.with_room == free.needed and found.after_runs[-1].device_used <= budget
    assert main([str(path), "--batch", "256", "--device", "h200", "--budget", str(budget)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition(":")[0] for line in lines[:2]} == {"fits", "within budget"}
    assert lines[2].startswith("with room it would take ") and "the arena takes smaller regions" in lines[2]
    setting = re.search(r"on a larger GPU gpu_mem_limit=(\d+) holds it to the budget", " ".join(lines))
    assert setting
    held = analyzer.analyze(
        path, batch=256, device="h200", runtime_options={"gpu_mem_limit": int(setting[1])}
    )
    assert held.fits() and held.device_used <= budget


@pytest.mark.parametrize("batch", [1, 4, 32, 85])
@pytest.mark.parametrize("limit", [None, 256 * 2**20])
def test_ranges_hold_what_they_have_in_use_and_no_more_than_the_limit(batch: int, limit: int | None) -> None:
    options = {} if limit is None else {"gpu_mem_limit": limit}
    estimate = analyzer.analyze(MODELS / "cnn.onnx", batch=batch, device="h200", runtime_options=options)
    (least, most), (fewest, largest) = estimate.allocated_range, estimate.reserved_range
    assert least <= fewest and most <= largest
    assert limit is None or most <= limit


def test_liveness_of_the_files_graph_is_told_from_the_runtimes(tmp_path: Path) -> None:
    """Five operators become one Gelu: the file has x, x(1 + erf) and the next result at once, the session x and y."""
    text = (
        "g (float[N,512,512] x) => (float[N,512,512] y)"
        " { a = Div(x, r) b = Erf(a) c = Add(b, o) d = Mul(x, c) y = Mul(d, h) }"
    )
    weights = {name: np.array(value, np.float32) for name, value in (("r", 2**0.5), ("o", 1), ("h", 0.5))}
    path = saved(tmp_path, text, **weights)

    def meaning(level: str) -> tuple[bool, str]:
        asked = {"graph_optimization_level": level, "arena_extend_strategy": "kSameAsRequested"}
        estimate = analyzer.analyze(path, batch=16, device="h200", runtime_options=asked)
        shown = {name: meaning for name, _, meaning in estimate_rows(estimate)}
        return estimate.graph_peak > estimate.peak_allocated, shown["graph liveness"]

    assert meaning("all") == (True, "of the file's graph, unfused")
    assert meaning("disable_all") == (False, "tensors freed at last use")


def test_layer_normalization_of_an_earlier_operator_set_needs_no_guess(tmp_path: Path) -> None:
    """ONNX has it since operator set 17, ONNX Runtime in all of them."""
    text = (
        '<ir_version: 8, opset_import: ["":14]> g (float[batch,16,64] x, float[64] s) => (float[batch,16,64] z)'
        " { y = LayerNormalization <axis=-1> (x, s) z = Relu (y) }"
    )
    path = tmp_path / "early.onnx"
    onnx.save(parser.parse_model(text), path)
    estimate = analyzer.analyze(path, batch=4, device="h200")
    assert not any("guess" in note for note in estimate.notes) and not estimate.certainty.unknown_operators
    assert [row.shape for row in estimate.tensors if row.name.endswith("y")] == [(4, 16, 64)]
