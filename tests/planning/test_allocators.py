"""One program under every allocator: figures worked out by hand, every form of the result, and bad usage."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer import pipeline
from analyzer.cli import main
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.planning.allocators import ASYNCHRONOUS, CHOICES, Choice, parse_choice, side_by_side
from analyzer.report import formats
from analyzer.results.allocators import Comparison
from tests.paths import MODELS, ROOT

MIB = 2**20
CHAIN = ROOT / "tests" / "documents" / "model_003_chain.py"


@pytest.fixture(scope="module")
def chain() -> Comparison:
    """A feed and five results of 64 MiB each, two of them alive at a time; the last lives into the next iteration."""
    found = pipeline.analysis(str(CHAIN), Options.of({"batch": 1, "device": "rtx4090"}))
    return side_by_side(found)


def row_of(comparison: Comparison, allocator: str, **settings: Any) -> Any:
    wanted = Choice(allocator, settings).shown
    return next(row for row in comparison.rows if (row.allocator, row.setting) == (allocator, wanted))


def test_every_allocator_on_four_tensors_of_64_mib(chain: Comparison) -> None:
    """PyTorch keeps the feed, an operand, a result, and until it is replaced the previous iteration's output: 256 MiB."""
    assert {row.requested for row in chain.rows} == {256 * MIB}
    torch = row_of(chain, "pytorch")
    assert (torch.allocated, torch.reserved, torch.device_calls) == (256 * MIB, 256 * MIB, 4)
    # Doubling from 2 MiB, the first request makes a region of 64, and growth stays there; the second is of 64 as well,
    # and doubles the next, which has room for two.
    growing = row_of(chain, "tensorflow_bfc", allow_growth=True)
    assert (growing.allocated, growing.reserved, growing.device_calls) == (
        256 * MIB,
        (64 + 64 + 128) * MIB,
        3,
    )
    same = row_of(chain, "onnxruntime_bfc", arena_extend_strategy="kSameAsRequested")
    assert (same.reserved, same.device_calls) == (256 * MIB, 4)
    paddle = row_of(chain, "paddle_auto_growth")
    assert (paddle.allocated, paddle.reserved) == (256 * MIB, 4 * (64 * MIB + 256))
    direct = row_of(chain, "paddle_naive_best_fit", fraction_of_gpu_memory_to_use=0.0)
    assert (direct.allocated, direct.reserved) == (256 * MIB, 256 * MIB)
    assert direct.device_calls > 3 * 6


def test_what_takes_the_card_in_advance_takes_the_cards(chain: Comparison) -> None:
    advance = row_of(chain, "paddle_naive_best_fit")
    assert advance.reserved == pytest.approx(0.92 * chain.available_bytes, abs=512)
    whole = row_of(chain, "tensorflow_bfc", allow_growth=False)
    # Compute capability 8.9: 1,536 MiB are left to the system.
    assert whole.reserved == pytest.approx(chain.available_bytes - 1536 * MIB, abs=512)
    assert advance.device_calls == whole.device_calls == 1


def test_the_asynchronous_backend_is_a_lower_bound_and_says_so(chain: Comparison) -> None:
    row = row_of(chain, ASYNCHRONOUS)
    assert row.at_least and row.reserved == 256 * MIB
    assert any("lower bounds" in note for note in chain.notes)
    assert "≥ 256.0" in formats.render("allocators", "text", chain)


def test_a_limit_that_does_not_hold_is_said(chain: Comparison) -> None:
    found = pipeline.analysis(str(CHAIN), Options.of({"batch": 1, "device": "rtx4090"}))
    small = parse_choice("paddle_auto_growth:gpu_memory_limit_mb=100")
    row = side_by_side(found, [small]).rows[0]
    assert not row.fits
    assert "bytes requested" in row.out_of_memory
    text = formats.render("allocators", "text", replace(chain, rows=(row,)))
    assert isinstance(text, str) and "runs out of memory" in text and "fits under 0 of 1" in text


def test_every_simulator_is_among_the_choices() -> None:
    from analyzer import allocators

    assert {choice.allocator for choice in CHOICES} == {*allocators.names(), ASYNCHRONOUS}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("pytroch", "did you mean 'pytorch'?"),
        ("pytorch:max_split_size_mb", "NAME:SETTING=VALUE"),
        ("pytorch:max_split=4", "its settings"),
        ("tensorflow_bfc:memory_limit_bytes=-1", "above 0"),
    ],
)
def test_bad_allocators(capsys: pytest.CaptureFixture[str], text: str, hint: str) -> None:
    assert main(["allocators", str(CHAIN), "-q", "--allocator", text]) == 2
    assert hint in capsys.readouterr().err


def test_a_choice_from_text() -> None:
    choice = parse_choice("pytorch:max_split_size_mb=64,expandable_segments=True")
    assert choice == Choice("pytorch", {"max_split_size_mb": 64, "expandable_segments": True})
    with pytest.raises(OptionError):
        parse_choice("jemalloc")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def shown(*arguments: str) -> tuple[int, str]:
        code = main(["allocators", str(CHAIN), "--batch", "1", "-q", *arguments])
        return code, capsys.readouterr().out

    return shown


def test_json_and_csv_have_the_same_rows(shown: Any) -> None:
    one = ("--allocator", "pytorch", "--allocator", "onnxruntime_bfc:arena_extend_strategy=kSameAsRequested")
    code, text = shown(*one, "--format", "json")
    document = json.loads(text)
    assert code == 0 and document["schema"] == 1 and document["target"] == str(CHAIN)
    assert [row["reserved_bytes"] for row in document["rows"]] == [256 * MIB, 256 * MIB]
    _, text = shown(*one, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["reserved_bytes"]) for row in rows] == [256 * MIB, 256 * MIB]
    assert rows[1]["setting"] == "arena_extend_strategy=kSameAsRequested"


def test_exit_code_when_some_allocator_does_not_fit_the_device_named(shown: Any) -> None:
    assert shown("--allocator", "pytorch", "--device", "1GiB")[0] == 0
    assert shown("--allocator", "pytorch", "--device", "700MiB")[0] == 1


def test_names_of_models_are_made_harmless(chain: Comparison) -> None:
    hostile = replace(chain, target="<script>\x1b[31m", notes=("\x1b]0;x\x07<b>",))
    for form in ("text", "csv"):
        text = formats.render("allocators", form, hostile)
        assert isinstance(text, str) and "\x1b" not in text
    page = formats.render("allocators", "html", hostile)
    assert isinstance(page, str) and "\x1b" not in page and "<b>" not in page
    own = formats.render("allocators", "html", chain)
    assert isinstance(own, str) and page.count("<script>") == own.count("<script>")
    assert page.count("<tr>") == len(chain.rows) + 1


@pytest.mark.parametrize(("form", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures(chain: Comparison, form: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    drawn = formats.render("allocators", form, chain)
    assert isinstance(drawn, bytes) and drawn.startswith(magic)
    assert formats.render("allocators", form, chain) == drawn
    if form == "svg":
        assert b"naive_best_fit" in drawn


def test_a_picture_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["allocators", str(CHAIN), "--batch", "1", "-q", "--format", "svg"]) == 2
    assert "gpu-memory-analyzer[plot]" in capsys.readouterr().err


def test_an_onnx_graph_under_every_allocator(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = str(MODELS / "cnn.onnx")
    page = tmp_path / "page.html"
    assert main(["allocators", target, "--batch", "4", "--format", "html", "-o", str(page), "-q"]) == 0
    assert "ONNX Runtime" in page.read_text()
    assert capsys.readouterr().out == ""
