"""Protection from a target's own code, which may change nothing: the sandbox, an extension.

Without it a target's code runs as it is, which `--unprotected` has to allow on the command line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analyzer import extensions
from analyzer.errors import OptionError

# The process is the command line's own: it may be divided, and ended.
own_process = False
_entered: list[Any] = []  # the sandbox this process goes on in


def sandbox() -> Any:
    """Return the sandbox's module, None where it is not installed."""
    return extensions.optional("extensions", "sandbox")


def enter(
    write: Callable[..., None],
    complain: Callable[[str, str], None],
    keep: str | None,
    network: bool,
    also: Mapping[str, Callable[..., Any]],
    unprotected: bool,
) -> Any:
    """Go on in a sandbox to the process's end, as `enter` of the sandbox; return the one this process is in,
    or None. Raises OptionError where nothing protects."""
    module = sandbox()
    if module is None:
        if not unprotected:
            raise OptionError(
                "nothing keeps the target from writing: the extension analyzer_sandbox is not installed",
                "--unprotected runs it as it is",
            )
        return None
    module.own_process = own_process
    try:
        module.enter(write, complain, keep, network, also, unprotected)
    except module.UnprotectedError as error:
        raise OptionError(*error.args) from None
    _entered.append(module)
    return module.current()


def outside() -> Any:
    """Return the process outside of this one's sandbox, which answers requests; None without one."""
    return _entered[-1].outside() if _entered else None


def finish(code: int) -> None:
    """End the command with this exit code, which the process outside is told."""
    if _entered:
        _entered[-1].finish(code)


def inherited() -> Mapping[str, str]:
    """Return the variables by which processes join this sandbox; none without one."""
    module = sandbox()
    variables: Mapping[str, str] = {} if module is None else module.inherited()
    return variables


@contextlib.contextmanager
def apart() -> Iterator[Any]:
    """While open, keep apart what a program does in this process; yields the sandbox, None without one."""
    module = sandbox()
    with contextlib.nullcontext() if module is None else module.apart() as box:
        yield box
