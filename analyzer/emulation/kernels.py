"""What a kernel needs of a multiprocessor, read from the binary it lies in: registers a thread and shared
memory a block.

A few of CUB's passes size their scratch by how many blocks run at once
(`cudaOccupancyMaxActiveBlocksPerMultiprocessor`), and that depends on both. NVIDIA's `cuobjdump -res-usage`
prints them for every kernel of a library; Triton, which PyTorch's CUDA builds for Linux bring along, has that
tool. It is only run when a program asks.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from analyzer.emulation.questions import Question, Topic, Unanswered

_SECONDS = 300
_KERNEL = re.compile(r"Function (\S+):\n\s*REG:(\d+) .*?SHARED:(\d+)")


class Kernels:
    """Answers for the binaries of one environment. `topics`: what it answers."""

    def __init__(self, packages: Path) -> None:
        """packages: the environment's folder of packages, in which Triton lies."""
        self._tool = packages / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"
        self.topics: Mapping[str, Topic] = {"kernel": self.resources}

    def resources(self, question: Question) -> list[int]:
        """Registers a thread and bytes of shared memory a block of a kernel. Raises Unanswered."""
        library, name, capability = Path(question["library"]), question["name"], int(question["capability"])
        if not self._tool.is_file():
            raise Unanswered("registers of kernels are not known: the environment has no triton")
        found = _resources(self._tool, library, capability).get(name)
        if found is None:
            raise Unanswered(
                f"{library.name} has no kernel {name[:200]} for compute capability {capability / 10:.1f}"
            )
        return list(found)


@cache
def _resources(tool: Path, library: Path, capability: int) -> dict[str, tuple[int, int]]:
    """Return registers per thread and shared bytes per block, by kernel of a library. Raises Unanswered."""
    command = [str(tool), "-res-usage", "-arch", f"sm_{capability}", str(library)]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unanswered(f"registers of the kernels of {library.name} are not known: {error}") from None
    return {name: (int(registers), int(shared)) for name, registers, shared in _KERNEL.findall(printed)}
