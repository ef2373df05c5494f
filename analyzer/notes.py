"""Notes that code tells apart: each is of a kind, whose code stays the same whatever the sentence says.

1. A note is a sentence beside an estimate's figures: to all that print, write or compare it, a text.
2. Its kind is known by its code. A note that came as text (from a saved estimate, another process, or a
   screen) is recognised by the words that its kind's sentences have in common, here and nowhere else.
3. `analyze explain CODE` says of a kind what the note means, why it is there and what to do; so does `analyze
   explain` with the sentence itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


class Note(str):
    """A sentence with its kind's code, and the figures it names."""

    code: str
    figures: dict[str, Any]

    def __new__(cls, text: str, code: str = "", figures: dict[str, Any] | None = None) -> Note:
        """Make a note; a copy by `pickle` has code and figures of its original."""
        note = super().__new__(cls, text)
        note.code, note.figures = code, figures or {}
        return note


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of notes.

    words: those that its sentences have in common, as a regular expression from the beginning. meaning,
    reason, remedy: for `analyze explain`. writer: the file that writes it.
    """

    code: str
    words: str
    meaning: str
    reason: str
    remedy: str
    writer: str

    def note(self, text: str, **figures: Any) -> Note:
        """Return a note of this kind."""
        assert re.match(self.words, text), f"{text!r} has not the words of {self.code}"
        return Note(text, self.code, figures)

    def has(self, note: str) -> bool:
        """Return whether a note is of this kind."""
        return (note.code if isinstance(note, Note) else code_of(note)) == self.code


_UNTIL = "--until end follows the program to its end, --until N its first N steps."
_EXTENT = "extensions/analyzer_programs/following/extent.py"

CUT_SHORT = Kind(
    "cut-short",
    "followed as far as ",
    "The program was followed for some steps and then ended; the figures are of these steps.",
    "A program of many steps is ended by itself after a while, before its memory had become steady: a later"
    " step may take more, and the verdict says that it is as far as followed.",
    _UNTIL,
    _EXTENT,
)
IN_PART = Kind(
    "in-part",
    "followed in part: ",
    "A part of the program was followed, and the figures are of this part.",
    "--until ended it, or batches of an epoch were left out that are like those around them.",
    _UNTIL,
    _EXTENT,
)
STEADY = Kind(
    "steady",
    "steady after ",
    "The last steps asked for the same memory as those before them; the steps that remain were left out.",
    "Steps that repeat and reach no new peak find the allocator as it was, so following more adds nothing."
    " Evaluations and code that come later are not followed.",
    _UNTIL,
    _EXTENT,
)
WITH_ROOM = Kind(
    "with-room",
    "followed with room through ",
    "The program runs out of memory; its need with room is that of the steps that are named.",
    "After it failed it was followed once more on a device with room, and ended early to save time.",
    _UNTIL,
    "extensions/analyzer_programs/program.py",
)
GROWING = Kind(
    "growing",
    ".* by tensors of the GPU with every step$",
    "A list or dictionary of the program got another tensor of the GPU in each step.",
    "Such tensors are never freed: memory grows until none is left. A loss that was appended keeps the whole"
    " graph behind it.",
    "Keep numbers (loss.item()) or tensors on the host (x.detach().cpu()).",
    "extensions/analyzer_programs/following/owners.py",
)
NCCL_BOUNDED = Kind(
    "nccl-bounded",
    "NCCL bounded: ",
    "NCCL's memory for this topology was not measured; it counts as what was measured for another.",
    "How many channels and buffers NCCL makes depends on the links between the GPUs.",
    "On the machine itself, analyze calibrate --ranks N measures it.",
    "analyzer/runtimes/pytorch/outside.py",
)
CHEAPER_SETTING = Kind(
    "cheaper-setting",
    r"\S.* would hold \S+ \S+ instead of ",
    "With this setting the same requests would have held less.",
    "The requests were served again by the arena with the setting.",
    "Set it where the session is made; analyze explain ort-arena says what it does.",
    "analyzer/runtimes/onnxruntime/advice.py",
)
CUDNN_UNASKED = Kind(
    "cudnn-unasked",
    "convolutions' workspaces are between bounds; ",
    "Workspaces of convolutions are counted with a bound: they may be smaller.",
    "cuDNN decides their sizes, was not within reach, and its answer for these shapes is not recorded.",
    "Install the package that the note names: cuDNN is then asked, without a GPU.",
    "analyzer/runtimes/convolutions.py",
)
KINDS = (
    CUT_SHORT,
    IN_PART,
    STEADY,
    WITH_ROOM,
    GROWING,
    NCCL_BOUNDED,
    CHEAPER_SETTING,
    CUDNN_UNASKED,
)


def code_of(text: str) -> str:
    """Return the code of a note's kind; "" where nothing tells it from others."""
    return next((kind.code for kind in KINDS if re.match(kind.words, text)), "")
