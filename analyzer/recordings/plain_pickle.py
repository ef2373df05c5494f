"""A pickle of plain containers, read as data: dictionaries, lists, tuples, numbers, strings; nothing else.

1. **Nothing is executed.** There is no way to name a class or a function, to call one, to set a state or to
   ask for a persistent object: an opcode that would is an error. A snapshot of PyTorch's allocator needs
   none.
2. **Bounded memory.** The file is mapped, not read, and pages behind are given back. An entry of an
   allocator's history goes into columns (`trace.py`) as soon as it is complete, most of them in one piece
   (`entries.py`), and is dropped with its place in the memo; equal strings and equal stacks are kept once. A
   text, a number or a memo cannot claim more than the file holds, and there are no more objects than the file
   has bytes.
3. Opcodes of protocols 0 to 5 that make plain values are read; text integers of at most 20 digits, long ones
   of at most 16 bytes.

Source: `Lib/pickletools.py` for the opcodes, `torch/cuda/memory.py` (`_dump_snapshot`) for what is written.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from analyzer.recordings.entries import Entries
from analyzer.recordings.trace import Stacks, Trace

_MARK = object()
_INT, _INDEX = struct.Struct("<i"), struct.Struct("<I")
_SLOT = -1  # the key under which an unfinished dictionary knows its place in the memo
_REFUSED = {
    **{ord(code): name for code, name in (("c", "GLOBAL"), ("R", "REDUCE"), ("b", "BUILD"), ("i", "INST"))},
    **{ord(code): name for code, name in (("o", "OBJ"), ("P", "PERSID"), ("Q", "BINPERSID"))},
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
HINT = "give a snapshot as torch.cuda.memory._dump_snapshot(FILE) writes it"
_INTERNED_LENGTH = 256
_LET_GO_BYTES = 2**24  # a multiple of every page
_EMPTY = {ord("}"): dict, ord("]"): list, ord(")"): tuple}
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_NUMBERS = {ord("M"): "<H", ord("G"): ">d"}
_LENGTHS = {
    0x8C: "<B",
    ord("X"): "<I",
    0x8D: "<Q",
    ord("U"): "<B",
    ord("T"): "<I",
    ord("C"): "<B",
    ord("B"): "<I",
    0x8E: "<Q",
}
_TEXTS = (0x8C, ord("X"), 0x8D)
# A tuple as a key is hashed with all it holds, which Python does without a bound on its depth.
_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


class Damaged(Exception):
    """The pickle is cut off, or is none."""


def load(path: Path) -> tuple[Any, Stacks, dict[int, Trace]]:
    """Return what the pickle holds, the stacks, and the histories, by the identity of their (empty) lists.

    Raises InputError for a file that is none, is cut off, or wants anything but plain values.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            machine = _Machine(data)
            return machine.run(), machine.stacks, machine.traces
    except (Damaged, IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError) as error:
        raise InputError(f"{path}: the pickle is damaged or cut off ({_reason(error)})", HINT) from None
    except ValueError as error:
        raise InputError(f"{path}: {error}", HINT) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", HINT) from None
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from None


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Damaged) else "it does not go on as it should"


class _Machine:
    """The stack machine. traces, stacks: what was taken out of it."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.end = data, 0, len(data)
        self.stack: list[Any] = []
        self.memo: list[Any] = []
        self.stacks = Stacks()
        self.traces: dict[int, Trace] = {}
        self._kept: list[Any] = []  # lists whose identity is a key
        self._strings: dict[str, str] = {}
        self._slots: dict[int, int] = {}  # of lists, by identity
        self._whole = Entries(data, self.memo, self.stacks)
        self._gone = 0  # up to where pages were given back
        self._overwritten = False  # a place of the memo was given to another value
        self._others: dict[int, Callable[[int], None]] = {}
        for codes, method in (
            (_NUMBERS, self._number),
            (_LENGTHS, self._text),
            (_EMPTY, self._empty),
            (b"hjg", self._get),
            (_CONSTANTS, self._constant),
            (b"qrp", self._put),
            (b"td\x85\x86\x87l", self._collect),
            (b"aesu", self._extend),
            (b"\x80\x94\x95", self._head),
            (b"\x8a\x8b", self._long),
            (b"ILFV", self._line),
            (b"012", self._shuffle),
        ):
            self._others |= dict.fromkeys(codes, method)

    def run(self) -> Any:
        """Carry the opcodes out, and return what is left at the end. Those of which a history consists are
        carried out here, the others by their methods."""
        data, memo, others, strings = self.data, self.memo, self._others, self._strings
        stack, push, slots, unpack = self.stack, self.stack.append, self._slots, _INT.unpack_from
        index = _INDEX.unpack_from
        at = 0
        while True:
            code = data[at]
            at += 1
            if code == 0x68:  # BINGET
                push(memo[data[at]])
                at += 1
            elif code == 0x94 and stack[-1] is not _MARK:  # MEMOIZE
                value = stack[-1]
                if type(value) is dict:
                    value[_SLOT] = len(memo)
                elif type(value) is list:
                    slots[id(value)] = len(memo)
                memo.append(value)
            elif code == 0x6A:  # LONG_BINGET
                push(memo[index(data, at)[0]])
                at += 4
            elif code == 0x4B:  # BININT1
                push(data[at])
                at += 1
            elif code == 0x4A:  # BININT
                push(unpack(data, at)[0])
                at += 4
            elif code == 0x8A and data[at] <= 16 and at + data[at] < self.end:  # LONG1
                start = at + 1
                at = start + data[at]
                push(int.from_bytes(data[start:at], "little", signed=True))
            elif code == 0x8C and at + data[at] < self.end:  # SHORT_BINUNICODE
                start = at + 1
                at = start + data[at]
                text = data[start:at].decode("utf-8", "surrogatepass")
                push(strings.setdefault(text, text))
            elif code == 0x28:  # MARK
                push(_MARK)
            elif code == 0x7D:  # EMPTY_DICT
                trace = self.traces.get(id(stack[-2])) if len(stack) > 1 and stack[-1] is _MARK else None
                after = at if trace is None or self._overwritten else self._whole.read(at - 1, trace)
                if after <= at:
                    push({})
                else:
                    at = after
            elif code == 0x2E:  # STOP
                if len(stack) != 1:
                    raise Damaged("it ends too early")
                return stack[0]
            else:
                self.at = at
                (others.get(code) or self._refuse)(code)
                at = self.at

    def _refuse(self, code: int) -> None:
        """Raise the error of an opcode that is none of plain values."""
        if code in _REFUSED:
            raise InputError(
                f"the pickle is no snapshot: it wants more than plain values ({_REFUSED[code]} at byte"
                f" {self.at - 1:,}); nothing of it was executed",
                HINT,
            )
        raise ValueError(f"this is no pickle: byte {self.at - 1:,} is no opcode of plain values")

    def _head(self, code: int) -> None:
        """PROTO, FRAME, and MEMOIZE above a mark."""
        if code == 0x80 and self._read("<B") > 5:
            raise ValueError("this is no pickle of a protocol up to 5")
        if code == 0x95:
            self._take(8)
            self._let_go()
        if code == 0x94:
            raise Damaged("a mark has no place in the memo")

    def _let_go(self) -> None:
        """Give back the pages of the file that were read, which nobody reads again."""
        behind = self.at // _LET_GO_BYTES * _LET_GO_BYTES
        if behind > self._gone and hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED, self._gone, behind - self._gone)
            self._gone = behind

    def _take(self, count: int) -> bytes:
        """Return the next bytes."""
        at = self.at
        if count > self.end - at:
            raise Damaged(f"{count:,} bytes are wanted at byte {at:,} of {self.end:,}")
        self.at = at + count
        return self.data[at : self.at]

    def _read_line(self) -> bytes:
        at = self.at
        end = self.data.find(b"\n", at, at + 4096)
        if end < 0:
            raise Damaged("a line does not end")
        self.at = end + 1
        return self.data[at:end]

    def _read(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _number(self, code: int) -> None:
        self.stack.append(self._read(_NUMBERS[code]))

    def _long(self, code: int) -> None:
        length = self._read("<B" if code == 0x8A else "<i")
        if not 0 <= length <= 16:
            raise ValueError("a number of more than 16 bytes is no size")
        self.stack.append(int.from_bytes(self._take(length), "little", signed=True))

    def _text(self, code: int) -> None:
        content = self._take(self._read(_LENGTHS[code]))
        if code not in _TEXTS:
            self.stack.append(content)
            return
        text = content.decode("utf-8", "surrogatepass")
        if len(text) <= _INTERNED_LENGTH:
            text = self._strings.setdefault(text, text)
        self.stack.append(text)

    def _line(self, code: int) -> None:
        """INT, LONG, FLOAT, UNICODE of protocol 0."""
        line = self._read_line()
        if code == 0x56:
            self.stack.append(line.decode("raw_unicode_escape"))
        elif code == 0x46:
            self.stack.append(float(line))
        elif line in (b"00", b"01"):
            self.stack.append(line == b"01")
        elif len(line) > 21:
            raise ValueError("a number of more than 20 digits is no size")
        else:
            self.stack.append(int(line.removesuffix(b"L")))

    def _empty(self, code: int) -> None:
        self.stack.append(_EMPTY[code]())

    def _constant(self, code: int) -> None:
        self.stack.append(_CONSTANTS[code])

    def _get(self, code: int) -> None:
        slot = self._slot(code, b"gjh")
        if not 0 <= slot < len(self.memo):
            raise Damaged("it refers to what is not there")
        self.stack.append(self.memo[slot])

    def _put(self, code: int) -> None:
        self._memoize(self._slot(code, b"prq"))

    def _slot(self, code: int, codes: bytes) -> int:
        """Return the place in the memo behind an opcode: in digits, in four bytes or in one."""
        if code == codes[0]:
            return int(self._read_line())
        return int(self._read("<I" if code == codes[1] else "<B"))

    def _memoize(self, slot: int) -> None:
        """Keep the value on top in the next place, or in one that is there; a container remembers where."""
        value, memo = self.stack[-1], self.memo
        if value is _MARK or not 0 <= slot <= len(memo):
            raise Damaged("its memo has no such place")
        if slot == len(memo):
            memo.append(value)
        else:
            memo[slot] = value
            self._overwritten = True
        kind = type(value)
        if kind is dict:
            value[_SLOT] = slot
        elif kind is list:
            self._slots[id(value)] = slot

    def _collect(self, code: int) -> None:
        """TUPLE, DICT, LIST and the tuples of one to three."""
        if code >= 0x85:
            count = code - 0x84
            if len(self.stack) < count:
                raise Damaged("a tuple has too little")
            values = self.stack[-count:]
            del self.stack[-count:]
        else:
            values = self._since_mark()
        if any(value is _MARK for value in values):
            raise Damaged("a mark is no value")
        if code == 0x6C:
            self.stack.append(values)
        elif code == 0x64:
            target: dict[Any, Any] = {}
            _set_items(target, values)
            self.stack.append(target)
        else:
            self.stack.append(tuple(values))

    def _extend(self, code: int) -> None:
        """APPEND, APPENDS, SETITEM, SETITEMS."""
        if code in (0x65, 0x75):
            values = self._since_mark()
        else:
            count = 1 if code == 0x61 else 2
            values = self.stack[-count:]
            del self.stack[-count:]
        target = self.stack[-1]
        if code in (0x73, 0x75):
            if type(target) is not dict or len(values) % 2:
                raise Damaged("a dictionary is wanted")
            _set_items(target, values)
            stack = self.stack
            if "action" in target and len(stack) > 2 and stack[-2] is _MARK and type(stack[-3]) is list:
                self._entries(stack[-3], [stack.pop()])
        elif type(target) is not list:
            raise Damaged("a list is wanted")
        elif values and type(values[0]) is dict and "action" in values[0]:
            self._entries(target, values)
        else:
            target += values

    def _entries(self, target: list[Any], entries: list[Any]) -> None:
        """Put entries of a history into its columns, and forget them with their stacks."""
        trace = self.traces.get(id(target))
        if trace is None:
            trace = self.traces[id(target)] = Trace(self.stacks)
            self._kept.append(target)
        for entry in entries:
            if type(entry) is not dict or "action" not in entry:
                raise ValueError("an entry of the history is none")
            frames = entry.get("frames")
            if type(frames) is list:
                for frame in frames:
                    if type(frame) is dict:
                        self._forget(frame, frame.pop(_SLOT, None), self.stacks.frame(frame))
                entry["frames"] = ref = self.stacks.ref(frames)
                self._forget(frames, self._slots.pop(id(frames), None), ref)
            trace.add(entry)
            self._forget(entry, entry.pop(_SLOT, None), None)
        if len(self._slots) > 100_000:  # of lists that are no stacks of entries
            self._slots.clear()

    def _forget(self, value: Any, slot: int | None, instead: Any) -> None:
        """Keep something shorter in a value's place of the memo."""
        if slot is not None and 0 <= slot < len(self.memo) and self.memo[slot] is value:
            self.memo[slot] = instead

    def _since_mark(self) -> list[Any]:
        """Return the values above the last mark, and drop both."""
        stack = self.stack
        at = len(stack) - 1
        while at >= 0 and stack[at] is not _MARK:
            at -= 1
        if at < 0:
            raise Damaged("there is no mark")
        values = stack[at + 1 :]
        del stack[at:]
        return values

    def _shuffle(self, code: int) -> None:
        """POP, POP_MARK, DUP."""
        if code == 0x31:
            self._since_mark()
        elif code == 0x30:
            self.stack.pop()
        else:
            self.stack.append(self.stack[-1])


def _set_items(target: dict[Any, Any], values: list[Any]) -> None:
    """Put keys and values, which take turns, into a dictionary. Raises Damaged for a key that is a
    container."""
    keys = values[::2]
    if not _KEYS.issuperset(map(type, keys)):
        raise Damaged("a key is no text and no number")
    target.update(zip(keys, values[1::2], strict=True))
