"""A GGUF file's header, and a copy of it whose weights are a hole: llama.cpp loads one as it loads the
file, and nothing of the weights is read or written.

Files come from strangers: sizes, counts and strings are bounded before anything is made of them.

Source: ggml/include/gguf.h (the layout), ggml/src/ggml-common.h (bytes of a block), docs/gguf.md of
llama.cpp v0.5.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from analyzer.errors import TargetError

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_MOST_TENSORS = _MOST_KEYS = 1 << 17
_LONGEST_NAME, _LONGEST_TEXT, _MOST_ELEMENTS = 1 << 10, 1 << 24, 1 << 24
_LARGEST_HEADER = 1 << 28
_LARGEST_FILE = 1 << 46
_DIMENSIONS = 4  # GGML_MAX_DIMS
# enum gguf_type
_NUMBERS = ["<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", "text", "array", "<Q", "<q", "<d"]
_TEXT, _ARRAY = 8, 9
_KEPT_ELEMENTS = 64
# Elements and bytes of a block, by the number of its type (enum ggml_type).
BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
    42: (64, 18),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as the header names it; offset: in the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        elements, nbytes = BLOCKS[self.kind]
        return prod(self.shape) // elements * nbytes


@dataclass(frozen=True, slots=True)
class Header:
    """A header. values: by key, of long arrays their length; start: where the data begins; nbytes: of the
    whole file."""

    path: Path
    values: dict[str, Any]
    tensors: tuple[Tensor, ...]
    start: int
    nbytes: int

    def model(self, name: str) -> Any:
        """Return a value of the model's architecture, None where there is none."""
        return self.values.get(f"{self.values.get('general.architecture')}.{name}")

    @property
    def parts(self) -> int:
        """Files that the model is split into."""
        count = self.values.get("split.count", 1)
        return count if isinstance(count, int) else 1


class _Reader:
    """Reads numbers and texts of a file, within bounds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def at(self) -> int:
        return self._file.tell()

    def read(self, count: int) -> bytes:
        if self.at() + count > _LARGEST_HEADER:
            raise ValueError(f"its header has more than {_LARGEST_HEADER >> 20} MiB")
        contents = self._file.read(count)
        if len(contents) < count:
            raise ValueError("it ends within its header")
        return contents

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.read(struct.calcsize(layout)))[0]

    def count(self, most: int, name: str) -> int:
        contents = int(self.number("<Q"))
        if contents > most:
            raise ValueError(f"it says it has {contents:,} {name}")
        return contents

    def text(self, longest: int) -> str:
        return self.read(self.count(longest, "bytes in one text")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text(_LONGEST_TEXT)
        if kind == _ARRAY:
            return self._array()
        if kind >= len(_NUMBERS):
            raise ValueError(f"a value has type {kind}, of which there is none")
        return self.number(_NUMBERS[kind])

    def _array(self) -> Any:
        kind, count = self.number("<I"), self.count(_MOST_ELEMENTS, "elements in one array")
        if kind == _TEXT:
            for _ in range(count):
                self.read(self.count(_LONGEST_TEXT, "bytes in one text"))
            return count
        if kind == _ARRAY or kind >= len(_NUMBERS):
            raise ValueError(f"an array has elements of type {kind}")
        size = struct.calcsize(_NUMBERS[kind])
        content = self.read(size * count)
        if count > _KEPT_ELEMENTS * 16:
            return count
        return [struct.unpack_from(_NUMBERS[kind], content, size * number)[0] for number in range(count)]


def read(path: Path) -> Header:
    """Read a file's header, and no weights. Raises TargetError."""
    try:
        with path.open("rb") as file:
            return _read(path, _Reader(file))
    except (OSError, ValueError, struct.error) as error:
        raise TargetError(f"{path} is no GGUF file that can be loaded: {error}") from None


def _read(path: Path, reader: _Reader) -> Header:
    if reader.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = reader.number("<I")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}; read are {' and '.join(map(str, _VERSIONS))}")
    tensors, keys = reader.count(_MOST_TENSORS, "tensors"), reader.count(_MOST_KEYS, "keys")
    values = {}
    for _ in range(keys):
        key = reader.text(_LONGEST_NAME)
        values[key] = reader.value(reader.number("<I"))
    contents = tuple(_tensor(reader) for _ in range(tensors))
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise ValueError(f"its alignment is {alignment}")
    start = (reader.at() + alignment - 1) // alignment * alignment
    nbytes = start + max((one.offset + one.nbytes for one in contents), default=0)
    if nbytes > _LARGEST_FILE:
        raise ValueError(f"its tensors end at {nbytes:,} bytes")
    return Header(path, values, contents, start, (nbytes + alignment - 1) // alignment * alignment)


def _tensor(reader: _Reader) -> Tensor:
    name, dimensions = reader.text(_LONGEST_NAME), reader.number("<I")
    if dimensions > _DIMENSIONS:
        raise ValueError(f"a tensor has {dimensions} dimensions")
    shape = tuple(int(reader.number("<Q")) for _ in range(dimensions))
    kind, offset = int(reader.number("<I")), int(reader.number("<Q"))
    if kind not in BLOCKS:
        raise ValueError(f"a tensor has type {kind}, of which there is none")
    if prod(shape) > _LARGEST_FILE or (shape and shape[0] % BLOCKS[kind][0]):
        raise ValueError(f"a tensor has the shape {list(shape)}, which is not one of its type")
    return Tensor(name, shape, kind, offset)


def hollow(header: Header, path: Path) -> None:
    """Write the file with its header, and a hole for its weights."""
    with header.path.open("rb") as file, path.open("wb") as written:
        written.write(file.read(header.start))
        written.truncate(header.nbytes)
