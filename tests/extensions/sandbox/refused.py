"""Runs a command where no namespaces are allowed, as in most containers, or (`neither`) no Landlock either:
python refused.py [neither] COMMAND. (A filter of seccomp(2) answers the system calls with EPERM.)"""

import ctypes
import os
import struct
import sys

UNSHARE = {"x86_64": 272, "aarch64": 97}
LANDLOCK = 444  # landlock_create_ruleset(2), on every architecture
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN, EPERM, ALLOW = 0x20, 0x15, 0x06, 0x00050001, 0x7FFF0000


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [UNSHARE[os.uname().machine]]
    if words[0] == "neither":
        words.pop(0)
        numbers.append(LANDLOCK)
    tests = [(JUMP_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps = ((LOAD, 0, 0, 0), *tests, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM))
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0):
        raise SystemExit("seccomp is refused")
    os.execvp(words[0], words)
