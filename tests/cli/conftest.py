"""The command line in this process, as the tests of this room run it."""

from __future__ import annotations

from tests.commands import run

__all__ = ["run"]
