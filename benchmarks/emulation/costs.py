"""What emulation itself costs, in processor time and host memory: a table of docs/evidence/EMULATION.md.

    python -m benchmarks emulation costs PYTHON

PYTHON: of an environment with a CUDA build of torch, torchvision, transformers and peft.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import ROOT, SUBJECTS
from benchmarks.harness.pages import table, write_part

HERE = ROOT / "benchmarks/emulation"
PAGE = ROOT / "docs/evidence/EMULATION.md"
RUNS = 5
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of a command with all it starts, in seconds, and the most host memory one of its processes held, in bytes."""

    seconds: float
    host_bytes: int


def cost(command: Sequence[str | Path]) -> Cost:
    """The least of RUNS runs: other work on the machine only adds. Raises CalledProcessError."""
    found = []
    for _ in range(RUNS):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(map(str, command)))
        found.append(Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))
    return min(found, key=lambda one: one.seconds)


def rows(python: str) -> Iterator[list[str]]:
    """The table's lines."""
    torch = cost([python, "-c", "import torch"])

    def told(what: str, found: Cost, imports: Cost) -> list[str]:
        """A line; what is not the script's own imports stands beside `import torch`."""
        more = found.seconds - imports.seconds
        return [
            what, f"{found.seconds:.2f} s", f"{imports.seconds:.2f} s", f"{more:.2f} s, {more / torch.seconds:.1f} x",
            f"{found.host_bytes / GIB:.2f} GiB",
        ]  # fmt: skip

    yield ["`import torch` alone", f"{torch.seconds:.2f} s", "", "", f"{torch.host_bytes / GIB:.2f} GiB"]
    for words, imports, script in (
        ("a training step of ResNet-50, batch 32", "import torchvision", "resnet50_step.py"),
        (
            "two training steps of LoRA on a 7B network, made on the GPU",
            "import peft; from transformers import LlamaForCausalLM",
            "lora_7b.py",
        ),
    ):
        command = [sys.executable, "-m", "analyzer", "emulate", "--python", python, "--device", "h200", "-q"]
        whole = cost([*command, SUBJECTS / "emulation" / script])
        yield told(words, whole, cost([python, "-c", imports]))


@click.command("costs")
@click.argument("python")
def main(python: str) -> None:
    """Measure, and write the table of costs."""
    head = (
        "",
        "processor time",
        "the script's imports alone",
        "the rest, beside `import torch`",
        "host memory",
    )
    told = table(head, rows(python), align="lrrrr")
    write_part(PAGE, "costs", told)
    print(told)
