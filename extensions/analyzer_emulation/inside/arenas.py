"""Statistics of ONNX Runtime's arenas, by its own C interface (`OrtApi::AllocatorGetStats`, since 1.23).

1. A library of custom operators is told where the interface lies (`RegisterCustomOps`); `native/inference.c`
   is one, without operators.
2. What Python has of a session leads to the session itself: the objects' own type information says which
   word it is.
3. The functions' places in the interface never change (onnxruntime_c_api.h; the assertions in
   onnxruntime_c_api.cc: 101 is ReleaseCustomOpDomain, 317 GetEpApi).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

_CREATE_MEMORY_INFO, _RELEASE_STATUS, _RELEASE_MEMORY_INFO = 68, 93, 94
_CREATE_ALLOCATOR, _RELEASE_ALLOCATOR = 131, 132
_KEY_VALUES, _RELEASE_KEY_VALUES, _STATISTICS = 298, 300, 319
_RETURN_NOTHING = (_RELEASE_ALLOCATOR, _RELEASE_MEMORY_INFO, _KEY_VALUES, _RELEASE_KEY_VALUES)
_VERSION = 23  # of the interface, the first with AllocatorGetStats
_PYBIND_VALUE = 16  # behind an object's counter and type (pybind11, detail/common.h: instance)
_WORDS = 24  # of an object in which another is looked for
_ARENA, _DEFAULT = 1, 0  # OrtArenaAllocator, OrtMemTypeDefault
_POINTER = ctypes.c_void_p


class _Memory:
    """This process's memory, of which any address may be read: None where nothing lies."""

    def __init__(self) -> None:
        self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def words(self, address: int, count: int) -> tuple[int, ...]:
        try:
            read = os.pread(self._file, 8 * count, address) if 0 < address < 1 << 47 else b""
        except OSError:
            return ()
        return tuple(int.from_bytes(read[at : at + 8], "little") for at in range(0, len(read) - 7, 8))

    def kind(self, address: int) -> str:
        """The name of an object's type, "" for what is none: its first word is that of a table of functions,
        behind the type's (Itanium C++ ABI, 2.5.2)."""
        for table in self.words(address, 1):
            for info in self.words(table - 8, 1):
                for name in self.words(info, 2)[1:]:
                    text = b"".join(word.to_bytes(8, "little") for word in self.words(name, 10))
                    return text.partition(b"\0")[0].decode("ascii", "replace")
        return ""

    def within(self, address: int, suffix: str) -> int:
        """The address of an object with such a type, among the first words of another; 0: there is none."""
        for word in self.words(address, _WORDS):
            if word % 8 == 0 and self.kind(word).endswith(suffix):
                return word
        return 0


class Arenas:
    """The CUDA arenas of sessions. library: of custom operators; base: reads from it where `OrtApiBase`
    lies."""

    def __init__(self, library: str, base: Callable[[], int]) -> None:
        """Raises where this ONNX Runtime has no such interface."""
        import onnxruntime as ort

        major, minor = (int(number) for number in ort.__version__.split(".")[:2])
        if (major, minor) < (1, _VERSION):
            raise LookupError(f"ONNX Runtime {ort.__version__} has no statistics of its arenas")
        ort.SessionOptions().register_custom_ops_library(library)
        get = _POINTER.from_address(base()).value or 0
        self._api = ctypes.CFUNCTYPE(_POINTER, ctypes.c_uint32)(get)(_VERSION)
        self._memory = _Memory()

    def _call(self, place: int, *arguments: Any) -> None:
        """Call a function that returns nothing, or a status: null, or an error, which is raised."""
        types = (_POINTER if not isinstance(one, int) else ctypes.c_int for one in arguments)
        address = _POINTER.from_address(self._api + 8 * place).value or 0
        status = ctypes.CFUNCTYPE(_POINTER, *types)(address)(*arguments)
        if status and place not in _RETURN_NOTHING:
            release = _POINTER.from_address(self._api + 8 * _RELEASE_STATUS).value or 0
            ctypes.CFUNCTYPE(None, _POINTER)(release)(status)
            raise LookupError("ONNX Runtime gives no statistics of this arena")

    def of(self, session: Any, device: int = 0) -> dict[str, int]:
        """Return the statistics of a session's arena (InUse, MaxInUse, TotalAllocated, Limit, NumReserves,
        ...) and "arena", which is the same for those that share it; {} where there is none."""
        (value,) = self._memory.words(id(session._sess) + _PYBIND_VALUE, 1) or (0,)
        own = self._memory.within(value, "16InferenceSessionE")
        if not own:
            return {}
        info, allocator = _POINTER(), _POINTER()
        self._call(
            _CREATE_MEMORY_INFO, ctypes.c_char_p(b"Cuda"), _ARENA, device, _DEFAULT, ctypes.byref(info)
        )
        try:
            self._call(_CREATE_ALLOCATOR, _POINTER(own), info, ctypes.byref(allocator))
            try:
                return self._statistics(allocator)
            finally:
                self._call(_RELEASE_ALLOCATOR, allocator)
        except LookupError:
            return {}
        finally:
            self._call(_RELEASE_MEMORY_INFO, info)

    def _statistics(self, allocator: ctypes.c_void_p) -> dict[str, int]:
        pairs, keys, values, count = _POINTER(), _POINTER(), _POINTER(), ctypes.c_size_t()
        self._call(_STATISTICS, allocator, ctypes.byref(pairs))
        try:
            out = (ctypes.byref(one) for one in (keys, values, count))
            self._call(_KEY_VALUES, pairs, *out)
            texts = [ctypes.cast(one, ctypes.POINTER(ctypes.c_char_p)) for one in (keys, values)]
            read = {(texts[0][i] or b"").decode(): int(texts[1][i] or 0) for i in range(count.value)}
        finally:
            self._call(_RELEASE_KEY_VALUES, pairs)
        shared = self._memory.within(allocator.value or 0, "ArenaE") if read else 0
        return {**read, "arena": shared or (allocator.value or 0)} if read else {}
