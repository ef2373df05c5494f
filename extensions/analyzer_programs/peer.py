"""A rank of a job in a process of its own: it follows what it is told to and speaks with the post office
(`peers.py`)."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from analyzer.errors import AnalyzerError, CaptureError
from analyzer_programs.peers import AwaitedValue, Work, never
from analyzer_programs.program import follow


class PostLine:
    """The `Post` of a rank in a process of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, channel: str, value: bytes | None) -> None:
        """Send a value to a channel."""
        self._connection.send(("say", channel, value))

    def receive(self, source: int | None, channel: str, where: str) -> bytes | None:
        """Wait for a value. Raises CaptureError where it never comes."""
        self._connection.send(("ask", source, channel, where))
        kind, value = self._connection.recv()
        if kind == "never":
            raise CaptureError(*never(AwaitedValue(source, channel, where), value))
        return value  # type: ignore[no-any-return]


def main(descriptor: int) -> None:
    """Follow the rank that the parent names."""
    connection = Connection(descriptor)
    try:
        work: Work = connection.recv()
        analysis, error = follow(
            work.script,
            work.args,
            work.options,
            work.environment,
            work.until,
            job=work.rank,
            post=PostLine(connection),
        )
        if isinstance(error, AnalyzerError):
            raise error
        connection.send(("done", analysis.estimate))
    except (EOFError, BrokenPipeError):
        pass  # nobody waits any more
    except AnalyzerError as error:
        connection.send(("failed", str(error)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
