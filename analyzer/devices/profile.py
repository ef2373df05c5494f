"""Device profiles: the figures of a GPU that a prediction needs, and where each comes from.

A profile is a JSON file (`profiles/NAME.json`, or one written by `analyze calibrate`) with these fields, by
the schema `schema.json`. `sources` says for each figure whether it is "measured" (where, with what versions),
"specified" (by what public document), "recorded" (what a library answers for the GPU's public figures),
"published" (measured by others) or "assumed" (from which profile).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from analyzer.devices.architectures import Architecture, architecture_of
from analyzer.devices.topology import WITHOUT_PEERS, Topology
from analyzer.releases import RECORDED, Release


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One GPU model.

    capacity_bytes: what CUDA has to give (`total_memory`, of which `mem_get_info` has a part free).
    capacity_range_bytes: least and most it may be, by the driver; both it where it was measured.
        listed_bytes: what nvidia-smi and NVML list, which is more; 0: not known.
    driver_bytes: of it, what the driver holds on a GPU that nobody uses, beside what NVML counts for
        processes.
    sm_count, max_threads_per_sm: multiprocessors, resident threads on each.
    compute_capability: (major, minor).
    context_bytes: NVML's figure for a process after CUDA is initialised and a first kernel ran, allocator
        empty.
    context_range_bytes: least and most it may be; both it where it was measured. first_kernel_bytes: what of
        it comes with that kernel.
    modules_bytes: what each library family adds when first used ("cublas", "cudnn", ...), outside the
        allocator; "kernels": the code of all other kernels, once.
    modules_off_bytes: how far a family's bytes may be off, where a release's are known so far only; of the
        others a half.
    per_thread_modules: the families whose bytes come once for each thread that uses them; a training step
        uses two threads, because the backward pass runs on autograd's own.
    cublas_workspace_bytes, cublaslt_workspace_bytes: what the libraries may take through the allocator, how
        often is the release's own (`runtimes/pytorch/scratch/blas.py`).
    sources: figure -> where it comes from.
    measured: the figures beyond the specification were measured on this GPU model.
    nvml_names: the names NVML gives to this GPU model.
    nccl: what NCCL takes, for each number of ranks that was measured with GPUs of this model.
    cudnn_device: how cuDNN describes the GPU, in its own field names; empty: nobody can be asked about it.
    host_factor: how many times as long as the H100's host (`analyzer_timing/host.py`) the host takes that
        hands work over; None: not known.
    releases: what the figures were measured with; once a runtime has put in what it is to predict, that
        (`analyzer/releases.py`).
    """

    name: str
    capacity_bytes: int
    compute_capability: tuple[int, int]
    sm_count: int
    max_threads_per_sm: int
    context_bytes: int
    modules_bytes: Mapping[str, int]
    cublas_workspace_bytes: int
    cublaslt_workspace_bytes: int
    capacity_range_bytes: tuple[int, int] = (0, 0)
    listed_bytes: int = 0
    driver_bytes: int = 0
    context_range_bytes: tuple[int, int] = (0, 0)
    first_kernel_bytes: int = 0
    modules_off_bytes: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    measured: bool = False
    per_thread_modules: tuple[str, ...] = ()
    nvml_names: tuple[str, ...] = ()
    nccl: tuple[Topology, ...] = ()
    cudnn_device: Mapping[str, Any] = field(default_factory=dict)
    releases: Mapping[str, Release] = field(default_factory=lambda: RECORDED)
    host_factor: float | None = None

    @property
    def architecture(self) -> Architecture:
        """The record of this compute capability."""
        return architecture_of(self.compute_capability)

    @property
    def reaches_peers(self) -> bool:
        """Whether one of these GPUs reads another's memory."""
        return not self.name.startswith(WITHOUT_PEERS)

    @property
    def usable_bytes(self) -> int:
        """Bytes that processes may hold, as NVML counts them."""
        return self.capacity_bytes - self.driver_bytes

    def of_memory(self, nbytes: int) -> DeviceProfile:
        """Return the same GPU with so many bytes of memory for processes, for certain."""
        certain = (nbytes, nbytes)
        return replace(
            self, capacity_bytes=nbytes, capacity_range_bytes=certain, listed_bytes=nbytes, driver_bytes=0
        )
