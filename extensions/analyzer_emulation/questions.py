"""Questions of the emulated libraries while a program runs: lines of JSON over a Unix socket, answered by
this process.

1. A question is one line, {"about": TOPIC, ...}. The answer is one line: a list of whole numbers, or a string
   that says why there is none (`Unanswered`).
2. Every process of the program opens a connection of its own (`native/question.c`); each is served by a
   thread, one question at a time among all of them. Equal questions get the answer that was given first.
   Topics that wait for other processes are answered beside them, each question anew.
3. The socket lies in a directory that only this user may enter, and is gone when the server is closed.

No input is trusted: a line that is no question, or longer than any question can be, ends its connection.
"""

from __future__ import annotations

import json
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "ANALYZER_EMULATED_QUESTIONS"
_LONGEST = 4 * 2**20
Question = Mapping[str, Any]
Topic = Callable[[Question], Sequence[int]]


class Unanswered(Exception):
    """There is no answer; the text is for the program's user."""


class QuestionServer:
    """A server of questions, from `with` to its end. topics: who answers, by what a question is about.

    >>> import socket
    >>> with Questions({"sum": lambda question: [sum(question["of"])]}) as server:
    ...     with socket.socket(socket.AF_UNIX) as program:
    ...         program.connect(server.environment[VARIABLE])
    ...         _ = program.sendall(b'{"about": "sum", "of": [1, 2]}\\n')
    ...         program.recv(100)
    b'[3]\\n'
    """

    def __init__(self, topics: Mapping[str, Topic], waiting: Mapping[str, Topic] | None = None) -> None:
        """waiting: topics whose answers wait for other processes (`exchange.py`)."""
        self._topics = topics
        self._waiting = waiting or {}
        self._turn = threading.Lock()
        self._answers: dict[bytes, bytes] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="analyze-")
        path = str(Path(self._folder.name) / "questions")
        self.environment = {VARIABLE: path}
        self._server = _Server(path, self._reply)
        threading.Thread(target=self._server.serve_forever, name="questions", daemon=True).start()

    def __enter__(self) -> QuestionServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in tuple(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._folder.cleanup()

    def _reply(self, line: bytes) -> bytes:
        """Answer one line; equal questions are answered once."""
        question = json.loads(line)
        waits = self._waiting.get(question["about"])
        if waits is not None:
            return self._answer(question, waits)
        with self._turn:
            if line not in self._answers:
                self._answers[line] = self._answer(question, self._topics.get(question["about"]))
            return self._answers[line]

    @staticmethod
    def _answer(question: Question, topic: Topic | None) -> bytes:
        try:
            if topic is None:
                raise Unanswered(f"no answers about {question['about']}")
            answer: Any = [int(number) for number in topic(question)]
        except Unanswered as error:
            answer = str(error).replace('"', "'")
        return json.dumps(answer, ensure_ascii=False).encode() + b"\n"


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, reply: Callable[[bytes], bytes]) -> None:
        self.reply = reply
        self.connections = set[socket.socket]()
        super().__init__(path, _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a program that ended in the middle of a question needs no traceback here."""


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.connections.add(self.connection)
        try:
            while line := self.rfile.readline(_LONGEST):
                self.wfile.write(self.server.reply(line))
        finally:
            self.server.connections.discard(self.connection)
