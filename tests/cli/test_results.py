"""Results as people handle them: printed, named with their options, compared, asked for with a slip of the finger."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.options import Options
from analyzer.report import sentences
from analyzer.report.command_line import written
from analyzer.spec import TensorSpec
from tests.paths import MODELS
from tests.report.estimates import TRAINING, hostile

CNN = str(MODELS / "cnn.py")


def test_an_estimate_is_printed_in_a_screen() -> None:
    estimate = analyzer.analyze(CNN, mode="train", batch=4, amp="bf16", device="24GiB")
    line = repr(estimate)
    assert line.startswith("<Estimate ") and "\n" not in line and len(line) < 300
    assert "amp='bf16'" in line and "fits: " in line and line in repr([estimate])
    shown = str(estimate).splitlines()
    assert shown[0].startswith("fits: ") and len(shown) < 20 and max(map(len, shown)) <= 80
    assert any("pytorch: reserved" in row for row in shown)
    assert "\x1b" not in repr(hostile("\x1b[31mred")) and "\n" not in repr(hostile("a\nb"))


def test_options_are_written_as_on_the_command_line() -> None:
    options = Options(
        mode="train", batch=4, amp="bf16", checkpoint="layers.*", grad_accumulation=2, channels_last=True, loss="mse",
        parallel="ddp:8", steps=5, runtime_options={"alloc_conf": "expandable_segments:True"}, assume={"a.py:3": 7},
        inputs={"x": TensorSpec((4, 3))}, values={"sr": 16000},
    )  # fmt: skip
    assert set(written(options.shown())) == {
        "--amp bf16", "--checkpoint 'layers.*'", "--grad-accumulation 2", "--channels-last", "--loss mse", "--parallel ddp:8",
        "steps 5", "--runtime-option alloc_conf=expandable_segments:True", "--assume a.py:3=7", "--input x=4x3:float32",
        "--value sr=16000",
    }  # fmt: skip
    assert written(Options(mode="train", batch=4).shown()) == ()
    assert written({"unheard of": 3, "amp": None}) == ()


def test_a_micro_batch_is_called_so() -> None:
    from dataclasses import replace

    assert "batch 128" in sentences.subject(TRAINING)
    assert "micro-batch 128 (512 a step)" in sentences.subject(
        replace(TRAINING, options={"grad_accumulation": 4})
    )


def test_headings_and_comparisons_name_options(run: Any, tmp_path: Path) -> None:
    files = []
    for name, more in (("a", ["--amp", "bf16", "--checkpoint", "pool"]), ("b", ["--grad-accumulation", "2"])):
        files.append(tmp_path / f"{name}.json")
        asked = [CNN, "--mode", "train", "-b", "4", "--optimizer", "adamw", "--device", "24GiB", *more]
        assert run(*asked, "--format", "json", "-o", files[-1]).code == 0
    shown = " ".join(run("report", files[0], "--top", "0").out.split())
    assert "· adamw · --amp bf16 · --checkpoint pool" in shown
    assert "--amp bf16" in run("report", files[0], "--format", "html").out
    told = run("compare", *files).out
    assert "options: --amp bf16 --checkpoint pool, now --grad-accumulation 2" in " ".join(told.split())
    assert "{" not in told


@pytest.mark.parametrize(("word", "meant"), [("fti", "fit"), ("what_if", "what-if"), ("comapre", "compare")])
def test_a_misspelt_command_is_told(run: Any, word: str, meant: str) -> None:
    ran = run(word, CNN)
    assert (
        ran.code == 2 and f"there is no command '{word}'" in ran.err and f"did you mean '{meant}'?" in ran.err
    )


def test_a_file_or_module_is_no_misspelt_command(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fti").mkdir()
    assert "is a folder" in run("fti").err
    assert "did you mean" not in run("resnet").err


@pytest.mark.parametrize("size", ["24G", "24 GiB", "24gib"])
def test_sizes_are_understood(run: Any, size: str) -> None:
    ran = run(CNN, "--batch", "4", "--device", size, "--budget", "20 g", "--top", "0")
    assert ran.code == 0 and "of 24.0 GiB on" in ran.out and "of 20.0 GiB allowed" in ran.out


@pytest.mark.parametrize(
    ("shell", "first"), [("bash", "_analyze_completion()"), ("zsh", "#compdef analyze"), ("fish", "function")]
)
def test_a_shells_completion(run: Any, shell: str, first: str) -> None:
    made = run("completion", shell)
    assert made.code == 0 and made.out.startswith(first) and f"_ANALYZE_COMPLETE={shell}_complete" in made.out
    assert run("completion", "csh").code == 2


def test_bash_completes_with_it(run: Any, tmp_path: Path) -> None:
    """Bash itself reads the script and fills its answers."""
    import sys

    command = tmp_path / "analyze"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m analyzer "$@"\n')
    command.chmod(0o755)
    asked = "compopt() { :; }; COMP_WORDS=(analyze wha); COMP_CWORD=1; _analyze_completion analyze; echo ${COMPREPLY[@]}"
    ran = subprocess.run(
        ["bash", "-c", run("completion", "bash").out + asked],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.split()[:1] == ["what-if"], ran.stderr
