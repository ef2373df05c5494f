"""What NCCL takes of a GPU's memory, outside PyTorch's allocator: NVML shows it, `memory_reserved` does not.

1. Every allocation takes whole pages of 2 MiB (`ncclCudaMalloc` through cuMem). A communicator makes three small ones for
   each of its channels, and two more: 196 MiB for 32 channels.
2. A **connection** for one channel takes 10 MiB at the receiver (4 KiB and the buffers of three protocols, 9,637,888
   bytes) and 2 MiB at the sender. Connections are made when first needed: by the first collective one to each neighbour
   in the ring for every collective channel, by the first message to a rank, or from it, one for every channel between two.
3. The library's code is loaded with the first communicator, that of sends and receives when first used. It stays after
   `destroy_process_group`; everything else goes.
4. How many channels there are is what NCCL's search of the topology finds. It was measured for two H200 on NVLink; for
   anything else the figures of that pair are taken and the result is marked "bounded".

Source: `transport/p2p.cc`, `channel.cc`, `init.cc` (NCCL 2.28); NCCL's own log of 2 x H200, `NCCL_DEBUG_SUBSYS=ALLOC,GRAPH`,
and NVML of 11 programs (`benchmarks/ranks`, `tests/data/h200/ranks.json`).
Not modelled: NVLink SHARP (as with `NCCL_NVLS_ENABLE=0`), trees of more than two ranks, network transports, registered
user buffers, `ncclCommSplit` that shares resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.graph import Communicator

MIB = 2**20
_PAGE_BYTES = 2 * MIB
_SENDER_BYTES = _PAGE_BYTES
_RECEIVER_BYTES = 5 * _PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Topology:
    """Channels of a communicator, and the bytes of NCCL's code; `ranks` it was measured for."""

    ranks: int
    collective_channels: int
    peer_channels: int
    code_bytes: int
    peer_code_bytes: int

    def taken(self, communicators: Mapping[str, Communicator]) -> int:
        """Bytes NCCL holds while all of these communicators live."""
        used = [use for use in communicators.values() if use.size > 1]
        if not used:
            return 0
        peers = any(use.sent_to or use.received_from for use in used)
        return (
            self.code_bytes
            + (self.peer_code_bytes if peers else 0)
            + sum(self._communicator(use) for use in used)
        )

    def _communicator(self, use: Communicator) -> int:
        channels = max(self.collective_channels, self.peer_channels)
        ring = self.collective_channels * (_SENDER_BYTES + _RECEIVER_BYTES) if use.collective else 0
        return (
            (3 * channels + 2) * _PAGE_BYTES
            + ring
            + self.peer_channels
            * (len(use.sent_to) * _SENDER_BYTES + len(use.received_from) * _RECEIVER_BYTES)
        )

    def measured_for(self, communicators: Mapping[str, Communicator]) -> bool:
        """Whether every communicator is of the size that was measured."""
        return all(use.size in (1, self.ranks) for use in communicators.values())


# Two H200 on NVLink, NCCL 2.28.9: 24 channels for collectives, 32 between two ranks.
NVLINK_PAIR = Topology(2, 24, 32, 356 * MIB, 62 * MIB)
