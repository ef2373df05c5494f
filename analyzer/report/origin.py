"""The command that made a result, as it was typed; "" from Python. The command line sets it."""

from __future__ import annotations

command = ""
