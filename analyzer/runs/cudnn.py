"""Ask cuDNN what it would do: the plans PyTorch would try for one convolution and their workspaces, without running it.

PyTorch describes the convolution to cuDNN's backend API and takes the engine configurations of `CUDNN_HEUR_MODE_INSTANT`,
then those of the fallback list. It drops those that convert inputs to a narrower type, in deterministic mode those noted
as not deterministic, and for float32 without TF32 those on tensor cores; with benchmark off the first whose plan can be
built runs. This module makes the same calls through `ctypes`, up to the plans' workspace sizes:

1. Tensors are described by shape, strides of the memory format, type and an alignment of 32 bytes (what allocator
   blocks have).
2. 1-D convolutions are 2-D ones of height 1, as in `Convolution.cpp`.
3. The factors alpha and beta are float32, as PyTorch sets them (with float64 cuDNN leaves some engines out). The
   compute type is float32 for float32 (TF32 allowed, PyTorch's default for convolutions), bfloat16 and float16.
4. Engine 23 is left out of 3-D data gradients, as PyTorch leaves it out (`plan_errata_exception`).

Nothing is launched and no tensor is allocated: the heuristics take some milliseconds, each plan another one or two.
Not modelled: a plan that builds but fails when it runs (PyTorch then goes on to the next).
Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`get_generator_sources`, `filterEngineConfigs`, `run_single_conv`);
the enumerators: `cudnn_graph.h` of cuDNN 9.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.libraries.cudnn.answers import CudnnPlan
from analyzer.libraries.cudnn.splits import SPLIT_ENGINES
from analyzer.libraries.cudnn.table import Convolution, strides_of

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
_HANDLE, _DATA_TYPE, _INT64, _FLOAT, _MODE, _HEUR, _NOTE, _DESCRIPTOR, _CHAR = 0, 1, 3, 4, 7, 8, 11, 15, 24
_CONVOLUTION, _ENGINE, _ENGINECFG, _HEURISTIC, _PLAN, _GRAPH, _TENSOR, _DEVICE = 1, 2, 3, 4, 5, 15, 17, 38
_OPERATIONS = {"forward": (10, 704, 703, 705, 702, 700, 701), "data": (12, 710, 709, 711, 708, 706, 707)}
_OPERATIONS["weight"] = (11, 716, 715, 717, 714, 712, 713)
_INSTANT, _FALLBACK = 0, 2
_TENSOR_CORE, _DOWN_CONVERT, _NONDETERMINISTIC = 0, 1, 4
_ALIGNMENT_BYTES = 32
_RESULTS_MAX = 128
_KNOB, _KNOB_TYPE, _KNOBS_MAX = 7, 9, 32


class CudnnError(RuntimeError):
    """cuDNN refused a call."""


class Cudnn:
    """A cuDNN handle (or, without a GPU, a device's properties) and the queries it answers.

    library: path of `libcudnn.so.9`, or that library, loaded; None finds the one PyTorch's wheels bring, then the system's.
    device_json: properties of a device as `device_json()` gave them elsewhere; with it no GPU is needed.
    """

    def __init__(self, library: str | ctypes.CDLL | None = None, device_json: str | None = None) -> None:
        if not isinstance(library, ctypes.CDLL):
            library = ctypes.CDLL(library or _find_library(), mode=ctypes.RTLD_GLOBAL)
        self._lib = library
        self._handle = ctypes.c_void_p()
        self._device: ctypes.c_void_p | None = None
        self._open: list[ctypes.c_void_p] = []
        if device_json is None:
            self._check(self._lib.cudnnCreate(ctypes.byref(self._handle)), "cudnnCreate")
        else:
            self._device = self._create(_DEVICE)
            text = device_json.encode() + b"\0"
            self._set(self._device, 2702, _CHAR, ctypes.c_char, list(text))
            self._finalize(self._device)
            self._open.clear()

    @property
    def version(self) -> int:
        """As cuDNN says it: 91900 is 9.19.0."""
        self._lib.cudnnGetVersion.restype = ctypes.c_size_t
        return int(self._lib.cudnnGetVersion())

    def device_json(self, device: int = 0) -> str:
        """cuDNN's own description of a GPU, which another machine can use in its place."""
        descriptor = self._create(_DEVICE)
        self._set(descriptor, 2700, 23, ctypes.c_int32, [device])
        self._finalize(descriptor)
        count = ctypes.c_int64(0)
        self._check(
            self._lib.cudnnBackendGetAttribute(
                descriptor, 2702, _CHAR, ctypes.c_int64(0), ctypes.byref(count), None
            ),
            "size of the device description",
        )
        text = (ctypes.c_char * count.value)()
        self._check(
            self._lib.cudnnBackendGetAttribute(
                descriptor, 2702, _CHAR, ctypes.c_int64(count.value), ctypes.byref(count), text
            ),
            "device description",
        )
        self._close(0)
        return text.value.decode()

    def plans(self, convolution: Convolution, known: Mapping[int, int] | None = None) -> Iterator[CudnnPlan]:
        """The plans that can be built, in the order PyTorch tries them; none: PyTorch raises an error.

        Each is built when it is asked for: a millisecond or two, but tens of them where an engine's code is compiled.
        known: bytes of workspace by engine, of engines whose plans need not be built to know them.
        """
        mark = len(self._open)
        try:
            graph = self._graph(convolution)
            for mode in (_INSTANT, _FALLBACK):
                for configuration in self._configurations(graph, mode):
                    engine = self._engine(configuration)
                    index, notes = self._get(engine, 1301), self._notes(engine)
                    if _DOWN_CONVERT in notes or _is_errata(convolution, index):
                        continue
                    nbytes = known.get(index) if known else None
                    if nbytes is None:
                        nbytes = self._workspace_bytes(configuration)
                    if nbytes is not None:
                        split = index in SPLIT_ENGINES[convolution.operation]
                        knobs = self._knobs(configuration) if split else ()
                        yield CudnnPlan(
                            index, nbytes, _NONDETERMINISTIC not in notes, _TENSOR_CORE in notes, knobs
                        )
        finally:
            self._close(mark)

    def _workspace_bytes(self, configuration: ctypes.c_void_p) -> int | None:
        """What the configuration's plan takes; None where it cannot be built."""
        plan = self._create(_PLAN)
        if self._device is None:
            self._set(plan, 400, _HANDLE, ctypes.c_void_p, [self._handle.value])
        else:
            self._set(plan, 407, _DESCRIPTOR, ctypes.c_void_p, [self._device.value])
        self._set(plan, 401, _DESCRIPTOR, ctypes.c_void_p, [configuration.value])
        return self._get(plan, 402) if self._lib.cudnnBackendFinalize(plan) == 0 else None

    def _graph(self, call: Convolution) -> ctypes.c_void_p:
        kind, x_name, w_name, y_name, conv_name, alpha, beta = _OPERATIONS[call.operation]
        tensors = []
        shapes = (call.x_shape, call.w_shape, call.y_shape)
        for uid, shape in zip(b"xwy", shapes, strict=True):
            tensor = self._create(_TENSOR)
            self._set(tensor, 901, _DATA_TYPE, ctypes.c_int, [DTYPES[call.dtype]])
            self._set(tensor, 902, _INT64, ctypes.c_int64, shape)
            self._set(tensor, 903, _INT64, ctypes.c_int64, strides_of(shape, call.channels_last))
            self._set(tensor, 906, _INT64, ctypes.c_int64, [uid])
            self._set(tensor, 900, _INT64, ctypes.c_int64, [_ALIGNMENT_BYTES])
            self._finalize(tensor)
            tensors.append(tensor)
        conv = self._create(_CONVOLUTION)
        compute = "float64" if call.dtype == "float64" else "float32"
        self._set(conv, 100, _DATA_TYPE, ctypes.c_int, [DTYPES[compute]])
        self._set(conv, 101, _MODE, ctypes.c_int, [1])
        self._set(conv, 106, _INT64, ctypes.c_int64, [len(call.stride)])
        self._set(conv, 102, _INT64, ctypes.c_int64, call.dilation)
        self._set(conv, 103, _INT64, ctypes.c_int64, call.stride)
        self._set(conv, 105, _INT64, ctypes.c_int64, call.padding)
        self._set(conv, 104, _INT64, ctypes.c_int64, call.padding)
        self._finalize(conv)
        operation = self._create(kind)
        for name, descriptor in zip((x_name, w_name, y_name, conv_name), (*tensors, conv), strict=True):
            self._set(operation, name, _DESCRIPTOR, ctypes.c_void_p, [descriptor.value])
        self._set(operation, alpha, _FLOAT, ctypes.c_float, [1.0])
        self._set(operation, beta, _FLOAT, ctypes.c_float, [0.0])
        self._finalize(operation)
        graph = self._create(_GRAPH)
        if self._device is None:
            self._set(graph, 800, _HANDLE, ctypes.c_void_p, [self._handle.value])
        self._set(graph, 801, _DESCRIPTOR, ctypes.c_void_p, [operation.value])
        self._finalize(graph)
        return graph

    def _configurations(self, graph: ctypes.c_void_p, mode: int) -> list[ctypes.c_void_p]:
        heuristic = self._create(_HEURISTIC)
        self._set(heuristic, 201, _DESCRIPTOR, ctypes.c_void_p, [graph.value])
        self._set(heuristic, 200, _HEUR, ctypes.c_int, [mode])
        if self._device is not None:
            self._set(heuristic, 204, _DESCRIPTOR, ctypes.c_void_p, [self._device.value])
        if self._lib.cudnnBackendFinalize(heuristic) != 0:
            return []
        wanted = [self._create(_ENGINECFG) for _ in range(_RESULTS_MAX)]
        array = (ctypes.c_void_p * _RESULTS_MAX)(*[w.value for w in wanted])
        count = ctypes.c_int64(0)
        status = self._lib.cudnnBackendGetAttribute(
            heuristic, 202, _DESCRIPTOR, ctypes.c_int64(_RESULTS_MAX), ctypes.byref(count), array
        )
        return wanted[: count.value] if status == 0 else []

    def _knobs(self, configuration: ctypes.c_void_p) -> tuple[tuple[int, int], ...]:
        """The configuration's knobs: (type, value), types as `cudnnBackendKnobType_t` has them."""
        wanted = [self._create(_KNOB) for _ in range(_KNOBS_MAX)]
        array = (ctypes.c_void_p * _KNOBS_MAX)(*[w.value for w in wanted])
        count = ctypes.c_int64(0)
        self._lib.cudnnBackendGetAttribute(
            configuration, 302, _DESCRIPTOR, ctypes.c_int64(_KNOBS_MAX), ctypes.byref(count), array
        )
        found = []
        for choice in wanted[: count.value]:
            kind, one = ctypes.c_int(0), ctypes.c_int64(0)
            self._lib.cudnnBackendGetAttribute(
                choice, 600, _KNOB_TYPE, ctypes.c_int64(1), ctypes.byref(one), ctypes.byref(kind)
            )
            found.append((kind.value, self._get(choice, 601)))
        return tuple(found)

    def _engine(self, configuration: ctypes.c_void_p) -> ctypes.c_void_p:
        engine = self._create(_ENGINE)
        array = (ctypes.c_void_p * 1)(engine.value)
        count = ctypes.c_int64(0)
        self._check(
            self._lib.cudnnBackendGetAttribute(
                configuration, 300, _DESCRIPTOR, ctypes.c_int64(1), ctypes.byref(count), array
            ),
            "engine of a configuration",
        )
        return engine

    def _notes(self, engine: ctypes.c_void_p) -> frozenset[int]:
        """The engine's numerical notes."""
        notes = (ctypes.c_int * 16)()
        count = ctypes.c_int64(0)
        status = self._lib.cudnnBackendGetAttribute(
            engine, 1303, _NOTE, ctypes.c_int64(16), ctypes.byref(count), notes
        )
        return frozenset(notes[: count.value]) if status == 0 else frozenset()

    def _get(self, descriptor: ctypes.c_void_p, name: int) -> int:
        value, count = ctypes.c_int64(0), ctypes.c_int64(0)
        self._check(
            self._lib.cudnnBackendGetAttribute(
                descriptor, name, _INT64, ctypes.c_int64(1), ctypes.byref(count), ctypes.byref(value)
            ),
            f"attribute {name}",
        )
        return value.value

    def _create(self, kind: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._check(
            self._lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)), f"descriptor {kind}"
        )
        self._open.append(descriptor)
        return descriptor

    def _set(
        self, descriptor: ctypes.c_void_p, name: int, kind: int, element: Any, values: Sequence[Any]
    ) -> None:
        array = (element * len(values))(*values)
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


def _is_errata(call: Convolution, engine: int) -> bool:
    """Whether PyTorch leaves the engine out (`hardcoded_errata_json_handle_3d`; its other rules are for other versions)."""
    return call.operation == "data" and engine == 23 and len(call.x_shape) > 4


def _find_library() -> str:
    """The libcudnn of the `nvidia-cudnn-cu*` wheels PyTorch depends on, or the system's."""
    import importlib.util

    found = importlib.util.find_spec("nvidia.cudnn")
    for folder in list(found.submodule_search_locations or ()) if found else []:
        path = Path(folder) / "lib" / "libcudnn.so.9"
        if path.exists():
            return str(path)
    return "libcudnn.so.9"
