"""rich's output as plain text of a width: one console for every report in the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def printed(parts: Iterable[RenderableType], width: int, color: bool) -> str:
    """Return the parts one below the other, `width` columns wide, without trailing blanks, ending with a
    newline."""
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())
