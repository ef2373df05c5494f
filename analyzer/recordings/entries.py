"""Entries of a history, recognised as a whole in the bytes of a pickle.

1. All entries of a history but its first ones are alike: a dictionary whose keys, texts and frames were in
   the file before, and are referred to by their places in the memo. Such an entry is one match of a regular
   expression, its **form**: the keys as they are referred to, numbers or references as values, a list of
   references as its stack. The form is made of the first entry that has it.
2. Entries that do not match (a new text, a frame of the pickle between two opcodes, a failed request) are
   left to the machine that executes one opcode after another (`plain_pickle.py`). Both put the same into the
   history's columns and into the memo.
3. A stack is looked up by its bytes: the same references are the same frames, since a place of the memo that
   is taken is not given to another value; where a pickle does that, forms are not used.

Nothing is executed here either: an expression knows the opcodes of references, numbers and constants alone,
and cannot read beyond the end.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from analyzer.recordings.trace import OOM, StackRef, Stacks, Trace, code_of

_REFERENCE = rb"h.|j.{4}"  # BINGET, LONG_BINGET
# BININT1, BININT, BININT2, LONG1 of at most eight bytes: what fits a column.
_INTEGER = rb"K.|J.{4}|M..|\x8a(?:%s)" % b"|".join(rb"\x%02x.{%d}" % (length, length) for length in range(9))
_OTHER = rb"%s|%s|N|\x88|\x89|G.{8}" % (_REFERENCE, _INTEGER)  # and None, true, false, BINFLOAT
# An empty list, one of one value (APPEND), one of several (APPENDS), each memoized (MEMOIZE).
_LIST = rb"\]\x94(?:\((?:j.{4}|h.)*+e|(?:h.|j.{4})a)?+"
_PAIR = re.compile(rb"(?s)(%s)(%s|%s)" % (_REFERENCE, _OTHER, _LIST))
# EMPTY_DICT, MEMOIZE, MARK, pairs, SETITEMS.
_ENTRY = re.compile(rb"(?s)\}\x94\((?:(?:%s)(?:%s|%s))*+u" % (_REFERENCE, _OTHER, _LIST))
_REFERENCES = re.compile(rb"(?s)%s" % _REFERENCE)
_INT, _INDEX = struct.Struct("<i"), struct.Struct("<I")
_MOST_FORMS = 16
_MOST_KEPT = 200_000  # stacks, and numbers, that are looked up by their bytes
# Keys that are read of an entry, and their possible values.
_READ = {
    "action": _REFERENCE,
    "addr": _INTEGER,
    "size": _INTEGER,
    "stream": _INTEGER,
    "time_us": _INTEGER,
    "frames": rb"%s|%s" % (_LIST, _REFERENCE),
    "category": _REFERENCE,
}
_NEEDED = {"action", "addr", "size"}
_ABSENT = b""


class _Numbers(dict[bytes, int]):
    """Integers by their opcodes; those that come again are not worked out again."""

    def __missing__(self, token: bytes) -> int:
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[token] = number = _integer(token)
        return number


class Entries:
    """Reads entries that have a form. memo: of the machine, which both fill."""

    def __init__(self, data: mmap.mmap, memo: list[Any], stacks: Stacks) -> None:
        self._data, self._memo, self._stacks = data, memo, stacks
        # Of each form: its expression, and which of the groups are the values of `_READ` (the last: none).
        self._forms: list[tuple[re.Pattern[bytes], Callable[[tuple[bytes, ...]], tuple[bytes, ...]]]] = []
        self._numbers = _Numbers()
        self._known_stacks: dict[bytes, StackRef] = {}
        self._actions: dict[bytes, int] = {}
        self._made = 0

    def read(self, at: int, trace: Trace) -> int:
        """Put the entries from a place of the file on into the history, as long as they have a form; return
        the place behind them."""
        forms, data, memo = self._forms, self._data, self._memo
        numbers, known = self._numbers, self._known_stacks
        actions = self._actions
        add, place, most = trace.add_row, 0, len(self._forms)
        while True:
            if place == most:
                if not self._learn(at):
                    return at
                place, most = 0, len(forms)
            form, chosen = forms[place]
            match = form.match(data, at)
            if match is None:
                place += 1
                continue
            action, address, size, stream, time, frames, category = chosen((*match.groups(), _ABSENT))
            code = actions.get(action)
            if code is None:
                code = self._action(action)
            bytes_ = numbers[size]
            if code == OOM or bytes_ < 0:  # one with other keys, or none
                return at
            memo.append(None)  # the entry's own place
            if frames[:1] == b"]":
                ref = known.get(frames) or self._stack(frames)
                memo.append(ref)
                number = ref.number
            else:
                number = self._stacks.ref(memo[_slot(frames)]).number if frames else 0
            add(
                code,
                numbers[address],
                bytes_,
                numbers[stream] if stream else 0,
                _integer(time) if time else 0,
                number,
                trace.category_of(self._memo[_slot(category)]) if category else 0,
            )
            at = match.end()
            if place:
                forms.insert(0, forms.pop(place))
                place = 0

    def _learn(self, at: int) -> bool:
        """Make the form of the entry at a place; False if it has none."""
        if self._made >= _MOST_FORMS or (match := _ENTRY.match(self._data, at)) is None:
            return False
        pairs = _PAIR.findall(match[0], 3)
        keys = [self._memo[slot] if (slot := _slot(key)) < len(self._memo) else None for key, _ in pairs]
        if (
            not all(type(key) is str for key in keys)
            or len(set(keys)) < len(keys)
            or not set(keys) >= _NEEDED
        ):
            return False
        read = [key for key in keys if key in _READ]
        form = re.compile(
            rb"(?s)\}\x94\("
            + b"".join(
                re.escape(reference) + (b"(%s)" % _READ[key] if key in _READ else b"(?:%s)" % _OTHER)
                for key, (reference, _) in zip(keys, pairs, strict=True)
            )
            + b"u"
        )
        if form.match(self._data, at) is None:
            return False
        places = (read.index(name) if name in read else len(read) for name in _READ)
        self._forms.insert(0, (form, itemgetter(*places)))
        self._made += 1
        return True

    def _action(self, token: bytes) -> int:
        """Return the code of an action, by the reference to its name."""
        code = self._actions[token] = code_of(self._memo[_slot(token)])
        return code

    def _stack(self, token: bytes) -> StackRef:
        """Return the stack of a list."""
        frames = [self._memo[_slot(reference)] for reference in _REFERENCES.findall(token, 2)]
        if len(self._known_stacks) >= _MOST_KEPT:
            self._known_stacks.clear()
        ref = self._known_stacks[token] = self._stacks.ref(frames)
        return ref


def _integer(token: bytes) -> int:
    """Return the value of an integer's opcode."""
    code = token[0]
    if code == 0x8A:
        return int.from_bytes(token[2:], "little", signed=True)
    if code == 0x4A:
        return int(_INT.unpack_from(token, 1)[0])
    return token[1] if code == 0x4B else token[1] | token[2] << 8


def _slot(token: bytes) -> int:
    """Return the place in the memo that a reference names."""
    return token[1] if token[0] == 0x68 else int(_INDEX.unpack_from(token, 1)[0])
