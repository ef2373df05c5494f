"""cuDNN's backend API through `ctypes`: the plans a convolution has and their workspaces. Nothing is
launched, no tensor is allocated.

PyTorch describes the convolution to the backend and takes the engine configurations of
`CUDNN_HEUR_MODE_INSTANT`, then those of the fallback list. It drops those that convert inputs to a narrower
type, in deterministic mode those noted as not deterministic, and for float32 without TF32 those on tensor
cores; with benchmark off the first whose plan can be built runs. The same calls are made here, up to the
plans' workspaces:

1. Tensors are described by shape, strides of the memory format, type and alignment: 32 bytes for PyTorch
   (what allocator blocks have), 16 for ONNX Runtime (the default of cuDNN's frontend).
2. 1-D convolutions are 2-D ones of height 1, as in `Convolution.cpp`.
3. The factors alpha and beta are float32, as PyTorch sets them (with float64 cuDNN leaves some engines out).
   The compute type is float32 for float32 (TF32 allowed, PyTorch's default for convolutions), bfloat16 and
   float16.
4. Engine 23 is left out of 3-D data gradients, as PyTorch leaves it out (`plan_errata_exception`).

The place of a handle can be taken by a GPU's description (`CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`): then
neither a GPU nor a driver is needed. The heuristics take 2 milliseconds, each plan a third of one. Engines
built on cuBLAS need a GPU, and a list without one lacks them. But cuDNN's log names every engine that its
heuristics ranked and this process could not use, in order: `engine_config_support_checks`, a message of
level "info". Asked for lists of several lengths, it names those before each plan; what they take is computed
(`on_cublas.py`).
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from analyzer.libraries.cudnn.convolution import HEURISTICS, PYTORCH, Plan, Question, strides_of
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
_LENGTHS = (0, 1, 4, _IN_PLACE, _MOST_RESULTS)  # of the lists asked for: most questions are for few plans
_LOG_INFO = 1 << 3  # CUDNN_SEV_INFO_EN
_SUPPORT_CHECKS, _ENGINE_ID = b"engine_config_support_checks", re.compile(rb'"engineId":(\d+)')
# Asked whether the log names unusable engines: without a GPU the one that multiplies matrices is always.
_PRODUCT = Question(
    PYTORCH, "forward", "float32", False, (8, 64, 32, 32), (64, 64, 1, 1), (8, 64, 32, 32),
    (0, 0), (1, 1), (1, 1),
)  # fmt: skip


class CudnnError(RuntimeError):
    """cuDNN refused a call."""


class Cudnn:
    """A cuDNN handle (or, without a GPU, a device's description) and the questions it answers.

    library: path of `libcudnn.so.9`, or that library, loaded; None finds the one PyTorch's wheels bring, then
    the system's.
    device_json: a GPU's description as `device_json()` gives it on a machine that has one; with it no GPU is
    needed. Raises CudnnError where cuDNN knows no such descriptor (before 9.2) or refuses the device.
    """

    def __init__(self, library: str | ctypes.CDLL | None = None, device_json: str | None = None) -> None:
        if not isinstance(library, ctypes.CDLL):
            library = ctypes.CDLL(library or _beside_torch(), mode=ctypes.RTLD_GLOBAL)
        self._lib = library
        self._handle = ctypes.c_void_p()
        self._device: ctypes.c_void_p | None = None
        self._open: list[ctypes.c_void_p] = []
        self._unusable: list[int] = []
        self._log = _Callback(self._read_log)
        if device_json is None:
            self._check(self._lib.cudnnCreate(ctypes.byref(self._handle)), "cudnnCreate")
        else:
            self._device = self._create(Descriptor.DEVICEPROP)
            self._set(
                self._device,
                Attribute.DEVICEPROP_JSON_REPRESENTATION,
                Kind.CHAR,
                list(device_json.encode() + b"\0"),
            )
            self._finalize(self._device)
            self._open.clear()

    @property
    def version(self) -> int:
        """Return cuDNN's version number: 91900 is 9.19.0."""
        self._lib.cudnnGetVersion.restype = ctypes.c_size_t
        return int(self._lib.cudnnGetVersion())

    def ranks_unusable(self) -> bool:
        """Return whether plans include engines that only a process with a GPU can use, in their places."""
        if self._device is None:
            return True
        return any(configuration is None for configuration, _ in self._configurations(_PRODUCT))

    def device_json(self, device: int = 0) -> str:
        """cuDNN's own description of a GPU of this machine, which another machine can use in its place."""
        descriptor = self._create(Descriptor.DEVICEPROP)
        self._set(descriptor, Attribute.DEVICEPROP_DEVICE_ID, Kind.INT32, [device])
        self._finalize(descriptor)
        count = self._read(descriptor, Attribute.DEVICEPROP_JSON_REPRESENTATION, Kind.CHAR, 0, None)
        text = (ctypes.c_char * (count or 0))()
        self._read(descriptor, Attribute.DEVICEPROP_JSON_REPRESENTATION, Kind.CHAR, len(text), text)
        self._close(0)
        return text.value.decode()

    def plans(self, question: Question) -> Iterator[Plan]:
        """Yield the plans that can be built, in the order they are tried; on a GPU, also those on cuBLAS.

        Each is built when it is asked for.
        """
        mark = len(self._open)
        on_cublas = {plan.engine: plan for plan in plans_on_cublas(question.convolution()).values()}
        try:
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
                    told = index in ENGINES[question.operation] or is_compiled(question.operation, index)
                    knobs = self._knobs(configuration) if told else ()
                    yield Plan(index, nbytes, _NONDETERMINISTIC not in notes, _TENSOR_CORE in notes, knobs)
        finally:
            self._close(mark)

    def candidates(
        self, question: Question, unbuilt: Collection[int] = ()
    ) -> Iterator[tuple[int, tuple[tuple[int, int], ...], int | None]]:
        """Engine, knobs and bytes of workspace (None: it cannot be built) of every configuration, unfiltered.

        unbuilt: engines whose plans are not built.
        """
        mark = len(self._open)
        try:
            for configuration, engine in self._configurations(question):
                if configuration is None:
                    continue
                index = self._get(engine, Attribute.ENGINE_GLOBAL_INDEX)
                nbytes = None if index in unbuilt else self._workspace_bytes(configuration)
                yield index, self._knobs(configuration), nbytes
        finally:
            self._close(mark)

    def _configurations(self, question: Question) -> Iterator[tuple[ctypes.c_void_p | None, Any]]:
        """Yield every (configuration, engine) the heuristics rank; (None, its index) for an engine that this
        process, without a GPU, cannot use."""
        graph = self._graph(question)
        for mode in HEURISTICS[question.searcher]:
            heuristic = self._create(Descriptor.ENGINEHEUR)
            self._set(heuristic, Attribute.ENGINEHEUR_OPERATION_GRAPH, Kind.BACKEND_DESCRIPTOR, [graph.value])
            self._set(heuristic, Attribute.ENGINEHEUR_MODE, Kind.HEUR_MODE, [mode])
            if self._device is not None:
                self._set(
                    heuristic, Attribute.ENGINEHEUR_DEVICEPROP, Kind.BACKEND_DESCRIPTOR, [self._device.value]
                )
            if self._lib.cudnnBackendFinalize(heuristic) == 0:
                yield from self._ranked(heuristic, _IN_PLACE if question.whole else _MOST_RESULTS)

    def _ranked(
        self, heuristic: ctypes.c_void_p, in_place: int
    ) -> Iterator[tuple[ctypes.c_void_p | None, Any]]:
        """Yield a heuristic's results in order, and between them the engines the log calls unusable: of the
        first `in_place` exactly where they stand, later ones before those they were named with.

        A list of the first n results names the unusable before them, so of two lengths that name the same
        none stands between.
        """
        lists: dict[int, tuple[list[ctypes.c_void_p], list[int]]] = {0: ([], [])}

        def first(most: int) -> tuple[list[ctypes.c_void_p], list[int]]:
            if most not in lists:
                self._unusable.clear()
                lists[most] = self._results(heuristic, most), list(self._unusable)
            return lists[most]

        def between(low: int, high: int) -> Iterator[tuple[ctypes.c_void_p | None, Any]]:
            """Yield what is in the first `high` and not in the first `low`."""
            before, (found, unusable) = lists[low][1], first(high)
            if high - low > 1 and len(unusable) > len(before) and high <= in_place:
                middle = (low + high) // 2
                yield from between(low, middle)
                yield from between(middle, high)
                return
            yield from ((None, index) for index in unusable[len(before) :])
            for configuration in found[low:]:
                (engine,) = self._list(configuration, Attribute.ENGINECFG_ENGINE, Descriptor.ENGINE, 1)
                yield configuration, engine

        lengths = _LENGTHS if self._device else (0, _MOST_RESULTS)
        for low, high in pairwise(lengths):
            yield from between(low, high)
            if len(first(high)[0]) < high:
                return

    def _results(self, heuristic: ctypes.c_void_p, most: int) -> list[ctypes.c_void_p]:
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

    def _workspace_bytes(self, configuration: ctypes.c_void_p) -> int | None:
        """Return the workspace bytes of the configuration's plan; None if it cannot be built."""
        plan = self._create(Descriptor.EXECUTION_PLAN)
        if self._device is None:
            self._set(plan, Attribute.EXECUTION_PLAN_HANDLE, Kind.HANDLE, [self._handle.value])
        else:
            self._set(
                plan, Attribute.EXECUTION_PLAN_DEVICEPROP, Kind.BACKEND_DESCRIPTOR, [self._device.value]
            )
        self._set(
            plan, Attribute.EXECUTION_PLAN_ENGINE_CONFIG, Kind.BACKEND_DESCRIPTOR, [configuration.value]
        )
        if self._lib.cudnnBackendFinalize(plan) != 0:
            return None
        return self._get(plan, Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)

    def _graph(self, question: Question) -> ctypes.c_void_p:
        """Build the operation graph of one convolution; return its descriptor."""
        names = CONVOLUTIONS[question.operation]
        tensors = []
        for uid, shape in zip(b"xwy", (question.x_shape, question.w_shape, question.y_shape), strict=True):
            tensor = self._create(Descriptor.TENSOR)
            self._set(tensor, Attribute.TENSOR_DATA_TYPE, Kind.DATA_TYPE, [DTYPES[question.dtype]])
            self._set(tensor, Attribute.TENSOR_DIMENSIONS, Kind.INT64, shape)
            self._set(tensor, Attribute.TENSOR_STRIDES, Kind.INT64, strides_of(shape, question.channels_last))
            self._set(tensor, Attribute.TENSOR_UNIQUE_ID, Kind.INT64, [uid])
            self._set(
                tensor,
                Attribute.TENSOR_BYTE_ALIGNMENT,
                Kind.INT64,
                [32 if question.searcher == PYTORCH else 16],
            )
            self._finalize(tensor)
            tensors.append(tensor)
        conv = self._create(Descriptor.CONVOLUTION)
        compute = "float64" if question.dtype == "float64" else "float32"
        self._set(conv, Attribute.CONVOLUTION_COMP_TYPE, Kind.DATA_TYPE, [DTYPES[compute]])
        self._set(conv, Attribute.CONVOLUTION_CONV_MODE, Kind.CONVOLUTION_MODE, [1])
        self._set(conv, Attribute.CONVOLUTION_SPATIAL_DIMS, Kind.INT64, [len(question.stride)])
        for name, values in (
            (Attribute.CONVOLUTION_DILATIONS, question.dilation),
            (Attribute.CONVOLUTION_FILTER_STRIDES, question.stride),
            (Attribute.CONVOLUTION_PRE_PADDINGS, question.padding),
            (Attribute.CONVOLUTION_POST_PADDINGS, question.padding),
        ):
            self._set(conv, name, Kind.INT64, values)
        self._finalize(conv)
        operation = self._create(names.descriptor)
        parts = (names.x, names.w, names.y, names.convolution)
        for name, descriptor in zip(parts, (*tensors, conv), strict=True):
            self._set(operation, name, Kind.BACKEND_DESCRIPTOR, [descriptor.value])
        self._set(operation, names.alpha, Kind.FLOAT, [1.0])
        self._set(operation, names.beta, Kind.FLOAT, [0.0])
        self._finalize(operation)
        graph = self._create(Descriptor.OPERATIONGRAPH)
        if self._device is None:
            self._set(graph, Attribute.OPERATIONGRAPH_HANDLE, Kind.HANDLE, [self._handle.value])
        self._set(graph, Attribute.OPERATIONGRAPH_OPS, Kind.BACKEND_DESCRIPTOR, [operation.value])
        self._finalize(graph)
        return graph

    def _knobs(self, configuration: ctypes.c_void_p) -> tuple[tuple[int, int], ...]:
        """Return the configuration's knobs: (type, value), types as `cudnnBackendKnobType_t` has them."""
        found = []
        for choice in self._list(
            configuration, Attribute.ENGINECFG_KNOB_CHOICES, Descriptor.KNOB_CHOICE, _MOST_KNOBS
        ):
            kind = ctypes.c_int(0)
            self._read(choice, Attribute.KNOB_CHOICE_KNOB_TYPE, Kind.KNOB_TYPE, 1, ctypes.byref(kind))
            found.append((kind.value, self._get(choice, Attribute.KNOB_CHOICE_KNOB_VALUE)))
        return tuple(found)

    def _notes(self, engine: ctypes.c_void_p) -> frozenset[int]:
        """Return the engine's numerical notes."""
        notes = (ctypes.c_int * _MOST_NOTES)()
        count = self._read(engine, Attribute.ENGINE_NUMERICAL_NOTE, Kind.NUMERICAL_NOTE, _MOST_NOTES, notes)
        return frozenset(notes[: count or 0])

    def _list(self, descriptor: ctypes.c_void_p, name: int, kind: int, most: int) -> list[ctypes.c_void_p]:
        """Return the descriptors an attribute holds."""
        wanted = [self._create(kind) for _ in range(most)]
        array = (ctypes.c_void_p * most)(*[each.value for each in wanted])
        return wanted[: self._read(descriptor, name, Kind.BACKEND_DESCRIPTOR, most, array) or 0]

    def _get(self, descriptor: ctypes.c_void_p, name: int) -> int:
        value = ctypes.c_int64(0)
        if self._read(descriptor, name, Kind.INT64, 1, ctypes.byref(value)) is None:
            raise CudnnError(f"cuDNN does not say attribute {name}")
        return value.value

    def _read(self, descriptor: ctypes.c_void_p, name: int, kind: int, most: int, into: Any) -> int | None:
        """Read at most `most` values of an attribute; return how many it has, None if refused."""
        count = ctypes.c_int64(0)
        status = self._lib.cudnnBackendGetAttribute(
            descriptor, name, kind, ctypes.c_int64(most), ctypes.byref(count), into
        )
        return count.value if status == 0 else None

    def _create(self, kind: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._check(
            self._lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)), f"descriptor {kind}"
        )
        self._open.append(descriptor)
        return descriptor

    def _set(self, descriptor: ctypes.c_void_p, name: int, kind: int, values: Sequence[Any]) -> None:
        array = (_ELEMENTS.get(kind, ctypes.c_int) * len(values))(*values)
        self._check(
            self._lib.cudnnBackendSetAttribute(descriptor, name, kind, ctypes.c_int64(len(values)), array),
            f"attribute {name} = {list(values)[:8]}",
        )

    def _finalize(self, descriptor: ctypes.c_void_p) -> None:
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
    return question.operation == "data" and engine == 23 and len(question.x_shape) > 4


def _beside_torch() -> str:
    """Return the libcudnn of the `nvidia-cudnn-cu*` wheels PyTorch depends on, or the system's."""
    import importlib.util

    found = importlib.util.find_spec("nvidia.cudnn")
    for folder in list(found.submodule_search_locations or ()) if found else []:
        path = Path(folder) / "lib" / "libcudnn.so.9"
        if path.exists():
            return str(path)
    return "libcudnn.so.9"
