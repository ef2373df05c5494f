"""Folders and small text files that programs expect to find."""

from __future__ import annotations

from pathlib import Path


def folder(place: Path) -> None:
    """An empty folder: some programs write into one that their authors made by hand."""
    place.mkdir(parents=True, exist_ok=True)


def text(place: Path, name: str, content: str) -> None:
    """FOLDER/NAME with this content; `{here}` in it is the folder."""
    (place / name).write_text(content.replace("{here}", str(place)), encoding="utf-8")


def font(place: Path, name: str) -> None:
    """FOLDER/NAME: a font that is at hand, in the place of one that would be downloaded."""
    import shutil

    from matplotlib.font_manager import findfont

    shutil.copy(findfont("DejaVu Sans"), place / name)


def link(place: Path, names: list[str], under: str) -> None:
    """FOLDER/NAME for each file of FOLDER/UNDER: where programs expect them beside, not below."""
    for name in names:
        (place / name).symlink_to(place / under / name)
