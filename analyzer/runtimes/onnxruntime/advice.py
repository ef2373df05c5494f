"""Notes of a prediction beside its figures: why memory is held, cheaper settings and their memory, how sure
the figures are.

Cheaper settings are simulated, not guessed: the session is recorded and simulated again with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.notes import CHEAPER_SETTING
from analyzer.runtimes.base import Saving
from analyzer.runtimes.events import AllocationEvent, bounded_by
from analyzer.runtimes.onnxruntime.course import Course, Recorded, Requests
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.options import FOLLOWED_ON_CPU, SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import Reached
from analyzer.runtimes.onnxruntime.rules import CONVOLUTION
from analyzer.runtimes.onnxruntime.simulation import (
    ArenaRegion,
    Orders,
    SessionFailure,
    SimulatedSession,
)

MIB = 2**20
_WORTH_SAYING = 0.99  # of what is held: settings that hold more than this are not named
_SAME_ARENA = "arena_extend_strategy=kSameAsRequested"
_NAMED = 4  # runs that are named one by one


def _size(nbytes: int) -> str:
    """Return bytes as text: in MiB, or in bytes below one MiB."""
    return f"{nbytes / MIB:,.0f} MiB" if nbytes >= MIB or not nbytes else f"{nbytes:,} bytes"


def _requested(nbytes: int) -> str:
    """Return a request's bytes as text, to a tenth of a MiB; in bytes where that reads 0.0."""
    return f"{nbytes / MIB:,.1f} MiB" if nbytes >= MIB // 20 else f"{nbytes:,} bytes"


def largest_region(session: SimulatedSession) -> str:
    """Return a sentence on the largest region, "" where it is about as large as its request."""
    if not session.regions:
        return ""
    region = max(session.regions, key=lambda region: region.nbytes)
    if not _is_larger(region):
        return ""
    return (
        f"the arena, whose regions double, takes one of {_size(region.nbytes)} for"
        f" {_size(region.requested_bytes)} of {region.label} ({region.phase})"
    )


def _is_larger(region: ArenaRegion) -> bool:
    """Return whether a region is much larger than its request."""
    return region.nbytes - region.requested_bytes >= max(MIB, region.nbytes // 4)


def explanation(session: SimulatedSession) -> tuple[str, ...]:
    """Return a line for each region much larger than its request, and one for unsplit chunks."""
    lines = [
        f"{region.nbytes / MIB:,.0f} MiB held for a request of {_requested(region.requested_bytes)} "
        f"({region.label}, {region.phase})"
        for region in session.regions
        if _is_larger(region)
    ]
    waste = session.peak_in_use - session.peak_requested
    if waste > MIB:
        lines.append(f"{waste / MIB:,.0f} MiB of the peak in use is unused space in arena chunks")
    return tuple(lines)


def out_of_memory(failure: SessionFailure, options: SessionOptions) -> str:
    """Return the line that says which request found no memory."""
    return (
        f"out of memory: {failure.requested_bytes:,} bytes for {failure.label} ({failure.phase}) with "
        f"{failure.held:,} of {failure.limit:,} held"
        + ("" if options.gpu_mem_limit is None else " (gpu_mem_limit)")
    )


def refused(course: Course) -> tuple[str, ...]:
    """Return the line on memory patterns whose blocks find no room, which ends no run."""
    failures = course.simulation.refused
    if not failures:
        return ()
    runs = list(dict.fromkeys(failure.phase for failure in failures))
    named = ", ".join(runs[:_NAMED]) + (f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else "")
    most = max(failure.requested_bytes for failure in failures)
    where = "within gpu_mem_limit" if course.settings.gpu_mem_limit is not None else "on this device"
    return (
        f"the memory pattern's block of {_size(most)} finds no room {where} ({named}): ONNX Runtime logs that"
        " and takes the run's tensors one by one, which is slower; with room"
        f" {_size(course.held_with_room)} would be held",
    )


def savings(
    sessions: Sequence[Sequence[Frame]],
    recorded: Recorded,
    options: SessionOptions,
    device: DeviceProfile,
) -> tuple[Saving, ...]:
    """Return the sessions' memory under each cheaper setting with which they run, initializers in the file's
    order.

    recorded: the sessions under `options`. The arena's strategy changes nothing of what is asked for, and
    memory patterns nothing of kernels' scratch.
    """
    changes = [  # and whether it changes the events, and leaves the kernels' scratch
        (_SAME_ARENA, replace(options, arena_extend_strategy="kSameAsRequested"), False, True),
        ("enable_mem_pattern=0", replace(options, enable_mem_pattern=False), True, True),
    ]
    if _convolves(sessions):
        by_default = replace(options, cudnn_conv_algo_search="DEFAULT")
        changes.append(("cudnn_conv_algo_search=DEFAULT", by_default, True, False))
    now = recorded.reached(options)
    cheaper = []
    for name, changed, again, same_scratch in changes:
        if changed != options:
            takes = recorded.takes if same_scratch else None
            recording = Recorded(sessions, changed, device, takes) if again else recorded
            session = recording.reached(changed)
            # In the same order of initializers, which moves what is held by more than some settings do.
            if session.served and (not now.served or session.held < now.held):
                cheaper.append(_saving(name, session))
    return tuple(cheaper)


def cheaper_arena(requests: Requests, options: SessionOptions) -> tuple[Saving, ...]:
    """Return what recorded requests take with the arena's other strategy, the one setting that changes none
    of them."""
    changed = replace(options, arena_extend_strategy="kSameAsRequested")
    session = requests.reached(changed)
    if changed == options or not session.served:
        return ()
    return (_saving(_SAME_ARENA, session),)


def _saving(name: str, session: Reached) -> Saving:
    return Saving(name, session.peak_in_use, session.held, max(session.page_bytes, session.held))


def _convolves(sessions: Sequence[Sequence[Frame]]) -> bool:
    """Return whether any node is a convolution of some kind."""
    parts = (part for frames in sessions for frame in frames for part in frame.walk())
    return any("Conv" in node.op for part in parts for node in part.graph.nodes.values())


def saving_sentence(saving: Saving, held: int, page_bytes: int) -> str | None:
    """One line on a setting that would hold less than `held` bytes, and take less of the device than
    `page_bytes`; None if it is hardly less."""
    if saving.peak_reserved >= _WORTH_SAYING * held or saving.page_bytes >= _WORTH_SAYING * page_bytes:
        return None
    return CHEAPER_SETTING.note(
        f"{saving.setting} would hold {_size(saving.peak_reserved)} instead of {_size(held)} "
        f"(peak in use {_size(saving.peak_allocated)})",
        setting=saving.setting,
    )


def not_simulated(options: SessionOptions) -> tuple[str, ...]:
    """Return the caveat on provider options that the simulation does not follow."""
    if not options.not_simulated:
        return ()
    names = ", ".join(f"{name}={text}" for name, text in options.not_simulated)
    return (
        f"{names} is not simulated: memory may be more, or less; --engine emulate asks ONNX Runtime itself",
    )


def unmeasured(events: Iterable[AllocationEvent]) -> tuple[str, ...]:
    """Return a line on convolutions whose workspace is the nearest measured shape's."""
    names = set(bounded_by(events, CONVOLUTION))
    if not names:
        return ()
    return (
        f"convolutions of shapes that were not measured ({len(names)}) take the workspace of the nearest"
        " that was; ranges go from the least to the most that they may take",
    )


def limits(options: SessionOptions, orders: Orders) -> tuple[str, ...]:
    """Return notes on how far the figures can be from a real session's."""
    notes = []
    ranges = [
        f"{name} between {least / MIB:,.0f} and {most / MIB:,.0f} MiB"
        for name, (least, most) in (("peak in use", orders.peaks), ("held", orders.held))
        if round(least / MIB) != round(most / MIB)
    ]
    if options.provider == "cuda" and ranges:
        notes.append(
            "ONNX Runtime loads initializers in the order of a hash table, which changes from process to"
            f" process: {', '.join(ranges)}; figures are for a typical order"
        )
    if options.enable_cuda_graph:
        notes.append(
            "enable_cuda_graph: what the driver keeps for the captured graph itself is not modelled: memory"
            " may be more"
        )
    if options.enable_memory_arena_shrinkage and options.provider == "cpu":
        notes.append(
            "of free chunks of one size the arena takes that with the lowest address, which the host's"
            " allocator decides: which regions a shrinking arena keeps changes with it, and held memory may"
            " be more"
        )
    if options.use_env_allocators and not options.shared_with:
        notes.append(
            "the arena is shared with the process's other sessions, which are not counted: name them with "
            "--runtime-option shared_with=FILE,FILE"
        )
    if options.provider == "cpu" and options.graph_optimization_level > FOLLOWED_ON_CPU:
        notes.append(
            "the CPU provider's blocked layouts (graph optimization level all) are not modelled; figures are"
            " for extended"
        )
    return tuple(notes)
