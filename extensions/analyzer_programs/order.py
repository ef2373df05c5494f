"""Whether all ranks of a group call the same collectives in the same order, as NCCL and gloo need them to.

1. Calls are compared by the collective's name, group by group; groups of the same ranks are told apart by the
   order in which a rank first used them, since only some ways of making groups give them the same name
   everywhere.
2. Where a rank calls another one than the others, or none where they call one, a real job waits for ever
   (`ProcessGroupNCCL`'s watchdog ends it after ten minutes), so there is no figure to give.
3. A rank that was ended before its program was (`--until`, out of memory) may have called fewer.

Not compared: roots and sizes; messages between two ranks, which `peers.py` watches over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise, zip_longest

from analyzer.errors import CaptureError
from analyzer.ranks import Call

# The ranks of a group, and which of their groups it is.
Group = tuple[tuple[int, ...], int]


def read(message: bytes) -> dict[Group, list[Call]]:
    """Parse the calls a rank reported (`ranks.py:calls_of`), by group."""
    calls_by_group: dict[Group, list[Call]] = {}
    for (ranks, _), calls in json.loads(message):
        members = tuple(ranks)
        calls_by_group[members, sum(group == members for group, _ in calls_by_group)] = [
            (name, where) for name, where in calls
        ]
    return calls_by_group


def check(called: Mapping[int, Mapping[Group, list[Call]]], whole: bool) -> None:
    """called: by rank. whole: every program ran to its end. Raises CaptureError if calls differ."""
    for group in sorted({group for groups in called.values() for group in groups}):
        ranks = [rank for rank in group[0] if rank in called]
        for first, other in pairwise(ranks):
            for ours, theirs in zip_longest(called[first].get(group, ()), called[other].get(group, ())):
                if ours is None or theirs is None:
                    if whole:
                        raise (
                            _missing_call_error(first, ours, other)
                            if theirs is None
                            else _missing_call_error(other, theirs, first)
                        )
                    break
                if ours[0] != theirs[0]:
                    raise CaptureError(
                        f"rank {first} calls {ours[0]} at {_line(ours)} where rank {other} calls {theirs[0]}"
                        f" at {_line(theirs)}",
                        "in a real job both would wait for ever: every rank has to call the same collectives"
                        " in the same order",
                    )


def _missing_call_error(rank: int, call: Call | None, other: int) -> CaptureError:
    assert call is not None
    return CaptureError(
        f"rank {rank} calls {call[0]} at {_line(call)}, and rank {other} never does",
        "in a real job it would wait for ever: every rank of the group has to call it",
    )


def _line(call: Call) -> str:
    return call[1] or "a line of a library"
