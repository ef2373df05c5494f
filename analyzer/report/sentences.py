"""Sentences on an estimate, for the terminal and the pages alike: the job, the place of the peak, the
certainty of the figures, what grows. The verdict is in `verdicts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from analyzer import notes, releases
from analyzer.report.command_line import written
from analyzer.report.words import (
    as_typed,
    clean,
    duration,
    operator_name,
    percent,
    size,
    sizes,
    span,
    tail,
    unit,
)

if TYPE_CHECKING:
    from analyzer.results.diagnosis import Remedy, UnderSetting
    from analyzer.results.estimate import Estimate, MarkRow

_RULES_SHOWN = 3
_LONGEST_NAME, _LONGEST_PLACE = 200, 44
# The phase of a step that ends with an event of another name.
_PHASE_OF = {"step": "optimizer"}
_NAIVE_TERMS = (
    ("data", "data"),
    ("weights", "weights"),
    ("forward_output", "outputs"),
    ("gradients", "weight grads"),
    ("sent_gradients", "sent grads"),
    ("optimizer_state", "optimizer state"),
    ("output_gradient", "output grads"),
)
_RUNS_SHOWN = 3  # of a session's runs, the first and the last ones
_ONLY_IF_ANY = ("sent_gradients", "optimizer_state")

# Of a program of which only a part was followed.
_IN_PART = (notes.IN_PART, notes.WITH_ROOM, notes.STEADY, notes.CUT_SHORT)
# A range of the device's memory that is worth a sentence beside the shares of what is sure.
_WIDE_PERCENT = 2


def peak_place(estimate: Estimate) -> str:
    """Return event or phase ("1.backward", "run 2"), module and line of the peak; "" if unknown."""
    event, request = estimate.peak_at, estimate.peak_request
    if request is None:
        return clean(event)
    step, dot, name = event.partition(".")
    if not event or (dot and request.phase and request.phase not in (name, _PHASE_OF.get(name))):
        event = f"{step}{dot}{request.phase}"
    module = tail(clean(request.module or request.scope), _LONGEST_PLACE)
    return ", ".join(filter(None, (clean(event), module and f"in {module}", clean(request.source))))


def subject(estimate: Estimate) -> list[str]:
    """Return the words that say what was estimated."""
    words = [
        tail(clean(estimate.target), _LONGEST_NAME),
        tail(clean(estimate.runtime), _LONGEST_NAME),
        "recorded"
        if estimate.engine == "recording"
        else {"infer": "inference", "train": "training", "generate": "generation"}[estimate.mode],
    ]
    if estimate.batch is not None:
        together = estimate.options.get("grad_accumulation") or 1
        kind, settings = (
            ("micro-batch", f" ({together * estimate.batch:,} a step)") if together > 1 else ("batch", "")
        )
        words.append(f"{kind} {estimate.batch:,}{settings}")
    if estimate.mode == "train" and estimate.optimizer:
        words.append(tail(clean(estimate.optimizer), _LONGEST_NAME))
    return words + [tail(clean(word), _LONGEST_NAME) for word in written(estimate.options)]


def estimate_rows(estimate: Estimate) -> tuple[tuple[str, int, str], ...]:
    """Return the estimates: (name, bytes, meaning)."""
    naive = estimate.naive.total
    error = naive - estimate.peak_allocated
    off = f"{percent(abs(error), estimate.peak_allocated)} {'over' if error >= 0 else 'under'} peak allocated"
    runtime = tail(clean(estimate.runtime), 12)
    # A runtime that fuses operators never makes some of the file's tensors.
    fused = estimate.framework == "onnx" and estimate.graph_peak > estimate.peak_allocated
    meaning = "of the file's graph, unfused" if fused else "tensors freed at last use"
    liveness = ("graph liveness", estimate.graph_peak, meaning)
    least = "at least; " if estimate.at_least else ""
    rows = (
        # Neither is known of a program that was emulated, the first not of one without modules.
        *((("naive sum", naive, off),) if naive else ()),
        *((liveness,) if naive or estimate.graph_peak else ()),
        (f"{runtime}: allocated", estimate.peak_allocated, f"{least}peak in use"),
        (f"{runtime}: reserved", estimate.peak_reserved, f"{least}peak held by the allocator"),
        (f"{runtime}: device", estimate.device_used, f"{least}what nvidia-smi shows"),
    )
    return rows[:-1] if estimate.engine == "recording" else rows  # which knows the allocator alone


def rows_after_runs(estimate: Estimate) -> tuple[tuple[str, int, int, int], ...]:
    """Return what is left after each run: its name and batch, bytes in use, held, and of the device.

    Nothing where every run of a file is alike and nothing is given back: that is what the table of estimates
    says.
    """
    rows, of_file = estimate.after_runs, estimate.target.lower().endswith(".onnx")
    differs = bool(estimate.options.get("batches")) or not of_file
    if not rows or (not differs and rows[-1].reserved >= estimate.peak_reserved):
        return ()
    return tuple(
        (
            row.event + ("" if row.batch is None else f", batch {row.batch:,}"),
            row.allocated,
            row.reserved,
            row.device_used,
        )
        for row in rows
    )


def rows_of_devices(estimate: Estimate) -> tuple[tuple[str, int, int, int], ...]:
    """Return each GPU of the process: its name, bytes allocated and reserved at their peaks, and of the
    device."""
    return tuple(
        (
            f"cuda:{row.number}" + (", out of memory" if row.out_of_memory else ""),
            row.peak_allocated,
            row.peak_reserved,
            row.device_used,
        )
        for row in estimate.devices
    )


def devices(estimate: Estimate) -> list[str]:
    """Return a line for each GPU of the process."""
    return [
        f"{name}: {size(allocated)} allocated, {size(held)} reserved, {size(device)} of the device"
        for name, allocated, held, device in rows_of_devices(estimate)
    ]


def after_runs(estimate: Estimate) -> list[str]:
    """Return a sentence a run on what is left after it; of many runs for the first and the last ones."""
    lines = [
        f"{clean(name)}: {size(held)} held ({size(used)} in use), {size(device)} of the device"
        for name, used, held, device in rows_after_runs(estimate)
    ]
    if len(lines) <= 2 * _RUNS_SHOWN + 1:
        return lines
    return [*lines[:_RUNS_SHOWN], f"{len(lines) - 2 * _RUNS_SHOWN:,} more runs", *lines[-_RUNS_SHOWN:]]


def naive_terms(estimate: Estimate) -> str:
    """Return the naive sum, term by term; nothing where it is not known."""
    if not estimate.naive.total:
        return ""
    shown = _NAIVE_TERMS if estimate.naive.mode == "train" else _NAIVE_TERMS[:3]
    terms = [
        (name, nbytes)
        for field, name in shown
        if (nbytes := getattr(estimate.naive, field)) or field not in _ONLY_IF_ANY
    ]
    shown_as, write = unit(nbytes for _, nbytes in terms)
    return f"naive = {' + '.join(f'{name} {write(nbytes)}' for name, nbytes in terms)} {shown_as}"


def marks_so_far(estimate: Estimate) -> tuple[MarkRow, ...]:
    """Return the named events, each with the peak since the program began instead of since its iteration."""
    peaks = accumulate((mark.peak for mark in estimate.marks), max)
    return tuple(replace(mark, peak=peak) for mark, peak in zip(estimate.marks, peaks, strict=True))


def breakdown_rows(estimate: Estimate) -> list[tuple[str, int]]:
    """Categories at the peak with their bytes, largest first, empty ones left out."""
    return sorted(
        ((name, nbytes) for name, nbytes in estimate.breakdown.items() if nbytes), key=lambda r: -r[1]
    )


# Categories whose names are the field's, in words.
_OWN = {
    "scratch": "an operator takes it for itself while it runs",
    "workspace": "a library keeps it for its operators",
}


def own_memory(estimate: Estimate) -> list[str]:
    """Return what memory at the peak that is no tensor's is for; nothing where there is none."""
    return [f"{name}: {words}" for name, words in _OWN.items() if estimate.breakdown.get(name)]


def size_heading(estimate: Estimate) -> str:
    """Return what the bytes beside a tensor are: of ONNX Runtime's arena the chunk that holds it."""
    return "chunk" if estimate.runtime == "onnxruntime" else "size"


def figures_of(estimate: Estimate) -> str:
    """Return the releases of the figures, and different installed ones."""
    return clean(releases.line(estimate.modelled, estimate.installed))


def _by_records(estimate: Estimate) -> str:
    """Return how a library's bytes are known: "by measurement" only if measured on this GPU."""
    return "recorded" if estimate.certainty.assumed else "by measurement"


def sureness(estimate: Estimate) -> str:
    """Return the shares of the peak by how they are known, and what they leave out."""
    certainty = estimate.certainty
    total = certainty.exact + certainty.measured + certainty.bounded
    if not total:
        return f"nothing is allocated{_left_out(estimate)}"
    return (
        f"{percent(certainty.exact, total)} of the peak by rule, {percent(certainty.measured, total)}"
        f" {_by_records(estimate)}, {percent(certainty.bounded, total)} bounded{_left_out(estimate)}"
        f"{_beside_peak(estimate)}"
    )


def _beside_peak(estimate: Estimate) -> str:
    """Return what the shares are of, where the device's memory is less sure than they read; "" elsewhere."""
    least, most = estimate.device_range
    if 100 * (most - least) < _WIDE_PERCENT * estimate.device_used:
        return ""
    return f". These are tensors in use: the device may hold {sizes(least, most)} for them"


def _left_out(estimate: Estimate) -> str:
    """Return what "How sure" leaves out, behind its shares; "" if nothing."""
    beside = [note for note in estimate.notes if notes.NCCL_BOUNDED.has(note)]
    left_out = [*(["the caveats above"] if estimate.caveats else []), *(["NCCL's memory"] if beside else [])]
    return f"; not of {' and '.join(left_out)}" if left_out else ""


def uncertain(estimate: Estimate) -> list[str]:
    """Return the rules behind bytes not exactly known, a line for each way they are known."""
    lines = []
    by_source = {
        "measured": "recorded" if estimate.certainty.assumed else "measured",
        "bounded": "bounded",
    }
    for basis, word in by_source.items():
        by_size = sorted(estimate.certainty.by_rule.get(basis, {}).items(), key=lambda entry: -entry[1])
        named = [f"{tail(clean(rule), 24)} {size(nbytes)}" for rule, nbytes in by_size if rule and nbytes]
        if named:
            more = f", and {len(named) - _RULES_SHOWN:,} more" if len(named) > _RULES_SHOWN else ""
            lines.append(f"{word}: {', '.join(named[:_RULES_SHOWN])}{more}")
    return lines + assumed(estimate)


def assumed(estimate: Estimate) -> list[str]:
    """Return sentences on what an unmeasured device takes from a measured one, and its effect; of a measured
    device between what the figures lie where a request of the program is not known."""
    (low, high), (least, most) = estimate.device_range, estimate.reserved_range
    if not estimate.certainty.assumed:
        if estimate.runtime == "onnxruntime" and not estimate.certainty.bounded:
            return []  # the runtime's own note says how processes differ
        between = f"{sizes(least, most)} reserved, {sizes(low, high)} of device memory"
        return [f"between bounds: {between}", *_causes(estimate)] if least != most else []
    named = ", ".join(f"{clean(name)} {size(nbytes)}" for name, nbytes in estimate.certainty.assumed.items())
    sentence = f"so device memory may be {sizes(low, high)}"
    if least != most:
        sentence += f", reserved {sizes(least, most)}"
    first = f"assumed, since {tail(clean(estimate.device), 20)} was not measured: {named}"
    return [first, sentence, *_causes(estimate)]


def _causes(estimate: Estimate) -> list[str]:
    """Return a sentence on why the allocator may hold more or less, by how much each; none without."""
    named = [
        f"{clean(cause)} ({sizes(least, most)})"
        for cause, (least, most) in estimate.certainty.causes.items()
        if size(least) != size(most)
    ]
    return [f"reserved memory depends on {'; '.join(named)}"] if named else []


def fragmented(estimate: Estimate) -> str:
    """Return sentences on memory that is held and not in use, and what settings would hold; "" without."""
    waste = estimate.fragmentation
    if waste is None:
        return ""
    room = estimate.needed
    missed = ""
    if waste.missed_count:
        place = " ".join(filter(None, (operator_name(waste.largest), clean(waste.source))))
        plural = "" if waste.missed_count == 1 else "s"
        missed = (
            f": {waste.missed_count:,} request{plural} ({size(waste.missed_bytes)}) found no hole large"
            f" enough, the largest {size(waste.largest_bytes)} for {place} with {size(waste.free_bytes)} free"
            " in pieces"
        )
    is_short = estimate.out_of_memory is not None or not estimate.fits()
    settings = "; ".join(f"{clean(row.setting)} {_would_hold(row, is_short)}" for row in waste.settings)
    return (
        f"Fragmentation: {size(room.peak_reserved)} held for {size(room.peak_allocated)} in use{missed}."
        f" PYTORCH_ALLOC_CONF would hold: {settings}"
    )


# Names of changes that newcomers read.
_PLAIN = {
    "saved tensors wait on the host": "what the backward pass needs is kept in the computer's memory (slower)"
}


def _would_hold(row: UnderSetting, is_short: bool) -> str:
    """Return the bytes under a setting; of one that fits a short device, those held there."""
    if not (row.fits and is_short):
        return size(row.peak_reserved)
    if row.here_bytes is None:
        return f"{size(row.peak_reserved)} (fits)"
    return f"{size(row.here_bytes)} (fits: freed memory is given back; {size(row.peak_reserved)} with room)"


def remedies(estimate: Estimate) -> list[tuple[str, str]]:
    """Return what makes it fit: a sentence each, and lines as they are typed, a patch at the margin."""
    every = []
    for remedy in estimate.remedies:
        terms = [size(remedy.device_used), *_costs(remedy, estimate), clean(remedy.state)]
        indent = "" if remedy.kind == "patch" else "    "
        typed = "\n".join(f"{indent}{line}" for line in as_typed(remedy.typed).splitlines())
        name = _PLAIN.get(remedy.name, remedy.name)
        every.append((f"{clean(name)}: {', '.join(filter(None, terms))}", typed))
    return every


def _costs(remedy: Remedy, estimate: Estimate) -> Iterator[str]:
    """Yield what a change costs beside memory of the device."""
    if remedy.host_bytes:
        yield f"{size(remedy.host_bytes)} of host memory"
    before, after = estimate.step_seconds, remedy.step_seconds
    same_work = remedy.kind == "patch" and ("batch" not in remedy.name or "accumulation" in remedy.name)
    if before is not None and after is not None and same_work:
        yield f"a step {duration(after)} instead of {duration(before.seconds)}"
    if "accumulation" in remedy.name:
        yield "the same gradient but for rounding, and layers that look at the whole batch (batch norm)"
    elif remedy.numbers:
        yield "changes numbers"


def attempts(estimate: Estimate) -> list[tuple[str, str]]:
    """Return sentences on changes that may not fit, or were not followed far enough, each with a command or
    ""; none without."""
    every = []
    for sentence, _, command in (attempt.partition("\n") for attempt in estimate.attempts):
        every.append((clean(sentence), clean(command)))
    return every


def growing(estimate: Estimate) -> str:
    """Return a sentence on calls that each leave more alive than the one before; "" without."""
    growth = estimate.growth
    if growth is None:
        return ""
    place = " ".join(filter(None, (operator_name(growth.operator), clean(growth.source))))
    each = "each call" if growth.every == 1 else f"every {growth.every} calls"
    leave = "leaves" if growth.every == 1 else "leave"
    owner = "".join(f"; {clean(note)}" for note in _owners(estimate))
    return (
        f"Growth: {each} of the model {leave} {size(growth.step_bytes)} more, {growth.calls:,} in a row; most"
        f" is of {place}, held by {clean(growth.held_by)}; {size(estimate.usable_bytes)} are full at call"
        f" {growth.full_at:,}{owner}"
    )


def _owners(estimate: Estimate) -> list[str]:
    """Return the note on what grows in the program, which belongs to the sentence on growth."""
    if estimate.growth is None:
        return []
    return [note for note in estimate.notes if notes.GROWING.has(note)]


def parts_followed(estimate: Estimate) -> list[str]:
    """Return what was followed of a program that was not followed to its end, and what grows in one that has
    room so far; of one without memory both are known."""
    if estimate.out_of_memory is not None:
        return []
    shown = (*_IN_PART, *((notes.GROWING,) if estimate.growth is None else ()))
    return [note for note in estimate.notes if any(kind.has(note) for kind in shown)]


def other_notes(estimate: Estimate) -> tuple[str, ...]:
    """Return the notes not printed beside the verdict."""
    beside = (*estimate.refused, *estimate.caveats, *estimate.certainty.unasked)
    beside = (*beside, *parts_followed(estimate), *_owners(estimate))
    return tuple(note for note in estimate.notes if note not in beside)


def step_line(estimate: Estimate) -> str:
    """Return a sentence on a step's time, its range and what it waits for; "" if unknown."""
    time = estimate.step_seconds
    if time is None:
        return ""
    about, low, high, busy, handed = map(
        duration, (time.seconds, time.low, time.high, time.device_seconds, time.host_seconds)
    )
    how = "" if time.source.startswith("measured") else f"; {clean(time.source)}"
    return (
        f"Time of a step: about {about} on {tail(clean(time.device), 20)} ({span(low, high)}), bound by"
        f" {clean(time.bound)}: device {busy}, host {handed}{how}"
    )
