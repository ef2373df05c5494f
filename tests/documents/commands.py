"""The commands that README, docs and `--help` show, and what the page says of each.

1. A block of commands is one fenced as `sh`; a `text` block right behind it is what they print, one after the other.
2. A comment before a block says why not every run of the tests types it, or what else it ends with:

       <!-- commands: campaign: an 8B takes half a minute -->
       <!-- commands: gpu | network | cuda: ... -->        cuda: another environment, with a CUDA build of torch
       <!-- commands: exit 1: it does not fit -->

3. Words in backticks that begin with `analyze` are commands as well; they name what the reader has, so they are read, not run.
4. `--help` has its examples in the code; which of them cannot be typed everywhere stands here (`OF_HELP`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from analyzer.cli import Commands, group
from tests.paths import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/questions").glob("*.md")),
]
KINDS = ("campaign", "gpu", "network", "cuda")
BLOCKS = re.compile(
    r"^(?:<!-- commands: (?P<kind>\w+)(?: (?P<code>\d))?: (?P<why>[^\n]*?) -->\n)?"
    r"```sh\n(?P<commands>.*?)^```\n(?:\n(?:<!--[^\n]*-->\n)?```text\n(?P<output>.*?)^```\n)?",
    re.M | re.S,
)
_SPANS = re.compile(r"`(analyze [^`]*)`")

# What `--help` shows that is not typed in every run, and why.
OF_HELP = {
    "analyze calibrate -o mine.json": ("gpu", "measures it"),
    "analyze engine install torch==2.11.0": ("network", "3 GB to download"),
    "analyze verify run train.py --epochs 1": ("gpu", "runs the program"),
    "analyze emulate --device rtx4090 train.py --epochs 1": ("cuda", "PyTorch's own binary"),
    "analyze emulate --python venv net.py:make_model --mode train --batch 8": (
        "cuda",
        "PyTorch's own binary",
    ),
    "analyze fit models/gpt2.py --mode train --all-devices --batch 8": ("campaign", "every known GPU"),
    "analyze what-if models/gpt2.py --mode train --batch 16 --device rtx4090": ("campaign", "every strategy"),
    "analyze what-if models/cnn.py --mode train --batch 128 --largest": ("campaign", "a search a strategy"),
    "analyze advise models/gpt2.py --mode train --batch 16 --device rtx4090": (
        "campaign",
        "a search among ways",
    ),
    "analyze advise models/cnn.py --mode train --device t4 --samples-per-second 900": (
        "campaign",
        "a search among batches",
    ),
}


@dataclass(frozen=True, slots=True)
class Block:
    """commands: lines of shell, as typed. output: what they print, None where the page does not say. kind: one of `KINDS`, or ""
    for what every run types. why: the page's reason. code: what the last one ends with. whole: the block as it stands."""

    commands: tuple[str, ...]
    output: str | None = None
    kind: str = ""
    why: str = ""
    code: int = 0
    whole: str = ""


def blocks(page: Path) -> list[Block]:
    """Every block of a page. Raises ValueError for a mark that says nothing."""
    found = []
    text = page.read_text()
    for match in BLOCKS.finditer(text):
        kind, code = match["kind"] or "", int(match["code"] or 0)
        if kind not in ("", "exit", *KINDS) or (kind == "exit") != (match["code"] is not None):
            raise ValueError(f"{page.name}: what kind of commands are {kind!r}?")
        commands = tuple(line for line in match["commands"].splitlines() if line.strip())
        kind = "" if kind == "exit" else kind
        found.append(Block(commands, match["output"], kind, match["why"] or "", code, match[0]))
    if text.count("<!-- commands:") != sum("<!-- commands:" in block.whole for block in found):
        raise ValueError(f"{page.name}: a mark stands before no block of commands")
    return found


def spans(page: Path) -> Iterator[str]:
    """Commands inside sentences."""
    for match in _SPANS.finditer(page.read_text()):
        yield " ".join(match[1].split())


def of_help() -> dict[str, list[str]]:
    """Command -> its examples."""
    names = Commands().list_commands(click.Context(group))
    found = {name: Commands().get_command(click.Context(group), name) for name in names}
    return {name: list(getattr(command, "examples", ())) for name, command in found.items()}
