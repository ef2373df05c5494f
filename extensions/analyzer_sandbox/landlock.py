"""A process that may write in its own overlay's folder and nowhere else (Linux's Landlock, which an ordinary
user may ask for).

1. The kernel refuses (EACCES) to write, make, rename or remove a file elsewhere, also in
   libraries in C, and in whatever the process starts. /dev and /proc can be written.
2. It cannot be taken back: it is asked for in processes that run the program, or that the program starts.

Source: `landlock(7)`; `include/uapi/linux/landlock.h`. Not modelled: modes and times of files, addresses of
connections (`supervision.py`); kernels before 5.13; what a kernel's version does not know yet (renaming into
another folder before 5.19, truncating before 6.2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_NO_NEW_PRIVS, _VERSION, _PATH_BENEATH = 38, 1, 1
# WRITE_FILE; REMOVE_DIR, REMOVE_FILE, MAKE_CHAR to MAKE_SYM; then REFER (version 2) and TRUNCATE (version 3).
_WRITES = 1 << 1 | sum(1 << bit for bit in range(4, 13))
_SINCE = {2: 1 << 13, 3: 1 << 14}


class Ruleset:
    """Landlock rules, ready to be enforced. Raises OSError if the kernel has no Landlock."""

    def __init__(self, writable: Sequence[str]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        version = self._call(_CREATE, None, ctypes.c_size_t(0), _VERSION)
        rights = _WRITES | sum(right for since, right in _SINCE.items() if version >= since)
        handled = struct.pack("Q", rights)
        self.descriptor = self._call(_CREATE, handled, ctypes.c_size_t(len(handled)), 0)
        for folder in writable:
            opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                self._call(_ADD, self.descriptor, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0)
            finally:
                os.close(opened)

    def restrict(self) -> None:
        """Enforce the rules on this thread and its children. Raises OSError."""
        if self._libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(errno.EPERM, "no_new_privs is refused")
        self._call(_RESTRICT, self.descriptor, 0)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._libc.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed), "landlock")
        return result
