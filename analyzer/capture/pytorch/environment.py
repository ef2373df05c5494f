"""Where captured programs run: Python, autograd and the dispatcher believe in a CUDA device, and random
numbers are the same in every analysis.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy
import torch

from analyzer.capture.pytorch.device.fake_cuda import FakeCuda
from analyzer.capture.pytorch.device.files import Files
from analyzer.capture.pytorch.device.functions import cuda_functions
from analyzer.capture.pytorch.device.host import HostMemory
from analyzer.capture.pytorch.device.no_compiler import without_compiler
from analyzer.capture.pytorch.kernels import (
    composite,
    detection,
    embedding_bags,
    indices,
    out_of_range,
    quantized,
    shapes,
    sparse,
)
from analyzer.capture.pytorch.kernels.autocast import cuda_autocast
from analyzer.capture.pytorch.kernels.decisions import FUSED, cuda_choices
from analyzer.capture.pytorch.kernels.layouts import as_laid
from analyzer.capture.pytorch.kernels.nested import nested_attention
from analyzer.capture.pytorch.kernels.results import BY_SHAPES_ALONE, results_on
from analyzer.capture.pytorch.recording import copies, custom
from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
from analyzer.capture.pytorch.recording.recorder import Recorder

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.memory import Memory
    from analyzer.devices import DeviceProfile


@contextlib.contextmanager
def own_randomness() -> Iterator[None]:
    """Seed torch's, Python's and NumPy's generators while open, and restore them afterwards."""
    python, legacy = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(legacy)


@contextlib.contextmanager
def cuda_environment(
    device: DeviceProfile,
    memory: Memory | None = None,
    described: Callable[[str], bool] = lambda _: False,
    gpus: int = 1,
) -> Iterator[Recorder]:
    """Make Python, autograd and the dispatcher believe in CUDA devices, so many; yields the recorder.

    described: whether somebody has said what an operator takes, by its name; its body is not followed then.
    """
    compatible = CompatibleDevices(device)
    with without_compiler(), cuda_choices(compatible) as choices, cuda_autocast():
        recorder = Recorder(memory, compatible)
        recorder.described = described
        recorder.gpus.provide(gpus, device.reaches_peers)
        recorder.choose(
            {**choices, **FUSED, **embedding_bags.CHOICES}, {**quantized.CHOICES, **detection.CHOICES}
        )
        recorder.results({**shapes.kernels(), **results_on(compatible)}, BY_SHAPES_ALONE, as_laid)
        handlers = {**out_of_range.HANDLERS, **copies.HANDLERS, **indices.HANDLERS}
        handlers |= {**composite.HANDLERS, **composite.OTHERS}
        recorder.handle_operators(handlers, custom.followed)
        recorder.composites = sparse.COMPOSITES
        with cuda_functions(device, recorder), nested_attention(compatible):
            yield recorder


@contextlib.contextmanager
def watching(recorder: Recorder, whole: bool = False) -> Iterator[FakeCuda]:
    """While open, every tensor made on "cuda" is a meta tensor the recorder follows.

    whole: a whole program, which also makes its host tensors (`host.py`).
    """
    host, files = (HostMemory(recorder), Files(recorder)) if whole else (None, None)
    if host is not None:
        recorder.handle_operators(host.draws.handlers())
    with (
        FakeCuda(recorder, host) as fake,
        fake.saved_tensor_hooks(),
        fake.storages(),
        contextlib.nullcontext() if files is None else files.open(),
        contextlib.nullcontext() if host is None else host.workers.open(),
        recorder,
    ):
        recorder.believing = fake.in_another_thread
        yield fake
