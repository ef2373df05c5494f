"""A program that is followed may change nothing. It reads back what it wrote; outside nothing was
written.

1. The command line goes on in a process of its own, whose files the kernel keeps apart (`process.py`,
   `namespaces.py`). Where that is not allowed, and where a program is followed in the caller's own process
   (`analyzer.run`), Python's functions are sent to an overlay (`layer.py`, `functions.py`); processes that
   the program starts, and in the first case the program itself, may then write nowhere else (`landlock.py`).
2. The overlay goes when the program has ended (`scratch.py`). `keep` names a folder for what was written;
   what hubs' libraries downloaded is kept for the next run.
3. Trackers and hubs are told nothing, and who else was spoken with is said (`services.py`).
4. A process of Python's that the program starts joins (`path/sitecustomize.py`). So this package needs
   nothing but Python 3.9.

Not modelled: a process in the caller's own that a thread of the caller's had started before.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer_sandbox.unprotected import UnprotectedError as UnprotectedError

if TYPE_CHECKING:
    from analyzer_sandbox.process import Outside
    from analyzer_sandbox.scratch import Scratch

_VARIABLE = "ANALYZER_SANDBOX"
_MANY = 3
_REDIRECTED = "Python's functions and those of torch, sqlite3, h5py and safetensors redirected"
PROTECTIONS = {
    "namespaces": "a mount namespace, libraries in C and processes it starts included",
    "landlock": (
        f"{_REDIRECTED}, {{others}}every other write but to /dev and /proc refused by Landlock (mount"
        " namespaces are not allowed here)"
    ),
    "python": (
        f"{_REDIRECTED}, processes it starts may write nothing (Landlock); other libraries in C are not held"
    ),
    "functions": f"{_REDIRECTED}{{others}}; other libraries in C and processes it starts are not held",
}
# A part of those, by whether system calls are asked about.
_OTHERS = {
    "landlock": {
        True: "system calls of libraries in C and of processes it starts, too, ",
        False: "processes that are not Python's may write temporary files only, libraries in C may change"
        " modes, times, owners and attributes of files, ",
    },
    "functions": {True: ", and system calls", False: ""},
}
NETWORKS = {
    "addresses": "connections to other machines are refused, libraries in C and processes it starts included;"
    " what a server of this machine passes on is not held",
    "namespace": "connections are refused, also to servers of this machine that it did not start itself",
    "functions": "connections to other machines are refused to Python alone, not to libraries in C and other"
    " programs",
}


class Sandbox:
    """Sandbox of one program. protection, asks, network_by: `Held` of `process.py`. outside: process
    that writes for it."""

    def __init__(
        self,
        scratch: Scratch,
        protection: str,
        keep: str | None,
        network: bool,
        outside: Outside | None = None,
        asks: bool = False,
        network_by: str = "functions",
    ) -> None:
        from analyzer_sandbox.services import Services

        self._scratch, self.protection, self._keep, self._network = scratch, protection, keep, network
        self._asks, self._network_by = asks, network_by
        self.keeps = keep is not None
        self.outside, self.joined = outside, False
        self._services = Services(scratch.path("said"), network, self._is_bypassed)
        own_thread = threading.current_thread()
        self._others = {thread.ident: thread for thread in threading.enumerate() if thread is not own_thread}
        self.environment: dict[str, str] = dict(os.environ)
        self.variables: dict[str, str] = {}

    def protected_by(self) -> str:
        """Return a sentence's part on what is kept from writing outside."""
        others = _OTHERS.get(self.protection, {}).get(self._asks, "")
        network = "" if self._network else f"; {NETWORKS[self._network_by]}"
        return PROTECTIONS[self.protection].replace("{others}", others) + network

    def _is_bypassed(self) -> bool:
        """Return whether this thread was there before the program."""
        other = self._others.get(threading.get_ident())  # a number may be another thread's by now
        return other is not None and other is threading.current_thread()

    @contextlib.contextmanager
    def open(self) -> Iterator[Sandbox]:
        """While open, sandbox this process."""
        from analyzer_sandbox import services

        path = os.pathsep.join(
            filter(None, (str(Path(__file__).parent / "path"), os.environ.get("PYTHONPATH")))
        )
        inherited = json.dumps(
            {"folder": self._scratch.folder, "protection": self.protection, "network": self._network}
        )
        variables: dict[str, str] = {
            **services.variables(self._scratch.path("tmp")),
            "PYTHONPATH": path,
            _VARIABLE: inherited,
        }
        with contextlib.ExitStack() as stack:
            if self.protection != "namespaces":
                from analyzer_sandbox.functions import Functions

                variables["TMPDIR"] = self._scratch.path("tmp")
                # The loader opens what Triton compiled for itself where it lies, not where Python finds it.
                variables["TRITON_CACHE_DIR"] = self._scratch.path("tmp/triton")
                ruleset = self._ruleset(stack)
                functions = Functions(self._scratch.folder, variables, self._is_bypassed, ruleset)
                stack.enter_context(functions.open())
            else:
                from analyzer_sandbox.renaming import folders_renamed

                stack.enter_context(folders_renamed())
            self.variables = variables
            stack.enter_context(_variables_set(variables))
            stack.enter_context(self._services.open())
            yield self

    def _ruleset(self, stack: contextlib.ExitStack) -> Any:
        """Return rules for child processes if this one has more rights; else None."""
        if self.protection != "python":
            return None
        from analyzer_sandbox.landlock import Ruleset

        try:
            ruleset = Ruleset((self._scratch.folder, "/dev", "/proc"))
        except OSError:
            self.protection = "functions"
            return None
        stack.callback(ruleset.close)
        return ruleset

    def ended(self) -> None:
        """Keep the ended program's environment, also in the outside process."""
        self.environment = dict(os.environ)
        if self.outside is not None:
            self.outside.ask("environment", self.environment)

    def notes(self, whole: bool = True) -> tuple[str, ...]:
        """Return notes on what the sandbox did. whole: of a whole program, where also a protection that holds
        Python alone is named when nothing was written. Empty in a process that has joined."""
        if self.joined:
            return ()
        from analyzer_sandbox.scratch import hub_folders

        caches = hub_folders(self.environment)
        written = (
            self.outside.ask("written", caches) if self.outside is not None else self._scratch.written(caches)
        )
        contacts = [line.partition(" ") for line in self._services.contacts()]
        hosts, trackers = (
            [name for what, _, name in contacts if what == kind] for kind in ("host", "tracker")
        )
        notes = []
        if written:
            files = f"{len(written)} file{'' if len(written) == 1 else 's'} ({_some(written)})"
            then = (
                f"kept in {self._keep}" if self._keep else "dropped at the end (--keep-outputs DIR keeps it)"
            )
            notes.append(
                f"the program wrote {files} to an overlay, {then}; protection: {self.protected_by()}"
            )
        elif whole and self.protection in ("python", "functions"):  # what wrote past it was not seen
            notes.append(f"protection: {self.protected_by()}")
        if trackers:
            notes.append(
                f"switched off, so that no run of this program appears among real ones: {_some(trackers)}"
            )
        if hosts:
            done = "connected to" if self._network else "was refused connections (--no-network) to"
            notes.append(f"the program {done} {_some(hosts)}")
        return tuple(notes)


_current: Sandbox | None = None
# Whether this process is the command line's own, which may go on in another.
own_process = False


def current() -> Sandbox | None:
    """Return the sandbox this process is in, None without one."""
    return _current


def inherited() -> dict[str, str]:
    """Return the variables by which processes join this sandbox; none without one."""
    return {} if _current is None else _current.variables


def outside() -> Outside | None:
    """Return the process outside of this sandbox, which answers requests; None without one."""
    return None if _current is None else _current.outside


def enter(
    write: Callable[..., None],
    complain: Callable[[str, str], None],
    keep: str | None = None,
    network: bool = True,
    also: Mapping[str, Callable[..., Any]] | None = None,
    unprotected: bool = False,
) -> None:
    """Go on in a sandbox, to the process's end. write, complain: how files and errors are written outside.
    also: what else the process outside does when it is asked (`Outside.ask`). unprotected: also where nothing
    but Python's functions is held. Nothing happens in a process that is not the command line's own. Raises
    UnprotectedError."""
    global _current  # noqa: PLW0603
    if not own_process or _current is not None:
        return
    from analyzer_sandbox.process import divide

    divided = divide(write, complain, keep, network, also or {}, unprotected)
    if divided is not None:
        scratch, (protection, asks, network_by), outside = divided
        _current = Sandbox(scratch, protection, keep, network, outside, asks, network_by)
        _forever.enter_context(_current.open())


_forever = contextlib.ExitStack()
# While the interpreter can still run it, behind what the program registered: the joined process's handlers
# come first.
atexit.register(_forever.close)


@contextlib.contextmanager
def apart(
    keep: str | os.PathLike[str] | None = None, network: bool = True, unprotected: bool = True
) -> Iterator[Sandbox]:
    """While open, keep apart what a program does in this process. keep: folder for its files. Unless
    `unprotected`, raises UnprotectedError where processes it starts are not held."""
    global _current  # noqa: PLW0603
    if _current is not None:
        yield _current
        return
    from analyzer_sandbox.scratch import Scratch

    joined = _joined()
    if joined is None:
        scratch = Scratch.new()
        protection = "python" if os.uname().sysname == "Linux" else "functions"
        sandbox = Sandbox(scratch, protection, None if keep is None else os.path.abspath(keep), network)
    else:
        sandbox = joined
    try:
        with sandbox.open():
            if sandbox.protection == "functions" and joined is None and not unprotected:
                raise UnprotectedError
            _current = sandbox
            yield sandbox
    finally:
        _current = None
        if joined is None:
            try:
                scratch.keep_downloads(sandbox.environment)
                if keep is not None:
                    scratch.keep(os.fspath(keep), sandbox.environment)
            finally:
                scratch.drop()


def finish(code: int) -> None:
    """End the command with this exit code. Where nothing that is still in memory is to be kept, the process
    ends here: taking down an interpreter with torch in it costs as much as importing it."""
    if (outer := outside()) is None:
        return
    outer.ask("done", code)
    assert _current is not None
    if not _current.keeps:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _joined() -> Sandbox | None:
    """Return the sandbox this process was started in, None without one."""
    inherited = os.environ.get(_VARIABLE)
    if inherited is None:
        return None
    from analyzer_sandbox.scratch import Scratch

    settings = json.loads(inherited)
    if not Path(settings["folder"], "said").is_dir():  # of a program that has ended
        return None
    protection = {"python": "landlock"}.get(settings["protection"], settings["protection"])
    sandbox = Sandbox(Scratch(settings["folder"]), protection, None, settings["network"])
    sandbox.joined = True
    return sandbox


def join() -> None:
    """Join the sandbox that this process was started in, to its end."""
    global _current  # noqa: PLW0603
    joined = _joined()
    if joined is not None and _current is None:
        _current = joined
        _forever.enter_context(joined.open())


@contextlib.contextmanager
def _variables_set(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")
