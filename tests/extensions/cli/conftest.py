"""The command line in this process, as the core's tests run it."""

from __future__ import annotations

from tests.commands import run

__all__ = ["run"]
