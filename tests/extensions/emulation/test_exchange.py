"""What emulated ranks send each other."""

from __future__ import annotations

import threading
import time

import pytest

from analyzer_emulation.exchange import Exchange
from analyzer_emulation.questions import Unanswered


def test_words_wait_for_all_who_listen() -> None:
    exchange, heard = Exchange(), list[object]()
    listeners = [
        threading.Thread(target=lambda: heard.append(exchange.hear({"channel": "a", "rank": 1})))
        for _ in range(2)
    ]
    for one in listeners:
        one.start()
    exchange.say({"channel": "a", "listeners": 2, "words": [3, 4]})
    for one in listeners:
        one.join(10)
    assert heard == [[3, 4], [3, 4]]
    exchange.ended(1)
    with pytest.raises(Unanswered, match="rank 1 ended before"):  # all have heard it: it is gone
        exchange.hear({"channel": "a", "rank": 1})


def test_nobody_waits_for_ever() -> None:
    started = time.monotonic()
    with pytest.raises(Unanswered, match=r"waited 0 seconds for another rank"):
        Exchange(longest=0.2).hear({"channel": "a", "rank": 1})
    assert 0.2 <= time.monotonic() - started < 10


def test_what_an_ended_rank_said_is_still_heard() -> None:
    exchange = Exchange()
    exchange.say({"channel": "a", "listeners": 1, "words": [1]})
    exchange.ended(1)
    assert exchange.hear({"channel": "a", "rank": 1}) == [1]
