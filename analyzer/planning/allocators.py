"""One program under every allocator: its requests, as one analysis found them, served by each simulator.

1. The requests are those of the analysed runtime, in their order. Another framework may make other requests:
   `--runtime paddle` and `--runtime tensorflow` simulate that.
2. For each allocator and setting: the peaks of what was requested, allocated (blocks handed out) and reserved
   (held of the device), and how often the driver was called, over the whole program.
3. Fragmentation is the part of the reserved peak that the allocated peak leaves over.
4. No allocator is limited, so that each shows what it would need; one that takes a share of the device in
   advance gets the device's own, less what the process holds beside its allocator. `fits` compares with that.
5. `backend:cudaMallocAsync` keeps its memory in the driver's pool, whose mechanism NVIDIA does not publish:
   its row is a lower bound, the requests rounded up to 512 B with nothing between them.

Not modelled: several streams, and frees deferred to an event.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzer.allocators import create, names
from analyzer.allocators.pytorch.settings import ties_of
from analyzer.allocators.tensorflow_bfc import system_bytes
from analyzer.analysis import Analysis
from analyzer.errors import OptionError, did_you_mean
from analyzer.results.allocators import Comparison, UnderAllocator
from analyzer.runtimes.events import Free, Malloc
from analyzer.runtimes.timeline import simulate

ASYNCHRONOUS = "pytorch_cudamallocasync"
_ASYNCHRONOUS_STEP_BYTES = 512
# Filled in from the device when an allocator is made.
_AVAILABLE, _TENSORFLOW_LIMIT = "available", "tensorflow limit"


@dataclass(frozen=True, slots=True)
class Choice:
    """An allocator by its name here, with settings by the names its framework gives them."""

    allocator: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The settings as a user would write them; "default" without any."""
        parts = (f"{name}={value}" for name, value in self.settings.items() if value not in _FROM_DEVICE)
        return ", ".join(parts) or "default"


_FROM_DEVICE = (_AVAILABLE, _TENSORFLOW_LIMIT)
CHOICES = (
    Choice("pytorch"),
    Choice("pytorch", {"expandable_segments": True}),
    Choice("pytorch", {"max_split_size_mb": 128}),
    Choice("pytorch", {"roundup_power2_divisions": 4}),
    Choice("pytorch", {"large_segment_size_mb": 64}),
    Choice(ASYNCHRONOUS),
    Choice("onnxruntime_bfc", {"arena_extend_strategy": "kNextPowerOfTwo"}),
    Choice("onnxruntime_bfc", {"arena_extend_strategy": "kSameAsRequested"}),
    Choice("tensorflow_bfc", {"allow_growth": True}),
    Choice("tensorflow_bfc", {"allow_growth": False, "memory_limit_bytes": _TENSORFLOW_LIMIT}),
    Choice("paddle_auto_growth"),
    Choice("paddle_auto_growth", {"auto_growth_chunk_size_in_mb": 64}),
    Choice("paddle_auto_growth", {"free_idle_chunk": True}),
    Choice("paddle_auto_growth", {"free_when_no_cache_hit": True}),
    Choice("paddle_naive_best_fit", {"available_bytes": _AVAILABLE}),
    Choice("paddle_naive_best_fit", {"initial_gpu_memory_in_mb": 512, "available_bytes": _AVAILABLE}),
    Choice("paddle_naive_best_fit", {"fraction_of_gpu_memory_to_use": 0.0, "available_bytes": _AVAILABLE}),
)


def side_by_side(analysis: Analysis, choices: Sequence[Choice] = CHOICES) -> Comparison:
    """Return the analysed program under each allocator. Raises OptionError for refused settings."""
    estimate = analysis.estimate
    beyond = estimate.device_used - estimate.peak_reserved
    available = max(1, estimate.usable_bytes - beyond)
    rows = tuple(_row(choice, analysis, available) for choice in choices)
    notes = [*analysis.notes]
    if any(row.at_least for row in rows):
        notes.append(
            "backend:cudaMallocAsync: the driver's pool is not published; its figures are lower bounds, at"
            " least what is alive at once"
        )
    return Comparison(
        estimate.target,
        estimate.runtime,
        estimate.mode,
        estimate.batch,
        estimate.optimizer,
        estimate.device,
        estimate.device_note,
        available,
        sum(isinstance(event, Malloc) for event in analysis.events),
        rows,
        tuple(notes),
    )


def parse_choice(text: str) -> Choice:
    """Parse "pytorch:max_split_size_mb=64,expandable_segments=True". Raises OptionError."""
    name, _, rest = text.partition(":")
    known = (*names(), ASYNCHRONOUS)
    if name not in known:
        raise OptionError(
            f"unknown allocator {name!r}", f"{did_you_mean(name, known)}known allocators: {', '.join(known)}"
        )
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise OptionError(f"{part!r} is no setting of {name}", "write NAME:SETTING=VALUE,SETTING=VALUE")
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[key] = value
    if name == "paddle_naive_best_fit":
        settings.setdefault("available_bytes", _AVAILABLE)
    if name == "tensorflow_bfc" and settings.get("allow_growth") is False:
        settings.setdefault("memory_limit_bytes", _TENSORFLOW_LIMIT)
    return Choice(name, settings)


def _row(choice: Choice, analysis: Analysis, available: int) -> UnderAllocator:
    """Return the program's figures under one allocator with its settings."""
    if choice.allocator == ASYNCHRONOUS:
        return _lower_bound(choice, analysis, available)
    allocator = _allocator(choice, analysis, available)
    simulation = simulate(analysis.events, allocator)
    return UnderAllocator(
        choice.allocator,
        choice.shown,
        simulation.peak_requested,
        simulation.peak_allocated,
        simulation.peak_reserved,
        allocator.device_calls,
        simulation.failure is None and simulation.peak_reserved <= available,
        out_of_memory="" if simulation.failure is None else simulation.failure.message,
    )


def _allocator(choice: Choice, analysis: Analysis, available: int) -> Any:
    """Return a new allocator; settings that name a device quantity get its bytes. Raises OptionError."""
    major = analysis.profile.compute_capability[0]
    from_device = {
        _AVAILABLE: available,
        _TENSORFLOW_LIMIT: max(1, available - system_bytes(available, major)),
    }
    settings = {
        name: from_device[value] if isinstance(value, str) and value in from_device else value
        for name, value in choice.settings.items()
    }
    if choice.allocator == "pytorch":
        settings["ties"] = ties_of(analysis.profile.releases["torch"])
    if choice.allocator == "paddle_naive_best_fit":
        settings["overcommit"] = True
    try:
        return create(choice.allocator, **settings)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{choice.allocator} cannot be made with {choice.shown}", f"check the values: {error}"
        ) from error


def _lower_bound(choice: Choice, analysis: Analysis, available: int) -> UnderAllocator:
    """Return the least cudaMallocAsync holds: the requests alive at once, each rounded up to 512 B."""
    sizes: dict[int, int] = {}
    now = peak = 0
    for event in analysis.events:
        if isinstance(event, Malloc):
            sizes[event.key] = -(-event.nbytes // _ASYNCHRONOUS_STEP_BYTES) * _ASYNCHRONOUS_STEP_BYTES
            now += sizes[event.key]
            peak = max(peak, now)
        elif isinstance(event, Free):
            now -= sizes.pop(event.key)
    requested = analysis.simulation.peak_requested
    return UnderAllocator(
        choice.allocator, choice.shown, requested, peak, peak, 0, peak <= available, at_least=True
    )
