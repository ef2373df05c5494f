"""Messages between the processes of one emulated job: words on named channels, sent by one rank and received
by others.

1. A collective whose result may steer the program is carried this way (`native/nccl.c`): every rank sends
   its own values, and receives the others'. Each message has a channel of its own, and is dropped when all
   receivers have it.
2. A receiver waits as long as the sender's process runs, `LONGEST_SECONDS` at most (ProcessGroupNCCL's
   timeout of a collective).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from analyzer_emulation.questions import Question, Topic, Unanswered

LONGEST_SECONDS = 600.0


class Exchange:
    """`topics`: "say" and "hear", for `Questions(waiting=...)`. `longest`: seconds a listener waits."""

    def __init__(self, longest: float = LONGEST_SECONDS) -> None:
        self._longest = longest
        self._changed = threading.Condition()
        self._words: dict[str, tuple[Sequence[int], int]] = {}
        self._ended = set[int]()
        self.topics: Mapping[str, Topic] = {"say": self.say, "hear": self.hear}

    def say(self, question: Question) -> Sequence[int]:
        """Words for a number of listeners on a channel."""
        with self._changed:
            self._words[question["channel"]] = question["words"], int(question["listeners"])
            self._changed.notify_all()
        return []

    def hear(self, question: Question) -> Sequence[int]:
        """Return a channel's words. Raises Unanswered if its rank has ended or the time is over."""
        channel, rank = question["channel"], int(question["rank"])
        until = time.monotonic() + self._longest
        with self._changed:
            while channel not in self._words:
                if rank in self._ended:
                    raise Unanswered(f"rank {rank} ended before it took part in a collective")
                left = until - time.monotonic()
                if left <= 0:
                    raise Unanswered(f"a collective waited {self._longest:,.0f} seconds for another rank")
                self._changed.wait(left)
            words, listeners = self._words[channel]
            if listeners > 1:
                self._words[channel] = words, listeners - 1
            else:
                del self._words[channel]
        return words

    def ended(self, rank: int) -> None:
        """Record that a rank's process has ended, so that nobody waits for it."""
        with self._changed:
            self._ended.add(rank)
            self._changed.notify_all()
