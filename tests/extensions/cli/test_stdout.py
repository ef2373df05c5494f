"""`-` is stdout: the script of a configuration; of a result that is two files it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_configurations_script(run: Any, folder: Path) -> None:
    config = json.loads((ROOT / "benchmarks/language_models/configs/qwen2.5-0.5b/config.json").read_text())
    Path("config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    code, script, report = run("config.json", "--length", 4, "--device", "t4", "--write-script", "-")
    assert code == 0 and report.startswith("fits: ")
    compile(script, "script", "exec")
    assert "from_config" in script and not (folder / "-").exists()


def test_a_result_of_two_files_is_not_stdout(run: Any, folder: Path) -> None:
    ran = run("calibrate", "-o", "-")
    assert (ran.code, ran.out) == (2, "") and "is no .json file" in ran.err
    assert list(folder.iterdir()) == []
