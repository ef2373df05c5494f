"""A PyTorch module and a description of its batch become a `Graph`, without a GPU, weights or data.

1. The user's module is copied in structure only: every parameter and buffer becomes a meta tensor of the same shape,
   strides, dtype and sharing. The original is neither changed nor run, its weights are not copied.
2. The step (`step.py`) runs on the copy under the recorder, with Python, autograd and the dispatcher believing in a
   CUDA device (`cuda_device.py`, `cuda_kernels.py`, `autocast.py`).
3. An exception in the model becomes a `CaptureError` that names the innermost module and source line.
4. Random numbers drawn on the host (layer drop) come from generators seeded anew and put back afterwards: equal
   analyses are equal, and the caller's own sequence goes on undisturbed.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy
import torch

from analyzer.capture.pytorch.cuda.autocast import cuda_autocast
from analyzer.capture.pytorch.cuda.decisions import cuda_choices
from analyzer.capture.pytorch.cuda.pretence import CudaPretence, cuda_functions
from analyzer.capture.pytorch.recorder import Recorder
from analyzer.capture.pytorch.step import AMP_TYPES, Step, run
from analyzer.errors import AnalyzerError, CaptureError, InputError
from analyzer.graph import Graph, Phase
from analyzer.spec import TensorSpec

if TYPE_CHECKING:
    from analyzer.devices import DeviceProfile


@dataclass(frozen=True, slots=True)
class LeafOutput:
    """What a leaf module returned in the first forward pass: for the naive formula."""

    module: str
    nbytes: int
    element_count: int
    has_parameters: bool


@dataclass(frozen=True, slots=True)
class Captured:
    """The graph, and what the naive formula sums up (bytes)."""

    graph: Graph
    leaves: tuple[LeafOutput, ...]
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    trainable_bytes: int


def capture_pytorch(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor | TensorSpec],
    *,
    targets: Sequence[torch.Tensor | TensorSpec] = (),
    loss: Callable[..., Any] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    train: bool = False,
    amp: str | None = None,
    grad_accumulation: int = 1,
    steps: int = 3,
    device: DeviceProfile,
    prepare: Callable[[torch.nn.Module], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Captured:
    """Capture a whole step. `prepare` may change the structural copy (checkpointing) before it runs.

    Raises CaptureError when the model does not run on these shapes or needs values only a real run has.
    """
    if amp is not None and amp not in AMP_TYPES:
        raise InputError(f"unknown autocast type {amp!r}", f"one of {', '.join(AMP_TYPES)}")
    with own_randomness(), cuda_environment(device) as recorder:
        twin = structural_copy(module)
        if prepare is not None:
            prepare(twin)
        for tensor in itertools.chain(twin.parameters(), twin.buffers()):
            if tensor.device.type == "meta":
                recorder.host(tensor)
        step = Step(
            model=twin,
            inputs=tuple(recorder.host(meta_like(x)) for x in inputs),
            targets=tuple(recorder.host(meta_like(y)) for y in targets),
            loss=loss,
            optimizer=optimizer,
            train=train,
            amp=amp,
            grad_accumulation=grad_accumulation,
            iterations=steps,
        )
        with module_paths(twin, recorder, progress) as watch, watching(recorder):
            try:
                run(step, recorder)
            except AnalyzerError:
                raise
            except Exception as error:
                raise _explained(error, recorder) from error
    first = next(iter(step.inputs), None)
    batch = first.shape[0] if first is not None and first.dim() else None
    parameters = list({id(p): p for p in twin.parameters()}.values())
    return Captured(
        graph=recorder.finish(batch),
        leaves=tuple(watch.leaves),
        weight_bytes=sum(p.numel() * p.element_size() for p in parameters),
        trainable_bytes=sum(p.numel() * p.element_size() for p in parameters if p.requires_grad),
        input_bytes=sum(x.numel() * x.element_size() for x in step.inputs),
        output_bytes=watch.output_bytes,
    )


def capture_script(script: Callable[[Recorder], object], device: DeviceProfile) -> Graph:
    """What `script(recorder)` does on "cuda"; it marks its own events. Its exceptions pass through."""
    with cuda_environment(device) as recorder, watching(recorder):
        script(recorder)
    return recorder.finish(None)


@contextlib.contextmanager
def own_randomness() -> Iterator[None]:
    """Rule 4, for the generators of torch's CPU, Python and NumPy."""
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
def cuda_environment(device: DeviceProfile) -> Iterator[Recorder]:
    """Rule 2: everything but the watching itself. Yields a recorder to be used with `watching`."""
    with cuda_choices(device) as choices, cuda_autocast(), cuda_functions(device):
        yield Recorder(choices)


@contextlib.contextmanager
def watching(recorder: Recorder) -> Iterator[None]:
    """While open, every tensor made on "cuda" is a meta tensor the recorder follows."""
    with CudaPretence(recorder) as pretence, pretence.saved_tensor_hooks(), recorder:
        yield


def meta_like(spec: torch.Tensor | TensorSpec) -> torch.Tensor:
    """A meta tensor of the same shape, strides and dtype."""
    if isinstance(spec, TensorSpec):
        dtype = getattr(torch, spec.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise InputError(
                f"unknown element type {spec.dtype!r}", "float32, float16, bfloat16, int64, bool, ..."
            )
        try:
            if spec.stride is not None:
                return torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device="meta")
            return torch.empty(spec.shape, dtype=dtype, device="meta")
        except (RuntimeError, TypeError):  # torch counts bytes in 63 bits
            raise InputError(
                f"no tensor of torch can be {list(spec.shape)} of {spec.dtype}",
                "give a smaller shape or batch",
            ) from None
    return torch.empty_strided(spec.shape, spec.stride(), dtype=spec.dtype, device="meta")


def structural_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Rule 1. Tensors that share a storage share one in the copy; small host buffers keep their values.

    Results of autograd that a module keeps (`torch.nn.utils.weight_norm` does) become meta tensors too: deepcopy refuses
    them. Raises CaptureError when a part of the module cannot be copied.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def twin(tensor: torch.Tensor) -> torch.Tensor:
        old = tensor.untyped_storage()
        if old._cdata not in storages:
            storages[old._cdata] = torch.UntypedStorage(old.nbytes(), device="meta")
        new = torch.empty(0, dtype=tensor.dtype, device="meta")
        return new.set_(storages[old._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())

    memo: dict[int, Any] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if torch.nn.parameter.is_lazy(parameter):
                raise CaptureError(
                    f"{name!r} of {type(part).__name__}{f' {path}' if path else ''} has no shape yet",
                    "run the lazy module on a dummy batch first, which gives its parameters their shapes",
                )
            if parameter is not None and id(parameter) not in memo:
                with torch.no_grad():
                    memo[id(parameter)] = torch.nn.Parameter(
                        twin(parameter), requires_grad=parameter.requires_grad
                    )
        for buffer in part._buffers.values():
            if buffer is not None and id(buffer) not in memo:
                keep = (
                    buffer.device.type == "cpu"
                    and not buffer.is_floating_point()
                    and buffer.numel() <= 1 << 16
                )
                memo[id(buffer)] = buffer.detach().clone() if keep else twin(buffer)
        for kept in vars(part).values():
            if isinstance(kept, torch.Tensor) and not kept.is_leaf:
                memo[id(kept)] = twin(kept)
    try:
        with warnings.catch_warnings():
            # torch's own, about the tree specs in an exported program.
            warnings.simplefilter("ignore", FutureWarning)
            return copy.deepcopy(module, memo)
    except Exception as error:
        raise CaptureError(
            f"{type(module).__name__} cannot be copied: {type(error).__name__}: {error}",
            "keep locks, open files, generators and graph tensors out of the module's attributes",
        ) from error


class _Watch:
    """What `module_paths` saw: leaf outputs and the model's output, first forward pass only."""

    def __init__(self) -> None:
        self.leaves: list[LeafOutput] = []
        self.output_bytes = 0
        self.done = False


def _bytes_in(value: Any) -> tuple[int, int]:
    tensors = [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors), sum(t.numel() for t in tensors)


@contextlib.contextmanager
def module_paths(
    model: torch.nn.Module, recorder: Recorder, progress: Callable[[str], None] | None
) -> Iterator[_Watch]:
    """Keep `recorder.modules` a stack of dotted paths while modules run, and note what leaf modules return."""
    paths = {id(part): name for name, part in model.named_modules()}
    leaf = {id(part): not any(True for _ in part.children()) for part in model.modules()}
    original = torch.nn.Module.__call__
    watch = _Watch()

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(self))
        recorder.modules.append(type(self).__name__ if path is None else path)
        if progress is not None and path is not None:
            progress(path)
        try:
            out = original(self, *args, **kwargs)
        except Exception as error:
            # By number: the exception itself would keep its frames, and their tensors, alive (checkpointing stops
            # its recomputation with an exception).
            if recorder.failed[0] != id(error):
                recorder.failed = (id(error), recorder.modules[-1])
            raise
        finally:
            recorder.modules.pop()
        if not watch.done and path is not None:
            if leaf[id(self)]:
                nbytes, count = _bytes_in(out)
                watch.leaves.append(LeafOutput(path, nbytes, count, bool(self._parameters)))
            if self is model:
                watch.output_bytes, _ = _bytes_in(out)
                watch.done = True
        return out

    with mock.patch.object(torch.nn.Module, "__call__", call):
        yield watch


def _explained(error: Exception, recorder: Recorder) -> CaptureError:
    """Rule 3: the innermost frame of the user's code, and the message in one line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not recorder.is_library(f.filename)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else _PLACES[recorder.phase]
    failed, path = recorder.failed
    module = f" in module {path}" if path and failed == id(error) else ""
    text = " ".join(str(error).split())[:300]
    if "device meta" in text or re.search(r"devices.*\bmeta\b", text):
        hint = "a tensor was left on the host: register_buffer moves it with the module, .to(x.device) where it is made"
    elif "meta" in text.lower():
        hint = "the model makes shapes or branches from data; give the analysis a version that does not"
    elif recorder.phase is Phase.LOSS:
        hint = "check that the loss takes the model's output and these targets, and that they suit each other"
    elif recorder.phase is Phase.OPTIMIZER:
        hint = "the optimizer must step on dense gradients, without a closure"
    else:
        hint = "check that the input's shape and dtype (--input NAME=3x224x224:float32) suit the model"
    # That tensors here are meta tensors is none of the user's business.
    text = re.sub(r"\bmeta tensor", "tensor without data", text)
    text = re.sub(r"(devices?(?: |.*, .* and |.*, ))meta\b", r"\1cuda:0", text)
    return CaptureError(f"{place}{module}: {type(error).__name__}: {text}", hint)


_PLACES = {
    **dict.fromkeys(Phase, "the model"),
    Phase.LOSS: "the loss",
    Phase.BACKWARD: "backward()",
    Phase.OPTIMIZER: "the optimizer",
}
