"""NCCL's memory on a GPU for ranks that are connected in one way: figures of a machine, measured by
`calibrate --ranks`."""

from __future__ import annotations

from dataclasses import dataclass

# How names of GPUs begin whose memory no other GPU reaches: "Peer to Peer is not supported on 4090" (NVIDIA,
# forums.developer.nvidia.com/t/233202, of its driver); of the next generation's cards it is assumed.
WITHOUT_PEERS = ("rtx40", "rtx50")
# GPUs that come behind NVSwitches (HGX, DGX), which write to several of them at once: multicast (NVIDIA's
# documents of NVLink and NVSwitch).
BEHIND_SWITCHES = frozenset({"h100", "h200", "gh200", "b200", "b300"})


@dataclass(frozen=True, slots=True)
class Topology:
    """Bytes of one rank, outside PyTorch's allocator.

    ranks: how many were connected. link: how, in words ("NVLink", "PCIe"), with what NCCL was told. nccl: its
    version.
    code_bytes: the library's code, once in a process. communicator_bytes: a communicator, before anything is
    sent.
    ring_bytes: its first collective. exchange_code_bytes: the code of sends and receives, once.
    send_bytes, receive_bytes: the first message to a rank, and the first from one.
    """

    ranks: int
    link: str
    nccl: str
    code_bytes: int
    communicator_bytes: int
    ring_bytes: int
    exchange_code_bytes: int
    send_bytes: int
    receive_bytes: int
