"""The GPU a message is of: those cards whose memory it may be, by the total it prints.

PyTorch prints CUDA's total (`cudaMemGetInfo`), which is what nvidia-smi lists less the driver's own part; the
part differs from driver to driver, so that a total is often that of several cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices import load, names
from analyzer.devices.loader import kept_at_most
from analyzer.results.recording import Figure

_NAMED = 6


@dataclass(frozen=True, slots=True)
class Card:
    """device: what to write behind `--device`; sentence: how to write it better, "" where it is right."""

    device: str
    sentence: str = ""


def card_of(total: Figure | None, is_nvidia: bool = True) -> Card:
    """Return the card of a total: by name where only one has it, else as a size."""
    if total is None:
        return Card("NAME", "NAME is the GPU's: nvidia-smi -L prints it, analyze devices lists those known")
    written = f"{total.nbytes / 2**30:.2f}GiB"
    cards = _cards(total) if is_nvidia else []
    if len(cards) == 1:
        return Card(cards[0])
    if not cards:
        return Card(written)
    return Card(
        written,
        f"instead of {written} give the GPU's name, which is more exact: {', '.join(cards[:_NAMED])} have"
        " so much",
    )


def _cards(total: Figure) -> list[str]:
    """Return the names of the cards that may have this total, the nearest first."""
    off = total.precision_bytes
    profiles = [
        profile
        for profile in map(load, names())
        if profile.listed_bytes - kept_at_most(profile.listed_bytes) - off
        <= total.nbytes
        <= profile.listed_bytes + off
    ]
    return [
        profile.name for profile in sorted(profiles, key=lambda each: abs(each.capacity_bytes - total.nbytes))
    ]
