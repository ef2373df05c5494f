"""Runs a command where no namespaces are allowed, as in most containers: python refused.py COMMAND. (A filter of seccomp(2) answers
unshare(2) with EPERM.)"""

import ctypes
import os
import struct
import sys

UNSHARE = {"x86_64": 272, "aarch64": 97}
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN, EPERM, ALLOW = 0x20, 0x15, 0x06, 0x00050001, 0x7FFF0000


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


if __name__ == "__main__":
    steps = (
        (LOAD, 0, 0, 0),
        (JUMP_EQUAL, 0, 1, UNSHARE[os.uname().machine]),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    )
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0):
        raise SystemExit("seccomp is refused")
    os.execvp(sys.argv[1], sys.argv[1:])
