"""Ranges of a program's memory: on a GPU that nobody has measured, whose figures come from another one; and
where threads ask for memory in an order that only a run has.

1. A workspace that cuDNN was not asked about may be off by `Malloc.assumed` bytes, up or down, on any GPU.
   One by a formula that was read off the H200 (attention, recurrent layers, transforms, ...) may be half as
   large, or half as large again.
2. The program is simulated again with every such request at its least, and at its most, and, where a
   convolution's plan is not known, `_DRAWS` times with some at their least, some at their most and some as
   they are, and as often with sizes between (requests that are alike are off alike), since smaller requests
   may leave holes that nothing fits: the peaks of these are the ranges. Where the device has less than the
   program would take with room, the allocator holds what there is, and no more.
3. Beside the allocator the process holds the context and first kernels, `DeviceProfile.context_range_bytes`,
   and the handles and code of libraries, of which a GPU with smaller ones may hold half, and `CODE_BYTES` of
   further kernels; what an older cuDNN loads at once is off by `DeviceProfile.modules_off_bytes`. A program
   that uses no library may have run no kernel either, and then holds a context alone, a tenth (`_BARE`) of
   what its threads hold below the least of one with first kernels (`benchmarks/gpu_profiles.py`, rule 2).
4. The memory CUDA has differs by a little with the driver, `DeviceProfile.capacity_range_bytes`, so that a
   program that needs nearly all of it may not fit, and one that needs a little more may.
5. Where threads read a checkpoint while the program converts it, or NCCL's watchdog decides when memory is
   given back, it is simulated in other orders as well (`runtimes/pytorch/orders.py`), on any GPU.
6. Of two free blocks of one size the one at the lower address serves, before torch 2.13. Where segments lie,
   the driver decides, by what else has memory in the process (`allocators/driver.py`): of 235 histories
   recorded on an H100 another order of addresses makes another peak in 20; in three of these the simulated
   order is not the recorded one (0.1 to 3.5 % off, exact with the recorded addresses). The program is
   simulated again with its segments in up to `_PLACEMENTS` other orders.
7. A program that may have to do with less than it takes with room (by 3 and 4) may run there all the same:
   the allocator gives cached blocks back and goes on, often with far less. Its reservation then is in the
   range (`under_pressure`).

Otherwise both ends are the figure itself on a GPU that was measured.
Not modelled: every way in which requests may be off together.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

from analyzer.allocators.pytorch.peaks import Ascending, Scattered
from analyzer.devices import DeviceProfile
from analyzer.devices.contexts import THREAD_BYTES
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.bounded import bounded
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.timeline import Simulation, simulate
from analyzer.runtimes.variants import Sizes, Variants

Range = tuple[int, int]
_BARE = Fraction(1, 10)
_DRAWS = 8
# Shares of the way to a size's least (below 0) or most; between, all are tried together too.
_ENDS = (-1.0, 0.0, 1.0)
_BETWEEN = (-1.0, -0.5, 0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
# Orders of segments that are tried; fewer of a long program, so that it takes no longer than following it.
_PLACEMENTS, _FEWEST, _PLACED_EVENTS = 24, 4, 2_000_000
# Kernels' code beyond what is counted: 2 to 4 MiB in 50 of 180 runs on an H200, and in 16 of 23 on an H100
# (`tests/data/h100/fit.json`).
CODE_BYTES = 4 << 20
# Its bytes were asked of cuDNN for the GPU, or say themselves how far they may be off.
_ASKED = "cudnn-convolution"


def may_be_off(event: Malloc, *, measured: bool = False) -> int:
    """Return the bytes a request may differ by. measured: on a measured GPU formulas hold."""
    if measured or event.assumed or event.rule == _ASKED or event.basis != "measured":
        return event.assumed
    return event.nbytes // 2


def bounded_ranges(
    variants: Variants, simulation: Simulation, *, measured: bool = False
) -> tuple[Range, Range]:
    """Least and most bytes allocated, and held by the allocator, at the peak; `simulation`: the program with
    room. measured: see `may_be_off`."""
    others = {_at_bound(variants.requests, sign, measured=measured) for sign in (-1, 1)}
    if any(request.is_unasked for request in variants.requests):
        others |= {_at_bound(variants.requests, share, measured=measured) for share in _BETWEEN}
        for shares in (_ENDS, _BETWEEN):
            others |= {_drawn(variants.requests, Random(seed), shares, measured) for seed in range(_DRAWS)}
    own = simulation.peak_allocated, simulation.peak_reserved
    every = [own, *(variants.peaks(sizes) for sizes in others - {variants.sizes})]
    allocated, reserved = ((min(figures), max(figures)) for figures in zip(*every, strict=True))
    return allocated, reserved


def orders_range(prediction: Prediction, simulation: Simulation) -> Range | None:
    """Return least and most bytes the allocator may hold at its peak, in whatever order threads ask; None
    where none do, or all orders are one. Extrapolated tokens of `generate`, which are not simulated again,
    take as much in each."""
    others = [simulate(events, prediction.allocator()).peak_reserved for events in prediction.other_orders()]
    if not others:
        return None
    own = simulate(prediction.events, prediction.allocator()).peak_reserved
    least, most = (simulation.peak_reserved + end(own, *others) - own for end in (min, max))
    return (least, most) if least < most else None


def placed_ranges(variants: Variants, simulation: Simulation) -> tuple[Range, Range] | None:
    """Least and most bytes that are allocated and reserved at the peaks, wherever the driver puts segments:
    a block that is not split is allocated whole. None where nobody can tell: what was emulated or
    extrapolated is not simulated again, and the compiled core does not know every program."""
    prediction = variants.prediction
    if prediction.limited is None or not prediction.has_all_events:
        return None
    drawn = min(max(_PLACED_EVENTS // max(variants.event_count, 1), _FEWEST), _PLACEMENTS)
    spaces = (Ascending(), *(Scattered(Random(seed)) for seed in range(drawn)))
    all_peaks = [peaks for peaks in map(variants.placed, spaces) if peaks is not None]
    if not all_peaks:
        return None
    allocated = [simulation.peak_allocated, *(peaks.allocated for peaks in all_peaks)]
    reserved = [simulation.peak_reserved, *(peaks.reserved for peaks in all_peaks)]
    return (min(allocated), max(allocated)), (min(reserved), max(reserved))


def beside_range(profile: DeviceProfile, beside_bytes: int) -> Range:
    """Return least and most bytes of the process beside its allocator's; `beside_bytes`: taken."""
    least, most = profile.context_range_bytes
    loaded = max(beside_bytes - profile.context_bytes, 0)
    if not loaded:
        threads = profile.sm_count * profile.max_threads_per_sm
        return max(least - int(threads * THREAD_BYTES * _BARE), 0), most
    # Of what is no code (tensors the caller brings) nothing is in doubt.
    at_once = sum(profile.modules_bytes[family] for family in profile.modules_off_bytes)
    off, at_once = (sum(profile.modules_off_bytes.values()), at_once) if loaded > at_once else (0, 0)
    code = min(loaded - at_once, 2 * sum(profile.modules_bytes.values()))
    half = 0 if profile.sources.get("modules_bytes", "").startswith("measured") else code // 2
    return least + loaded - half - off, most + loaded + off + CODE_BYTES


def held_under(variants: Variants, least: Limit, most: Limit) -> tuple[int | None, int | None]:
    """Return the least bytes the allocator holds at its peak under limit `least` and the most under `most`,
    with assumed requests as they are and at their least, or most; None where nothing gets through under
    `least`, or something does not under `most`: larger requests may leave holes that smaller ones do not."""
    smaller, as_they_are, larger = (_at_bound(variants.requests, sign) for sign in (-1, 0, 1))
    easy = [variants.held(sizes, least) for sizes in {smaller, as_they_are}]
    tight = [variants.held(sizes, most) for sizes in {as_they_are, larger}]
    return (
        min((reserved for reserved, served in easy if served), default=None),
        max(reserved for reserved, _ in tight) if all(served for _, served in tight) else None,
    )


def surely_runs(variants: Variants, limit: Limit) -> bool:
    """Return whether every request is served under a limit without doubt, as it is and at its most."""
    if variants.prediction.limited is None or limit[0] <= 0:
        return False
    simulation, doubt = bounded(variants, limit)
    return simulation.failure is None and not doubt and held_under(variants, limit, limit)[1] is not None


def under_pressure(
    variants: Variants, profile: DeviceProfile, with_room_bytes: int, beside_bytes: int, allowed_bytes: int
) -> tuple[int, ...]:
    """Return the bytes the allocator holds at its peak where the process beside it and the driver leave it
    the least and the most they may of `allowed_bytes`, with every assumed request as it is, at its least and
    at its most; only what gets through. Empty where the program has room in any case.

    with_room_bytes: what it holds with room; beside_bytes: what the process is taken to hold beside the
    allocator.
    """
    least, most = beside_range(profile, beside_bytes)
    kept, spare = kept_and_spare(profile)
    tight, easy = allowed_bytes - kept - most, allowed_bytes + spare - least
    if variants.prediction.limited is None or with_room_bytes <= tight:
        return ()
    held_bytes = [with_room_bytes] if with_room_bytes <= easy else []
    for sizes in {_at_bound(variants.requests, sign) for sign in (0, -1, 1)}:
        for room in (tight, easy):
            reserved, served = variants.held(sizes, Limit(max(room, 0), True))
            if served:
                held_bytes.append(reserved)
    return tuple(held_bytes)


def kept_and_spare(profile: DeviceProfile, usable_bytes: int | None = None) -> Range:
    """Return by how many bytes another driver may leave less, and more, of a GPU than `usable_bytes`
    (default: all a process may use)."""
    least, most = (end - profile.driver_bytes for end in profile.capacity_range_bytes)
    nbytes = profile.usable_bytes if usable_bytes is None else usable_bytes
    return max(nbytes - least, 0), max(most - nbytes, 0) if nbytes >= profile.usable_bytes else 0


def _drawn(requests: Sequence[Malloc], random: Random, shares: Sequence[float], measured: bool) -> Sizes:
    """Return the requests' sizes, every assumed one at one of these shares of the way to its least (below 0)
    or to its most; alike ones alike."""
    signs: dict[tuple[str, str, int], float] = {}
    sizes = []
    for request in requests:
        sign = 0.0
        if _bytes_at(request, 1, measured=measured) != request.nbytes:
            alike = (request.rule, request.plan, request.nbytes)
            sign = signs.setdefault(alike, random.choice(shares))
        sizes.append(_bytes_at(request, sign, measured=measured))
    return tuple(sizes)


def _at_bound(requests: Sequence[Malloc], sign: float, *, measured: bool = False) -> Sizes:
    """Return the requests' sizes, every assumed one at its least (-1), as it is (0), at its most (1) or
    between."""
    return tuple([_bytes_at(request, sign, measured=measured) for request in requests])


def _bytes_at(request: Malloc, sign: float, *, measured: bool) -> int:
    if not sign:
        return request.nbytes
    if request.assumed_less is not None:
        end = request.moved(1 if sign > 0 else -1).nbytes
        return request.nbytes + int(abs(sign) * (end - request.nbytes))
    off = may_be_off(request, measured=measured)
    return max(request.nbytes + int(sign * off), 1) if off else request.nbytes
