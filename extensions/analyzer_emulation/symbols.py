"""Functions of CUDA's libraries that a binary wants, and those of them that the emulated runtime has not:
a loader that binds at the first call would end the program in the middle. Read from the files (ELF-64,
little-endian: elf.h), by nothing that runs them.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.errors import TargetError
from analyzer_emulation import library

# Shared libraries of NVIDIA's that the emulated runtime stands for, by the beginning of their names.
_NVIDIA = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cufft|cusolver|cusparse|cudnn|nccl|nvidia-ml)\.so(\.\d+)*"
)
_FUNCTION = re.compile(r"(__cuda|cuda|cu|cublas|cublasLt|cufft|cusolver|cusparse|cudnn|nccl|nvml)[A-Z]\w+")
_SECTIONS, _MOST_NAMES = 4096, 1 << 20
_DYNAMIC, _SYMBOLS = 6, 11  # sh_type: SHT_DYNAMIC, SHT_DYNSYM
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29  # d_tag
_FAT_BINARY, _PTX, _CODE = 0xBA55ED50, 1, 2  # as native/modules.c reads them
_MOST_LIBRARIES = 512


@dataclass(frozen=True, slots=True)
class Binary:
    """A file's dynamic part. needed: libraries, by name; folders: where it has them looked for; wanted,
    defined: names of symbols."""

    path: Path
    needed: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    wanted: frozenset[str] = field(default_factory=frozenset)
    defined: frozenset[str] = field(default_factory=frozenset)


def read(path: Path) -> Binary:
    """Read a file's dynamic part. Raises TargetError for what is no such file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(path, data)
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise TargetError(f"{path} is no program or library for Linux on x86-64: {error}") from None


def _read(path: Path, data: mmap.mmap) -> Binary:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it has no ELF header of 64 bits")
    at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    if count > _SECTIONS:
        raise ValueError(f"it has {count} sections")
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + number * size) for number in range(count)]
    needed, paths, wanted, defined = [], [], set[str](), set[str]()
    for _, kind, _, _, offset, nbytes, link, _, _, _ in sections:
        if kind not in (_DYNAMIC, _SYMBOLS):
            continue
        texts = sections[link][4]
        if kind == _DYNAMIC:
            for tag, value in _rows(data, offset, nbytes, "<qQ"):
                if tag == _NEEDED:
                    needed.append(_text(data, texts + value))
                elif tag in (_RPATH, _RUNPATH):
                    paths += _text(data, texts + value).split(":")
        else:
            for name, _, _, section, _, _ in _rows(data, offset, nbytes, "<IBBHQQ"):
                (defined if section else wanted).add(_text(data, texts + name))
    places = (
        Path(one.replace("$ORIGIN", str(path.parent)).replace("${ORIGIN}", str(path.parent)))
        for one in paths
        if one
    )
    return Binary(path, tuple(needed), tuple(places), frozenset(wanted), frozenset(defined))


def _rows(data: mmap.mmap, offset: int, nbytes: int, layout: str) -> Iterator[tuple[int, ...]]:
    size = struct.calcsize(layout)
    if nbytes // size > _MOST_NAMES:
        raise ValueError(f"it has {nbytes // size} entries")
    return (
        struct.unpack_from(layout, data, at) for at in range(offset, offset + nbytes // size * size, size)
    )


def _text(data: mmap.mmap, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    if end < 0:
        raise ValueError("a name has no end")
    return data[at:end].decode("utf-8", "replace")


def closure(paths: Iterable[Path]) -> list[Binary]:
    """Return the binaries and what they need of the folders they name, or their own: CUDA's own libraries
    and the system's are not among them. Raises TargetError."""
    reached: dict[str, Binary] = {}
    waiting = [path.resolve() for path in paths]
    while waiting and len(reached) < _MOST_LIBRARIES:
        path = waiting.pop()
        if path.name in reached:
            continue
        binary = reached[path.name] = read(path)
        for name in binary.needed:
            places = (folder / name for folder in (*binary.folders, path.parent))
            beside = next((place for place in places if place.is_file()), None)
            if beside is not None and not _NVIDIA.fullmatch(name):
                waiting.append(beside.resolve())
    return list(reached.values())


def nvidia_names(binaries: Iterable[Binary]) -> tuple[str, ...]:
    """Names under which the binaries look for CUDA's libraries."""
    return tuple(sorted({name for one in binaries for name in one.needed if _NVIDIA.fullmatch(name)}))


def missing(binaries: Iterable[Binary]) -> tuple[str, ...]:
    """Functions of CUDA's libraries that the binaries want and the emulated runtime has not. Raises
    MissingDependencyError."""
    every = list(binaries)
    there = read(library.path()).defined.union(*(one.defined for one in every))
    wanted = {name for one in every for name in one.wanted if _FUNCTION.fullmatch(name)}
    return tuple(sorted(wanted - there))


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The code in a binary that a device runs. compiled: whether it is the device's own, so that no driver
    compiles it; ptx: the newest PTX version among what a driver has to compile, (0, 0) for none."""

    compiled: bool
    ptx: tuple[int, int] = (0, 0)


def device_code(path: Path, capability: tuple[int, int]) -> DeviceCode | None:
    """Return what a device of this compute capability runs of a binary's kernels; None: it has none at all.

    A device runs code of its major version with at most its minor one, or PTX for at most its own version
    (native/modules.c).
    """
    reached, compiled, ptx = False, True, (0, 0)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(struct.pack("<I", _FAT_BINARY))
        while at >= 0:
            _, _, header, nbytes = struct.unpack_from("<IHHQ", data, at)
            end = at + header + nbytes
            if header == 16 and end <= len(data):
                own, best, version = _entries(data, at + header, end, capability)
                reached |= own or best > 0
                compiled &= own or not best
                ptx = max(ptx, (0, 0) if own else version)
            at = data.find(struct.pack("<I", _FAT_BINARY), at + 16)
    return DeviceCode(compiled, ptx) if reached else None


def _entries(
    data: mmap.mmap, at: int, end: int, capability: tuple[int, int]
) -> tuple[bool, int, tuple[int, int]]:
    """Return whether a fat binary has code for the device, the newest PTX that it can have compiled, and
    the version of that PTX."""
    device, own, best, version = capability[0] * 10 + capability[1], False, 0, (0, 0)
    while at + 64 <= end:
        kind, _, header, nbytes = struct.unpack_from("<HHIQ", data, at)
        minor, major, of = struct.unpack_from("<HHI", data, at + 24)
        own |= kind == _CODE and of // 10 == capability[0] and of <= device
        if kind == _PTX and best < of <= device:
            best, version = of, (major, minor)
        if not header:
            break
        at += header + nbytes
    return own, best, version
