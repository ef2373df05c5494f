"""Which tests are a room's own: the one table the campaign reads.

A room is a part of `analyzer` whose tests must notice by themselves when it is changed. Its tests are those that mirror
it under `tests/`; the suites that run the whole way (accuracy, experiments, the command line) are left out on purpose:
they would notice most changes too, but late, and without saying where.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """`sources` are mutated, `tests` must notice; files or folders, relative to the repository's root.

    last: those of the tests that take long; they run only where the others noticed nothing.
    """

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    last: tuple[str, ...] = ()


_ONNX_RUNTIME = "tests/runtimes/onnxruntime"
_SCRATCH = "tests/runtimes/pytorch/scratch"

ROOMS = (
    Room(
        "PyTorch runtime and its scratch rules",
        ("analyzer/runtimes/pytorch",),
        ("tests/runtimes/pytorch",),
        tuple(f"{_SCRATCH}/test_{name}.py" for name in ("recorded", "probe", "convolution", "rules")),
    ),
    Room(
        "runtimes' events and timeline",
        ("analyzer/runtimes/base.py", "analyzer/runtimes/events.py", "analyzer/runtimes/timeline.py"),
        ("tests/runtimes/test_base.py", "tests/runtimes/test_registry.py", "tests/runtimes/test_timeline.py"),
    ),
    Room(
        "allocators",
        ("analyzer/allocators",),
        ("tests/allocators",),
        (
            "tests/allocators/test_properties.py",
            "tests/allocators/pytorch/test_replay.py",
            "tests/allocators/pytorch/test_settings.py",
        ),
    ),
    Room(
        "ONNX Runtime",
        ("analyzer/runtimes/onnxruntime",),
        tuple(
            f"{_ONNX_RUNTIME}/test_{name}.py"
            for name in ("fusions", "rewrites", "transposes", "plan", "session", "values")
        ),
        tuple(f"{_ONNX_RUNTIME}/test_{name}.py" for name in ("kernels", "h200", "cpu")),
    ),
    Room("liveness", ("analyzer/liveness",), ("tests/liveness",), ("tests/liveness/test_lifetimes.py",)),
    Room("devices", ("analyzer/devices",), ("tests/devices",)),
    Room(
        "cuDNN",
        ("analyzer/libraries/cudnn",),
        ("tests/libraries/cudnn",),
        ("tests/libraries/cudnn/test_choices.py",),
    ),
    Room(
        "other libraries",
        tuple(f"analyzer/libraries/{name}.py" for name in ("cufft", "cusolver", "cusparse", "nccl")),
        (
            "tests/libraries/test_nccl.py",
            *(f"{_SCRATCH}/test_{name}.py" for name in ("fourier", "sparse", "factorizations")),
        ),
        ("tests/libraries/test_cusolver.py", f"{_SCRATCH}/test_fourier_recorded.py"),
    ),
    Room("graph", ("analyzer/parametric", "analyzer/graph"), ("tests/parametric", "tests/graph")),
)
