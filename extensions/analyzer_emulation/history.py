"""An `Estimate` from a program's record: the allocator's own history, and the operators that ran.

Each request's block, place and purpose come from `replay.py`. The allocator's counters at the end are
compared with the result; a difference is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyzer import releases
from analyzer.devices import DeviceProfile, stands_in
from analyzer.graph import Category, Graph
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.results.estimate import Estimate
from analyzer.runtimes.base import Description, Prediction, Source
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.happened import Happened, no_allocator
from analyzer.runtimes.timeline import Failure, Simulation
from analyzer_emulation.replay import replayed, without_folder
from analyzer_emulation.served import orders_of, spread
from analyzer_emulation.serving_notes import notes_on
from analyzer_emulation.step import time_of
from analyzer_emulation.together import together


def estimate_of(
    record: Mapping[str, Any],
    name: str,
    options: Options,
    profile: DeviceProfile,
    device_note: str,
    doubts: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate of a program that ran. record: what `inside` wrote; name: the program's. doubts:
    what libraries answered that was not measured on this GPU."""
    record, figures = _in_the_middle(record)
    simulation, events, places = replayed(record)
    torch_alone = simulation
    torch, cuda = record["torch"], record["cuda"]
    besides = max(int(record["used_bytes"]) - int(record["counters"]["reserved_bytes"]), 0)
    both = together(record, simulation, events) if record.get("sessions") else None
    if both is not None:
        simulation, events = both.simulation, both.events
        besides = max(besides - both.course.held, 0)
    how = record["ended"]["how"]
    out_of_memory = how == "memory"
    incomplete = {
        "exit": f"the program ended itself: {record['ended'].get('message')}",
        "interrupted": "interrupted",
        "error": f"{record['ended'].get('kind')}: {record['ended'].get('message')}",
        "stuck": record["ended"].get("message"),
    }.get(how)
    if out_of_memory:
        simulation = _failing(record, simulation, profile)
    kinds = {"optimizer": "train"} if record["steps"] else {}
    prediction = Prediction(
        events=events,
        allocator=no_allocator,
        device_used=lambda simulation: besides + simulation.peak_reserved,
        simulation=simulation,
        describe=lambda malloc: places.get(malloc.key, Description(malloc.label)),
        after_runs=() if both is None else both.runs,
    )
    empty = Graph("pytorch", (), (), ())
    captured = Captured(
        target=name,
        framework="pytorch",
        batch=None,
        source=Source(empty, prediction=prediction),
        profile=replace(
            profile,
            releases={**profile.releases, "torch": releases.parse(torch), "cuda": releases.parse(cuda)},
        ),
        device_note="; ".join(
            filter(
                None,
                (
                    f"emulated: torch {torch}, CUDA {cuda}, on"
                    f" {next(iter(profile.nvml_names), profile.name)}",
                    device_note,
                ),
            )
        ),
        naive=Naive(0, 0, 0, 0, 0, 1.0, 1, 0, "train" if kinds else "infer"),
        notes=(
            *_notes(record, torch_alone),
            *(() if both is None else (*notes_on(record, both.course.requests), *orders_of(figures))),
            *_assumed(record, options.assume),
            *doubts,
        ),
        incomplete=incomplete,
    )
    if kinds:
        options = replace(options, mode="train")
    estimate = assemble(captured, options, _Emulated()).estimate
    kept = tuple(note for note in estimate.notes if note in captured.notes)
    own = estimate.certainty
    return replace(
        estimate,
        engine="emulate",
        installed={},
        certainty=replace(
            own,
            reserved_range=_span([held for held, _ in figures]) or own.reserved_range,
            allocated_range=_span([in_use for _, in_use in figures]) or own.allocated_range,
        ),
        device_assumed=stands_in(options.device),
        notes=kept,
        step_seconds=time_of(record.get("launches", ()), profile),
    )


def _span(figures: Sequence[int]) -> tuple[int, int] | None:
    """Return the range of figures that differ."""
    return spread(figures) if len(set(figures)) > 1 else None


def _in_the_middle(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[tuple[int, int]]]:
    """Return, of a program that ran several times since sessions differ between processes, the record in the
    middle, and the most that each held and had in use; of another its record and nothing."""
    if not record.get("sessions"):
        return record, []
    records = [record, *(one for one in record.get("others", ()) if one.get("sessions"))]
    figures = []
    for one in records:
        simulation, events, _ = replayed(one)
        peaks = together(one, simulation, events).simulation
        figures.append((peaks.peak_reserved, peaks.peak_allocated))
    place = sorted(range(len(records)), key=figures.__getitem__)[len(records) // 2]
    return records[place if record["ended"]["how"] == "ended" else 0], figures


class _Emulated(Happened):
    name = "pytorch"
    frameworks = ("pytorch",)
    depends_on = ("torch", "cuda")


# No clock tells here how a step beside a GPU compares with the watchdog's pauses (`native/watchdog.c`), or
# how far the device lags behind.
_LATER = {
    "reduces": (
        "gradient buckets that DDP replaces, and what its hooks make of them, are assumed to be given back"
        " when the next step's gradients are reduced (the first step's: at the next collective); NCCL's"
        " watchdog looks every 100 ms only, so where steps are shorter they live longer, and the peak is"
        " higher by up to as much as the gradients"
    ),
    "sends": (
        "what is sent to another rank is through at once; where the device lags behind the host, its memory"
        " serves again later, and the peak is higher by up to what a step sends"
    ),
}


def _notes(record: Mapping[str, Any], simulation: Simulation) -> tuple[str, ...]:
    """Return notes on how the run ended, what values it read and which library calls had no exact answer."""
    steps = len(record["steps"])
    notes = [f"ran through {steps} optimizer step{'' if steps == 1 else 's'}" if steps else "ran through"]
    if record["ended"]["how"] != "ended":
        notes = [f"the program ended before its end, after {steps} optimizer step{'' if steps == 1 else 's'}"]
    elif record.get("failed"):
        line, kind, text = record["failed"]
        if kind != "OutOfMemoryError":  # which programs try for, and is counted
            message = text.strip().partition("\n")[0]
            notes.append(
                f"the program caught an error of an operator: {without_folder(line)}: {kind}: {message}"
            )
    reads = sorted(record["reads"].items(), key=lambda item: -item[1])
    for what, count in reads:
        line, _, message = what.partition(": ")
        where = without_folder(line) or "outside the program's own lines"
        notes.append(f"{where}: {message} ({count:,} x), since kernels compute nothing here")
    for name in record["refused"]:
        notes.append(f"the program called {name}, which is not emulated")
    if record.get("elsewhere"):
        notes.append(
            f"{record['elsewhere']:,} bytes lie reserved on other GPUs than this process's own, with a"
            " context each; they are not counted"
        )
    if "processes" in record:
        count, besides = int(record["processes"]), int(record["besides"])
        notes.append(
            "figures are of a process that the program started"
            if count == 1
            else (
                f"{count} processes of the program used the GPU; figures are of the one that held most, the"
                f" others held at most {besides:,} bytes and a context each besides"
            )
        )
    notes += [text for name, text in _LATER.items() if record.get(name)]
    if record.get("pools"):
        notes.append(
            "the program keeps private pools, as CUDA graphs do: in the one case that was measured reserved"
            " memory was 4.8 % more"
        )
    current = int(record["counters"]["allocated_bytes"])
    came_out = simulation.allocated[-1] if simulation.allocated else 0
    if current != came_out and simulation.failure is None:
        notes.append(
            f"at its end the allocator counts {current:,} bytes in use, its history {came_out:,}: what leads"
            " to the peak may be off by the difference"
        )
    if record["retries"]:
        notes.append(f"the allocator gave its cached memory back {record['retries']:,} x to find room")
    return tuple(notes)


def _assumed(record: Mapping[str, Any], assume: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note for each assumed value: read, or without effect; worded as in `analyze run`."""
    return tuple(
        f"{place}: {value} is assumed, as given"
        if place in record["assumed"]
        else f"nothing was read at {place}: the assumption for it had no effect"
        for place, value in assume.items()
    )


def _failing(record: Mapping[str, Any], simulation: Simulation, profile: DeviceProfile) -> Simulation:
    """Return the simulation with the request that ended the program, if one did."""
    failed = next((entry for entry in reversed(record["events"]) if entry[0] == "oom"), None)
    if failed is None:
        return simulation
    malloc = Malloc(-1, int(failed[2]), Category.ACTIVATION, label="the last operator")
    allocated, reserved = (
        column[-1] if column else 0 for column in (simulation.allocated, simulation.reserved)
    )
    return replace(
        simulation,
        failure=Failure(len(simulation.allocated), malloc, allocated, reserved, profile.capacity_bytes),
    )
