"""Entries of sparse tensors on the host: which there are, where indices are known, and their numbers, where
these are known too.

How many entries a sparse tensor has decides its size. After a conversion, a sum of equal places or a product
that is what its indices say; where a dense tensor becomes a sparse one it is what numbers say (a matrix that
was written out, rectified and made sparse again). Both are computed on the host by PyTorch's own conversions
there, which leave entries in the order CUDA's do: by rows, or columns, in each of them by place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.recording.parts import compressed_parts, coo_parts, is_sparse

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder


def on_host(recorder: Recorder, tensor: torch.Tensor, *, places_only: bool = False) -> torch.Tensor | None:
    """Return a sparse tensor with the same entries on the host; None if they are not known. places_only: with
    ones for numbers that are not known."""
    *places, values = coo_parts(tensor) if is_sparse(tensor) else compressed_parts(tensor)
    known = [part for part in map(recorder.values.known, places) if part is not None]
    numbers = recorder.values.known(values)
    if len(known) < len(places) or (numbers is None and not places_only):
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if numbers is None:
            numbers = torch.ones((), device="cpu", dtype=torch.int8).expand(values.shape)
        shape = tuple(tensor.shape)
        if is_sparse(tensor):
            return torch.sparse_coo_tensor(known[0], numbers, shape, check_invariants=False)
        begins, others = known
        return torch.sparse_compressed_tensor(
            begins, others, numbers, shape, layout=tensor.layout, check_invariants=False
        )


def coalesced(recorder: Recorder, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Return indices and values of a COO tensor once equal places are added up; no values where they are not
    known, None where nothing is."""
    entries = on_host(recorder, tensor, places_only=True)
    if entries is None:
        return None
    has_numbers = recorder.values.known(coo_parts(tensor)[1]) is not None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        entries = entries.coalesce()
        return entries.indices(), entries.values() if has_numbers else None


def numbered(indices: torch.Tensor, shape: Any) -> torch.Tensor:
    """Return one linear index on the host for each column of known indices."""
    with _disable_current_modes():
        numbers = torch.zeros_like(indices[0])
        for row, length in zip(indices, shape, strict=False):
            numbers = numbers * length + row
        return numbers


def added(recorder: Recorder, dense: torch.Tensor, tensor: torch.Tensor, alpha: Any) -> torch.Tensor | None:
    """Return a dense tensor with a sparse one's entries added, on the host; None where one is not known."""
    before, own = recorder.values.known(dense), on_host(recorder, tensor)
    if before is None or own is None:
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return torch.add(before, own, alpha=alpha)


def learn_written_out(recorder: Recorder, tensor: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    """Store the numbers of a sparse tensor that was written out as `dense`, or how many are not zero at most;
    return it."""
    if recorder.values.known(dense) is not None:
        return dense
    entries = on_host(recorder, tensor)
    values = (coo_parts if is_sparse(tensor) else compressed_parts)(tensor)[-1]
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        numbers = None if entries is None else entries.to_dense()
    recorder.values.learn_scattered(dense, numbers, int(values.numel()))
    return dense


def learn_copy(recorder: Recorder, copy: Any, host: Any) -> Any:
    """Store the value of a copy of a part on the host, however large; return the copy."""
    if not host.is_meta and copy.is_meta and recorder.values.known(copy) is None:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            recorder.values.learn_scattered(copy, host.to(copy.dtype), int(copy.numel()))
    return copy
