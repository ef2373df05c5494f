"""What convolutions ask for with cuDNN switched off, by PyTorch's own host code: `python -m benchmarks operators without_cudnn PYTHON`.

PYTHON: of an environment with a CUDA build of torch; no GPU is asked (`analyze emulate`). Writes tests/data/emulation/without_cudnn.json: a row a case,
its arguments and the requests (positive) and returns (negative) of the forward and the backward call, in bytes, in order, for an H100.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

PATH = ROOT / "tests/data/emulation/without_cudnn.json"
_PLANE, _VOLUME, _LINE = (2, 12, 36, 125), (2, 12, 9, 10, 11), (2, 12, 125)
_FORMS: list[dict[str, Any]] = [
    {"x": _PLANE, "w": (8, 12, 3, 3)},
    {"x": _PLANE, "w": (8, 12, 1, 1)},
    {"x": _PLANE, "w": (8, 12, 3, 3), "padding": 1, "stride": 2},
    {"x": _PLANE, "w": (8, 12, 3, 3), "dilation": 2},
    {"x": _PLANE, "w": (8, 6, 3, 3), "groups": 2},
    {"x": _PLANE, "w": (8, 6, 3, 3), "groups": 2, "dilation": 2},
    {"x": _PLANE, "w": (12, 8, 3, 3), "transposed": True, "stride": 2},
    {"x": _PLANE, "w": (12, 4, 3, 3), "transposed": True, "groups": 2},
    {"x": _VOLUME, "w": (8, 12, 3, 3, 3)},
    {"x": _VOLUME, "w": (12, 8, 3, 3, 3), "transposed": True},
    {"x": _LINE, "w": (8, 12, 3)},
    {"x": _LINE, "w": (12, 8, 3), "transposed": True},
    {"x": _PLANE, "w": (8, 12, 3, 3), "channels_last": True},
    {"x": _PLANE, "w": (8, 12, 3, 3), "dilation": 2, "channels_last": True},
    {"x": _PLANE, "w": (8, 12, 3, 3), "expanded": True},
    {"x": _PLANE, "w": (8, 12, 3, 3), "dilation": 2, "expanded": True},
    {"x": _PLANE, "w": (12, 8, 3, 3), "transposed": True, "expanded": True},
    {"x": _PLANE, "w": (8, 12, 3, 3), "dtype": "float16"},
    {"x": _PLANE, "w": (24, 1, 3, 3), "groups": 12},
    {"x": (2, 4, 80, 80, 80), "w": (4, 4, 1, 1, 1), "dtype": "bfloat16"},
]
CASES = [{**form, "wanted": wanted} for form in _FORMS for wanted in ("xwb", "wb", "x", "w", "xw")]
PROGRAM = """
import gc, json, sys
import torch

def traced(call):
    gc.collect()
    before = len(torch.cuda.memory._snapshot()["device_traces"][0])
    made = call()
    events = torch.cuda.memory._snapshot()["device_traces"][0][before:]
    signs = {"alloc": 1, "free_requested": -1}
    return made, [signs[event["action"]] * event["size"] for event in events if event["action"] in signs]

torch.cuda.memory._record_memory_history(max_entries=1000000)
torch.backends.cudnn.enabled = False
square = torch.ones(64, 64, device="cuda")
square @ square  # cuBLAS's workspace is taken once
del square
for case in json.loads(CASES):
    dtype = getattr(torch, case.get("dtype", "float32"))
    x = torch.ones(case["x"], device="cuda", dtype=dtype)
    if case.get("channels_last"):
        x = x.contiguous(memory_format=torch.channels_last)
    w, transposed, groups = torch.ones(case["w"], device="cuda", dtype=dtype), case.get("transposed", False), case.get("groups", 1)
    b = torch.ones(w.shape[1] * groups if transposed else w.shape[0], device="cuda", dtype=dtype) if "b" in case["wanted"] else None
    tensors = dict(x=x, w=w, b=b)
    for name in case["wanted"]:
        tensors[name].requires_grad_()
    rank = x.dim() - 2
    moves = [[case.get(name, default)] * rank for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    y, forward = traced(lambda: torch.convolution(x, w, b, *moves, transposed, [0] * rank, groups))
    grad = torch.ones_like(y[:1]).expand_as(y) if case.get("expanded") else torch.ones_like(y)
    _, backward = traced(lambda: torch.autograd.grad(y, [tensors[name] for name in case["wanted"]], grad))
    print("@" + json.dumps({**case, "forward": forward, "backward": backward}), file=sys.stderr, flush=True)
    del _, y, grad, x, w, b, tensors
"""


@click.command("without_cudnn")
@click.argument("python")
def main(python: str) -> None:
    """Write them all anew."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM.replace("CASES", repr(json.dumps(CASES))))
        emulate = [sys.executable, "-m", "analyzer", "emulate", "--python", python, "--device", "h100"]
        said = subprocess.run([*emulate, str(program)], capture_output=True, text=True, check=True).stderr
    rows = [line[1:] for line in said.splitlines() if line.startswith("@")]
    PATH.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    click.echo(f"{PATH}: {len(rows)} cases")
