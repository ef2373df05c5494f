"""Questions of emulated libraries, over the socket they come by."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest

from analyzer_emulation.questions import VARIABLE, Question, QuestionServer, Unanswered


def asked(path: str, *lines: bytes) -> list[bytes]:
    """What one connection hears; it ends when the other side hangs up."""
    with socket.socket(socket.AF_UNIX) as program, program.makefile("rwb") as stream:
        program.settimeout(10)
        program.connect(path)
        heard = []
        for line in lines:
            stream.write(line)
            stream.flush()
            heard.append(stream.readline())
        return heard


def test_equal_questions_are_worked_out_once() -> None:
    seen: list[Question] = []

    def total(question: Question) -> list[int]:
        seen.append(question)
        return [sum(question["of"]), 2**60]

    line = b'{"about": "sum", "of": [1, 2]}\n'
    with QuestionServer({"sum": total}) as server:
        path = server.environment[VARIABLE]
        assert asked(path, line, line) + asked(path, line) == [b"[3, 1152921504606846976]\n"] * 3
    assert len(seen) == 1


def test_no_answer_says_why_and_the_next_question_is_answered() -> None:
    def never(_question: Question) -> list[int]:
        raise Unanswered('nobody knows "that"')

    with QuestionServer({"never": never, "one": lambda _question: [1]}) as server:
        told = asked(
            server.environment[VARIABLE],
            b'{"about": "never"}\n',
            b'{"about": "else"}\n',
            b'{"about": "one"}\n',
        )
    assert [json.loads(line) for line in told] == [
        "nobody knows 'that'",
        "no answers about else",
        [1],
    ]


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1\n", b"[]\n", b'{"about": []}\n', b"\xff\n", b'{"about": "one", "of": 1e999}\n']
)
def test_what_is_no_question_ends_its_connection_alone(
    line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with QuestionServer({"one": lambda question: [int(question.get("of", 1))]}) as server:
        assert asked(server.environment[VARIABLE], line) == [b""]
        assert asked(server.environment[VARIABLE], b'{"about": "one"}\n') == [b"[1]\n"]
    assert capfd.readouterr().err == ""


def test_nobody_else_reaches_the_socket_and_nothing_is_left() -> None:
    with QuestionServer({}) as server:
        path = Path(server.environment[VARIABLE])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()
