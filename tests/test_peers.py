"""`benchmarks/peers/table.py`: tools are asked as they are, what they cannot say is said so, and the page adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.__main__ import main as benchmarks
from benchmarks.peers import table as peers
from benchmarks.peers.tool import Answer, CannotSayError, Case, Tool, ask

LINEAR = "development: mnist_fc 100 train sgd"
ADAM = "development: mnist_fc 100 train adam"


def said(tool: str, tag: str, *figures: int, seconds: float = 1.0) -> Answer:
    return Answer(tool, "step", tag, "said", figures, seconds=seconds)


def test_asking() -> None:
    def no_word(_: object) -> object:
        raise CannotSayError("autocast")

    case = Case("step", "a", {"allocated": 1}, 21)
    answers = [
        ask(Tool("x", "x", "step", ("allocated",), answer), case)  # type: ignore[arg-type]
        for answer in (lambda given: lambda: (2 * given,), no_word, lambda given: lambda: (given // 0,))
    ]
    assert [(answer.outcome, answer.figures) for answer in answers] == [
        ("said", (42,)),
        ("cannot", ()),
        ("failed", ()),
    ]
    assert answers[1].said == "autocast" and answers[2].said.startswith("ZeroDivisionError")


def test_the_page_adds_up() -> None:
    """Two cases: the project is exact and 1 % high, the tool 10 % low and without a word. By hand."""
    cases = peers.load("step")[1]
    one, two = (cases[tag].measured for tag in (LINEAR, ADAM))
    exact = [one[figure] for figure in ("allocated", "reserved", "device")]
    high = [round(1.01 * two[figure]) for figure in ("allocated", "reserved", "device")]
    found = [
        said("analyzer", LINEAR, *exact),
        said("analyzer", ADAM, *high, seconds=3.0),
        said("MemTracker", LINEAR, round(0.9 * one["allocated"]), seconds=0.5),
        Answer("MemTracker", "step", ADAM, "cannot", said="an optimizer"),
    ]
    rows = [line.strip("| ").split(" | ") for line in peers.summary("step", found).splitlines()]
    assert rows[2] == ["analyzer", "allocated", "2", "0", "0", "0.50", "1.00", "1.00", "", "", "2.00", "3.0"]
    assert rows[5][:8] == ["MemTracker", "allocated", "1", "1", "0", "10.00", "10.00", "10.00"]
    assert rows[5][8:] == ["0.00", "1 of 1", "0.50", "0.5"]
    text = peers.page(found)
    assert "- MemTracker no word for: an optimizer (1)" in text
    assert f"| {LINEAR} | {one['allocated'] / 2**20:,.1f} | exact | exact | exact | -10.00 |" in text
    assert "torchinfo" not in text.split("Signed errors")[1], "a tool nobody asked has no column"


def test_mem_tracker_is_asked_and_the_journal_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own; a second run asks nobody."""
    journal = tmp_path / "answers.jsonl"
    wanted = [("step", "MemTracker", LINEAR), ("step", "accelerate", LINEAR)]
    first = {answer.tool: answer for answer in peers.answers(wanted, journal, 1)}
    (tracked,) = first["MemTracker"].figures
    # 7,850 weights and as many gradients, this step's 100 x 784 inputs and the last one's; no workspace of cuBLAS.
    assert 2 * 4 * 7_850 + 2 * 4 * 78_400 < tracked < peers.load("step")[1][LINEAR].measured["allocated"]
    assert first["accelerate"].outcome == "cannot"
    monkeypatch.setattr(peers, "question", None)
    assert {answer.tool: answer for answer in peers.answers(wanted, journal, 1)} == first


@pytest.mark.campaign
def test_fsdp_mem_tracker_follows_a_rank_and_is_further_off() -> None:
    tag = "fsdp2_root, rank 0"
    wanted = [("rank", tool, tag) for tool in ("FSDPMemTracker", "analyzer")]
    found = {answer.tool: answer for answer in peers.answers(wanted, None, 1)}
    (tracked,) = found["FSDPMemTracker"].figures
    measured = peers.load("rank")[1][tag].measured["allocated"]
    # Six parts in a thousand, by the page: without what the allocator adds, with the host's attention instead of CUDA's.
    assert 0 < abs(tracked / measured - 1) < 0.05
    assert abs(found["analyzer"].figures[0] - measured) < abs(tracked - measured)


def test_a_missing_tool_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tool, "version", property(lambda self: None if self.name == "onnx-tool" else "1"))
    assert benchmarks(["peers", "table", "--kind", "file"]) == 2
    assert "not installed: onnx-tool" in capsys.readouterr().err
