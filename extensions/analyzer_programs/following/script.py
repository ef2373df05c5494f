"""A whole program run as it is, on a GPU that is not there: `python script.py`, with every CUDA tensor
followed.

1. The script runs in this process as `__main__`, with its arguments and its folder on the path.
2. Phases are found, not told: backward is where autograd is at work, the optimizer's steps report themselves,
   forward is inside modules; what lies outside belongs to the loss after a forward pass, and to the input
   before one. A model called without gradients is evaluated, and generates where a function named `generate`
   calls it; so is what follows outside.
3. Values only a real run has get stand-ins, each noted with its line (`answers.py`), where they are not
   computed on the way (`values/budget.py`).
4. Where the program ends early, by an error, `SystemExit` or Ctrl-C, what was recorded until then counts, and
   the graph is unfinished: a program that made an optimizer was to train, and what its gradients and the
   optimizer's states are is said although no step was completed.

5. Of a job of several ranks one is followed (`world/`).

6. `torch.compile` runs what it is given as eager code (`compiling.py`), which is said beside the verdict.
   Kernels written in Triton are launched and not run (`triton_kernels.py`).

Not modelled: what a compiler would make of the program.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.loss import _Loss
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from analyzer.capture.pytorch.device.device_thread import DeviceThread
from analyzer.capture.pytorch.device.nvml import nvml
from analyzer.capture.pytorch.environment import cuda_environment, own_randomness, watching
from analyzer.capture.pytorch.explain import explained, fails_anywhere
from analyzer.capture.pytorch.kernels.fetched import fetched_kernels
from analyzer.capture.pytorch.kernels.flex import compiled_flex
from analyzer.capture.pytorch.kernels.quantized import managed_memory
from analyzer.capture.pytorch.kernels.triton_kernels import triton_kernels
from analyzer.capture.pytorch.module.modules import bytes_in, named_tensors
from analyzer.capture.pytorch.module.step import label_gradients, label_optimized, label_state
from analyzer.capture.pytorch.patches import replaced
from analyzer.capture.pytorch.recording.parts import inside, untransformed
from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.errors import AnalyzerError
from analyzer.graph import Category, Graph, LeafOutput, Phase
from analyzer.graph.calls import ModelCall
from analyzer.logs import without_ours
from analyzer.ranks import Post, Rank
from analyzer.signals import interrupted_on_request
from analyzer.values.assumptions import Assumptions
from analyzer.values.branches import generates
from analyzer_programs.following.batches import noting_drawn_sizes
from analyzer_programs.following.branches import Branches
from analyzer_programs.following.calls import called_as
from analyzer_programs.following.compiling import compiling
from analyzer_programs.following.deadline import ended_after
from analyzer_programs.following.ending import exits, site_folders
from analyzer_programs.following.evaluating import Evaluations
from analyzer_programs.following.exporting import exporting
from analyzer_programs.following.extent import Enough, Extent, Until
from analyzer_programs.following.generating import Tokens
from analyzer_programs.following.loaders import Loaders
from analyzer_programs.following.loading import reading_in_order
from analyzer_programs.following.optimized import OptimizedModels
from analyzer_programs.following.owners import Owners
from analyzer_programs.following.repetition import Repetition
from analyzer_programs.following.threads import Threads
from analyzer_programs.following.tracing import (
    CAVEAT,
    ScriptModule,
    is_scripted,
    script_method,
    scripted,
    tracing,
)
from analyzer_programs.gpus import threads_of_autograd
from analyzer_programs.world.groups import world

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.memory import Memory
    from analyzer.devices import DeviceProfile


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that was followed.

    error: what ended it (None: it ran to its end). steps: optimizer steps; repeated: those that repeat others
        and are stored once. steady: it was ended because from then on everything repeats. cut: it was ended
        because its time was over. part: what was followed of it and what was not, "" of all. trained:
        whether there was a backward pass, or an optimizer for one that the program did not come to.
    unreached: what it never did, "" where nothing is to be said of that. caveats: what the figures are not
        of. weight_bytes, trainable_bytes, leaves: of the modules that were called, for the naive sum.
    """

    graph: Graph
    error: BaseException | None
    steps: int
    repeated: int
    steady: bool
    cut: bool
    part: str
    trained: bool
    weight_bytes: int
    trainable_bytes: int
    leaves: tuple[LeafOutput, ...]
    caveats: tuple[str, ...]
    unreached: str


class Phases:
    """Detects a program's phase from the PyTorch functions it calls, and names its modules."""

    def __init__(
        self,
        recorder: Recorder,
        progress: Callable[[str], None] | None,
        extent: Extent,
    ) -> None:
        self._recorder, self._progress, self.extent = recorder, progress, extent
        self.looking = True  # for what repeats
        self.evaluations = Evaluations(recorder.places, recorder.note)
        self._optimizing = 0
        self._forward_seen = self._started = False
        self._calls = Phase.FORWARD  # what calling a model is for, now
        self._roots: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._uninitialized: set[str] = set()  # paths of lazy modules before their first call
        self._paths: dict[int, str] = {}
        self._leaf: set[int] = set()
        self._root: int | None = None  # the model whose first forward pass is under way
        self._passed: set[int] = set()  # models, and leaves inside them, of which one is over
        self._weighed: set[int] = set()  # storages of `weight_bytes`
        self.steps = 0
        self.optimizers = weakref.WeakSet[torch.optim.Optimizer]()
        self.trained = self.makes_optimizers = False
        self.weight_bytes = self.trainable_bytes = 0
        self.leaves: list[LeafOutput] = []
        self.models: list[ModelCall] = []
        self.optimized, self.owners = OptimizedModels(), Owners()

    def now(self) -> Phase:
        """Return the phase of the next operator."""
        if torch._C._current_autograd_node() is not None:
            return Phase.BACKWARD
        if self._optimizing:
            return Phase.OPTIMIZER
        if self._recorder.places.modules:
            return self._calls
        if not self._started:
            return Phase.SETUP
        if not self._forward_seen:
            return Phase.INPUT
        return Phase.LOSS if self._calls is Phase.FORWARD else self._calls

    def remembered(self) -> Callable[[bool], None]:
        """Return a function that restores the current phase after a speculative run. Its argument says
        whether that run's leaf outputs count."""
        where = self._forward_seen, self._started, self._calls
        root, passed, count = self._root, set(self._passed), len(self.leaves)

        def again(counts: bool) -> None:
            self._forward_seen, self._started, self._calls = where
            if not counts:
                self._root, self._passed = root, passed
                del self.leaves[count:]

        return again

    def before_step(self, *_: Any) -> None:
        """Note that an optimizer begins its step."""
        self._optimizing += 1

    def after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """End an optimizer's step."""
        self._optimizing -= 1
        label_state(optimizer, self._recorder)
        label_optimized(optimizer, self._recorder)
        if self._optimizing:
            return  # a part of another's step (`ZeroRedundancyOptimizer`)
        self.optimized.look(self._roots.values(), self.optimizers)
        self._recorder.mark(f"{self.steps}.step")
        self.steps += 1
        self._recorder.step = self.steps
        self._forward_seen = False
        if self._progress is not None:
            self._progress(f"step {self.steps}{self.extent.waits}")
        self._recorder.places.segment_over()
        self.owners.look(self._recorder.places.user_frame(), self.steps)
        self.extent.end_step(self.steps)

    def ended_early(self) -> None:
        """Label what a program that did not come to its end holds of gradients and optimizers' states."""
        self.trained = self.trained or self.makes_optimizers
        self._label_gradients()
        for optimizer in self.optimizers:
            label_state(optimizer, self._recorder)
            label_optimized(optimizer, self._recorder)

    def after_backward(self) -> None:
        """End a backward pass: label gradients and mark the event."""
        self.evaluations.backward()
        self.trained = True
        self._forward_seen = False
        self._label_gradients()
        self._recorder.mark(f"{self.steps}.backward")

    def _label_gradients(self) -> None:
        for root in self._roots.values():
            module = root()
            if module is not None:
                label_gradients(module, self._recorder)

    def module(self, module: torch.nn.Module, args: Any, kwargs: Any) -> str:
        """Return the module's path; an unknown one called from outside any is a model of its own."""
        path = self._paths.get(id(module))
        if path is None:
            if self._recorder.places.modules:
                return type(module).__name__
            self._adopt(module)
            self.models.append(called_as(module, self._recorder.places.user_frame(), args, kwargs))
            path = ""
        if not self._recorder.places.modules:
            self.extent.end_in_time()
            self._recorder.storages.called(id(module))
            self.evaluations.calls(module)
            self._forward_seen = self._started = True
            self._root = None if id(module) in self._passed else id(module)
            self._calls = Phase.FORWARD
            if not torch.is_grad_enabled():
                self._calls = Phase.GENERATION if generates() else Phase.EVALUATION
                if self.looking:
                    self._recorder.places.segment_over()
                    self.extent.end_evaluated()
                    if self._progress is not None:
                        step = f"step {self.steps}, " if self.steps else ""
                        self._progress(f"{step}call {self.extent.evaluated:,} without gradients")
                    self.owners.look(self._recorder.places.user_frame(), self.extent.evaluated)
        return path

    def _adopt(self, root: torch.nn.Module) -> None:
        """Name the modules of a root model and label its weights."""
        for name, part in root.named_modules():
            self._paths[id(part)] = name
            if not any(True for _ in part.children()):
                self._leaf.add(id(part))
        self._roots[id(root)] = weakref.ref(root)
        self._label_weights(root)

    def _label_weights(self, module: torch.nn.Module) -> None:
        """Label parameters and buffers; a lazy module has them after its first call."""
        path = self._paths[id(module)]
        for category, tensors in (
            (Category.PARAMETER, named_tensors(module, "parameters", path)),
            (Category.BUFFER, named_tensors(module, "buffers", path)),
        ):
            for name, tensor in tensors:
                if is_lazy(tensor):
                    self._uninitialized.add(name.rpartition(".")[0])
                elif tensor.is_cuda:
                    self._recorder.label(untransformed(tensor), name, category)
                    self._weigh(tensor)

    def _weigh(self, tensor: torch.Tensor) -> None:
        """Count a parameter or buffer, once if several models hold it."""
        if (identity := id(tensor)) in self._weighed:
            return
        self._weighed.add(identity)
        weakref.finalize(tensor, self._weighed.discard, identity)
        nbytes = sum(part.numel() * part.element_size() for part in inside(tensor))
        self.weight_bytes += nbytes
        self.trainable_bytes += nbytes if tensor.requires_grad else 0

    def returned(self, module: torch.nn.Module, out: Any) -> None:
        """Note a module's output; leaf outputs of each model's first forward pass enter the naive sum, but
        those of leaves that were in another model's."""
        if not self._recorder.places.modules:
            self.evaluations.returned(module, out)
        if self._uninitialized and (path := self._paths.get(id(module))) in self._uninitialized:
            self._uninitialized.remove(path)
            self._label_weights(module)
        if self._root is None:
            return
        if id(module) in self._leaf and id(module) not in self._passed and not isinstance(module, _Loss):
            nbytes, count = bytes_in(out)
            self.leaves.append(LeafOutput(self._paths[id(module)], nbytes, count, bool(module._parameters)))
        if self._root == id(module):
            self._root = None
            self._passed |= {id(part) for part in module.modules()}


def follow(
    run: Callable[[], object],
    device: DeviceProfile,
    memory: Memory | None = None,
    *,
    rank: Rank | None = None,
    post: Post | None = None,
    until: Until | None = None,
    assume: Mapping[str, bool | int | float] | None = None,
    progress: Callable[[str], None] | None = None,
    whole: bool = False,
    described: Callable[[str], bool] = lambda _: False,
    collects: bool = True,
    branches: Branches | None = None,
    gpus: int = 1,
) -> Ran:
    """Call `run` with everything on "cuda" followed, as one rank. post: what other ranks say by value. whole:
    steps that repeat are stored like any other. described: as in `cuda_environment`.
    collects: Python's garbage collector runs by itself. branches: those of the script that `run` runs.
    gpus: so many there are for it, with a memory of each where it is not one."""
    rank = rank or Rank()
    error: BaseException | None = None
    with (
        own_randomness(),
        without_ours(),
        cuda_environment(device, memory, described, gpus) as recorder,
        recorder.storages.garbage.watched(collects),
    ):
        recorder.whole_program(site_folders(), alone=rank.world_size == 1)
        recorder.values.assumptions = Assumptions(assume)
        whole = whole or gpus > 1
        repetition = None if memory is None or whole else Repetition(recorder, memory)
        loaders = Loaders()
        extent = Extent(until or Until(), repetition, loaders, branches or Branches())
        phases = Phases(recorder, progress, extent)
        tokens = None if memory is None or whole else Tokens(recorder, memory, phases)
        recorder.phases = phases.now
        with (
            watching(recorder, whole=True) as fake,
            managed_memory(recorder),
            nvml(device, recorder),
            triton_kernels(device, recorder),
            fetched_kernels(device, recorder),
            compiled_flex(device),
            _places_recorded(recorder, phases),
            threads_of_autograd(memory, recorder) if tokens is None else tokens.open(),
            reading_in_order(recorder),
            replaced(
                {
                    "torch.utils.data.dataloader._BaseDataLoaderIter._next_index": loaders.drawing(
                        noting_drawn_sizes(recorder.note, recorder.places.line)
                    ),
                    "torch.export.export": exporting(recorder),
                    "torch.compile": compiling(recorder),
                    "torch.jit.trace": tracing(recorder),
                    "torch.jit.ScriptModule": ScriptModule,
                    "torch.jit.script_method": script_method(recorder),
                    "torch.jit.ScriptFunction.__call__": scripted(recorder),
                }
            ),
            world(rank, recorder, post) as communicators,
            DeviceThread(fake.in_another_thread).open(),
            Threads(recorder, fake.in_another_thread).open() as threads,
            exits(recorder),
        ):
            try:
                with ended_after(extent.until.seconds, extent.end_in_time):
                    threads.finish(interrupted_on_request()(run))
            except Enough as enough:
                error = enough.error
            except (AnalyzerError, torch.OutOfMemoryError, SystemExit, KeyboardInterrupt) as ended:
                error = ended
                if isinstance(ended, SystemExit) and fails_anywhere(ended, recorder):
                    ended.is_own = True  # type: ignore[attr-defined]
            except Exception as ended:
                error = explained(ended, recorder)
                error.__cause__ = ended
            error = recorder.ended or error
            phases.evaluations.finish()
            garbage = recorder.storages.garbage
            if sentence := garbage.sentence():
                recorder.caveat(sentence)
            if isinstance(error, torch.OutOfMemoryError) or not collects:
                garbage.search(error)
            if unfinished := extent.cut or not _by_itself(error):
                phases.ended_early()
        recorder.notes.extend((*_cudnn_modes(), *recorder.values.assumptions.notes()))
        if sentence := phases.owners.sentence():
            recorder.note(sentence)
        graph = replace(
            recorder.finish(None),
            communicators=communicators.uses,
            own_streams=recorder.streams.made_any,
            unfinished=unfinished,
            calls=tuple(recorder.storages.calls),
            models=phases.optimized.said_of(phases.models),
            garbage=frozenset(garbage.collected),
            excepted=frozenset(garbage.excepted),
        )
    return Ran(
        graph=graph,
        error=error,
        steps=phases.steps,
        repeated=0 if repetition is None else repetition.repeated_steps,
        steady=extent.steady is not None,
        cut=extent.cut,
        part=extent.sentence(),
        trained=phases.trained or phases.steps > 0,
        weight_bytes=phases.weight_bytes,
        trainable_bytes=phases.trainable_bytes,
        leaves=tuple(phases.leaves),
        caveats=tuple(recorder.caveats),
        unreached=_unreached(recorder, phases) if _by_itself(error) else "",
    )


def _by_itself(error: BaseException | None) -> bool:
    """Return whether a program ended as it meant to."""
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))


def _unreached(recorder: Recorder, phases: Phases) -> str:
    """Return a sentence on what the program never did, with an error it caught; "" if nothing."""
    sentences = []
    if not any(storage.on_device for storage in recorder.storages.all):
        sentences.append("put nothing on the GPU")
    elif phases.makes_optimizers and not phases.steps and phases.extent.is_whole:
        sentences.append("made an optimizer and took no step")
    if caught := recorder.caught():
        sentences.append(f"caught an error: {caught}")
    return f"the program {', and '.join(sentences)}" if sentences else ""


def _cudnn_modes() -> Iterator[str]:
    """Yield caveats on cuDNN settings whose effect only a real run decides."""
    if torch.backends.cudnn.benchmark:
        yield (
            "cudnn.benchmark is on: the workspace of cuDNN's trials is counted where a convolution is first"
            " seen; which plan is fastest is only known once it is timed, so later workspaces may differ"
        )


@contextlib.contextmanager
def _places_recorded(recorder: Recorder, phases: Phases) -> Iterator[None]:
    """While open, modules, backward passes and optimizers say where the program is."""
    call = torch.nn.Module.__call__
    backward = torch.autograd.backward

    def watched_call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_scripted(self):
            recorder.caveat(CAVEAT)
        path = phases.module(self, args, kwargs)
        place = recorder.places.current
        place.modules.append(path)
        place.callers.append(None)
        try:
            out = call(self, *args, **kwargs)
        except Exception as error:
            if recorder.failed[0] != id(error):
                recorder.failed = (id(error), path)
            raise
        finally:
            place.modules.pop()
            place.callers.pop()
        phases.returned(self, out)
        return out

    def watched_backward(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        if torch._C._current_autograd_node() is None:
            phases.after_backward()

    make = torch.optim.Optimizer.__init__

    def watched_make(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        phases.makes_optimizers = True
        make(self, *args, **kwargs)
        phases.optimizers.add(self)

    recorder.places.calling = watched_call.__code__
    hooks = (
        register_optimizer_step_pre_hook(phases.before_step),
        register_optimizer_step_post_hook(phases.after_step),
    )
    try:
        with replaced(
            {
                "torch.nn.Module.__call__": watched_call,
                "torch.autograd.backward": watched_backward,
                "torch.optim.Optimizer.__init__": watched_make,
            }
        ):
            yield
    finally:
        for hook in hooks:
            hook.remove()
