"""Whether autocast acts where a call is: on at the program's own call, off inside autocast's kernels and
behind them.

The handler of a call runs behind the key of autocast, where PyTorch says that it is off. In inference mode
composite operators reach the handler whole, and are taken apart there: in the library autocast acts on their
parts (`again`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

KEY = torch._C.DispatchKey.AutocastCUDA
_WITHOUT = torch._C.DispatchKeySet(KEY)


class State(threading.local):
    """Of a thread. enabled: as `torch.autocast` set it last. depth: how many of autocast's kernels are at
    work."""

    def __init__(self) -> None:
        self.enabled, self.depth = False, 0


state = State()


@contextlib.contextmanager
def autocast_off() -> Iterator[None]:
    """While open, switch autocast off for what an autocast kernel calls."""
    state.depth += 1
    try:
        with torch._C._ExcludeDispatchKeyGuard(_WITHOUT):
            yield
    finally:
        state.depth -= 1


@contextlib.contextmanager
def in_this_thread() -> Iterator[None]:
    """While open, autocast acts on meta tensors in this thread, too: keys are included thread by thread."""
    included = torch._C._dispatch_tls_is_dispatch_key_included(KEY)
    torch._C._dispatch_tls_set_dispatch_key_included(KEY, True)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_included(KEY, included)


@contextlib.contextmanager
def again() -> Iterator[None]:
    """While open, autocast acts as it did at the call that is handled."""
    if not state.enabled or state.depth:
        yield
        return
    included = torch._C._dispatch_tls_local_include_set().add(KEY)
    excluded = torch._C._dispatch_tls_local_exclude_set().remove(KEY)
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield
