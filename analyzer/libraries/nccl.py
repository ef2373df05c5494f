"""NCCL's memory on a GPU, outside PyTorch's allocator: NVML shows it, `memory_reserved` does not.

1. Every allocation takes whole pages of 2 MiB (`ncclCudaMalloc` through cuMem). A communicator makes three
   small ones for each of its channels, and two more: 196 MiB for 32 channels. One of a single rank has 64
   channels (`MAXCHANNELS`, `device.h`): 388 MiB, and no connections.
2. A **connection** for one channel takes 10 MiB at the receiver (4 KiB and the buffers of three protocols,
   9,637,888 bytes) and 2 MiB at the sender. Connections are made when first needed: by the first collective
   one to each neighbour in the ring for every collective channel (24 of them between two H200: 288 MiB), by
   the first message to a rank, or from it, one for every channel between two (32: 64 and 320 MiB).
3. The library's code is loaded with the first communicator and the first collective of several ranks: one of
   a single rank copies and launches no kernel (`ncclLaunchOneRank`), and its process has 170 MiB of code
   where others have 356. That of sends and receives is loaded when first used. Code stays after
   `destroy_process_group`; everything else goes.
4. How many channels there are is what NCCL's search of the topology finds: the bytes are measured (`analyze
   calibrate --ranks N`) and stand in the device's profile, for each number of ranks (`devices/topology.py`).
5. More than two ranks behind NVSwitches have **NVLink SHARP**, for which a communicator makes a page more for
   each collective channel, and one of credits: 50 MiB for 24 (`ncclNvlsInit`, `ncclNvlsSetup`). Beside public
   logs of vLLM: 46 to 52 MiB (4 ranks less 2, `tests/data/serving`).
6. For a number of ranks nobody measured on this GPU, the figures of the nearest that was measured stand in,
   and the result is marked "bounded"; of a GPU without any, those of two H200 on NVLink.

Source: `transport/p2p.cc`, `transport/nvls.cc`, `channel.cc`, `init.cc`, `enqueue.cc` (NCCL 2.28); NCCL's own
log of 2 x H200, `NCCL_DEBUG_SUBSYS=ALLOC,GRAPH`, NVML of 19 programs (`benchmarks/ranks`,
`tests/data/h200/ranks.json`) and of a rank alone (`communicators_alone.json`).
Not modelled: the buffers of NVLink SHARP, made when a collective first takes it, and `NCCL_NVLS_ENABLE=0`;
trees of more than two ranks, network transports, registered user buffers, `ncclCommSplit` that shares
resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.devices import DeviceProfile, load
from analyzer.devices.loader import DEFAULT
from analyzer.devices.topology import BEHIND_SWITCHES, Topology
from analyzer.graph import Communicator

_SHARP = (24 + 1) * 2 * 2**20  # pages of 2 MiB: a collective channel's each, and the credits'


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes NCCL holds. stands_in: words on what replaced figures not measured, "" if none."""

    nbytes: int
    stands_in: str = ""


def memory_of(communicators: Mapping[str, Communicator], profile: DeviceProfile) -> Memory:
    """Return the memory NCCL holds on this GPU while all these communicators live."""
    used = list(communicators.values())
    if not used:
        return Memory(0)
    pairs = [(use, _nearest(use.size, profile)) for use in used]
    nbytes = max(topology.code_bytes for _, topology in pairs) + sum(
        _communicator_bytes(use, topology, profile) for use, topology in pairs
    )
    if any(use.sent_to or use.received_from for use in used):
        nbytes += max(topology.exchange_code_bytes for _, topology in pairs)
    missing = [
        topology
        for use, topology in pairs
        if use.size > 1 and (use.size != topology.ranks or not profile.nccl)
    ]
    if not missing:
        return Memory(nbytes)
    where = "" if profile.nccl else f" ({DEFAULT})"
    return Memory(nbytes, f"{missing[0].ranks} ranks on {missing[0].link}{where}")


def figures(size: int, profile: DeviceProfile) -> tuple[int, int, int, int, int, int]:
    """Return a communicator's parts in bytes: library code, code of messages, the communicator, collective
    connections, a connection to send to a rank, and one to receive."""
    topology = _nearest(size, profile)
    return (
        topology.code_bytes,
        topology.exchange_code_bytes,
        _communicator_bytes(Communicator(size), topology, profile),
        topology.ring_bytes,
        topology.send_bytes,
        topology.receive_bytes,
    )


def _nearest(size: int, profile: DeviceProfile) -> Topology:
    """Return figures of the nearest measured number of ranks; a single rank only of single ranks."""
    for measured in (profile.nccl, load(DEFAULT).nccl):
        able = [topology for topology in measured if (topology.ranks == 1) == (size == 1)]
        if able:
            return min(able, key=lambda topology: (abs(topology.ranks - size), -topology.ranks))
    raise AssertionError(f"{DEFAULT}'s profile has figures of one rank and of several")


def _communicator_bytes(use: Communicator, topology: Topology, profile: DeviceProfile) -> int:
    return (
        topology.communicator_bytes
        + (_SHARP if use.size > 2 and profile.name in BEHIND_SWITCHES else 0)
        + (topology.ring_bytes if use.collective else 0)
        + len(use.sent_to) * topology.send_bytes
        + len(use.received_from) * topology.receive_bytes
    )
