"""Watches a program run on meta tensors and writes down every operator: the dispatch.

1. Each ATen call that touches device memory becomes an `Operator`; calls among host tensors only are left
   out, and what they make is in host memory too. Storages are born and die meanwhile (`storages.py`).
2. Gradients that meet at a tensor are summed in place where autograd would on CUDA (`fan_in.py`).
3. Composite operators that CUDA implements differently are replaced by what is chosen for them (`choose`);
   operators without a usable meta kernel have another (`results`). The modules that know an operator register
   what handles it (`handle_operators`), and what handles tensors made of other tensors (`composites`): the
   recorder imports none of them.
4. Module path and source line: `places.py`. Values and sizes that only data tells: `answers.py`.
5. Every operator runs on the stream that is current (`current_stream.py`).
6. A subclass that unwraps itself (`DTensor`) does so first: the operators on what is inside are recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map

from analyzer.capture.pytorch.recording import autocasting
from analyzer.capture.pytorch.recording.answers import ProgramValues
from analyzer.capture.pytorch.recording.arguments import reaches_device, tensors_again
from analyzer.capture.pytorch.recording.asked_sizes import AskedSizes
from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
from analyzer.capture.pytorch.recording.current_stream import Current
from analyzer.capture.pytorch.recording.failing import FailedCall
from analyzer.capture.pytorch.recording.fan_in import FanIn, Formula
from analyzer.capture.pytorch.recording.gpus import Gpus
from analyzer.capture.pytorch.recording.memory import Memory
from analyzer.capture.pytorch.recording.meta_cache import MetaCache
from analyzer.capture.pytorch.recording.own_meta import answer
from analyzer.capture.pytorch.recording.parts import PLAIN, has_parts, inside, unwraps_itself
from analyzer.capture.pytorch.recording.places import Places
from analyzer.capture.pytorch.recording.refused import reason
from analyzer.capture.pytorch.recording.schema import Schema
from analyzer.capture.pytorch.recording.storages import Storages
from analyzer.capture.pytorch.recording.twins import Twins
from analyzer.graph import STREAMS, Argument, Category, Graph, Operator, Phase, Run, TensorMeta
from analyzer.values.budget import SMALL_ELEMENTS, Effort
from analyzer.values.calls import DispatchedCall
from analyzer.values.known import KnownValues

aten = torch.ops.aten
_STEP = str(Path(__file__).parents[1] / "module" / "step.py")
_NUMBERS = (float, int, bool, complex)
META = torch.device("meta")
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_NO_KWARGS: dict[str, Argument] = {}
_NONE_WRITTEN: list[torch.Tensor] = []


@dataclass(frozen=True, slots=True)
class RecordingCursor:
    """Lengths of the operator, storage, program and event lists at one point of the recording. events: the
    memory's; 0 without one."""

    operators: int
    storages: int
    moments: int
    events: int


class ReplacementCall(NamedTuple):
    """Operator call dispatched instead of the original one; keyword arguments are unchanged."""

    func: Any
    args: tuple[Any, ...]


# Called before the default path with (recorder, operator, arguments, keywords); returns the operator's
# result, a ReplacementCall, or NotImplemented to continue as usual.
OperatorHandler: TypeAlias = "Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]"


@dataclass(frozen=True, slots=True)
class CompositeTensorOperators:
    """Operators on tensors made of other tensors (sparse ones). makers: operators that return such a tensor;
    call: (recorder, operator, arguments, keywords) -> the result; to_host: (recorder, tensor, type) -> its
    copy in host memory."""

    makers: frozenset[Any] = frozenset()
    call: OperatorHandler = lambda *_: NotImplemented
    to_host: Callable[[Recorder, torch.Tensor, Any], torch.Tensor] = lambda *_: NotImplemented


class Recorder(TorchDispatchMode):
    """The dispatch mode of the module docstring; `finish` returns the `Graph`.

    `module/step.py` calls `phase`, `step`, `mark` and `label` to delimit the training step.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that PyTorch does not import its compiler to wrap this mode."""
        return False

    def __init__(self, memory: Memory | None, compatible: CompatibleDevices) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory, self.compatible = memory, compatible
        # Whether somebody has said what an operator takes; and what makes Python code believe in the GPU
        # while it is open.
        self.described: Callable[[str], bool] = lambda _: False
        self.believing: Callable[[], AbstractContextManager[None]] = nullcontext
        self.gpus = Gpus()
        self.phases: Callable[[], Phase] | None = None  # who tells the phase, where no step does
        self.step = 0
        self.handle: Callable[[str], int] = lambda _: (
            0
        )  # of the libraries, which this thread uses for an operator
        self.several_threads = False
        self._one_at_a_time = threading.RLock()
        self.failed: tuple[int, str] = (0, "")  # number of the exception, innermost module
        self.failed_call: FailedCall | None = None  # the last operator that raised
        self.ended: SystemExit | None = None  # the program has ended its process
        self.notes: list[str] = []
        self.caveats: list[str] = []
        self.size_questions: AskedSizes | None = None  # who listens to what is asked about sizes
        self._twins = Twins()
        self._known_values = KnownValues(self._twins, self.note)
        self.streams = Current(self.gpus)
        self.places = Places(self.streams, _STEP)
        self.storages = Storages(
            self.places, self.streams, self._known_values, self._twins, memory, self.gpus
        )
        self.values = ProgramValues(self.places, self.storages, self._known_values, self._twins, self.note)
        compatible.known = self.values.known
        self.operators: list[Operator] = []
        self.composites = CompositeTensorOperators()
        self._saw_composites = False  # the program has made a tensor of other tensors
        self._choices: dict[Any, Callable[..., Any]] = {}
        self._choices_by_name: dict[str, Callable[..., Any]] = {}
        self._handlers: dict[Any, OperatorHandler] = {}
        self._foreign: OperatorHandler | None = None
        self._kernels: Mapping[Any, Callable[..., Any]] = {}
        self._laid: Callable[[Any, Any], Callable[..., Any] | None] = lambda *_: None
        self._by_shapes: frozenset[Any] = frozenset()
        self._schemas: dict[int, Schema] = {}
        self._results = MetaCache()
        self._fan_in = FanIn(self.storages.number_of, self.storages.count)
        self._closed = False
        if memory is not None:
            memory.attach(self.storages.all, self.operators)

    @property
    def gpu(self) -> torch.device:
        """The current GPU."""
        return self.gpus.device()

    # -- who has needs of their own

    def choose(
        self, choices: Mapping[Any, Callable[..., Any]], by_name: Mapping[str, Callable[..., Any]]
    ) -> None:
        """Register handlers that replace these operators; they call `record` to be counted.

        by_name: those of libraries that may not be imported yet ("namespace::name.overload").
        """
        self._choices.update(choices)
        self._choices_by_name.update(by_name)
        self._schemas.clear()

    def handle_operators(
        self, handlers: Mapping[Any, OperatorHandler], foreign: OperatorHandler | None = None
    ) -> None:
        """Call these handlers before operators. foreign: before all that are not PyTorch's."""
        self._handlers.update(handlers)
        self._foreign = foreign or self._foreign
        self._schemas.clear()

    def results(
        self,
        kernels: Mapping[Any, Callable[..., Any]],
        by_shapes: frozenset[Any],
        laid: Callable[[Any, Any], Callable[..., Any] | None],
    ) -> None:
        """Register functions that make results for tensors without memory. by_shapes: operators whose results
        follow from shapes alone. laid: of an operator and its function, another that lays the result as on
        CUDA, or None."""
        self._kernels, self._by_shapes, self._laid = kernels, by_shapes, laid
        self._schemas.clear()

    def whole_program(self, folders: tuple[str, ...], alone: bool = True) -> None:
        """Follow a program that reads values; lines in these folders are not the user's.

        alone: it is the only rank.
        """
        self.values.stands_in = True
        self._known_values.budget.effort = Effort() if alone else Effort(SMALL_ELEMENTS)
        self.places.libraries(folders)

    # -- what the step tells

    @property
    def phase(self) -> Phase:
        """The part of the step that runs."""
        return self.places.phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self.places.phase = phase

    def mark(self, name: str) -> None:
        """End the named event."""
        self.storages.mark(name)

    def label(self, tensor: torch.Tensor, name: str, category: Category) -> None:
        """Give a storage its name and category."""
        self.storages.label(tensor, name, category)

    def note(self, text: str) -> None:
        """Add a note to the estimate, once."""
        if text not in self.notes:
            self.notes.append(text)

    def caveat(self, text: str) -> None:
        """Add a sentence on what the figures leave out, printed beside the verdict."""
        if text not in self.caveats:
            self.caveats.append(text)

    def caught(self) -> str:
        """Return the last error, of an operator or a value read, that the program survived; "" if none."""
        failed = self.failed_call
        return self.values.refused or ("" if failed is None else failed.message)

    # -- what PyTorch tells

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(unwraps_itself, types)):
            return NotImplemented  # what it is made of comes here next
        if torch._C._get_dispatch_mode(_FAKE) is not None:
            # PyTorch asks fake tensors for a shape: nothing runs.
            return args[0] if self._schema(func).fills else func(*args, **(kwargs or {}))
        # In the backward pass nobody has left the torch-function mode before coming here.
        with torch._C.DisableTorchFunction():
            try:
                if self.ended is not None:
                    raise SystemExit(self.ended.code)
                if not self.several_threads:
                    call = self._called_there if self.gpus.several else self._called
                    return call(func, args, kwargs or {})
                if self._closed:
                    raise SystemExit  # a daemon's thread that the program has outlived
                with self._one_at_a_time:
                    call = self._called_there if self.gpus.several else self._called
                    return call(func, args, kwargs or {})
            except Exception as error:
                if self.failed_call is None or self.failed_call.error != id(error):
                    self.failed_call = FailedCall.of(error, func, args, kwargs or {}, self.places.line())
                raise

    def _called_there(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on the GPU it belongs to."""
        with self.gpus.placing(self._gpu_among(args, kwargs)):
            return self._called(func, args, kwargs)

    def _gpu_among(self, args: Any, kwargs: Any) -> int | None:
        """Return the GPU of the first tensor that lies on one, which is the operator's; None where a function
        that names the device runs, or no tensor says."""
        if kwargs.get("device") is not None and self.gpus.is_placed():
            return None
        for value in tree_iter((args, kwargs)):
            if isinstance(value, torch.Tensor) and (gpu := self.storages.gpu_of(value)) is not None:
                return gpu
        return None

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator and record it if it reaches the device."""
        schema = self._schemas.get(id(func)) or self._schema(func)
        if schema.skip or not (reaches_device(args, kwargs) or self._exchanges(schema)):
            if args and type(args[0]) in _NUMBERS:
                args = tensors_again(func, args)
            return func(*args, **kwargs)
        if schema.is_product and self.storages.has_nowhere and self.storages.all_nowhere(args):
            with _disable_current_modes():
                out = answer(self.compatible.device.releases["torch"], func, args, kwargs)
            made = [value for value in tree_iter(out) if isinstance(value, torch.Tensor)]
            self.storages.made_on_host(made, True)
            return out
        if self.phases is not None:
            self.places.phase = self.phases()
        if schema.choice is not None:
            with self, self.values.standing_in():
                return schema.choice(*args, **kwargs)
        if schema.composite:
            with (
                self,
                autocasting.again(),
            ):  # as the library does: `decompose` would take decompositions in Python
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if self.places.phase is Phase.BACKWARD:
            func, args = self._fan_in.on_cuda(func, args, kwargs)
            if type(func) is Formula:
                if func.compute is None:
                    with _disable_current_modes():
                        return func.func(*args, **kwargs)
                with self:
                    return func.compute(self.values, args)
            schema = self._schema(func)
        if schema.handler is not None:
            handled = schema.handler(self, func, args, kwargs)
            if type(handled) is ReplacementCall:
                func, args = handled
                schema = self._schema(func)
            elif handled is not NotImplemented:
                return handled
        composites = self.composites
        if func in composites.makers or (
            (self._saw_composites or func is aten._to_copy.default) and any(map(has_parts, args))
        ):
            self._saw_composites = True
            with self.values.standing_in():
                return composites.call(self, func, args, kwargs)
        if "device" in kwargs and kwargs["device"] is not None and kwargs["device"].type == "cuda":
            kwargs = {**kwargs, "device": META}
        try:
            out = None
            if schema.sized_by_values:
                out = self.values.sized(DispatchedCall(func, args, kwargs))
            if out is None:
                kernel = schema.kernel or func
                if schema.remembered:
                    out = self._results.call(kernel, args, kwargs)
                elif schema.rewrites:
                    out = self._results.write(kernel, args, kwargs, schema.written(args, kwargs))
                else:
                    out = kernel(*args, **kwargs)
        except RuntimeError as error:  # NotImplementedError is one
            if "expected device" in str(error) and (mixed := self._on_host(args, kwargs)) is not None:
                out = func(*mixed[0], **mixed[1])
            elif not isinstance(error, NotImplementedError) and "no fake impl" not in str(error):
                raise
            else:
                out = self._without_meta_kernel(func, args, kwargs)
        self._record(schema, args, kwargs, out)
        return out

    @staticmethod
    def _exchanges(schema: Schema) -> bool:
        """Return whether an operator exchanges messages with other ranks, also in host tensors."""
        return schema.choice is not None and schema.func.namespace == "c10d"

    def _on_host(self, args: Any, kwargs: Any) -> Any:
        """Return the arguments of a call among host tensors as meta tensors; None if on the device."""
        tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
        if not all(map(self.storages.on_host, tensors)):
            return None
        return tree_map(
            lambda t: torch.empty_like(t, device=META) if isinstance(t, torch.Tensor) else t, (args, kwargs)
        )

    def _without_meta_kernel(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return results as large as the largest input, with a note, for an operator without shapes.

        Raises CaptureError for results whose shapes depend on data, NotImplementedError where there is
        nothing to go by.
        """
        if torch.Tag.dynamic_output_shape in func.tags:
            raise self.values.unknown(
                f"calls {func.name()}, whose result's shape depends on data not known before the model runs"
            )
        inputs = [
            t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor) and t.device.type == "meta"
        ]
        returns = func._schema.returns
        plain = all(isinstance(r.type, torch.TensorType) for r in returns)
        if func.namespace == "aten" or not inputs or not plain:
            why = reason(func.name())
            raise NotImplementedError(f"{func} cannot be followed" + (f": {why}" if why else " without data"))
        largest = max(inputs, key=lambda t: t.numel() * t.element_size())
        self.note(
            f"{func.name()} has no meta kernel: each result is taken to be as large as its largest input"
        )
        results = [torch.empty_like(largest) for _ in returns]
        return results[0] if len(results) == 1 else tuple(results)

    def _schema(self, func: Any) -> Schema:
        schema = self._schemas.get(id(func))
        if schema is None:
            name = func._schema.name + f".{func._schema.overload_name or 'default'}"
            choice = self._choices_by_name.get(name) or self._choices.get(func)
            kernel = self._kernels.get(func)
            by_shapes = kernel is None or func in self._by_shapes
            kernel = self._laid(func, kernel or func) or kernel
            handler = self._handlers.get(func, None if func.namespace == "aten" else self._foreign)
            schema = Schema(func, choice, handler, kernel, by_shapes)
            self._schemas[id(func)] = schema
        return schema

    # -- what is written down

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Record an operator that has run; changed values are known already."""
        with self.gpus.placing(self._gpu_among(args, kwargs) if self.gpus.several else None):
            self._record(self._schema(func), args, kwargs, out, values=False)

    def plain(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run and record an operator without its registered handler."""
        with _disable_current_modes():
            out = func(*args, **kwargs)
        self._record(self._schema(func), args, kwargs, out)
        return out

    def _record(self, schema: Schema, args: Any, kwargs: Any, out: Any, *, values: bool = True) -> None:
        """Append a call to the recorded operators, with its results' storages and known values."""
        storages = self.storages
        results = (
            [out]
            if isinstance(out, torch.Tensor)
            else [t for t in tree_iter(out) if t is None or isinstance(t, torch.Tensor)]
        )
        if any(t is not None and type(t) not in PLAIN and unwraps_itself(type(t)) for t in results):
            results = [part for t in results if t is not None for part in inside(t)]
        written = schema.written(args, kwargs) if schema.writes else _NONE_WRITTEN
        for tensor in written:
            storages.resized(tensor.untyped_storage())
        inputs: list[torch.Tensor] = []
        metas: list[TensorMeta] = []
        arguments = tuple([storages.argument(value, inputs, metas) for value in args])
        keywords = (
            {name: storages.argument(value, inputs, metas) for name, value in kwargs.items()}
            if kwargs
            else _NO_KWARGS
        )
        if storages.makes_nowhere:
            storages.made_on_host(results, True)
            return
        every = storages.all
        if (
            metas
            and not every[metas[0].storage].on_device
            and "device" not in kwargs
            and not any(every[meta.storage].on_device for meta in metas)
        ):
            nowhere = any(t.device.type == "meta" and storages.nowhere(t) for t in inputs)
            storages.made_on_host(results, nowhere)
            return
        keys = self._twins.known or self._known_values.counts.keys
        if values and (keys or not inputs or schema.from_nothing or schema.decides):
            tensors = [t for t in results if t is not None and t.device.type == "meta"]
            self.values.follow(schema, args, kwargs, inputs, tensors, written)
        if storages.bounds and not storages.bounded:
            storages.bounded = any(storages.is_bounded(tensor) for tensor in inputs)
        gpu = self.gpus.run_on() if self.gpus.several else 0
        module, source = self.places.now()
        outputs = tuple(
            [None if t is None or t.device.type != "meta" else storages.meta(t, schema.name) for t in results]
        )
        operator = Operator(
            len(self.operators),
            schema.name,
            arguments,
            outputs,
            keywords,
            tuple([storages.live[t.untyped_storage()._cdata] for t in written]) if written else (),
            self.places.phase,
            self.step,
            module,
            source,
            stream=self.streams.now() % STREAMS,
            settings=schema.settings(),
            handle=self.handle(schema.name) if self.several_threads else 0,
            names=schema.names,
            checkpointing=self.places.checkpointing() if self.places.checkpoints != (0, 0) else (0, 0),
            gpu=gpu,
        )
        storages.bounded = False
        self.operators.append(operator)
        storages.happened(Run(operator.index))

    # -- what repeats, and the result

    def position(self) -> RecordingCursor:
        """Return the lengths of all lists now."""
        events = 0 if self.memory is None else self.memory.position
        storages = self.storages
        return RecordingCursor(len(self.operators), len(storages.all), len(storages.program), events)

    def cut(self, position: RecordingCursor, names: Mapping[int, int]) -> None:
        """Drop the record since a position; `names` maps live storages to their new numbers."""
        del self.operators[position.operators :]
        self.storages.cut(position.storages, position.moments, names)

    def finish(self, batch: int | None) -> Graph:
        """Stop recording; the frozen, checked graph. Storages alive now stay alive in it."""
        self._closed = True
        return Graph(
            framework="pytorch",
            storages=self.storages.finish(),
            operators=tuple(self.operators),
            program=tuple(self.storages.program),
            batch=batch,
            notes=tuple(self.notes),
            guards=() if self.size_questions is None else tuple(self.size_questions.guards),
            alike=self.compatible.capabilities,
        ).check()
