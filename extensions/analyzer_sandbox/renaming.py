"""A folder from outside is renamed in an overlay by an ordinary user: the kernel says that it cannot be
(EXDEV), and then it is copied, as `mv` and `shutil.move` do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import Any

from analyzer_sandbox.importing import exchange_all


@contextlib.contextmanager
def folders_renamed() -> Iterator[None]:
    """While open, `os.rename` and `os.replace` do so."""
    pairs = {name: (getattr(os, name), _renames(getattr(os, name))) for name in ("rename", "replace")}
    back = exchange_all([pairs])
    try:
        yield
    finally:
        back()


def _renames(original: Any) -> Any:
    """Wrap `os.rename` or `os.replace`: a folder that overlayfs cannot rename is copied and removed."""

    def rename(src: Any, dst: Any, **folders: int | None) -> None:
        try:
            original(src, dst, **folders)
        except OSError as error:
            if (
                error.errno != errno.EXDEV
                or any(folders.values())
                or os.path.islink(src)
                or not os.path.isdir(src)
            ):
                raise
            if os.path.lexists(dst):
                os.rmdir(dst)
            shutil.copytree(src, dst, symlinks=True)
            shutil.rmtree(src)

    return rename
