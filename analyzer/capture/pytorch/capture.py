"""A PyTorch module and a description of its batch become a `Graph`, without a GPU, weights or data.

1. The user's module is copied in structure only: every parameter and buffer becomes a meta tensor of the same
   shape, strides, dtype and sharing. The original is neither changed nor run, its weights are not copied.
2. The step (`step.py`) runs on the copy under the recorder, with Python, autograd and the dispatcher
   believing in a CUDA device (`device/functions.py`, `kernels/decisions.py`, `kernels/autocast.py`).
3. An exception in the model becomes a `CaptureError` that names the innermost module and source line.
4. Random numbers drawn on the host (layer drop) come from generators seeded anew and put back afterwards:
   equal analyses are equal, and the caller's own sequence goes on undisturbed.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from analyzer import extensions
from analyzer.capture.pytorch.environment import cuda_environment, own_randomness, watching
from analyzer.capture.pytorch.explain import explained
from analyzer.capture.pytorch.kernels.triton_kernels import triton_kernels_of
from analyzer.capture.pytorch.module.modules import module_paths
from analyzer.capture.pytorch.module.step import AMP_TYPES, Step, run
from analyzer.capture.pytorch.module.twin import meta_like, structural_copy
from analyzer.capture.pytorch.module.wrapping import cannot_run, joined, placing
from analyzer.capture.pytorch.recording.asked_sizes import AskedSizes
from analyzer.capture.pytorch.recording.parts import inside
from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.errors import AnalyzerError, InputError
from analyzer.graph import Communicator, Graph, LeafOutput
from analyzer.parallelism import Parallelism
from analyzer.spec import TensorSpec
from analyzer.values.assumptions import Assumptions

if TYPE_CHECKING:
    from analyzer.devices import DeviceProfile
    from analyzer.ranks import Rank


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """The graph, and what the naive formula sums up (bytes); weights are those this rank holds."""

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
    parallel: Parallelism | None = None,
    assume: Mapping[str, bool | int | float] | None = None,
    progress: Callable[[str], None] | None = None,
    record_guards: bool = False,
    call: Callable[[torch.nn.Module, list[torch.Tensor]], Any] | None = None,
    described: Callable[[str], bool] = lambda _: False,
) -> CapturedStep:
    """Capture a whole step. `prepare` may change the structural copy (checkpointing) before it runs.

    parallel: how the model is spread over the GPUs of a job, one rank of which is captured.
    record_guards: whether the program's comparisons of sizes are recorded (`asked_sizes.py`). call: as in
    `Step`. described: as in `cuda_environment`.

    Raises CaptureError when the model does not run on these shapes or needs values only a real run has.
    """
    if amp is not None and amp not in AMP_TYPES:
        raise InputError(f"unknown autocast type {amp!r}", f"one of {', '.join(AMP_TYPES)}")
    with own_randomness(), cuda_environment(device, described=described) as recorder:
        recorder.values.assumptions = Assumptions(assume)
        recorder.size_questions = AskedSizes() if record_guards else None
        twin = structural_copy(module)
        if prepare is not None:
            prepare(twin)
        _in_host_memory(twin, recorder)
        communicators: Mapping[str, Communicator] = {}
        step = Step(
            model=twin,
            inputs=tuple(recorder.storages.host(meta_like(x)) for x in inputs),
            targets=tuple(recorder.storages.host(meta_like(y)) for y in targets),
            loss=loss,
            optimizer=optimizer,
            train=train,
            amp=amp,
            grad_accumulation=grad_accumulation,
            iterations=steps,
            call=call,
        )
        with (
            module_paths(twin, recorder, progress) as watch,
            watching(recorder, whole=parallel is not None),
            triton_kernels_of(device, recorder),
            contextlib.ExitStack() as job,
        ):
            try:
                if parallel is not None:
                    communicators = _join(job, parallel.rank, recorder)
                    step = replace(step, place=placing(parallel, recorder.note))
                run(step, recorder)
            except AnalyzerError:
                raise
            except Exception as error:
                explanation = explained(error, recorder)
                raise (explanation if parallel is None else cannot_run(parallel, explanation)) from error
    recorder.notes.extend(recorder.values.assumptions.notes())
    first = next(iter(step.inputs), None)
    batch = first.shape[0] if first is not None and first.dim() else None
    parameters = list({id(p): p for p in twin.parameters()}.values())
    return CapturedStep(
        graph=replace(recorder.finish(batch), communicators=communicators),
        leaves=tuple(watch.leaves),
        weight_bytes=_bytes_of(parameters),
        trainable_bytes=_bytes_of([parameter for parameter in parameters if parameter.requires_grad]),
        input_bytes=sum(x.numel() * x.element_size() for x in step.inputs),
        output_bytes=watch.output_bytes,
    )


def _join(job: contextlib.ExitStack, rank: Rank, recorder: Recorder) -> Mapping[str, Communicator]:
    """Make the program this rank of the job until `job` closes; return its communicators."""
    # Nobody can act on what PyTorch says of wrappers the user has not written.
    job.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", module=r"torch\.(distributed|nn\.parallel)")
    world = extensions.required("extensions", "world", "--parallel")
    communicators: Mapping[str, Communicator] = job.enter_context(world(rank, recorder)).uses
    job.enter_context(joined(rank))
    return communicators


def _in_host_memory(model: torch.nn.Module, recorder: Recorder) -> None:
    """Register the model's meta tensors as host memory. (The capture itself keeps no reference: sharding
    drops the whole tensors.)"""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.device.type == "meta":
            recorder.storages.host(tensor)


def _bytes_of(parameters: Sequence[torch.nn.Parameter]) -> int:
    """Return the bytes of the parameters on this rank, without other ranks' shards."""
    return sum(part.numel() * part.element_size() for parameter in parameters for part in inside(parameter))


def capture_script(script: Callable[[Recorder], object], device: DeviceProfile) -> Graph:
    """Record what `script(recorder)` does on "cuda"; it marks its own events. Its exceptions pass through."""
    with cuda_environment(device) as recorder, watching(recorder):
        script(recorder)
    return recorder.finish(None)
