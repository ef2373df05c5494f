"""NCCL's device memory, for the emulated library: the figures of `libraries/nccl.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.devices import DeviceProfile
from analyzer.graph import Communicator
from analyzer.libraries import nccl
from analyzer.notes import NCCL_BOUNDED
from analyzer.runtimes.pytorch.settings import STREAM_POOL_BYTES
from analyzer_emulation.questions import Question, Topic


class Nccl:
    """Answers for a GPU. `topics`: what it answers."""

    def __init__(self, profile: DeviceProfile) -> None:
        self._profile = profile
        self._sizes = set[int]()
        self.topics: Mapping[str, Topic] = {"nccl": self.figures}

    def figures(self, question: Question) -> Sequence[int]:
        """`nccl.figures` of a communicator of "size" ranks. The code that was measured includes PyTorch's
        pool of streams, which its process group makes; here the runtime counts that pool itself."""
        self._sizes.add(int(question["size"]))
        code, *others = nccl.figures(int(question["size"]), self._profile)
        return (max(code - STREAM_POOL_BYTES, 0), *others)

    def doubts(self) -> tuple[str, ...]:
        """Return which topologies were not measured on this GPU."""
        missing = {
            size: nccl.memory_of({"": Communicator(size)}, self._profile).stands_in
            for size in sorted(self._sizes)
        }
        return tuple(
            NCCL_BOUNDED.note(
                f"NCCL bounded: what it takes for {size} ranks is as measured for {stands_in}; other"
                " topologies have other channels (analyze calibrate --ranks N measures them)",
                ranks=size,
            )
            for size, stands_in in missing.items()
            if stands_in
        )
