"""rich's output as plain text of a width: one console for every report in the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def printed(parts: Iterable[RenderableType], width: int, color: bool) -> str:
    """Return the parts one below the other, `width` columns wide, without trailing blanks, ending with a
    newline. A part that is a string is what somebody types: it stays as it is."""
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
    shown = []
    for part in parts:
        if isinstance(part, str):
            shown.append(f"{part}\n")
            continue
        console.print(part)
        shown += [line.rstrip() + "\n" for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
    return "".join(shown)
