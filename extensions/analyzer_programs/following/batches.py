"""Batches whose number of samples the program draws (opacus samples as Poisson's process does): what follows
from their sizes is of this run's numbers alone.

PyTorch's default generator has another seed in every process until the program seeds it. A sampler of batches
that draws from it between two batches of different sizes says so in a note. Those of generators with a seed
are what they will be.

Not modelled: sizes drawn by Python's or NumPy's generator.
Source: `torch/utils/data/dataloader.py` (`_BaseDataLoaderIter`); `opacus/utils/uniform_sampler.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from analyzer.capture.pytorch.device.host_draws import seeded


def noting_drawn_sizes(note: Callable[[str], None], line: Callable[[], str]) -> Callable[..., Any]:
    """Return the replacement of the function that asks a loader's sampler for the next batch. line: of the
    user's code."""
    next_index: Callable[[Any], Any] = _BaseDataLoaderIter._next_index
    sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def noting(loader: Any) -> Any:
        if type(loader._index_sampler) is BatchSampler:  # they are all of one size
            return next_index(loader)
        before = _state()
        index = next_index(loader)
        if isinstance(index, (list, tuple)):
            size = sizes.get(loader, len(index))
            if size != len(index) and not seeded(torch.default_generator) and before != _state():
                note(
                    f"{line() or 'the program'} draws how many samples a batch has, without a seed: another"
                    " run may decide otherwise"
                )
            sizes[loader] = len(index)
        return index

    return noting


def _state() -> bytes:
    """Return the default generator's state."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return torch.default_generator.get_state().numpy().tobytes()
