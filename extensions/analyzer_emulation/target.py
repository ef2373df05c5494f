"""A target's step as a program of its own, in the Python whose PyTorch is emulated: `python -m
analyzer_emulation.target JOB.json`.

1. The target is built on the CPU as for a run on a GPU (`program.build`), and the very step that is captured
   runs. It must find this package, and imports of it what PyTorch's step needs alone.
2. Weights and batches are memory nobody writes to: what they would hold decides nothing where kernels compute
   nothing, and so a large model takes little of this machine's.
3. Optimizers step, as in a run (`program.steps_taken`).
4. A job may ask for the model to be compiled (`torch.compile(model)`), and for how much of the activations
   that eager code keeps may be kept then (`activation_memory_budget`, `torch/_functorch/config.py`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer_verify.runs.jobs import options_of
from analyzer_verify.runs.observer import Counters, Observer
from analyzer_verify.runs.program import build, steps_taken

_LARGE = 1 << 20  # elements
_FILLS = ("normal_", "uniform_")


class _NoMeter:
    """A meter without counters, used where the allocator's history is recorded."""

    def read(self) -> Counters:
        return Counters(0, 0, 0, 0, 0)

    def reset_peaks(self) -> None: ...


@contextmanager
def untouched() -> Iterator[None]:
    """While open, large tensors of the CPU are not filled."""
    import torch

    from analyzer.capture.pytorch.patches import replaced

    def unless_large(original: Any) -> Any:
        def fill(self: Any, *args: Any, **kwargs: Any) -> Any:
            large = self.numel() > _LARGE and self.device.type == "cpu" and self.is_floating_point()
            return self if large else original(self, *args, **kwargs)

        return fill

    with replaced({f"torch.Tensor.{name}": unless_large(getattr(torch.Tensor, name)) for name in _FILLS}):
        yield


def main(path: Path) -> object:
    """Build and run the job (`jobs.describe`); return the step, which keeps its tensors alive."""
    import torch

    from analyzer.capture.pytorch.module import step as steps

    job = json.loads(path.read_text("utf-8"))
    torch.manual_seed(0)
    with untouched():
        step = build(job["target"], options_of(job))
    if job.get("compiled") is not None:
        from torch._functorch import config

        # Triton loads its compiled kernels again: from a folder where this process really writes.
        if "TRITON_CACHE_DIR" not in os.environ:
            os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="triton-")
        config.activation_memory_budget = job["compiled"]
        step = replace(step, model=torch.compile(step.model))
    with steps_taken():
        steps.run(step, Observer(_NoMeter()))
    return step


if __name__ == "__main__":
    held = main(Path(sys.argv[1]))
