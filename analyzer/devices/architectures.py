"""Architectures: one record of limits and library choices for each compute capability, which the rules read.

A new architecture is one record here. A compute capability without a record is refused by `architecture_of`,
which profiles and the emulated runtime ask; no rule decides by the numbers themselves.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", for the limits. The L2
cache is that of the largest GPU of the compute capability (NVIDIA's architecture whitepapers). Each other
field names the code that decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import OptionError
from analyzer.releases import ALWAYS, Span

_KIB, _MIB = 1 << 10, 1 << 20
_NEVER = Span(until=(0, 0))
# Releases of torch that hand cuDNN every depthwise convolution whose tensors lie channels-last, whatever its
# type (`use_cudnn_depthwise`, `Convolution.cpp`, pytorch/pytorch#156140; emulated as a T4, torch 2.11 does so
# with bfloat16, torch 2.7 does not).
DEPTHWISE_OF_ANY_TYPE = Span(since=(2, 9))
_SINCE_212, _SINCE_214 = Span(since=(2, 12)), Span(since=(2, 14))


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of a multiprocessor, the device's L2 cache, and what libraries choose by compute capability.

    threads_per_sm, blocks_per_sm: what is resident at once. shared_bytes: its shared memory;
        block_shared_bytes: what of it one block may opt in to.
    cub: whose tiles CUB's kernels have (`runtimes/pytorch/scratch/cub.py`). lu: whose blocks PyTorch's
        batched LU has (`runtimes/pytorch/scratch/factorizations.py`).
    l2_bytes: 0 where it is not known. cleared_bytes: what Inductor clears of it before it times a kernel:
        the L2 cache where that was measured, else the most it can be.
    ampere: tensor cores take bfloat16 and TF32, and blocks copy to shared memory asynchronously, which flash
        and cuDNN's attention need (`check_sm_version`, `sdp_utils.cpp`).
    volta: tensor cores take float16, whose rows efficient attention then wants aligned
        (`minimum_gemm_alignment`, `sdp_utils.cpp`), and its backward pass splits the keys
        (`kEnableSplitKeys`, `kernel_backward.h`); cuDNN has depthwise convolutions for them.
    roomy_tiles: the types for which the backward pass of efficient attention has tiles of 128 x 64 above head
        size 64: "all", "half" (float16, bfloat16) or "" (`kernel_backward.h`, `kBlockSizeI`).
    narrow_backward: flash attention's backward pass takes head sizes above 192 in part only
        (`check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`).
    prefers_cudnn: attention is cuDNN's first (`priority_order`, `sdp_utils.cpp`). wide_heads: the releases
        of torch in which cuDNN's takes head sizes up to 256 (`check_cudnn_tensor_shapes`).
    grouped_products: CUTLASS multiplies groups of rows at once (`GroupMM.cu`), and DeepGEMM has kernels.
    large_workspace: the releases of torch that give cuBLAS 32 MiB; None: none does (`CublasHandlePool.cpp`;
        PyTorch's own binaries, `tests/data/releases`).
    persistent_layers: cuDNN's persistent kernels run wider recurrent layers on large GPUs
        (`use_rnn_persist_device_heuristics`, `cudnn/RNN.cpp`).
    """

    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes: int
    block_shared_bytes: int
    cub: str
    lu: str
    l2_bytes: int = 0
    cleared_bytes: int = 128 * _MIB
    ampere: bool = True
    volta: bool = True
    roomy_tiles: str = ""
    narrow_backward: bool = False
    prefers_cudnn: bool = False
    wide_heads: Span = _NEVER
    grouped_products: bool = False
    large_workspace: Span | None = None
    persistent_layers: bool = True


def _before_ampere(threads: int, blocks: int, shared_bytes: int, **more: Any) -> Architecture:
    values: dict[str, Any] = {"block_shared_bytes": shared_bytes, "l2_bytes": 6 * _MIB, "roomy_tiles": "half"}
    fixed: dict[str, Any] = {"cub": "turing", "lu": "ampere", "ampere": False, "persistent_layers": False}
    return Architecture(threads, blocks, shared_bytes, **{**fixed, **values, **more})


def _data_center(lu: str, l2_bytes: int, roomy_tiles: str, **more: Any) -> Architecture:
    """Hopper, and Blackwell as in B200 and B300, some of whose values `more` replaces."""
    blackwell: dict[str, Any] = {"cub": "blackwell", "wide_heads": _SINCE_214, "large_workspace": _SINCE_212}
    both: dict[str, Any] = {"roomy_tiles": roomy_tiles, "prefers_cudnn": True, "grouped_products": True}
    values = both | blackwell | more
    return Architecture(2048, 32, 228 * _KIB, 227 * _KIB, lu=lu, l2_bytes=l2_bytes, **values)


def _workstation(l2_bytes: int = 0) -> Architecture:
    """Blackwell as in GeForce, RTX PRO and GB10."""
    choices: dict[str, Any] = {"narrow_backward": True, "large_workspace": _SINCE_212}
    return Architecture(1536, 24, 100 * _KIB, 99 * _KIB, "blackwell", "ampere", l2_bytes, **choices)


# By compute capability.
ARCHITECTURES: Mapping[tuple[int, int], Architecture] = {
    (6, 0): _before_ampere(
        2048, 32, 64 * _KIB, block_shared_bytes=48 * _KIB, l2_bytes=4 * _MIB, volta=False, roomy_tiles=""
    ),
    (7, 0): _before_ampere(2048, 32, 96 * _KIB),
    (7, 5): _before_ampere(1024, 16, 64 * _KIB),
    (8, 0): Architecture(2048, 32, 164 * _KIB, 163 * _KIB, "ampere", "ampere", 40 * _MIB, roomy_tiles="all"),
    (8, 6): Architecture(
        1536,
        16,
        100 * _KIB,
        99 * _KIB,
        "ada",
        "ampere",
        6 * _MIB,
        narrow_backward=True,
        persistent_layers=False,
    ),
    (8, 7): Architecture(1536, 16, 164 * _KIB, 163 * _KIB, "ada", "ampere", narrow_backward=True),
    (8, 9): Architecture(1536, 24, 100 * _KIB, 99 * _KIB, "ada", "ada", 96 * _MIB, narrow_backward=True),
    (9, 0): _data_center(
        "hopper",
        60 * _MIB,
        "all",
        cub="hopper",
        cleared_bytes=60 * _MIB,
        wide_heads=ALWAYS,
        large_workspace=ALWAYS,
    ),
    (10, 0): _data_center("blackwell", 126 * _MIB, "all"),
    (10, 3): _data_center("ampere", 126 * _MIB, ""),
    (12, 0): _workstation(96 * _MIB),
    (12, 1): _workstation(),
}


def architecture_of(capability: tuple[int, int]) -> Architecture:
    """Return the record of a compute capability. Raises OptionError where there is none."""
    architecture = ARCHITECTURES.get(capability)
    if architecture is None:
        names = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise OptionError("compute capability {}.{} is not known".format(*capability), f"one of {names}")
    return architecture
