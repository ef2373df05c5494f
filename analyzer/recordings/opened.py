"""A file that `analyze explain` is given: a snapshot, by the first byte of a pickle, or a text with an
error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from analyzer.errors import InputError, file_like
from analyzer.files import irregular
from analyzer.recordings.messages import understood
from analyzer.results.recording import Message, Recording

_TEXT_BYTES = 64 * 2**20  # of a log the end is read, where the error stands
_CHUNK_BYTES = 2**20
_HINT = (
    "give a snapshot (torch.cuda.memory._dump_snapshot), or a text with PyTorch's OutOfMemoryError or an"
    " error of"
    " ONNX Runtime or vLLM for want of memory"
)


def is_snapshot(path: Path) -> bool:
    """Return whether a file begins as a pickle of protocol 2 or later, or is named as one. Raises
    InputError."""
    if reason := irregular(path):
        raise InputError(f"{path} cannot be read: {reason}", _HINT)
    try:
        with path.open("rb") as file:
            return file.read(1) == b"\x80" or path.suffix in (".pickle", ".pkl")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", f"{file_like(path)}{_HINT}") from None


def explained(path: Path, tell: Callable[[str], None] = lambda _: None) -> Recording | Message:
    """Return what a file says. Raises InputError."""
    if is_snapshot(path):
        from analyzer.recordings.estimate import explain

        return explain(path, tell)
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TEXT_BYTES, 0))
        text = file.read(_TEXT_BYTES).decode("utf-8", "replace")
    return message_of(text, str(path))


def end_of(stream: BinaryIO) -> str:
    """Return the end of a stream that cannot be sought in."""
    chunks = deque(iter(lambda: stream.read(_CHUNK_BYTES), b""), maxlen=_TEXT_BYTES // _CHUNK_BYTES)
    return b"".join(chunks).decode("utf-8", "replace")


def message_of(text: str, name: str) -> Message:
    """Return the error in a text. Raises InputError where there is none that is known."""
    message = understood(text) if name == "stdin" else understood(text, name)
    if message is None:
        raise InputError(f"{name}: no error for want of memory is in it that is known here", _HINT)
    return message
