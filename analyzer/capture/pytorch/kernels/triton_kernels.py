"""Kernels written in Triton, in a program that is followed: they are launched, and not run.

PyTorch's CUDA builds for Linux bring Triton along, so a program there finds it, and many libraries take
kernels of their own where they do: another path through their code, with other tensors.

1. Where Triton is not installed, as beside a build of PyTorch for the CPU, a program that is followed finds a
   stand-in of the release its PyTorch would bring (`triton_absent.py`). PyTorch itself still finds none: it
   would only compile with it.
2. A launch is one operator, `triton::NAME`. It writes into tensors the program has made and makes none of its
   own (`JITFunction.run` in `triton/runtime/jit.py`). Nobody knows afterwards what stands in the tensors it
   was given, and the notes say which were launched.
3. `triton.autotune` times each of several configurations, once for each key. While it does, a buffer that
   clears the L2 cache is there beside what its hooks copy (`do_bench` in `triton/testing.py`,
   `CudaDriver.get_empty_cache_for_benchmark` in `triton/backends/nvidia/driver.py`: 256 MiB on every GPU).

Not modelled: scratch that a kernel asks of `triton.set_allocator`'s function for tensor descriptors it makes
itself; the memory of the kernels' own code; what PyTorch's own modules take where they find Triton.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._triton import has_triton

from analyzer.capture.pytorch.kernels.triton_absent import Absent
from analyzer.capture.pytorch.patches import declared

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.devices import DeviceProfile

NAMESPACE = "triton"
CLEARING_BYTES = 256 << 20
# Functions that remember whether Triton is there, from one program to the next.
_REMEMBER = (
    ("transformers.utils.import_utils", "is_triton_available"),
    ("torch.utils._triton", "has_triton"),
    ("torch.utils._triton", "has_triton_package"),
)
_operators: dict[str, tuple[torch.library.Library, Any]] = {}  # what a library declared goes with it


class Launches:
    """Replaces Triton's launcher while one program is followed: records launches, runs nothing."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._names: set[str] = set()

    def launch(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        """Record the launch of a kernel with these arguments."""
        name = re.sub(r"\W", "_", getattr(kernel, "__name__", None) or kernel.fn.__name__)
        # Below autograd, to which a launch is nothing: it makes no node and changes no tensor's version.
        with torch._C.DisableTorchFunction(), torch._C._AutoDispatchBelowADInplaceOrView():
            tensors = [
                value
                for value in (*args, *kwargs.values())
                if isinstance(value, torch.Tensor) and not self._recorder.storages.on_host(value)
            ]
            _operator(name)(tensors)
            for tensor in tensors:
                self._recorder.values.forget(tensor)
        self._names.add(name)

    def time(self, call: Callable[[], object], *_: Any, **settings: Any) -> Any:
        """Replace `do_bench`: take its memory and return a made-up time."""
        call()
        clearing = torch.empty(CLEARING_BYTES // 4, dtype=torch.int, device="cuda")
        clearing.zero_()
        call()
        del clearing
        return [1.0 for _ in settings["quantiles"]] if settings.get("quantiles") else 1.0

    def add_notes(self) -> None:
        """Add a note on launched kernels to the estimate."""
        if self._names:
            self._recorder.note(
                f"kernels written in Triton are launched, not run: {', '.join(sorted(self._names))}; they"
                " take no memory but their code's, which is not counted"
            )


def _operator(name: str) -> Any:
    """Return the operator a kernel is recorded as, which does nothing."""
    if name not in _operators:
        library, _ = declared(NAMESPACE, {name: "(Tensor(a!)[] tensors) -> ()"})
        library.impl(name, lambda _: None, "Meta")
        _operators[name] = library, getattr(getattr(torch.ops, NAMESPACE), name).default
    return _operators[name][1]


@contextlib.contextmanager
def triton_kernels(device: DeviceProfile, recorder: Recorder) -> Iterator[None]:
    """While open, a program finds Triton, and launches its kernels on `device`."""
    launches = Launches(recorder)
    with _installed(launches) if importlib.util.find_spec(NAMESPACE) else _absent(device, launches):
        yield
    launches.add_notes()


def triton_kernels_of(device: DeviceProfile, recorder: Recorder) -> contextlib.AbstractContextManager[None]:
    """`triton_kernels` after a file's import; an installed Triton it did not import stays."""
    if importlib.util.find_spec(NAMESPACE) and NAMESPACE not in sys.modules:
        return contextlib.nullcontext()
    return triton_kernels(device, recorder)


@contextlib.contextmanager
def triton_found(device: DeviceProfile) -> Iterator[None]:
    """While open, programs find Triton; their kernels launch only under `triton_kernels`."""
    with contextlib.nullcontext() if importlib.util.find_spec(NAMESPACE) else _absent(device, None):
        yield


@contextlib.contextmanager
def _absent(device: DeviceProfile, launches: Launches | None) -> Iterator[None]:
    """While open, a stand-in is in the place of Triton."""
    _clear_caches()
    has_triton()  # which remembers that there is none
    absent = Absent(device, *((None, None) if launches is None else (launches.launch, launches.time)))
    sys.meta_path.append(absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
        absent.close()
        _clear_caches()


@contextlib.contextmanager
def _installed(launches: Launches) -> Iterator[None]:
    """While open, the Triton that is installed launches and times nothing."""
    jit: Any = importlib.import_module("triton.runtime.jit")
    tuner: Any = importlib.import_module("triton.runtime.autotuner")
    testing: Any = importlib.import_module("triton.testing")

    def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        if not warmup:
            launches.launch(kernel, *args, **kwargs)

    places = ((jit.JITFunction, "run"), (tuner.Autotuner, "do_bench"), (testing, "do_bench"))
    before = [vars(owner)[name] for owner, name in places]
    for (owner, name), stands in zip(
        places, (run, property(lambda _: launches.time), launches.time), strict=True
    ):
        setattr(owner, name, stands)
    try:
        yield
    finally:
        for (owner, name), original in zip(places, before, strict=True):
            setattr(owner, name, original)


def _clear_caches() -> None:
    """Clear the caches of functions that remember whether Triton is installed; transformers' one has none in
    4.57."""
    for module, function in _REMEMBER:
        if clear := getattr(getattr(sys.modules.get(module), function, None), "cache_clear", None):
            clear()
