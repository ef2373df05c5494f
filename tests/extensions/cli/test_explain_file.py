"""An error's size, looked up among the requests of a script, a model, a saved estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.paths import MODELS

SCRIPT = """import torch
size = int(__import__("sys").argv[1])
kept = torch.zeros(size, 1024, device="cuda")
logits = torch.zeros(size, 4096, device="cuda")
"""


def test_a_size_is_looked_up_in_a_script_a_model_and_a_saved_estimate(tmp_path: Path, run: Any) -> None:
    """The script's second tensor: 4096 x 4096 float32 are 64 MiB."""
    script, log = tmp_path / "train.py", tmp_path / "log.txt"
    script.write_text(SCRIPT)
    log.write_text(
        'Traceback (most recent call last):\n  File "/x/train.py", line 4, in <module>\n    logits = torch.zeros(...)\n'
        "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 1.00 MiB is free."
    )
    answer = run("explain", log, script, "--", "4096")
    assert answer.code == 1 and "4096x4096 float32" in answer.out and "train.py:4" in answer.out
    assert "the first is at the line that failed" in answer.out
    saved = tmp_path / "saved.json"
    assert run("run", "--device", "h200", "--format", "json", "-o", saved, script, "4096").code == 0
    assert run("explain", log, saved).out == answer.out
    log.write_text("CUDA out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 23.64 GiB")
    answer = run("explain", log, MODELS / "cnn.py", "--batch", "32", "--mode", "train")
    assert "convolution conv cnn.py:22" in answer.out
