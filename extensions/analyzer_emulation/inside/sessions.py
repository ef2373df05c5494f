"""Watches ONNX Runtime's sessions in a program: memory after each session made and each request.

1. A mark is written down when `InferenceSession` is made, when one of its functions that run it returns or
   raises, and at the program's end: the arenas' statistics by their own interface (`arenas.py`), what the
   process takes of the device, and how many requests of the arenas to the device there were until then.
2. Values that the program itself puts on the device lie in an arena of Python's own, which has no session:
   their bytes are counted while they live.
3. cuDNN's plans are chosen as the session says (`cudnn_conv_algo_search`).
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from arenas import Arenas

_RUNTIME = ctypes.CDLL(None)
_CUDA = "CUDAExecutionProvider"
_RUNS = ("run", "run_with_iobinding", "run_with_ort_values", "run_with_ortvaluevector")
_MADE = ("ortvalue_from_numpy", "ortvalue_from_shape_and_type")
_SEARCH = "EXHAUSTIVE"  # the provider's default (cuda_execution_provider_info.h)
_CHUNK = 256  # bytes of the arena's smallest chunk, by which they are rounded


class _Request(ctypes.Structure):
    """As `native/inference.c` keeps it."""

    _fields_ = [("nanoseconds", ctypes.c_int64), ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


def device_requests() -> list[tuple[int, int]]:
    """Return what was asked of the device so far: address, bytes (0: it is given back)."""
    read = _RUNTIME.emulated_requests
    read.restype, count = ctypes.POINTER(_Request), ctypes.c_size_t()
    first = read(ctypes.byref(count))
    return [(first[i].address, first[i].bytes) for i in range(count.value)]


class SessionRecorder:
    """Records the sessions of the process. ours: folders whose frames are not the program's; device: whose
    memory it is; served: requests that PyTorch's allocator has served, and blocks it got back."""

    def __init__(
        self, ort: Any, ours: tuple[str, ...], device: int, served: Callable[[], tuple[int, int]]
    ) -> None:
        self._ort, self._device, self._served = ort, device, served
        self._ours = (*ours, str(Path(ort.__file__).parent), str(Path(functools.__file__).parent))
        self._sessions: list[weakref.ref[Any]] = []
        self._options: list[dict[str, str]] = []
        self._values = 0
        self._marks: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._arenas: Arenas | None = None
        _RUNTIME.emulated_note_device(1)
        _RUNTIME.emulated_used_bytes.restype = _RUNTIME.emulated_local_bytes.restype = ctypes.c_uint64
        _RUNTIME.emulated_api_base.restype = ctypes.c_void_p
        self._wrap()

    def _wrap(self) -> None:
        kind = self._ort.InferenceSession
        kind.__init__ = self._made(kind.__init__)
        for name in _RUNS:
            if hasattr(kind, name):
                setattr(kind, name, self._ran(getattr(kind, name)))
        for name in _MADE:
            function = getattr(self._ort.OrtValue, name).__func__
            setattr(self._ort.OrtValue, name, classmethod(self._put(function)))

    def _made(self, make: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(make)
        def made(session: Any, *args: Any, **keywords: Any) -> None:
            if self._arenas is None and not self._notes:
                self._open()
            _RUNTIME.emulated_search(_SEARCH.encode())
            number, error = len(self._sessions), None
            try:
                make(session, *args, **keywords)
            except Exception as raised:
                error = str(raised)
                raise
            finally:
                if error is None:
                    self._sessions.append(weakref.ref(session))
                    self._options.append(session.get_provider_options().get(_CUDA, {}))
                    on_cuda = _CUDA in session.get_providers()
                    self._mark("session", number, {"on_cuda": on_cuda, "options": self._options[number]})
                else:
                    self._mark("session", number, {"error": error})

        return made

    def _ran(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def ran(session: Any, *args: Any, **keywords: Any) -> Any:
            number = next((i for i, one in enumerate(self._sessions) if one() is session), -1)
            search = self._options[number].get("cudnn_conv_algo_search", _SEARCH) if number >= 0 else _SEARCH
            _RUNTIME.emulated_search(search.encode())
            error = None
            try:
                return run(session, *args, **keywords)
            except Exception as raised:
                error = str(raised)
                raise
            finally:
                more = {"shapes": _shapes((*args, *keywords.values()))}
                self._mark("request", number, more if error is None else {**more, "error": error})

        return ran

    def _put(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def put(kind: Any, *args: Any, **keywords: Any) -> Any:
            value = make(kind, *args, **keywords)
            with suppress(Exception):
                if value.device_name().lower() in ("cuda", "gpu"):
                    nbytes = -(-value.tensor_size_in_bytes() // _CHUNK) * _CHUNK
                    self._values += nbytes
                    weakref.finalize(value, self._gone, nbytes).atexit = False
            return value

        return put

    def _gone(self, nbytes: int) -> None:
        self._values -= nbytes

    def _open(self) -> None:
        try:
            self._arenas = Arenas(_path_of_runtime(), _RUNTIME.emulated_api_base)
        except Exception as error:
            self._notes.append(str(error))

    def _place(self) -> str:
        """Return the program's line, "file.py:12"."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((*self._ours, "<frozen")):
                return f"{Path(file).name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _mark(self, what: str, number: int, more: dict[str, Any]) -> None:
        arenas: dict[int, dict[str, int]] = {}
        owners: dict[int, list[int]] = {}
        for other, reference in enumerate(self._sessions):
            session = reference()
            if session is None or self._arenas is None:
                continue
            statistics = self._arenas.of(session, int(self._options[other].get("device_id", 0) or 0))
            if statistics:
                arenas[statistics["arena"]] = statistics
                owners.setdefault(statistics["arena"], []).append(other)
        count = ctypes.c_size_t()
        _RUNTIME.emulated_requests(ctypes.byref(count))
        self._marks.append(
            {
                "what": what,
                "session": number,
                "place": self._place(),
                "requests": count.value,
                "used": _RUNTIME.emulated_used_bytes(self._device),
                "arenas": [{**one, "sessions": owners[key]} for key, one in arenas.items()],
                "values": self._values,
                "torch": self._served(),
                **more,
            }
        )

    def close(self) -> dict[str, Any]:
        """Return the record, with a mark at the program's end."""
        self._mark("end", -1, {})
        _RUNTIME.emulated_note_device(0)
        return {
            "onnxruntime": self._ort.__version__,
            "sessions": len(self._sessions),
            "session_marks": self._marks,
            "device_requests": device_requests(),
            "session_notes": self._notes,
        }


def _path_of_runtime() -> str:
    """Return the file of the emulated runtime, which is loaded."""
    mapped = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return next(line.split()[-1] for line in mapped if "/_cuda" in line)


def _shapes(arguments: tuple[Any, ...]) -> dict[str, list[int]]:
    """Return the shapes of a request's inputs by their names, where it is given them so."""
    feeds = next((one for one in arguments if isinstance(one, dict)), {})
    shapes = {}
    for name, value in feeds.items():
        shape = getattr(value, "shape", None)
        shape = shape() if callable(shape) else shape
        if isinstance(shape, (tuple, list)):
            shapes[str(name)] = [int(size) for size in shape]
    return shapes
