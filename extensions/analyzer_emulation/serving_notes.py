"""Notes on a program that serves: what its arenas hold and do not give back, and what would bound it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer_emulation.served import Request

_MIB = 2**20
_NAMED = 3
_LONGEST = 300  # characters of an error
_NO_ROOM = re.compile(
    r"Available memory of \d+ is smaller than requested bytes of \d+"
    r"|Failed to allocate memory for requested buffer of size \d+"
)
# Provider and run options that bound an arena (ONNX Runtime's documentation of the CUDA provider;
# onnxruntime_run_options_config_keys.h).
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"


def notes_on(record: Mapping[str, Any], requests: Sequence[Request]) -> tuple[str, ...]:
    """Return the notes on a program's requests, in their order. record: of `inside/sessions.py`."""
    return tuple(_notes(record, requests))


def _notes(record: Mapping[str, Any], requests: Sequence[Request]) -> Iterator[str]:
    served = [request for request in requests if request.what == "request"]
    sessions = int(record["sessions"])
    ended = "ran through" if record["ended"]["how"] == "ended" else "ended before its end, after"
    yield f"{ended} {_count(sessions, 'session')} and {_count(len(served), 'request')}"
    yield from (f"{note}: all that arenas hold counts as in use" for note in record["session_notes"])
    yield from _growth(record, served)
    on_cpu = [mark for mark in record["session_marks"] if mark.get("on_cuda") is False]
    if on_cpu:
        yield f"{_count(len(on_cpu), 'session')} did not take the CUDA provider: its log above says why"
    failed = [request for request in served if request.error]
    for request in failed[:_NAMED]:
        yield f"{request.name} was refused: {_reason(request.error)}"
    if len(failed) > _NAMED:
        yield f"{len(failed) - _NAMED:,} more requests were refused"
    yield (
        "kernels compute nothing here: results that the host reads are zero, and what they decide (boxes that"
        " are kept, the end of a loop) is as for zeros"
    )


def _growth(record: Mapping[str, Any], served: Sequence[Request]) -> Iterator[str]:
    """Yield whether held memory grew and is not given back, at which request, and what bounds it."""
    if not served:
        return
    last, most_held = served[-1], max(request.most_held for request in served)
    most_used = max(request.peak[0] for request in served)
    grown = [one for before, one in pairwise(served) if one.held > before.held]
    if last.held + _MIB < most_held:
        yield (
            f"{_size(most_held)} were held at most and {_size(last.held)} are after the last request: regions"
            " are given back"
        )
        return
    if last.held <= last.in_use + _MIB:
        return
    where = f"; it grew last at {grown[-1].name}" if grown else ""
    yield (
        f"the arenas hold {_size(last.held)} after the last request, {_size(last.in_use)} of them in use, and"
        f" give nothing back while their sessions live{where}"
    )
    options = [mark["options"] for mark in record["session_marks"] if mark.get("options")]
    bounds = []
    if any(one.get("arena_extend_strategy", "kNextPowerOfTwo") != "kSameAsRequested" for one in options):
        bounds.append("arena_extend_strategy=kSameAsRequested (regions of what is asked for, not doubled)")
    bounds.append(
        f'the run option "{_SHRINKAGE}" = "gpu:0" at large requests (free regions go back to the device after'
        " them)"
    )
    bounds.append(
        f"gpu_mem_limit (at least {_size(most_used)}, which were in use at once; a request beyond it fails)"
    )
    yield f"this bounds what is held: {'; '.join(bounds)}"


def _reason(error: str) -> str:
    """Return ONNX Runtime's reason, without the place in its own source."""
    matched = _NO_ROOM.search(error)
    return matched[0] if matched is not None else " ".join(error.split())[:_LONGEST]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.0f} MiB"
