"""How a profile's GPU is described to cuDNN: JSON in the library's own field names, of the architecture whose
kernels run there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from analyzer.devices import DeviceProfile

# Compute capability -> the last torch whose libraries do not know it, and the one whose kernels run there:
# CUDA 11.8's release notes name 8.9 first, CUDA 11.1's 8.6; torch 2.0's wheels bring CUDA 11.7, torch 1.7's
# 11.0.
_BEFORE = {(8, 9): ((2, 0), (8, 6)), (8, 6): ((1, 7), (8, 0))}


def description_of(profile: DeviceProfile) -> str:
    """Return the GPU's description for cuDNN as JSON; "" if there is none."""
    return _described(_Fields(profile.cudnn_device), chosen_capability(profile))


class _Fields:
    """A profile's fields for cuDNN, equal to themselves alone: many calls ask with one profile."""

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fields) and other.fields is self.fields

    def __hash__(self) -> int:
        return id(self.fields)


@lru_cache(maxsize=64)
def _described(of: _Fields, capability: tuple[int, int]) -> str:
    major, minor = capability
    device = {**of.fields, "deviceVer": 100 * major + 10 * minor}
    return json.dumps(device, sort_keys=True) if of.fields else ""


def chosen_capability(profile: DeviceProfile) -> tuple[int, int]:
    """Return the compute capability whose kernels the profile's torch release runs."""
    major, minor = profile.compute_capability
    until, before = _BEFORE.get((major, minor), ((0, 0), (major, minor)))
    return before if profile.releases["torch"] <= until else (major, minor)
