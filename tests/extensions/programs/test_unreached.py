"""A program that ended as if all was well, and did nothing: said before the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import analyzer

MODEL = """
import os, threading, traceback, torch
net = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train(features=10, rows=4):
    for _ in range(2):
        net(torch.randn(rows, features, device="cuda")).sum().backward()
        optimizer.step()
"""
NO_STEP = "the program made an optimizer and took no step"
CAUGHT = "caught an error: program.py:7: RuntimeError: a and b must have same reduction dim, but got [4, 11] X [10, 10]."
LARGE = "    train(rows=1 << 20)\n"


def followed(tmp_path: Path, text: str, **options: Any) -> analyzer.Estimate:
    (tmp_path / "program.py").write_text(text)
    return analyzer.run(tmp_path / "program.py", device="rtx4090", **options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('hello')", "the program put nothing on the GPU"),
        (
            "import torch; torch.ones(3).sum(); print(torch.cuda.is_available())",
            "the program put nothing on the GPU",
        ),
        ("import os; os._exit(0)", "the program put nothing on the GPU"),
        (MODEL, NO_STEP),
        (MODEL + "raise SystemExit(0)", NO_STEP),
        (MODEL + "os._exit(0)\ntrain()", NO_STEP),
        (MODEL + "try:\n    os._exit(0)\nfinally:\n" + LARGE, NO_STEP),
        (
            MODEL + "t = threading.Thread(target=os._exit, args=(0,)); t.start(); t.join()\nif 1:\n" + LARGE,
            NO_STEP,
        ),
        (
            MODEL + "try:\n    train(11)\nexcept Exception:\n    traceback.print_exc()",
            f"{NO_STEP}, and {CAUGHT}",
        ),
        (MODEL + "train()\ntry:\n    train(11)\nexcept Exception:\n    pass", f"the program {CAUGHT}"),
        (MODEL + "train()", ""),
        (MODEL + "train()\nos._exit(0)", ""),
        ("import torch\ntorch.nn.Linear(10, 10).cuda()(torch.ones(4, 10, device='cuda'))", ""),
        (
            "import torch\ntry:\n    torch.empty(1 << 40, device='cuda')\nexcept torch.OutOfMemoryError:\n    pass\ntorch.ones(1).cuda()",
            "",
        ),
    ],
)
def test_what_a_program_never_did_is_said_first(tmp_path: Path, text: str, said: str) -> None:
    estimate = followed(tmp_path, text)
    assert (estimate.unreached, estimate.incomplete) == (said, None)
    first = " ".join(str(estimate).split("fits: ")[0].split())
    assert first == said and estimate.peak_allocated < 1 << 30
    assert json.loads(estimate.to_json())["unreached"] == said


def test_a_program_that_never_touches_cuda_uses_no_memory_of_a_gpu(tmp_path: Path) -> None:
    estimate = followed(tmp_path, "import torch; torch.ones(3).sum(); torch.cuda.is_available()")
    assert (estimate.device_used, estimate.fits()) == (0, True)
    assert "fits: it uses no memory of a GPU" in str(estimate)
    assert any("CUDA context" in note for note in estimate.notes)
    asks = followed(tmp_path, "import torch; print(torch.cuda.mem_get_info())")
    assert asks.device_used > 2**28 and asks.unreached == "the program put nothing on the GPU"


def test_a_program_that_is_ended_after_some_steps_is_not_blamed(tmp_path: Path) -> None:
    assert followed(tmp_path, MODEL + "train()", until=1).unreached == ""


def test_an_exit_code_of_a_thread_is_the_programs(tmp_path: Path) -> None:
    text = MODEL + "t = threading.Thread(target=os._exit, args=(3,)); t.start(); t.join()"
    assert followed(tmp_path, text).incomplete == "the program ended itself: exit code 3"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 0),
        ("hidden_size", -64),
        ("vocab_size", 0),
        ("num_key_value_heads", -2),
    ],
)
def test_a_configuration_no_model_can_have_is_an_error(tmp_path: Path, name: str, value: int) -> None:
    document = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "pad_token_id": -1,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({**document, name: value}))
    with pytest.raises(analyzer.TargetError, match=f"{name} is {value}") as caught:
        analyzer.analyze(tmp_path / "config.json", device="h200")
    assert "a whole number of at least" in caught.value.hint
