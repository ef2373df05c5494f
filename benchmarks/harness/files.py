"""Recorded files: compressed JSON, with a fixed time stamp, so that the same content is the same file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """The content of a file."""
    return json.loads(gzip.decompress(path.read_bytes()))


def write(path: Path, content: object, *, sort_keys: bool = False) -> None:
    """Write it anew."""
    text = json.dumps(content, sort_keys=sort_keys, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
