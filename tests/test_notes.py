"""Kinds of notes: known by code in this process, by their words out of it, and explained."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys

import pytest

from analyzer import rules
from analyzer.notes import KINDS, NCCL_BOUNDED, STEADY, Note, code_of
from analyzer.runtimes.rules import is_name
from tests.paths import ROOT

SENTENCES = {
    "cut-short": "followed as far as 32 optimizer steps (--until end follows all)",
    "in-part": "followed in part: 1 optimizer step (--until end follows all)",
    "steady": "steady after 5 optimizer steps: the next ask for the same (--until end follows all)",
    "with-room": "followed with room through 3 optimizer steps, then ended to save time",
    "growing": "losses (at step 9: 9 of them) grows by tensors of the GPU with every step",
    "nccl-bounded": "NCCL bounded: 840 MiB are counted for 1 communicator",
    "cheaper-setting": "arena_extend_strategy=kSameAsRequested would hold 1.2 GiB instead of 2.0 GiB",
    "cudnn-unasked": "convolutions' workspaces are between bounds; to know them: pip install it",
}


def test_a_note_is_its_sentence() -> None:
    note = STEADY.note(SENTENCES["steady"], steps=5)
    assert note == SENTENCES["steady"] and json.dumps([note]) == json.dumps([SENTENCES["steady"]])
    for other in (note, copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert (other, other.code, other.figures) == (SENTENCES["steady"], "steady", {"steps": 5})
        assert STEADY.has(other) and not NCCL_BOUNDED.has(other)


def test_a_code_goes_before_words() -> None:
    """A sentence that is worded otherwise one day is still of its kind."""
    assert STEADY.has(Note("nothing new for five steps", "steady"))
    assert not STEADY.has(Note(SENTENCES["steady"], "in-part"))


def test_a_text_is_of_one_kind() -> None:
    assert [kind.code for kind in KINDS] == list(SENTENCES)
    for code, text in SENTENCES.items():
        assert [kind.code for kind in KINDS if kind.has(text)] == [code]
    assert code_of("torch 2.11 is installed") == ""


def test_a_kinds_sentence_has_its_words() -> None:
    with pytest.raises(AssertionError, match="has not the words of steady"):
        STEADY.note("followed in part: 1 step")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_each_kind_is_explained(kind: rules.Kind) -> None:
    """By its code and by a sentence of it; no rule has its code, and its writer names it."""
    assert is_name(kind.code) and kind.code not in rules.catalogue()
    (found,) = rules.find(kind.code)
    assert rules.find(SENTENCES[kind.code]) == (found,)
    assert all(part in found.text for part in (kind.meaning, kind.reason, kind.remedy))
    (constant,) = (name for name, value in vars(sys.modules["analyzer.notes"]).items() if value is kind)
    assert f"{constant}.note(" in (ROOT / kind.writer).read_text()


def test_the_command_line_explains_a_note() -> None:
    for name in ("growing", SENTENCES["growing"]):
        command = [sys.executable, "-P", "-m", "analyzer", "explain", name]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Keep numbers (loss.item())" in shown
