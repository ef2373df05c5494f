"""The zip archive of an exported program: looked into before anything of it is read.

1. The directory of the archive is bounded, a name stands in it once, and no name leads out of the archive.
2. Members are stored or deflated; of each at most so much is unpacked as its reader allows, whatever size the
   directory claims (four megabytes of a deflated member may unpack to as many gigabytes).
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import IO

from analyzer.files import UnreadableError, allowed, more

MOST_DIRECTORY_BYTES = 16 << 20  # some 150,000 members
_DIRECTORY_SIZE = 5  # of what `zipfile` finds at an archive's end
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """The members of an archive. Raises UnreadableError for what is none, or is none of torch.export's."""

    def __init__(self, content: IO[bytes] | bytes) -> None:
        stream = io.BytesIO(content) if isinstance(content, bytes) else content
        try:
            end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]
            if end is not None and end[_DIRECTORY_SIZE] > allowed(MOST_DIRECTORY_BYTES):
                raise UnreadableError(f"it has too many members; {more()}")
            self._zip = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise UnreadableError(f"it is no whole zip archive ({error})") from None
        self.members: Mapping[str, zipfile.ZipInfo] = {info.filename: info for info in self._zip.infolist()}
        if len(self.members) < len(self._zip.infolist()):
            raise UnreadableError("it has two members of one name")
        for name, info in self.members.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise UnreadableError(f"the member {name!r} leads out of it")
            if info.compress_type not in _METHODS or info.flag_bits & 1:
                raise UnreadableError(
                    f"the member {name!r} is encrypted, or packed as torch.export packs none"
                )

    def size(self, name: str) -> int:
        """Return a member's bytes, as the directory says. Raises UnreadableError."""
        if name not in self.members:
            raise UnreadableError(f"it has no member {name!r}")
        return self.members[name].file_size

    def is_stored(self, name: str) -> bool:
        """Return whether a member has as many bytes in the file as it has unpacked."""
        return self.members[name].compress_type == zipfile.ZIP_STORED

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return a member's content. Raises UnreadableError for one that is missing, damaged or larger."""
        most_bytes = allowed(most_bytes)
        if self.size(name) > most_bytes:
            raise UnreadableError(f"its member {name!r} has more than {most_bytes:,} bytes; {more()}")
        try:
            with self._zip.open(self.members[name]) as stream:
                return stream.read(most_bytes + 1)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
            raise UnreadableError(f"its member {name!r} cannot be unpacked ({error})") from None
