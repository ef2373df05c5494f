"""Files of this project: no line in them is the program's. Extensions lie beside the core, or in a checkout's
folder `extensions`."""

from pathlib import Path


def _beginnings(beside: Path) -> tuple[str, ...]:
    return f"{beside}/analyzer/", f"{beside}/analyzer_", f"{beside}/extensions/analyzer_"


# Beginnings of their paths: as they are imported, and without links.
OWN = _beginnings(Path(__file__).parents[2])
RESOLVED = _beginnings(Path(__file__).resolve().parents[2])
