"""Whatever file is given, the command line ends within bounds, with an answer or one clear error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analyzer
from tests.paths import MODELS, PYTHONPATH
from tests.untrusted import bad_onnx
from tests.untrusted.limited import MOST_BYTES, SECONDS

# What is tried in every run: what was wrong once, and one of each kind.
_ALWAYS = (
    "external_0", "external_4", "offset_0", "external_10", "external_11", "functions_chain", "million_nodes", "split_8000", "names",
    "shared_transpose", "equal_nodes", "operator_of_megabytes", "dimensions_of_an_input",
    "loop_1", "deep_1000", "dims_2", "dims_4", "dims_5", "constant_1", "claims", "operator",
)  # fmt: skip


def results(folder: Path, cases: list[list[str]]) -> Iterator[dict[str, Any]]:
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.untrusted.limited", str(folder / "cases.json")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=580,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    yield from map(json.loads, done.stdout.splitlines())


def check(result: dict[str, Any]) -> None:
    """An answer, or one line on what happened with one on what to do; nothing that moves a terminal."""
    told = json.dumps(result)[:2000]
    assert result["code"] in (0, 1, 2), told
    assert result["seconds"] < SECONDS and result["bytes"] < MOST_BYTES, told
    assert not re.search("internal error|Traceback", result["err"]), told
    assert len(result["err"]) + len(result["out"]) < 1 << 18, told
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result["err"] + result["out"]
    ), told
    # A file that is sound but for what its runtime refuses has a verdict, and a report.
    if result["code"] == 2 and not result["out"].startswith("refused by onnxruntime: "):
        lines = [line for line in result["err"].splitlines() if line]
        assert lines[0].startswith("analyze: error: ") and len(lines) <= 2, told
        assert not result["out"], told


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("guest") / "models"
    folder.mkdir()
    return {path.stem: path for path in bad_onnx.written(folder)}


def test_some_bad_models(files: dict[str, Path], tmp_path: Path) -> None:
    found = list(results(tmp_path, [[str(files[name])] for name in _ALWAYS]))
    assert len(found) == len(_ALWAYS)
    for result in found:
        check(result)


@pytest.mark.campaign
def test_every_bad_model(files: dict[str, Path], tmp_path: Path) -> None:
    assert len(files) > 110
    for result in results(tmp_path, [[str(path)] for path in files.values()]):
        check(result)


def _saved(folder: Path) -> dict[str, Any]:
    path = folder / "sound.json"
    path.write_text(analyzer.analyze(MODELS / "cnn.onnx", batch=2, device="h200").to_json())
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_what_is_no_regular_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """A FIFO, a device or a folder in place of each kind of file; opening the FIFO would wait forever."""
    for suffix in ("onnx", "pt2", "json", "yaml", "py"):
        os.mkfifo(tmp_path / f"fifo.{suffix}")
        (tmp_path / f"device.{suffix}").symlink_to("/dev/zero")
        (tmp_path / f"folder.{suffix}").mkdir()
    cnn = [str(MODELS / "cnn.onnx"), "--batch", "2"]
    cases = []
    for kind in ("fifo", "device", "folder"):
        path = {
            suffix: str(tmp_path / f"{kind}.{suffix}") for suffix in ("onnx", "pt2", "json", "yaml", "py")
        }
        cases += [["report", path["json"]], ["compare", path["json"], path["json"]], ["grid", path["yaml"]]]
        cases += [[path[suffix]] for suffix in ("onnx", "pt2", "json")]
        cases += [[*cnn, "--device", path["json"]], [*cnn, "--mode", "train", "--loss", f"{path['py']}:f"]]
    for result in results(tmp_path, cases):
        check(result)
        assert result["code"] == 2, result
        assert re.search("is a (FIFO|device|folder)|regular file|no such file", result["err"]), result


def test_damaged_texts(tmp_path: Path) -> None:
    """Nested too deeply, numbers of too many digits, merge keys that multiply: of each kind of file."""
    digits, deep = "9" * 5000, "[" * 100_000
    document = _saved(tmp_path)
    texts = {
        "deep.json": deep,
        "digits.json": f'{{"schema": {digits}}}',
        "halves.json": json.dumps({**document, "target": "\ud800"}),
        "deep.yaml": deep,
        "digits.yaml": f"targets: [x.onnx]\nbatches: [{digits}]\n",
        "null.yaml": 'targets: ["a\\0b"]\n',
        "halves.yaml": 'targets: ["\\ud800"]\n',
        "bits.yaml": f"targets: [0x{'f' * 20_000}]\n",
        "merged.yaml": "a0: &a0 {b: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)),
        "jobs.yaml": f"targets: [{'x.onnx,' * 1000}]\nbatches: {list(range(1, 1000))}\n",
        "many.json": "[" + "[]," * 7_000_000 + "[]]",
    }  # fmt: skip
    cases = []
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        if name.endswith("yaml"):
            cases.append(["grid", str(path)])
        else:
            cases += [
                ["report", str(path)],
                [str(path)],
                [str(MODELS / "cnn.onnx"), "--batch", "2", "--device", str(path)],
            ]
    for result in results(tmp_path, cases):
        check(result)
        assert result["code"] == 2, result


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("batch", "x"), ("batch", True), ("peak_allocated", -1), ("peak_allocated", 1.5), ("target", None), ("mode", "train\x1b[31m"),
        ("timeline.allocated", []), ("timeline.label", [1]), ("marks", {}), ("certainty.exact", float("nan")),
        ("allocations.origin", [10**9]), ("peak_event", 10**9), ("options", {"grad_accumulation": "x"}), ("naive.moments", []),
        ("step_seconds", {"bound": "\x1b[31mRED"}), ("breakdown", {"\ud800": 1}), ("capacity_bytes", 10**400),
        ("breakdown", {f"kind {number}": 1 for number in range(2000)}),
        ("certainty.spare_bytes", None), ("certainty.kept_bytes", "x"), ("certainty.allocated_range", [1]),
    ],
)  # fmt: skip
def test_a_saved_estimate_is_held_against_its_schema(tmp_path: Path, place: str, value: Any) -> None:
    from analyzer.errors import InputError
    from analyzer.report.json import from_dict

    document = _saved(tmp_path)
    *outer, name = place.split(".")
    part = document
    for step in outer:
        part = part[step]
    part[name] = value
    with pytest.raises(InputError, match="the estimate is damaged") as refused:
        from_dict(document)
    assert "\x1b" not in refused.value.message


@pytest.mark.campaign
def test_a_saved_estimate_of_many_tensors(tmp_path: Path) -> None:
    """300,000 rows, which took twelve seconds to be held against the schema."""
    document = _saved(tmp_path)
    path = tmp_path / "tensors.json"
    path.write_text(json.dumps({**document, "tensors": document["tensors"][:1] * 300_000}))
    for result in results(tmp_path, [["report", str(path)]]):
        check(result)
        assert result["code"] == 0, result


def test_texts_of_a_saved_estimate_move_no_terminal() -> None:
    """Every text in it is evil; what it waits for (`step_seconds.bound`) is one of three words."""
    from analyzer.report import formats
    from analyzer.report.json import from_dict
    from analyzer.report.sentences import step_line

    def evil(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: evil(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [evil(part, name) for part in value]
        kept = ("mode", "framework", "engine", "bound", "verdict", "schema")
        return value + bad_onnx.EVIL if isinstance(value, str) and name not in kept else value

    timed = analyzer.analyze(MODELS / "cnn.py", batch=2, mode="train", device="h200", steps=1)
    document = json.loads(timed.to_json())
    estimate = from_dict(evil(document, ""))
    assert step_line(estimate)
    for form in ("text", "html", "csv", "folded"):
        shown = str(formats.render("estimate", form, estimate))
        assert "\x1b[31" not in shown and "\x07" not in shown, form
        assert form != "html" or "<script>alert" not in shown
    document["step_seconds"]["bound"] = "compute\x1b[31m"
    with pytest.raises(analyzer.AnalyzerError, match="damaged"):
        from_dict(document)


def test_bounds_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.files import allowed

    for text, bound in (("4", 400), ("", 100), ("x", 100), ("0.1", 100), ("inf", 100), ("1.5", 150)):
        monkeypatch.setenv("ANALYZER_INPUT_LIMIT", text)
        assert allowed(100) == bound
