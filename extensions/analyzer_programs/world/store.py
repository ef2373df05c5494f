"""The key-value store ranks meet at, as one rank sees it.

1. A value this rank writes is there at once, and other ranks followed beside it may read it.
2. A key it has not written itself is read from the rank that writes it, by the `Post`; waiting for keys is
   over at once.
3. `TCPStore`, `FileStore` and `HashStore` of the program are such stores too: nothing listens, nothing is
   opened.

Not modelled: counters other ranks add to (`add` counts this rank's own), `compare_set` against another rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from analyzer.errors import CaptureError

if TYPE_CHECKING:
    from analyzer.ranks import Post


class Store(dist.Store):  # type: ignore[misc, name-defined]
    """The store of this name as this rank sees it. where: tells the line that runs, for errors."""

    def __init__(self, name: str, post: Post | None, where: Callable[[], str]) -> None:
        super().__init__()
        self._name, self._post_office, self._where = name, post, where
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        """Store a value and send it to the other followed ranks."""
        self._values[key] = value if isinstance(value, bytes) else str(value).encode()
        if self._post_office is not None:
            self._post_office.send(self._channel(key), self._values[key])

    def get(self, key: str) -> bytes:
        """Read. Raises CaptureError for what no rank writes."""
        if key not in self._values:
            reads, value = f"{self._where() or 'the program'} reads {key!r} from the store", None
            if self._post_office is not None:
                value = self._post_office.receive(None, self._channel(key), f"{reads} and")
            if value is None:
                raise CaptureError(
                    f"{reads}, which another rank would have written",
                    "follow it as one rank of a job (--nproc-per-node), or let every rank write it",
                )
            self._values[key] = value
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return it."""
        count = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(count).encode()
        return count

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write where the value is the expected one, or where there is none and none is expected."""
        if self._values.get(key, b"") == expected.encode():
            self.set(key, desired)
        return self._values.get(key, expected.encode())

    def wait(self, *_: Any) -> None:
        """Return at once: every key counts as written."""

    def check(self, keys: list[str]) -> bool:
        """Return True: every key counts as written."""
        del keys
        return True

    def set_timeout(self, timeout: Any) -> None:
        """Do nothing: no call waits."""

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it existed."""
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Number of keys written."""
        return len(self._values)

    def _channel(self, key: str) -> str:
        return f"store {self._name} {key}"


def stores(post: Post | None, where: Callable[[], str]) -> dict[str, Any]:
    """Return replacements for PyTorch's store classes, for a followed rank."""

    def replacement(name: Callable[..., str]) -> type[Store]:
        class Own(Store):
            """A store of the program's own."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(name(*args, **kwargs), post, where)

        return Own

    def address(host_name: str = "", port: int = 0, *_: Any, **__: Any) -> str:
        return f"{host_name}:{port}"

    def file(file_name: str = "", *_: Any, **__: Any) -> str:
        return str(file_name)

    return {
        "torch.distributed.TCPStore": replacement(address),
        "torch.distributed.FileStore": replacement(file),
        "torch.distributed.HashStore": replacement(lambda: "hash"),
    }
