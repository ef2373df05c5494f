"""What emulation itself costs, in processor time and host memory: a table of docs/EMULATION.md.

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

from benchmarks import ROOT
from benchmarks.emulation.emulation_page import PAGE, replaced

HERE = ROOT / "benchmarks/emulation"
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


def rows(python: str) -> Iterator[str]:
    """The table's lines."""
    torch = cost([python, "-c", "import torch"])

    def told(what: str, found: Cost, imports: Cost) -> str:
        """A line; what is not the script's own imports stands beside `import torch`."""
        more = found.seconds - imports.seconds
        return (
            f"| {what} | {found.seconds:.2f} s | {imports.seconds:.2f} s | {more:.2f} s, {more / torch.seconds:.1f} x | "
            f"{found.host_bytes / GIB:.2f} GiB |"
        )

    yield f"| `import torch` alone | {torch.seconds:.2f} s | | | {torch.host_bytes / GIB:.2f} GiB |"
    for words, imports, script in (
        ("a training step of ResNet-50, batch 32", "import torchvision", "resnet50_step.py"),
        (
            "two training steps of LoRA on a 7B network, made on the GPU",
            "import peft; from transformers import LlamaForCausalLM",
            "lora_7b.py",
        ),
    ):
        command = [sys.executable, "-m", "analyzer", "emulate", "--python", python, "--device", "h200", "-q"]
        whole = cost([*command, HERE / "scripts" / script])
        yield told(words, whole, cost([python, "-c", imports]))


def main() -> None:
    """Measure and write."""
    head = [
        "| | processor time | the script's imports alone | the rest, beside `import torch` | host memory |",
        "|---|--:|--:|--:|--:|",
    ]
    table = "\n".join([*head, *rows(sys.argv[1])])
    PAGE.write_text(replaced("costs", table, PAGE.read_text("utf-8")), "utf-8")
    print(table)


if __name__ == "__main__":
    main()
