"""Streams and files: results out, progress and complaints to stderr, files written whole or not at all."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

from analyzer import extensions, protection
from analyzer.engines import START
from analyzer.errors import OptionError, TargetError
from analyzer.files import append_text
from analyzer.report.words import ascii_only, clean

# `-` as a file's name is stdout, as everywhere.
STDOUT = Path("-")

# A capture that takes less says nothing about its progress.
_PATIENCE_SECONDS = 1.0
# How long work is silent off a terminal.
_SILENCE_SECONDS = 30.0


def complain(kind: str, message: str, hint: str = "") -> None:
    """Write `analyze: kind: message` and the hint to stderr, a line each, with names cleaned."""
    text = f"analyze: {kind}: {clean(message)}\n" + (f"  hint: {clean(hint)}\n" if hint else "")
    for stream in filter(None, (sys.stderr, sys.__stderr__)):
        try:
            _write(stream, text)
            stream.flush()
            return
        except OSError:  # a full or closed stderr changes no exit code
            return
        except (AttributeError, ValueError):  # what a target put in its place, or closed
            continue


def check_writable(option: str, path: Path | None) -> None:
    """Raise OptionError before a long analysis if `path`, given by `option`, is not writable."""
    if path is None:
        return
    if path == STDOUT:
        raise OptionError(f"{option} - is stdout, which cannot be that", "name a file")
    if path.is_dir():
        raise OptionError(f"{option} {path} is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise OptionError(
            f"{option} {path}: there is no folder {path.parent}", "make it first, or choose another place"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OptionError(f"{option} {path} cannot be written: no permission", "choose another place")


def deliver(content: str | bytes, path: Path | None) -> None:
    """Write the result to `path` (`-o`), or to stdout. Raises OptionError when `path` cannot be written."""
    if path is not None:
        write_file("-o", path, content)
    elif isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    else:
        _write(sys.stdout, content)


def write_file(option: str, path: Path, content: str | bytes) -> None:
    """Write the file `option` asked for; `-` is stdout. Raises OptionError when it cannot be written."""
    if path == STDOUT:
        deliver(content, None)
        return
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    try:
        replace_file(path, data)
    except OSError as error:
        raise OptionError(
            f"{option} {path} cannot be written: {error.strerror}", "choose another place"
        ) from error


def replace_file(path: Path, data: bytes) -> None:
    """`path` holds all of `data`, or is untouched; a device or pipe is written through. Raises OSError."""
    if (outside := protection.outside()) is not None:
        outside.ask("write", path, data)
        return
    if path.exists() and not path.is_file():  # before links are resolved: /dev/stdout leads to no path
        path.write_bytes(data)
        return
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def append_file(path: Path, text: str) -> None:
    """Add to a file of the user's. Raises OSError."""
    if (outside := protection.outside()) is not None:
        outside.ask("append", path, text)
        return
    append_text(path, text)


def remove_file(path: Path) -> None:
    """Remove a file of ours, if it is there. Raises OSError."""
    if (outside := protection.outside()) is not None:
        outside.ask("remove", path)
        return
    path.unlink(missing_ok=True)


def has_code(target: str, loss: object) -> bool:
    """Return whether a target, or its loss, is the user's program."""
    no_code = target.lower().endswith((".onnx", ".json")) or target.startswith("hf:")
    return not no_code or ":" in str(loss)


def keep_apart(target: str, options: Mapping[str, Any]) -> None:
    """Continue in a sandboxed process if the target or its loss has code, and say what protects from it: of a
    whole program always, of a target's code where it is less than usual. options: the command's.

    Raises OptionError where nothing protects, unless that was asked for.
    """
    if not has_code(target, options.get("loss")):
        return
    outputs = options.get("keep_outputs")
    if outputs is not None and (outputs.exists() and not outputs.is_dir()):
        raise OptionError(f"--keep-outputs {outputs} is a file", "name a folder")
    check_writable("--keep-outputs", None if outputs is None or outputs.is_dir() else outputs)
    kept = None if outputs is None else str(outputs.absolute())
    try:
        box = protection.enter(
            replace_file,
            lambda message, hint: complain("error", message, hint),
            kept,
            not options.get("no_network"),
            {START: _start_emulated, "end": _end_emulated, "append": append_file, "remove": remove_file},
            options["unprotected"],
        )
    except OSError as error:
        raise OptionError(
            f"there is no place for what the program writes: {error.strerror or error}",
            "name a folder in TMPDIR",
        ) from None
    is_program = "no_network" in options and not options["quiet"]
    if box is not None and (is_program or box.protection != "namespaces"):
        complain("protection", box.protected_by())


def _start_emulated(request: str) -> str:
    answer: str = extensions.required("engines", "emulate", "emulation").start(request)
    return answer


def _end_emulated() -> None:
    if (engine := extensions.optional("engines", "emulate")) is not None:
        engine.end()


def wants_color(path: Path | None) -> bool:
    """Return whether to colour: on a terminal, without NO_COLOR or TERM=dumb."""
    return (
        path is None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def columns() -> int:
    """Return the width of text output, from 40 to 120: COLUMNS, else the terminal's width, else 80.

    Only the environment counts where stdout is no terminal, so that the same command gives the same bytes.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        width = int(columns)
    else:
        width = 80
        with suppress(OSError, ValueError):  # no terminal, or a stream without a file behind it
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
    return min(max(width, 40), 120)


@contextmanager
def working(what: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Around long work: send prints to stderr; yield a function that reports progress.

    Off a terminal a line says so now and then, where it takes long. Yields a function that takes a short text
    about the current stage; a verdict (`DOES_NOT_FIT`) is a line at once.
    """
    from analyzer.report.verdicts import DOES_NOT_FIT

    spinner = None if quiet or not sys.stderr.isatty() else _Spinner(f"analysing {clean(what)}")
    lines = None if quiet or spinner else _Lines(what)
    shown = spinner or lines

    def tell(stage: str) -> None:
        if shown is None:
            return
        if stage.startswith(DOES_NOT_FIT):
            complain(*stage.split(": ", maxsplit=1))
        else:
            shown.tell(stage)

    try:
        with redirect_stdout(sys.stderr):
            yield tell
    except SystemExit as error:
        raise TargetError(
            f"{what} ended the program (exit code {error.code}) while it was analysed",
            "take sys.exit out of the model",
        ) from error
    finally:
        if spinner:
            spinner.stop()


class Stages:
    """Progress over several pieces of work: how many are done, the current one, the time left."""

    def __init__(self, tell: Callable[[str], None], names: Sequence[str]) -> None:
        self._tell, self._names = tell, names
        self._done, self._started = 0, time.monotonic()

    def tell(self, stage: str) -> None:
        """Report the current stage of the current work item."""
        if len(self._names) < 2:
            self._tell(stage)
            return
        left = ""
        if self._done:
            each = (time.monotonic() - self._started) / self._done
            left = f", about {_duration(each * (len(self._names) - self._done))} left"
        self._tell(f"{self._done} of {len(self._names)} done{left}: {self._names[self._done]}, {stage}")

    def count_done(self) -> None:
        """Count the current work item as done."""
        self._done += 1


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class _Lines:
    """Off a terminal: a line with the current stage, when a while has passed since the last one."""

    def __init__(self, what: str) -> None:
        self._what, self._last = what, time.monotonic()

    def tell(self, stage: str) -> None:
        now = time.monotonic()
        if now - self._last >= _SILENCE_SECONDS:
            self._last = now
            complain("working", f"{self._what}: {stage}")


class _Spinner:
    """Appears when the work has taken `_PATIENCE_SECONDS`, vanishes without a trace at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._stage = ""
        self._lock = threading.Lock()
        self._stopped = False
        self._status: object | None = None
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._start)
        self._timer.daemon = True
        # Its thread, and the one that draws, inherit that signals are blocked: a signal that one of them took
        # would be handled only when the main thread's wait is over.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._timer.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    def tell(self, stage: str) -> None:
        self._stage = clean(stage)
        with self._lock:
            if self._status is not None:
                self._status.update(self._text())  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._stopped = True
            if self._status is not None:
                self._status.stop()  # type: ignore[attr-defined]

    def _text(self) -> object:
        from rich.text import Text

        return Text(
            f"{self._what}: {self._stage}" if self._stage else self._what, no_wrap=True, overflow="ellipsis"
        )

    def _start(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._stopped:
                self._status = Console(stderr=True).status(self._text())  # type: ignore[arg-type]
                self._status.start()


def _write(stream: TextIO, text: str) -> None:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = ascii_only(text)
    stream.write(text)
