"""The store of the tracer, whose tensors have no memory: a twin on the CPU for each storage that is known,
aliased the same way, so that in-place changes and views stay right."""

from __future__ import annotations

import torch

from analyzer.values.budget import LIMIT


class Twins:
    """A `Store`. known: CPU twins by the keys of storages."""

    by_storage = True

    def __init__(self) -> None:
        self.known: dict[int, torch.UntypedStorage] = {}

    def key(self, tensor: torch.Tensor) -> int:
        """Return the key of the tensor's storage."""
        key: int = tensor.untyped_storage()._cdata
        return key

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor's value, or None."""
        if tensor.device.type != "meta":
            return tensor
        storage = self.known.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        twin = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return twin.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def put(self, tensor: torch.Tensor, value: torch.Tensor, stands_in: bool) -> None:  # noqa: ARG002
        """Keep a value of the tensor: of a new storage as its twin; the twin of a known one is written to."""
        key = tensor.untyped_storage()._cdata
        if key in self.known:
            return
        if value.stride() != tensor.stride() or value.storage_offset() != tensor.storage_offset():
            same = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            value = same.copy_(value)
        self.known[key] = value.untyped_storage()

    def drop(self, key: int, _: int = 0) -> None:
        """Forget the value of a storage that died or was changed unpredictably."""
        self.known.pop(key, None)

    def stands_in(self, _: torch.Tensor) -> bool:
        """Return False: assumed values are made when the program reads them (`answers.py`)."""
        return False

    def lack(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether the value of any of these is unknown."""
        twins = self.known
        return any(tensor.is_meta and tensor.untyped_storage()._cdata not in twins for tensor in tensors)

    def resized(self, key: int, nbytes: int) -> bool:
        """Resize the twin; added elements are zeros. Returns whether it is still known."""
        twin = self.known.get(key)
        if twin is None or not 0 < twin.nbytes() < nbytes <= LIMIT:
            return False
        grown = torch.zeros(nbytes, dtype=torch.uint8, device="cpu")
        grown[: twin.nbytes()] = torch.empty(0, dtype=torch.uint8, device="cpu").set_(twin)
        self.known[key] = grown.untyped_storage()
        return True

    def overwritten(self, target: torch.Tensor) -> None:
        """Make the storage known if `target`, about to be written with a known value, covers all of it."""
        nbytes = target.numel() * target.element_size()
        if target.is_contiguous() and nbytes == target.untyped_storage().nbytes():
            empty = torch.empty_like(target, device="cpu")
            self.known[target.untyped_storage()._cdata] = empty.untyped_storage()

    def filled(self, parts: list[torch.Tensor]) -> None:
        """Make the storage known if the parts, about to be written with known values, cover all of it."""
        storage = parts[0].untyped_storage()
        nbytes = sum(part.numel() * part.element_size() for part in parts)
        one = all(part.untyped_storage()._cdata == storage._cdata for part in parts)
        if one and nbytes == storage.nbytes() and storage._cdata not in self.known and nbytes <= LIMIT:
            self.known[storage._cdata] = torch.UntypedStorage(nbytes)
