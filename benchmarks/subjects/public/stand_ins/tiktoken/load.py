"""Where encodings are read from."""

from __future__ import annotations

import base64
from pathlib import Path


def load_tiktoken_bpe(path: str) -> dict[bytes, int]:
    """A token and its number a line."""
    rows = (row.split() for row in Path(path).read_bytes().splitlines() if row)
    return {base64.b64decode(token): int(number) for token, number in rows}
