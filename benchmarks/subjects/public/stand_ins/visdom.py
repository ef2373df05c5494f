"""In the place of a Visdom server, which programs draw on: every call answers with the name of a window."""

from __future__ import annotations


class Visdom:
    """Takes everything, draws nothing."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: "window"
