"""cuDNN's backend API through `ctypes`: the plans a convolution has and their workspaces. Nothing is
launched, no tensor is allocated.

PyTorch takes the engine configurations of `CUDNN_HEUR_MODE_INSTANT`, then those of the fallback list, drops
those that convert inputs to a narrower type, and chooses (`plans.py`). The same calls are made here, up to
the plans' workspaces:

1. Tensors are described by shape, strides of the memory format, type and alignment: 32 bytes for PyTorch
   (what allocator blocks have), 16 for ONNX Runtime (the default of cuDNN's frontend). 1-D convolutions are
   2-D ones of height 1, as in `Convolution.cpp`.
2. The factors alpha and beta are float32, as PyTorch sets them (with float64 cuDNN leaves some engines out),
   the compute type is float32 (TF32 allowed), but for float64.
3. Engine 23 is left out of 3-D data gradients, as PyTorch leaves it out (`plan_errata_exception`).
4. In place of a handle a GPU's description (`CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`) needs neither GPU nor
   driver. The heuristics take 2 milliseconds, each plan a third of one. Engines built on cuBLAS need a GPU,
   and a list without one lacks them. But cuDNN's log names every engine that its heuristics ranked and this
   process could not use, in order: `engine_config_support_checks`, a message of level "info". A list of the
   first n results names those before them; what they take is computed (`on_cublas.py`).

Not modelled: a plan that builds but fails when it runs (PyTorch then goes on to the next).
Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`get_generator_sources`, `filterEngineConfigs`,
`run_single_conv`); the enumerators: `cudnn_graph.h` of cuDNN 9; the log: NVIDIA cuDNN, "Error reporting and
API logging" (`cudnnSetCallback`). In 662 of 662 convolutions asked on an H100, and in 98.5 % for five other
compute capabilities, the plans up to the first that needs no GPU are those a GPU's process lists
(`tests/data/h100/first_plans.json.gz`, cuDNN 9.19).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

from analyzer.libraries.cudnn.convolution import HEURISTICS, PYTORCH, Convolution, Plan, Question, strides_of
from analyzer.libraries.cudnn.enumerators import CONVOLUTIONS, Attribute, Descriptor, Kind
from analyzer.libraries.cudnn.local_memory import is_compiled
from analyzer.libraries.cudnn.on_cublas import plans_on_cublas
from analyzer.libraries.cudnn.splits import ENGINES

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
# How a value of a kind is handed over, where it is no enumerator.
_ELEMENTS: dict[int, Any] = {
    Kind.HANDLE: ctypes.c_void_p,
    Kind.INT64: ctypes.c_int64,
    Kind.INT32: ctypes.c_int32,
    Kind.FLOAT: ctypes.c_float,
    Kind.BACKEND_DESCRIPTOR: ctypes.c_void_p,
    Kind.CHAR: ctypes.c_char,
}
_TENSOR_CORE, _DOWN_CONVERT, _NONDETERMINISTIC = 0, 1, 4
_MOST_RESULTS, _MOST_KNOBS, _MOST_NOTES = 128, 32, 16
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
# Of a whole list the plans whose places among the unusable are found: benchmark mode times those.
_IN_PLACE = 10
_LOG_INFO = 1 << 3  # CUDNN_SEV_INFO_EN
_SUPPORT_CHECKS, _ENGINE_ID = b"engine_config_support_checks", re.compile(rb'"engineId":(\d+)')
# Asked whether the log names unusable engines: without a GPU the one that multiplies matrices is always.
_PRODUCT = Convolution("forward", "float32", False, (8, 64, 32, 32), (64, 64, 1, 1), (0, 0), (1, 1), (1, 1))
_Descriptor: TypeAlias = ctypes.c_void_p
_Setting: TypeAlias = tuple[int, int, Sequence[Any]]  # an attribute, the kind of its values, the values
_Ranked: TypeAlias = tuple[_Descriptor | None, Any]


class CudnnError(RuntimeError):
    """cuDNN refused a call."""


class Cudnn:
    """A cuDNN handle (or, without a GPU, a device's description) and the questions it answers.

    library: path of `libcudnn.so.9`, or that library, loaded; the name alone finds the one that torch loaded.
    device_json: a GPU's description as `device_json()` gives it on a machine that has one; with it no GPU is
    needed. Raises CudnnError where cuDNN knows no such descriptor (before 9.2) or refuses the device.
    """

    def __init__(self, library: str | ctypes.CDLL = "libcudnn.so.9", device_json: str | None = None) -> None:
        if not isinstance(library, ctypes.CDLL):
            library = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self._lib = library
        self._handle = ctypes.c_void_p()
        self._device: _Descriptor | None = None
        self._open: list[_Descriptor] = []
        self._unusable: list[int] = []
        self._log = _Callback(self._read_log)
        if device_json is None:
            self._check(self._lib.cudnnCreate(ctypes.byref(self._handle)), "cudnnCreate")
        else:
            text = list(device_json.encode() + b"\0")
            self._device = self._made(
                Descriptor.DEVICEPROP, (Attribute.DEVICEPROP_JSON_REPRESENTATION, Kind.CHAR, text)
            )
            self._open.clear()

    def ranks_unusable(self) -> bool:
        """Return whether plans include engines that only a process with a GPU can use, in their places."""
        if self._device is None:
            return True
        return any(configuration is None for configuration, _ in self._configurations(Question.of(_PRODUCT)))

    def device_json(self, device: int = 0) -> str:
        """cuDNN's own description of a GPU of this machine, which another machine can use in its place."""
        descriptor = self._made(Descriptor.DEVICEPROP, (Attribute.DEVICEPROP_DEVICE_ID, Kind.INT32, [device]))
        count = self._read(descriptor, Attribute.DEVICEPROP_JSON_REPRESENTATION, Kind.CHAR, 0, None)
        text = (ctypes.c_char * (count or 0))()
        self._read(descriptor, Attribute.DEVICEPROP_JSON_REPRESENTATION, Kind.CHAR, len(text), text)
        self._close(0)
        return text.value.decode()

    def plans(self, question: Question) -> Iterator[Plan]:
        """Yield the plans that can be built, in the order they are tried; on a GPU, also those on cuBLAS.

        Each is built when it is asked for.
        """
        operation = question.call.operation
        on_cublas = {plan.engine: plan for plan in plans_on_cublas(question.call).values()}
        for configuration, engine in self._configurations(question):
            if configuration is None:
                if plan := on_cublas.pop(engine, None):
                    yield plan
                continue
            index, notes = self._get(engine, Attribute.ENGINE_GLOBAL_INDEX), self._notes(engine)
            if question.searcher == PYTORCH and (_DOWN_CONVERT in notes or _is_errata(question, index)):
                continue
            nbytes = self._workspace_bytes(configuration)
            if nbytes is not None:
                needs_knobs = index in ENGINES[operation] or is_compiled(operation, index)
                knobs = self._knobs(configuration) if needs_knobs else ()
                yield Plan(index, nbytes, _NONDETERMINISTIC not in notes, _TENSOR_CORE in notes, knobs)

    def candidates(
        self, question: Question, unbuilt: Collection[int] = ()
    ) -> Iterator[tuple[int, tuple[tuple[int, int], ...], int | None]]:
        """Engine, knobs and bytes of workspace (None: it cannot be built) of every configuration, unfiltered.

        unbuilt: engines whose plans are not built.
        """
        for configuration, engine in self._configurations(question):
            if configuration is not None:
                index = self._get(engine, Attribute.ENGINE_GLOBAL_INDEX)
                nbytes = None if index in unbuilt else self._workspace_bytes(configuration)
                yield index, self._knobs(configuration), nbytes

    def _configurations(self, question: Question) -> Iterator[_Ranked]:
        """Yield every (configuration, engine) the heuristics rank, which are there until the next one; (None,
        its index) for an engine that this process, without a GPU, cannot use."""
        mark = len(self._open)
        try:
            graph = (Attribute.ENGINEHEUR_OPERATION_GRAPH, Kind.BACKEND_DESCRIPTOR, [self._graph(question)])
            device = (Attribute.ENGINEHEUR_DEVICEPROP, Kind.BACKEND_DESCRIPTOR, [self._device])
            for mode in HEURISTICS[question.searcher]:
                settings: list[_Setting] = [graph, (Attribute.ENGINEHEUR_MODE, Kind.HEUR_MODE, [mode])]
                if self._device:
                    settings.append(device)
                try:
                    heuristic = self._made(Descriptor.ENGINEHEUR, *settings)
                except CudnnError:
                    continue
                yield from self._ranked(heuristic, _IN_PLACE if question.whole else _MOST_RESULTS)
        finally:
            self._close(mark)

    def _ranked(self, heuristic: _Descriptor, in_place: int) -> Iterator[_Ranked]:
        """Yield a heuristic's results in order, and between them the engines the log calls unusable: of the
        first `in_place` exactly where they stand, later ones before those they were named with.

        A list of the first n results names the unusable before them.
        """
        result_count, unusable_count = 0, 0
        for most in (*range(1, in_place + 1), _MOST_RESULTS) if self._device else (_MOST_RESULTS,):
            self._unusable.clear()
            results, unusable = self._results(heuristic, most), [*self._unusable]
            yield from ((None, index) for index in unusable[unusable_count:])
            for configuration in results[result_count:]:
                (engine,) = self._list(configuration, Attribute.ENGINECFG_ENGINE, Descriptor.ENGINE, 1)
                yield configuration, engine
            if len(results) < most:
                return
            result_count, unusable_count = len(results), len(unusable)

    def _results(self, heuristic: _Descriptor, most: int) -> list[_Descriptor]:
        """Return a heuristic's first configurations; for a description, read what the log says of others."""
        if self._device is None:
            return self._list(heuristic, Attribute.ENGINEHEUR_RESULTS, Descriptor.ENGINECFG, most)
        self._lib.cudnnSetCallback(_LOG_INFO, None, self._log)
        try:
            return self._list(heuristic, Attribute.ENGINEHEUR_RESULTS, Descriptor.ENGINECFG, most)
        finally:
            self._lib.cudnnSetCallback(0, None, None)

    def _read_log(self, _severity: int, _data: object, _about: object, message: int) -> None:
        """Keep the engines a message of cuDNN's log says cannot be used; its lines end in a null byte, the
        message in two."""
        line = ctypes.string_at(message)
        if _SUPPORT_CHECKS not in line:
            return
        while line:
            self._unusable += map(int, _ENGINE_ID.findall(line))
            message += len(line) + 1
            line = ctypes.string_at(message)

    def _workspace_bytes(self, configuration: _Descriptor) -> int | None:
        """Return the workspace bytes of the configuration's plan; None if it cannot be built."""
        on: _Setting = (Attribute.EXECUTION_PLAN_HANDLE, Kind.HANDLE, [self._handle])
        if self._device is not None:
            on = (Attribute.EXECUTION_PLAN_DEVICEPROP, Kind.BACKEND_DESCRIPTOR, [self._device])
        config = (Attribute.EXECUTION_PLAN_ENGINE_CONFIG, Kind.BACKEND_DESCRIPTOR, [configuration])
        try:
            plan = self._made(Descriptor.EXECUTION_PLAN, on, config)
        except CudnnError:
            return None
        return self._get(plan, Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)

    def _graph(self, question: Question) -> _Descriptor:
        """Build the operation graph of one convolution; return its descriptor."""
        call = question.call
        alignment = 32 if question.searcher == PYTORCH else 16
        tensors = [
            self._made(
                Descriptor.TENSOR,
                (Attribute.TENSOR_DATA_TYPE, Kind.DATA_TYPE, [DTYPES[call.dtype]]),
                (Attribute.TENSOR_DIMENSIONS, Kind.INT64, shape),
                (Attribute.TENSOR_STRIDES, Kind.INT64, strides_of(shape, call.channels_last)),
                (Attribute.TENSOR_UNIQUE_ID, Kind.INT64, [uid]),
                (Attribute.TENSOR_BYTE_ALIGNMENT, Kind.INT64, [alignment]),
            )
            for uid, shape in zip(b"wxy", (call.w_shape, call.x_shape, question.y_shape), strict=True)
        ]
        compute = "float64" if call.dtype == "float64" else "float32"
        convolution = self._made(
            Descriptor.CONVOLUTION,
            (Attribute.CONVOLUTION_COMP_TYPE, Kind.DATA_TYPE, [DTYPES[compute]]),
            (Attribute.CONVOLUTION_CONV_MODE, Kind.CONVOLUTION_MODE, [1]),
            (Attribute.CONVOLUTION_SPATIAL_DIMS, Kind.INT64, [len(call.stride)]),
            (Attribute.CONVOLUTION_DILATIONS, Kind.INT64, call.dilation),
            (Attribute.CONVOLUTION_FILTER_STRIDES, Kind.INT64, call.stride),
            (Attribute.CONVOLUTION_PRE_PADDINGS, Kind.INT64, call.padding),
            (Attribute.CONVOLUTION_POST_PADDINGS, Kind.INT64, call.padding),
        )
        kind, first = CONVOLUTIONS[call.operation]
        parts: list[tuple[Kind, Any]] = [(Kind.FLOAT, 1.0), (Kind.FLOAT, 0.0)]
        parts += [(Kind.BACKEND_DESCRIPTOR, part) for part in (convolution, *tensors)]
        operation = self._made(kind, *((first + n, of, [part]) for n, (of, part) in enumerate(parts)))
        handle = (Attribute.OPERATIONGRAPH_HANDLE, Kind.HANDLE, [self._handle])
        operations = (Attribute.OPERATIONGRAPH_OPS, Kind.BACKEND_DESCRIPTOR, [operation])
        return self._made(Descriptor.OPERATIONGRAPH, *([] if self._device else [handle]), operations)

    def _knobs(self, configuration: _Descriptor) -> tuple[tuple[int, int], ...]:
        """Return the configuration's knobs: (type, value), types as `cudnnBackendKnobType_t` has them."""
        name, kind = Attribute.ENGINECFG_KNOB_CHOICES, Descriptor.KNOB_CHOICE
        value, of = Attribute.KNOB_CHOICE_KNOB_VALUE, Attribute.KNOB_CHOICE_KNOB_TYPE
        choices = self._list(configuration, name, kind, _MOST_KNOBS)
        return tuple((self._get(each, of, Kind.KNOB_TYPE), self._get(each, value)) for each in choices)

    def _notes(self, engine: _Descriptor) -> frozenset[int]:
        notes = (ctypes.c_int * _MOST_NOTES)()
        count = self._read(engine, Attribute.ENGINE_NUMERICAL_NOTE, Kind.NUMERICAL_NOTE, _MOST_NOTES, notes)
        return frozenset(notes[: count or 0])

    def _list(self, descriptor: _Descriptor, name: int, kind: int, most: int) -> list[_Descriptor]:
        """Return the descriptors an attribute holds."""
        wanted = [self._create(kind) for _ in range(most)]
        array = (ctypes.c_void_p * most)(*[each.value for each in wanted])
        return wanted[: self._read(descriptor, name, Kind.BACKEND_DESCRIPTOR, most, array) or 0]

    def _get(self, descriptor: _Descriptor, name: int, kind: int = Kind.INT64) -> int:
        value = ctypes.c_int64(0)
        if self._read(descriptor, name, kind, 1, ctypes.byref(value)) is None:
            raise CudnnError(f"cuDNN does not say attribute {name}")
        return value.value

    def _read(self, descriptor: _Descriptor, name: int, kind: int, most: int, into: Any) -> int | None:
        """Read at most `most` values of an attribute; return how many it has, None if refused."""
        count = ctypes.c_int64(0)
        status = self._lib.cudnnBackendGetAttribute(
            descriptor, name, kind, ctypes.c_int64(most), ctypes.byref(count), into
        )
        return count.value if status == 0 else None

    def _made(self, kind: int, *settings: _Setting) -> _Descriptor:
        """Return a descriptor with these attributes, finalized."""
        descriptor = self._create(kind)
        for setting in settings:
            self._set(descriptor, *setting)
        self._finalize(descriptor)
        return descriptor

    def _create(self, kind: int) -> _Descriptor:
        descriptor = ctypes.c_void_p()
        status = self._lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor))
        self._check(status, f"descriptor {kind}")
        self._open.append(descriptor)
        return descriptor

    def _set(self, descriptor: _Descriptor, name: int, kind: int, values: Sequence[Any]) -> None:
        array = (_ELEMENTS.get(kind, ctypes.c_int) * len(values))(*values)
        count = ctypes.c_int64(len(values))
        status = self._lib.cudnnBackendSetAttribute(descriptor, name, kind, count, array)
        self._check(status, f"attribute {name} = {list(values)[:8]}")

    def _finalize(self, descriptor: _Descriptor) -> None:
        self._check(self._lib.cudnnBackendFinalize(descriptor), "finalize")

    def _close(self, mark: int) -> None:
        while len(self._open) > mark:
            self._lib.cudnnBackendDestroyDescriptor(self._open.pop())

    @staticmethod
    def _check(status: int, what: str) -> None:
        if status != 0:
            raise CudnnError(f"cuDNN status {status} at {what}")


def _is_errata(question: Question, engine: int) -> bool:
    """Return whether PyTorch leaves the engine out (`hardcoded_errata_json_handle_3d`)."""
    return question.call.operation == "data" and engine == 23 and len(question.call.x_shape) > 4
