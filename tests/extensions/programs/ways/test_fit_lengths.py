"""The largest batch of a configuration, and of every length on several GPUs: each answer runs, the next one does not."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.options import Options
from analyzer.planning.fit import fits, over_lengths
from analyzer.report.formats import View, names, render
from analyzer.results.fit import Fit, Lengths
from analyzer_programs import configuration

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
    reason="the user's own packages are not here",
)
TINY = {
    "model_type": "llama", "vocab_size": 20_000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
}  # fmt: skip
SAID: dict[str, Any] = {"mode": "train", "steps": 1, "load": "gpu"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tiny") / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.fixture(scope="module")
def found(config: str) -> Lengths:
    return over_lengths(config, ("900MiB", "2GiB"), Options.of({**SAID, "device": "900MiB"}))


def test_the_answer_runs_and_the_next_does_not(config: str) -> None:
    fit = analyzer.fit(config, device="2GiB", length=300, **SAID)
    assert fit.batch > 2 and fit.at is not None
    at = analyzer.analyze(config, batch=fit.batch, device="2GiB", length=300, **SAID)
    beyond = analyzer.analyze(config, batch=fit.batch + 1, device="2GiB", length=300, **SAID)
    assert at.fits() and not beyond.fits()
    assert fit.at.device_used == at.device_used


def test_every_length_has_the_answer_of_fit(config: str, found: Lengths) -> None:
    assert list(found.fits) == [512, 1024, 2048]
    assert found.batch(2048, 0) == 0 and found.notes == ("the model has 2,048 positions",)
    assert found.batch(512, 1) == analyzer.fit(config, device="2GiB", length=512, **SAID).batch
    for place in (0, 1):
        batches = [found.batch(length, place) for length in found.fits]
        assert batches == sorted(batches, reverse=True)
    assert all(found.batch(length, 0) <= found.batch(length, 1) for length in found.fits)


def test_every_form_has_every_length(found: Lengths) -> None:
    text = str(render("lengths", "text", found, View(width=80)))
    assert "2GiB: up to length 2,048" in text and max(map(len, text.splitlines())) <= 80
    rows = list(csv.reader(io.StringIO(str(render("lengths", "csv", found)))))
    assert rows[0] == ["length", "900MiB", "2GiB"]
    assert [int(row[2]) for row in rows[1:]] == [found.batch(length, 1) for length in found.fits]
    document = json.loads(render("lengths", "json", found))
    assert {(row["length"], row["device"]): row["batch"] for row in document["rows"]}[
        512, "2GiB"
    ] == found.batch(512, 1)
    pytest.importorskip("matplotlib")
    drawn = render("lengths", "svg", found)
    assert isinstance(drawn, bytes) and b"largest batch" in drawn and b"2GiB" in drawn
    assert set(names("lengths")) == {"text", "json", "csv", "svg", "png"}


def test_a_target_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make_batch(batch, length)` makes the samples."""
    target = tmp_path / "own.py"
    target.write_text(
        """
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.Linear(4096, 64))

def make_batch(batch, length=8):
    return torch.zeros(batch, length, 64), torch.zeros(batch, length, 64)

def loss(output, target):
    return (output - target).square().mean()
"""
    )
    words = ["fit", str(target), "--mode", "train", "--device", "1GiB", "--over", "length,batch", "-q"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "1GiB: up to length 2,048 " in printed
    rows = re.findall(r"^ +([\d,]+) +(\d+)$", printed, re.M)
    assert [length for length, _ in rows] == ["512", "1,024", "2,048", "4,096"] and rows[-1][1] == "0"
    assert int(rows[0][1]) > int(rows[1][1]) > int(rows[2][1]) > 0


def test_what_does_not_go_together(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--over", "length,batch", "--longest"], "leave --longest and --limit out"),
        (["--over", "length,batch", "--format", "html"], "one of text, json, csv, svg, png"),
        (["--format", "svg"], "one of text, json, html"),
    ):
        assert main(["fit", config, "--device", "2GiB", *words]) == 2
        assert said in capsys.readouterr().err


def test_another_device_begins_where_the_first_one_grew_to(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a generation each batch is followed once, on its device, and on a second one little more than the answer and
    the batch beyond it; each answer is heard as it is known."""
    followed: list[tuple[Any, Any, bool]] = []
    own = configuration._followed

    def counted(recipe: Any, options: Any, progress: Any, limitless: bool) -> Any:
        followed.append((options.device, options.batch, limitless))
        return own(recipe, options, progress, limitless)

    monkeypatch.setattr(configuration, "_followed", counted)
    heard: list[int] = []
    said = {"mode": "generate", "length": 512, "new_tokens": 4}
    devices = ("2GiB", "1536MiB")
    answers = dict(fits(config, devices, known=lambda answer: heard.append(len(followed)), **said))
    first, second = answers["2GiB"], answers["1536MiB"]
    assert isinstance(first, Fit) and isinstance(second, Fit) and 0 < second.batch < first.batch
    assert len(followed) == len(set(followed)) and not any(limitless for *_, limitless in followed)
    batches = [batch for device, batch, _ in followed if device == "1536MiB"]
    assert {second.batch, second.batch + 1} <= set(batches) and 1 not in batches and len(batches) <= 6
    assert heard[0] == len(followed) - len(batches)
    monkeypatch.undo()
    alone = analyzer.fit(config, device="1536MiB", **said)
    assert (alone.batch, alone.brief and alone.brief.peak_reserved) == (
        second.batch,
        second.brief and second.brief.peak_reserved,
    )
