"""Kernels that transformers fetches when a model first needs them: what products with weights of 8 bits take.

Nothing is fetched here, so their host code's requests are written down, and what they launch is launched as
any kernel of Triton's.

1. Where weights lie in 8 bits in blocks, the kernel quantizes what it multiplies on the way: only the product
   is made. Where a whole weight has one scale, the input is written out in 8 bits before, with a scale a row.
2. Experts' rows that are sorted by expert are multiplied in tiles, of which two vectors of an element an
   expert say where they begin; rows that are not, one by one.
3. Each kernel has several configurations, which are timed once for a shape (`triton_kernels.py` says what
   that takes).
4. On GPUs of capability 9 and 10, beside a CUDA toolkit, transformers prefers DeepGEMM's kernels, which are
   compiled there. Before a product these write the input out, at one time in 2, 2 and 4 bytes an element
   (`per_token_cast_to_fp8`). They are not followed; a caveat says how much that is at most.

Source: `kernels-community/finegrained-fp8`, version 4 (`finegrained_fp8/matmul.py`,
`finegrained_fp8/batched.py`, `finegrained_fp8/grouped.py`, `finegrained_fp8/utils.py`),
`kernels-community/deep-gemm`, version 2 (`utils/math.py`); transformers 5.17
`integrations/finegrained_fp8.py` (`fp8_linear`), `integrations/deepgemm.py`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.importing import once_imported

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.devices import DeviceProfile

_MODULE = "transformers.integrations.finegrained_fp8"
_LOADED = "_FINEGRAINED_FP8"
_REPOSITORY = "kernels-community/finegrained-fp8"
_GROUP = 32  # elements to a scale of one byte (MX formats)
_BYTE_SCALES = (torch.float8_e8m0fnu, torch.uint8)
_SMALLEST_TILE, _LARGEST_TILE = 16, 128
_DEEPGEMM_BLOCK = [128, 128]
_DEEPGEMM_BYTES = 8  # an element: padded, its absolute value, that in float32
_MIB = 1 << 20


@contextlib.contextmanager
def fetched_kernels(device: DeviceProfile, recorder: Recorder) -> Iterator[None]:
    """While open, transformers finds the kernels as if they had been fetched, from when it is imported on."""
    products = Products(recorder)
    with contextlib.ExitStack() as stack:

        def imported(module: ModuleType) -> None:
            if hasattr(module, _LOADED):
                stack.callback(setattr, module, _LOADED, getattr(module, _LOADED))
                kernels = module.FineGrainedFP8(
                    matmul=products.plain, batched_matmul=products.row_by_row, grouped_matmul=products.grouped
                )
                setattr(module, _LOADED, kernels)

        with once_imported(_MODULE, imported):
            yield
    products.add_notes(device)


class Products:
    """The package's functions."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kernels: dict[str, Any] = {}
        self._largest = 0

    def plain(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scales: torch.Tensor,
        block_size: list[int] | None,
        output_dtype: torch.dtype | None = None,
        activation_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`matmul_2d`: (..., K) by (N, K)."""
        rows = a.numel() // a.shape[-1]
        written: tuple[torch.Tensor, ...] = ()
        if not _in_groups(b, scales) and _whole(block_size, b):
            written = self._written(a)
        elif block_size is not None and list(block_size) == _DEEPGEMM_BLOCK and activation_scale is None:
            self._largest = max(self._largest, a.numel())
        product = a.new_empty((*a.shape[:-1], b.shape[0]), dtype=output_dtype)
        self._launch("matmul", a, b, product, scales, *written, key=(b.shape, _tile_rows(rows)))
        return product

    def row_by_row(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scales: torch.Tensor,
        expert_ids: torch.Tensor,
        block_size: list[int] | None,
        output_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """`matmul_batched`: each row of (S, K) by its expert's part of (E, N, K)."""
        is_whole = not _in_groups(b, scales) and _whole(block_size, b)
        written = self._written(a) if is_whole else ()
        product = a.new_empty((a.shape[0], b.shape[1]), dtype=output_dtype)
        self._launch(
            "matmul_batched",
            a,
            b,
            product,
            scales,
            expert_ids,
            *written,
            key=(b.shape, None if is_whole else a.shape[0]),
        )
        return product

    def grouped(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scales: torch.Tensor,
        offsets: torch.Tensor,
        tokens_per_expert: torch.Tensor,
        block_size: list[int] | None,
        output_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """`matmul_grouped`: rows of (S, K), sorted by expert, by (E, N, K)."""
        experts = b.shape[0]
        written = self._written(a) if not _in_groups(b, scales) and _whole(block_size, b) else ()
        product = a.new_empty((a.shape[0], b.shape[1]), dtype=output_dtype)
        tile = _tile_rows((a.shape[0] + experts - 1) // experts)
        tiles = (tokens_per_expert + tile - 1) // tile
        ends = torch.cumsum(tiles, dim=0).to(torch.int32)
        self._launch("matmul_grouped", a, b, product, scales, offsets, ends, *written, key=(b.shape, tile))
        return product

    def _written(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`fp8_act_quant`: the input in 8 bits, and a scale a row."""
        written = torch.empty_like(a, dtype=torch.float8_e4m3fn)
        scales = a.new_empty((*a.shape[:-1], 1), dtype=torch.float32)
        self._kernel("fp8_act_quant", tuned=False)[(1,)](a, written, scales)
        return written, scales

    def _launch(self, name: str, *tensors: torch.Tensor, key: Any) -> None:
        """Launch a kernel, whose configurations are timed for each key."""
        self._kernel(name, tuned=True)[(1,)](*tensors, KEY=str(key))

    def _kernel(self, name: str, tuned: bool) -> Any:
        """Return a kernel as Triton, or its replacement, makes it of a function."""
        if name not in self._kernels:
            triton: Any = importlib.import_module("triton")
            kernel = triton.jit(FunctionType(_kernel.__code__, {}, f"finegrained_fp8_{name}"))
            configs = [triton.Config({}, num_warps=warps) for warps in (2, 4)]  # two stand for them all
            self._kernels[name] = triton.autotune(configs=configs, key=["KEY"])(kernel) if tuned else kernel
        return self._kernels[name]

    def add_notes(self, device: DeviceProfile) -> None:
        """Add notes on these kernels to the estimate."""
        if not self._kernels:
            return
        self._recorder.note(
            f"products with weights of 8 bits are those of {_REPOSITORY}, which the package kernels fetches"
            " on the GPU's machine"
        )
        if self._largest and device.architecture.grouped_products:
            most = self._largest * _DEEPGEMM_BYTES / _MIB
            self._recorder.caveat(
                "beside a CUDA toolkit transformers runs DeepGEMM's kernels instead, which write a product's"
                f" input out before: at most {most:,.1f} MiB at a time come on top"
            )


def _kernel(A, B, C, D, E, F, G, H, KEY):  # type: ignore[no-untyped-def]
    """Placeholder of the compiled kernel, with its tensors and autotuning key."""


def _tile_rows(rows: int) -> int:
    """Return the number of rows of a tile (`adaptive_block_size_m`)."""
    return min(max(1 << (rows - 1).bit_length(), _SMALLEST_TILE), _LARGEST_TILE)


def _in_groups(b: torch.Tensor, scales: torch.Tensor) -> bool:
    """Return whether every 32 weights of a row have a scale of one byte (`is_mxfp`)."""
    if b.dtype not in (torch.float8_e4m3fn, torch.int8) or scales.dtype not in _BYTE_SCALES:
        return False
    columns = b.shape[-1] * (2 if b.dtype is torch.int8 else 1)
    return scales.shape == (*b.shape[:-1], columns // _GROUP)


def _whole(block_size: list[int] | None, b: torch.Tensor) -> bool:
    """Return whether a whole weight has one scale (`is_tensor_wide`)."""
    return block_size is None or list(block_size) == list(b.shape[-2:])
