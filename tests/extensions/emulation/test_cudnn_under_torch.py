"""A CUDA build of PyTorch asks the emulated cuDNN: run where ANALYZER_CUDA_PYTHON is the Python of an environment that has one.

What is expected: the tables' and formulas' sizes, and what torch 2.11.0+cu130 with cuDNN 9.19 allocated on an H200 for attention
and a CTC loss.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from analyzer import emulate
from analyzer.devices import load
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.libraries.cudnn.recurrent import Recurrent
from analyzer_emulation import library
from tests.extensions.emulation.native import compiled

PYTHON = os.environ.get("ANALYZER_CUDA_PYTHON")
PROGRAM = """
import json, sys, torch
from torch.nn import functional as F

def allocated(call):
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(context=None)
    call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [event["size"] for event in trace if event["action"] == "alloc"]

found = {}
x = torch.randn(32, 64, 56, 56, device="cuda", requires_grad=True)
conv = torch.nn.Conv2d(64, 64, 3, padding=1, device="cuda", bias=False)
found["convolution"] = allocated(lambda: conv(x).sum().backward())
torch.backends.cudnn.benchmark = True
found["trials"] = allocated(lambda: conv(x[:16]))
q, k, v = (torch.randn(2, heads, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for heads in (8, 2, 2))
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
    found["attention"] = allocated(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True).backward(torch.empty_like(q)))
lstm = torch.nn.LSTM(256, 512, 2, batch_first=True, dropout=0.1, device="cuda")
found["lstm"] = allocated(lambda: lstm(torch.empty(64, 128, 256, device="cuda")))
scores = torch.randn(50, 8, 29, device="cuda").log_softmax(2)
found["ctc"] = allocated(lambda: F.ctc_loss(scores, torch.ones(160, dtype=torch.int32), [50] * 8, [20] * 8))
norm = torch.nn.BatchNorm2d(64, device="cuda")
last = torch.empty(32, 64, 56, 56, device="cuda").to(memory_format=torch.channels_last)
found["norm"] = allocated(lambda: norm(last))
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


@pytest.mark.skipif(
    PYTHON is None, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build of PyTorch"
)
def test_pytorch_gets_the_plans_of_the_profiles_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, told = tmp_path / "program.py", tmp_path / "told.json"
    program.write_text(PROGRAM)
    monkeypatch.setattr(library, "path", compiled)
    emulate(program, [str(told)], python=PYTHON, device="h200")
    found = json.loads(told.read_text())
    call = Convolution("forward", "float32", False, (16, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    assert (
        choices_of(load("h200")).workspaces([call], ConvolutionSettings(benchmark=True), trial=True)[0].nbytes
        in found["trials"]
    )
    assert found["attention"][-1] == 1057024
    layer = Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128, dropout=True)
    assert layer.training_workspace_bytes() in found["lstm"]
    assert layer.reserve_bytes() in found["lstm"]
    threads = load("h200").sm_count * load("h200").max_threads_per_sm
    assert 24 * threads in found["lstm"]
    assert 179680 in found["ctc"]
    assert 1568 * (8 * 64 + 4) + 4 + 1072 in found["norm"]
    assert found["convolution"][0] == 32 * 64 * 56 * 56 * 4
