"""What goes to another process and comes back, and what is said when that process fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.errors import OptionError, TargetError  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.spec import TensorSpec  # noqa: E402
from analyzer_verify.runs import jobs  # noqa: E402
from analyzer_verify.runs.worker import perform  # noqa: E402
from tests.paths import MODELS  # noqa: E402

LINEAR = str(MODELS / "linear.py")


def test_options_survive_the_way_to_another_process() -> None:
    options = Options(
        inputs={"x": TensorSpec((2, 3), "float16")}, batch=2, mode="train", amp="bf16",
        targets=(TensorSpec((2,), "int64", (1,)),), runtime_options={"cublas_workspace": ":0:0"},
    )  # fmt: skip
    assert jobs.options_of(jobs.describe(LINEAR, options)) == options


def test_of_a_tensor_only_its_looks_go_along() -> None:
    job = jobs.describe(LINEAR, Options(inputs=(torch.zeros(4, 2).t(),)))
    assert jobs.options_of(job).inputs == (TensorSpec((2, 4), "float32", (1, 2)),)


def test_what_cannot_go_to_another_process_is_refused() -> None:
    with pytest.raises(TargetError, match="Linear in this process"):
        jobs.describe(torch.nn.Linear(1, 1), Options())
    with pytest.raises(OptionError, match="optimizer is a function"):
        jobs.describe(LINEAR, Options(optimizer=torch.optim.SGD))


def test_runtime_options_are_the_workers_environment() -> None:
    def given(**options: Any) -> dict[str, str]:
        return jobs.environment_of(Options(runtime_options=options))

    assert given(cublas_workspace=":0:0", alloc_conf="expandable_segments:True") == {
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }
    assert given(cublas_workspace=8 << 20) == {"CUBLAS_WORKSPACE_CONFIG": ":8192:1"}


def test_a_worker_that_fails_says_why() -> None:
    result = jobs.run({"kind": "pytorch", "target": "nowhere.py", "options": {}})
    assert result["error"].startswith("nowhere.py: no such file") and result["hint"]


def test_a_worker_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, sys\nprint('farewell', file=sys.stderr, flush=True)\nos._exit(7)\nmake_model = 1\n"
    )
    result = jobs.run({"kind": "pytorch", "target": str(script), "options": {}})
    assert result["error"] == "the run ended with code 7: farewell"


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import time\ntime.sleep(60)\nmake_model = 1\n")
    result = jobs.run({"kind": "pytorch", "target": str(script), "options": {}, "timeout_seconds": 3})
    assert result["error"] == "the run did not end within 3 seconds"


def test_an_unknown_kind_is_a_result_too() -> None:
    assert "unknown kind of job 'dance'" in perform({"kind": "dance"})["error"]


SLOW = """
import subprocess
import sys
from pathlib import Path

from analyzer_verify.runs import jobs

# The worker's own sleep stands for a model of many minutes; what it writes, for weights that were made up.
script = Path(sys.argv[1]) / "slow.py"
script.write_text("import sys, time; from pathlib import Path; import json\\n"
    "folder = json.loads(Path(sys.argv[1]).read_text())['folder']\\n"
    "Path(folder, 'weights').write_bytes(bytes(1 << 20)); Path(sys.argv[2]).write_text(folder)\\n"
    "time.sleep(60)")
run = subprocess.run
jobs.subprocess.run = lambda command, **more: run(
    [sys.executable, str(script), command[-1], str(Path(sys.argv[1]) / "begun")], **more)
jobs.run({"kind": "onnxruntime", "options": {}})
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals) -> None:
    begun = tmp_path / "begun"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (begun.exists() and begun.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        folder = Path(begun.read_text())
        assert (folder / "weights").stat().st_size == 1 << 20
        process.send_signal(sent)
        assert process.wait(30) in (128 + sent, -sent, 1)
    finally:
        process.kill()
    assert not folder.exists()
