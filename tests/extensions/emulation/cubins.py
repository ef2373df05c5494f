"""Binaries of kernels as the compiler lays them out, and fat binaries around them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from typing import NamedTuple

CODE, PTX = 2, 1
LZ4, ZSTD = 0x2000, 0x8000
_REGISTERS, _FRAME, _LEAST_STACK = 0x2F, 0x11, 0x12
_kept: list[object] = []


class Kernel(NamedTuple):
    """registers, local: of a thread. shared: of a block. Sizes in bytes."""

    name: str
    registers: int = 32
    shared: int = 0
    local: int = 0


class Entry(NamedTuple):
    """An entry of a fat binary. bytes: how long the code is where it is compressed."""

    kind: int
    capability: int
    code: bytes = bytes(64)
    flags: int = 0
    nbytes: int = 0


def cubin(*kernels: Kernel) -> bytes:
    """An ELF file that says so much of these kernels (`.nv.info`, `.nv.shared.NAME`)."""
    strings, symbols, info = b"\0", bytes(24), b""
    for number, kernel in enumerate(kernels, 1):
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 0, 0, 0)
        strings += kernel.name.encode() + b"\0"
        of = {_REGISTERS: kernel.registers, _FRAME: kernel.local, _LEAST_STACK: kernel.local}
        info += b"".join(struct.pack("<BBHII", 4, which, 8, number, value) for which, value in of.items())
    info += struct.pack("<BBH", 3, 0x1B, 255)  # one of another format, without a payload
    sections = [(b"", 0, b"", 0), (b".strtab", 3, strings, 0), (b".symtab", 2, symbols, 1)]
    sections += [(b".nv.info", 0x70000000, info, 2)]
    # What takes no room in the file has its size nevertheless (SHT_NOBITS).
    sections += [
        (b".nv.shared." + one.name.encode(), 8, bytes(one.shared), 0) for one in kernels if one.shared
    ]
    names = b"\0" + b"\0".join(name for name, *_ in sections) + b"\0.shstrtab\0"
    sections.append((b".shstrtab", 3, names, 0))
    body, table = b"", b""
    for name, kind, content, link in sections:
        place = 0 if not name else names.index(b"\0" + name + b"\0") + 1
        table += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, 64 + len(body), len(content), link, 0, 1, 0)
        body += b"" if kind == 8 else content
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 64 + len(body), 0)
    return head + struct.pack("<HHHHHH", 64, 0, 0, 64, len(sections), len(sections) - 1) + body + table


def fat_binary(entries: Iterable[Entry]) -> bytes:
    """A header and entries, one behind the other."""
    body = b""
    for one in entries:
        code = one.code + bytes(-len(one.code) % 8)
        packed = len(one.code) if one.flags else 0
        head = (
            one.kind,
            0,
            64,
            len(code),
            packed,
            0,
            0,
            one.capability,
            0,
            0,
            one.flags | 0x11,
            0,
            one.nbytes,
        )
        body += struct.pack("<HHIQIIIIIIQQQ", *head) + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def registered(library: ctypes.CDLL, *entries: Entry) -> ctypes.c_void_p:
    """The handle of such a binary, once a library has registered it."""
    data = ctypes.create_string_buffer(fat_binary(entries))
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(data), 0))
    _kept.extend((data, wrapper))
    register = library["__cudaRegisterFatBinary"]
    register.restype = ctypes.c_void_p
    return ctypes.c_void_p(register(ctypes.cast(wrapper, ctypes.c_void_p)))


def stub_of(library: ctypes.CDLL, handle: ctypes.c_void_p, name: str) -> ctypes.Array[ctypes.c_char]:
    """The address by which a registered kernel is known."""
    stub, own = ctypes.create_string_buffer(16), ctypes.create_string_buffer(name.encode())
    _kept.extend((stub, own))
    library["__cudaRegisterFunction"](handle, stub, None, own)
    return stub
