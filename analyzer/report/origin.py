"""What asked for a result: the command as it was typed, "" where Python did. The command line sets it."""

from __future__ import annotations

command = ""
