"""Convolutions asked of cuDNN itself: what the tables do not have, where a library is within reach (`finding.py`).

1. The library is given the GPU's description (`DeviceProfile.cudnn_device`) and answers with its list of plans (`asker.py`).
2. On compute capability 9 a few engines take other bytes by a handle than by a description: `splits.py`.
3. Engines built on cublasLt (forward 3, 6, 58; data 7, 50, 63; weight 17, 18, 62) ask for a device even then and are missing in the list. They
   come first for most convolutions that are plain matrix products (`product_plan`): of 338 such calls of an H100 for 264, otherwise for 45 of
   19,687 (20,025 random convolutions asked both ways, 24 November 2026, cuDNN 9.19). So such a product is taken to run there, and its range
   goes to what the list says.

Not modelled: a release of cuDNN other than the library's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.answers import CudnnPlan, figures
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.finding import library_for
from analyzer.libraries.cudnn.splits import by_handle
from analyzer.libraries.cudnn.table import AS_FIRST, FASTEST, FIGURES, FIRST, Convolution
from analyzer.releases import Release

# The engine of `product_plan`: of none that is listed.
_PRODUCT = -1
_HOPPER = 9
# Bytes, and the least and most they may be.
Answer = tuple[int, int, int]


class Library:
    """The library within reach, asked for one GPU. answered: whether it had an answer so far."""

    def __init__(self, asker: Asker, profile: DeviceProfile) -> None:
        self._asker, self._sm_count = asker, profile.sm_count
        self._hopper = profile.compute_capability[0] == _HOPPER
        self.gpu = str(profile.cudnn_device.get("deviceName", profile.name))
        self.answered = False

    @property
    def release(self) -> Release | None:
        """The library's."""
        return self._asker.release

    def plans(self, calls: Sequence[Convolution]) -> list[tuple[CudnnPlan, ...] | None]:
        """The plans of each call in PyTorch's order, with a handle's bytes; None where there is no answer."""
        answers = self._asker.ask(calls)
        self.answered |= any(answers)
        return [
            (*product_plan(call), *(self._by_handle(call, plan) for plan in plans)) if plans else None
            for call, plans in zip(calls, answers, strict=True)
        ]

    def figure(self, calls: Sequence[Convolution], figure: str) -> list[Answer | None]:
        """One of `table.FIGURES` for each call; None where it has no answer, as to which plan wins a timing."""
        if figure == FASTEST:
            return [None] * len(calls)
        return [
            _answer(plans, call.dtype, figure) if plans else None
            for call, plans in zip(calls, self.plans(calls), strict=True)
        ]

    def ladder(self, call: Convolution) -> tuple[int, ...]:
        """The workspaces of the first plan and of those behind it that take less than all before; empty without an answer."""
        found: list[int] = []
        for plan in self.plans([call])[0] or ():
            if not found or plan.workspace_bytes < found[-1]:
                found.append(plan.workspace_bytes)
        return tuple(found)

    def _by_handle(self, call: Convolution, plan: CudnnPlan) -> CudnnPlan:
        """The plan with a handle's bytes; it keeps its knobs where these are no more than a bound."""
        if not plan.knobs or not self._hopper:
            return replace(plan, knobs=())
        nbytes, proven = by_handle(
            call.operation, call.dtype, call.channels_last, call.x_shape, call.w_shape, call.padding, call.stride,
            call.dilation, plan.engine, dict(plan.knobs), plan.workspace_bytes, self._sm_count,
        )  # fmt: skip
        return replace(plan, workspace_bytes=nbytes, knobs=() if proven else plan.knobs)


_LIBRARIES: dict[str, Library] = {}


def register(table: str, profile: DeviceProfile) -> None:
    """Whoever is asked for a GPU of this table is asked for this one: within a table cuDNN chooses alike (`table.table_of_device`)."""
    if table not in _LIBRARIES and profile.cudnn_device:
        description = json.dumps(dict(profile.cudnn_device), sort_keys=True)
        _LIBRARIES[table] = Library(Asker(library_for(profile.releases["torch"]), description), profile)


def library(table: str) -> Library | None:
    """Who can be asked for a GPU of a table."""
    return _LIBRARIES.get(table)


def product_plan(call: Convolution) -> tuple[CudnnPlan, ...]:
    """The plan of a convolution that is one matrix product an image, which the list lacks: none for any other.

    Results and gradients of the input take nothing, a weight's gradient one float32 result an image where channels come first.

    >>> product_plan(Convolution("weight", "float16", False, (6, 128, 10, 10), (12, 128, 1, 1), (0, 0), (1, 1), (1, 1)))[0].workspace_bytes
    36864
    """
    if call.groups > 1 or {*call.w_shape[2:], *call.stride} != {1} or any(call.padding):
        return ()
    partial = 0 if call.channels_last or call.operation != "weight" else 4
    nbytes = partial * call.x_shape[0] * math.prod(call.w_shape)
    return (CudnnPlan(_PRODUCT, nbytes, tensor_core=True),)


def _answer(plans: tuple[CudnnPlan, ...], dtype: str, figure: str) -> Answer | None:
    nbytes, (first, *others) = _figure(plans, dtype, figure), plans
    if nbytes is None:
        return None
    low = high = nbytes
    if first.engine == _PRODUCT and (other := _figure(tuple(others), dtype, figure)) is not None:
        low, high = min(nbytes, other), max(nbytes, other)
    return (
        nbytes,
        0 if any(plan.knobs for plan in plans if plan.workspace_bytes in (low, high)) else low,
        high,
    )


def _figure(plans: tuple[CudnnPlan, ...], dtype: str, figure: str) -> int | None:
    found = dict(zip(FIGURES, figures(plans, dtype), strict=True))
    nbytes = found[FIRST] if found[figure] == AS_FIRST else found[figure]
    return nbytes if nbytes >= 0 else None
