"""How a followed program ends its process, and whose lines its are."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterator

from analyzer.capture.pytorch.recording.recorder import Recorder


@contextlib.contextmanager
def exits(recorder: Recorder) -> Iterator[None]:
    """While open, `os._exit` ends the program that is followed, in whichever thread: nothing it does on its
    way out counts. A forked process it ends."""
    ends, process = os._exit, os.getpid()

    def exit_here(status: int) -> None:
        if os.getpid() != process:
            ends(status)
        recorder.ended = SystemExit(status)
        raise recorder.ended

    os._exit = exit_here  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = ends


def site_folders() -> tuple[str, ...]:
    """Return the folders of installed packages and the standard library, whose lines are not the user's."""
    folders = {*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()}
    return tuple(f"{folder}/" for folder in folders if folder not in ("", sys.prefix, sys.base_prefix))
