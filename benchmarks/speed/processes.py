"""Two commands timed as whole processes, alternately in one run: what the ratios in `benchmarks/` are made of.

The fastest of each counts, because everything else on the machine only ever adds time. A first run of each is not
counted: it compiles to bytecode what is not compiled yet, as pip does when it installs.
"""

from __future__ import annotations

import os
import subprocess
import time

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> float:
    """Wall-clock seconds a process takes. Raises CalledProcessError if it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT)
    elapsed = time.perf_counter() - start
    if done.returncode not in (0, 1):  # 1: the model does not fit this machine's device
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return elapsed


def fastest(first: list[str], second: list[str], repeat: int) -> tuple[float, float]:
    """Seconds of the fastest of `repeat` runs of each."""
    pairs = [(seconds(first), seconds(second)) for _ in range(1 + repeat)]
    a, b = (min(column) for column in zip(*pairs[1:], strict=True))
    return a, b
