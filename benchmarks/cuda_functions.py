"""Which public functions of `torch.cuda` and `torch.accelerator` a followed program gets an answer from:
python -m benchmarks cuda_functions table

And what a CUDA build of PyTorch says of itself, which such a program is told too (`analyzer/capture/pytorch/build.json`):
python -m benchmarks cuda_functions measure PYTHON       the build's Python; it needs no GPU

A program that calls each of them, by position and by keyword where they take a device, is followed like any other
(`analyzer.run`); what it was told is the table. What has no answer stands there with the reason (`WITHOUT`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

import analyzer
from analyzer.capture.pytorch.build import TABLE
from benchmarks import ROOT
from benchmarks.harness.pages import prose

_TEXT = prose(__file__)

# Arguments of those that need some. A function not named here is called without any.
ARGUMENTS = {
    "cuda.CUDAGraph": "", "cuda.Event": "enable_timing=True", "cuda.Stream": "device='cuda', priority=-1",
    "cuda.ExternalStream": "0", "cuda.StreamContext": "torch.cuda.current_stream()", "cuda.stream": "torch.cuda.current_stream()",
    "cuda.set_stream": "torch.cuda.current_stream()", "cuda.get_stream_from_external": "0, device='cuda'",
    "cuda.set_device": "device='cuda:0'", "cuda.device": "0", "cuda.device_of": "torch.ones(1, device='cuda')",
    "cuda.can_device_access_peer": "0, 1", "cuda.check_error": "0", "cuda.caching_allocator_alloc": "512",
    "cuda.caching_allocator_delete": "torch.cuda.caching_allocator_alloc(512)", "cuda.caching_allocator_enable": "True",
    "cuda.graph": "torch.cuda.CUDAGraph()", "cuda.manual_seed": "1", "cuda.manual_seed_all": "1",
    "cuda.set_rng_state": "torch.cuda.get_rng_state(device='cuda')", "cuda.set_rng_state_all": "torch.cuda.get_rng_state_all()",
    "cuda.set_per_process_memory_fraction": "1.0, device=0", "cuda.set_sync_debug_mode": "0",
    "cuda.make_graphed_callables": "torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2, device='cuda'),)",
    "accelerator.set_device_idx": "0", "accelerator.set_device_index": "0", "accelerator.device_index": "0",
    "accelerator.set_stream": "torch.accelerator.current_stream()",
}  # fmt: skip
DEVICE = (
    "current_stream", "default_stream", "get_device_name", "get_device_properties", "get_device_capability", "memory_allocated",
    "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "memory_summary", "mem_get_info",
    "synchronize", "utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used",
    "reset_peak_memory_stats", "get_per_process_memory_fraction", "list_gpu_processes", "get_rng_state",
)  # fmt: skip
WITHOUT = {
    "cuda.CUDAPluggableAllocator": "another allocator is not the one that is simulated",
    "cuda.change_current_allocator": "another allocator is not the one that is simulated",
    "cuda.MemPool": "pools that a program makes itself are not simulated; those of CUDA graphs are",
    "cuda.use_mem_pool": "pools that a program makes itself are not simulated; those of CUDA graphs are",
    "cuda.GreenContext": "a part of the GPU's multiprocessors takes memory nobody has measured",
    "accelerator.Graph": "CUDA graphs by their newer name are not simulated; `torch.cuda.CUDAGraph` is",
    "cuda.cudaStatus": "an enumeration of CUDA builds",
    "cuda.CudaError": "an exception, with CUDA's own texts",
    "cuda.check_error": "what a call of CUDA's returned, which is never made",
}


def names() -> list[str]:
    """Public functions and classes below `torch`; types, modules and constants need no answer."""
    import torch

    found = []
    for room in ("cuda", "accelerator"):
        module: Any = getattr(torch, room)
        for name in module.__all__:
            kind = getattr(module, name, None)
            if callable(kind) and not name.endswith("Storage") and name not in ("DeferredCudaCallError",):
                found.append(f"{room}.{name}")
    return sorted(found)


def asked() -> dict[str, str]:
    """Name -> what the followed program was told, or "fails: ..."."""
    calls = {}
    for name in names():
        base = name.partition(".")[2]
        given = ARGUMENTS.get(name, "[1.0]" if base.endswith("Tensor") else "")
        calls[name] = [f"torch.{name}({given})"]
        if base in DEVICE:
            by_keyword = name.startswith("cuda.")
            calls[name] += [
                f"torch.{name}('cuda')",
                *([f"torch.{name}(device='cuda:0')"] if by_keyword else []),
            ]
    with tempfile.TemporaryDirectory() as folder:
        out, script = Path(folder) / "told.json", Path(folder) / "asks.py"
        script.write_text(
            f"import json, torch\ntold = {{}}\nfor name, calls in {calls!r}.items():\n"
            "    try:\n        for call in calls:\n            said = eval(call)\n"
            "        told[name] = type(said).__name__ if said is not None else 'nothing'\n"
            "    except Exception as error:\n        told[name] = f'fails: {type(error).__name__}: {error}'\n"
            f"json.dump(told, open({str(out)!r}, 'w'))\n"
        )
        kept = Path(folder) / "kept"
        estimate = analyzer.run(script, device="h200", keep_outputs=kept)
        if estimate.incomplete is not None:
            raise RuntimeError(estimate.incomplete)
        return dict(json.loads(next(kept.rglob(out.name)).read_text()))


def table() -> str:
    """The document."""
    import torch

    told = asked()
    rows = []
    for name, answer in told.items():
        none = f"**none**: {WITHOUT.get(name, 'not known why')}"
        rows.append(f"| `torch.{name}` | {none if answer.startswith('fails') else answer} |")
    answered = sum(not answer.startswith("fails") for answer in told.values())
    head = _TEXT["head"].format(
        version=torch.__version__.partition("+")[0], answered=answered, count=len(told)
    )
    return head + "\n".join(rows) + "\n"


@click.command("table")
@click.option("-o", "--output", type=Path, default=ROOT / "docs/evidence/CUDA_FUNCTIONS.md")
def main(output: Path) -> None:
    """Follow the program that calls them all, and write the page."""
    output.write_text(table(), encoding="utf-8")


ASKS = ROOT / "benchmarks/build_asks.py"
# By these a name is CUDA's, or one of its libraries'; other answers differ between the builds because their releases do.
_OF_CUDA = re.compile(r"cuda|cudnn|cusparselt|nccl|magma|flash|__version__$|show_config", re.IGNORECASE)
# What is installed beside the build, and which GPUs are there.
_NOT_OF_THE_BUILD = {"cuda._HAS_PYNVML", "_C._cuda_getDeviceCount()"}
_OF_THE_MACHINE = re.compile(r"\\n  - CPU capability usage: \w+")


def said_by(python: str) -> dict[str, Any]:
    """What the build of that Python says of itself (`build_asks.py`)."""
    asked = subprocess.run([python, str(ASKS)], capture_output=True, text=True, check=True)
    return dict(json.loads(_OF_THE_MACHINE.sub("", asked.stdout)))


def said_by_here() -> dict[str, Any]:
    """What the build of this process says of itself, in this process."""
    from benchmarks.build_asks import told

    return told()


def build(python: str) -> dict[str, Any]:
    """What a CUDA build says, and this one, which has no CUDA, does not."""
    here = said_by(sys.executable)
    return {
        name: value
        for name, value in said_by(python).items()
        if _OF_CUDA.search(name)
        and name not in _NOT_OF_THE_BUILD
        and (name not in here or here[name] != value)
    }


@click.command("measure")
@click.argument("python")
def measure(python: str) -> None:
    """Ask the CUDA build of PyTorch that PYTHON has, and write what it says of itself."""
    TABLE.write_text(json.dumps(build(python), indent=1) + "\n", encoding="utf-8")
