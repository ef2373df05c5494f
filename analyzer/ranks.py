"""Which rank of a job is followed, and the environment `torchrun` would give it.

Source: `torch/distributed/elastic/agent/server/local_elastic_agent.py` (the variables of a worker).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from analyzer.errors import OptionError

# A collective's name, and file and line that called it.
Call = tuple[str, str]


def calls_of(rank: int) -> str:
    """Return the channel of a rank's calls: [[[ranks, group], [Call, ...]], ...] in JSON."""
    return f"collectives of rank {rank}"


class Post(Protocol):
    """Brings values from one rank to another, by the name of the message (`analyzer_programs/peers.py`)."""

    def send(self, channel: str, value: bytes | None) -> None:
        """Send this rank's value; None: the rank does not know it."""

    def receive(self, source: int | None, channel: str, where: str) -> bytes | None:
        """Return the value rank `source` says (None: whichever rank says it first). where: the line that
        waits.

        Raises CaptureError where it never comes.
        """


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank `rank` of `world_size`, `local_world_size` a machine. Raises OptionError if invalid.

    launched: by `torchrun`, though it is the only one.
    """

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    launched: bool = False

    def __post_init__(self) -> None:
        for name, count in (("ranks", self.world_size), ("ranks on a machine", self.local_world_size)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise OptionError(f"{count!r} {name}", "give a whole number of at least 1")
        if self.world_size % self.local_world_size:
            raise OptionError(
                f"{self.world_size} ranks cannot be spread over machines with {self.local_world_size} each",
                "give a multiple: --nproc-per-node N --nnodes M are N x M ranks",
            )
        if (
            isinstance(self.rank, bool)
            or not isinstance(self.rank, int)
            or not 0 <= self.rank < self.world_size
        ):
            raise OptionError(
                f"there is no rank {self.rank!r} among {self.world_size}", f"0 to {self.world_size - 1}"
            )

    @classmethod
    def of(cls, rank: int, world_size: int) -> Rank:
        """Return a rank of a job on machines of 8 GPUs, or on one machine where that does not come out
        even."""
        fills_hosts = isinstance(world_size, int) and world_size > 8 and world_size % 8 == 0
        return cls(rank, world_size, 8 if fills_hosts else world_size)

    @property
    def local_rank(self) -> int:
        """Number of the rank, and of its GPU, on its machine."""
        return self.rank % self.local_world_size

    @property
    def node(self) -> int:
        """Number of its machine."""
        return self.rank // self.local_world_size

    def notes(self) -> tuple[str, ...]:
        """Notes on the figures of this rank; none for a single process."""
        if self.world_size == 1:
            return ()
        return (
            f"rank {self.rank} of {self.world_size}; the other ranks are taken to hold what this one holds",
        )

    def environment(self) -> dict[str, str]:
        """Variables `torchrun` sets; none for a single process started directly."""
        if self.world_size == 1 and not self.launched:
            return {}
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str(self.node),
            "GROUP_WORLD_SIZE": str(self.world_size // self.local_world_size),
            "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "none",
        }
