"""`analyze explain FILE`: a snapshot or a text, in every form; rules as before; `compare` of two snapshots."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from analyzer.cli.compare import command as compare
from analyzer.cli.explain import command as explain
from analyzer.errors import InputError, OptionError
from analyzer.recordings.estimate import explain as explained
from analyzer.report.json import loads
from tests.recordings.recorded import written


def said(*words: str, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(explain, list(words), input=stdin, standalone_mode=False)
    if result.exception:
        raise result.exception
    assert result.return_value == code
    return result.stdout


def test_what_failed_what_grows_and_no_setting_that_helps(tmp_path: Path) -> None:
    path = written("ends_growing.plain.900MiB", tmp_path)
    text = said(str(path), code=1)
    first, second = text.splitlines()[:2]
    assert first.startswith("out of memory: 8.0 MiB for forward, programs.py:207; 894.0 MiB of 894.0 MiB")
    assert "no setting of the allocator" in text and "no setting" not in first and second
    assert "together +12.5 MiB each round of its loop" in text
    assert "replayed to the byte: all 897 entries" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_growth_is_that_of_the_program(tmp_path: Path) -> None:
    """Of a loop that sums its losses: by arithmetic 4 linear and 4 GELU outputs of 1024 x 512, and what log_softmax keeps."""
    found = explained(written("losses_kept.plain", tmp_path))
    grows = {row.place: row.step_bytes for row in found.growth}
    assert grows["programs.py:59 (activation.py:816 forward)"] == 4 * 1024 * 512 * 4
    assert not explained(written("mlp_adam.plain", tmp_path)).growth


def test_the_first_step_that_finds_no_room(tmp_path: Path) -> None:
    found = explained(written("ends_training.plain.700MiB", tmp_path))
    (failed,) = found.failed
    assert failed.fraction and failed.asked_by == "programs.py:197 (adam.py:182 _init_group)"
    assert [way.served for way in found.ways] == [False] * 5
    assert found.estimate.breakdown["optimizer state"] > found.estimate.breakdown["parameters"]


def test_a_setting_that_helps_is_named(tmp_path: Path) -> None:
    text = said(str(written("growing_batches.plain", tmp_path)))
    assert "expandable_segments:True would have held 1.8 GiB instead of 5.6 GiB" in text
    assert "no stacks were recorded" in text


def test_json_is_an_estimate_and_html_its_page(tmp_path: Path) -> None:
    path = written("ends_growing.plain.900MiB", tmp_path)
    text = said(str(path), "--format", "json", code=1)
    document = json.loads(text)
    assert document["engine"] == "recording" and document["recording"]["limit_bytes"] == 937_426_944
    assert loads(text).peak_reserved == 937_426_944
    page = said(str(path), "--format", "html", code=1)
    assert "What grows" in page and "The request that found no room" in page and 'id="data"' in page


def test_a_text_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where stdin's text would be saved
    message = (
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.92 GiB total capacity; 8.62 GiB already allocated;"
        " 1.39 GiB free; 8.81 GiB reserved in total by PyTorch)"
    )
    (tmp_path / "log.txt").write_text(f"step 1\n{message}\n")
    text = said("log.txt", code=1)
    assert text.startswith("out of memory: 2.00 GiB requested with 8.62 GiB in use") and text == said(
        "-", code=1, stdin=message
    )
    assert (
        json.loads(said("-", "--format", "json", code=1, stdin=message))["message"]["source"]
        == "PyTorch (CUDA)"
    )
    assert "<h2>Way out</h2>" in said("-", "--format", "html", code=1, stdin=message)
    with pytest.raises(InputError, match="no error for want of memory"):
        said("-", stdin="all is well")


def test_rules_stay_and_a_file_of_a_rules_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said("cublas-workspace").startswith("cublas-workspace\n=")
    (tmp_path / "cublas-workspace").write_text("CUDA failure 2: out of memory")
    result = CliRunner().invoke(explain, ["cublas-workspace"], standalone_mode=False)
    assert "a file here and a rule" in result.stderr and "CUDA driver had no memory" in result.stdout
    with pytest.raises(OptionError, match="no file"):
        said("missing.pickle")


def test_compare_of_two_snapshots(tmp_path: Path) -> None:
    before, after = written("mlp_adam.plain", tmp_path), written("losses_kept.plain", tmp_path)
    result = CliRunner().invoke(compare, [str(before), str(after)], standalone_mode=False)
    assert result.return_value == 1
    assert "needs more: allocated +152.9 MiB" in result.stdout


def test_a_snapshot_without_history_says_what_is_held(tmp_path: Path) -> None:
    block = {"address": 0, "size": 2**20, "requested_size": 2**20, "state": "active_allocated"}
    rest = {"address": 2**20, "size": 2**20, "state": "inactive"}
    segment = {
        "address": 0,
        "total_size": 2**21,
        "stream": 0,
        "segment_type": "small",
        "blocks": [block, rest],
    }
    path = tmp_path / "segments.pickle"
    path.write_bytes(pickle.dumps([segment]))
    found = explained(path)
    assert (found.estimate.peak_allocated, found.estimate.peak_reserved) == (2**20, 2**21)
    assert found.estimate.breakdown == {"not known": 2**20} and any(
        "no history" in note for note in found.estimate.notes
    )


def test_a_text_as_argument_is_told_how_to_be_given() -> None:
    with pytest.raises(OptionError) as error:
        said("Failed to allocate memory for requested buffer of size 402653184")
    assert "pipe it into: analyze explain -" in error.value.hint


def test_what_ends_no_program_is_exit_code_0() -> None:
    pattern = (
        "Allocation of memory pattern buffer for Device:[DeviceType:1] failed. Error:bfc_arena.cc:376 void* "
    )
    request = "Failed to allocate memory for requested buffer of size 12348030976"
    assert said("-", stdin=pattern + request).startswith("no error: no room for the memory pattern's block")
    assert said("-", stdin=f"{pattern}{request}\n{request}0", code=1).startswith("out of memory: 115.00 GiB")


def test_a_target_explains_a_text_alone(tmp_path: Path) -> None:
    path = written("mlp_adam.plain", tmp_path)
    with pytest.raises(OptionError, match="has its own requests"):
        said(str(path), "train.py")
    with pytest.raises(OptionError, match="no file"):
        said("cublas-workspace", "train.py")
