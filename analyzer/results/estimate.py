"""The frozen result of one analysis; `pipeline/` makes it, everything anyone reads is a view of it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from analyzer.graph.dtype import BITS, nbytes_of
from analyzer.keywords import in_python
from analyzer.liveness.naive import Naive
from analyzer.results.diagnosis import Fragmentation, Growth, Remedy
from analyzer.results.step_time import StepTime


@dataclass(frozen=True, slots=True)
class MarkRow:
    """State after a named event: bytes allocated and reserved then, the peak allocated since its iteration
    began, and what is alive."""

    event: str
    allocated: int
    peak: int
    reserved: int
    by_category: Mapping[str, int] = field(default_factory=dict)


# First holders in `TensorRow.path` where nothing will read a tensor again.
UNREAD = ("a variable", "a graph", "a reference cycle", "an exception's frames")


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One allocation alive at the peak, for `Estimate.top`. `source` is "file.py:123"; `rule` decided its
    size.

    path: who keeps it alive then, nearest first ("the backward pass", "convolution_backward conv1
    net.py:12"); empty where not known.
    """

    name: str
    nbytes: int
    category: str
    dtype: str
    shape: tuple[int, ...]
    operator: str
    module: str
    source: str
    phase: str
    rule: str = ""
    scope: str = ""
    path: tuple[str, ...] = ()

    @property
    def own_bytes(self) -> int:
        """The bytes of its shape and type, whatever holds it; 0 where these are not known."""
        return nbytes_of(prod(self.shape), self.dtype) if self.shape and self.dtype in BITS else 0


@dataclass(frozen=True, slots=True)
class Origin:
    """The purpose of allocations; all that are alike share one. The fields are those of `TensorRow`.

    scope: for ONNX the place in the model the exporter recorded for the node ("layer1.0.conv1"), "" where it
        recorded none. stream: the stream the request is made for, 0 the default one.
    """

    name: str
    category: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    operator: str = ""
    module: str = ""
    source: str = ""
    phase: str = ""
    rule: str = ""
    scope: str = ""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Allocations:
    """Every block that was handed out, in order: parallel tuples, one entry a block. Sizes and addresses in
    bytes.

    born: the event of the timeline that took it; died: the one that gave it back, -1: none did.
    nbytes: of the block; requested: what was asked for. address: 0 where the allocator has no addresses.
    origin: what it is for, a place in `origins`.
    """

    born: tuple[int, ...] = ()
    died: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    requested: tuple[int, ...] = ()
    address: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()

    def alive(self, event: int) -> tuple[int, ...]:
        """Return the blocks in use after the event, by their place here; their `nbytes` sum to the bytes
        allocated then."""
        lives = zip(self.born, self.died, strict=True)
        return tuple(
            i for i, (born, died) in enumerate(lives) if born <= event and (died < 0 or event < died)
        )


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """Memory the allocator held of the device: from the event that took it to the one after which it was gone
    (-1: kept)."""

    address: int
    nbytes: int
    born: int
    died: int = -1


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every allocation event simulated: parallel tuples, one entry an event, bytes after it.

    `delta` is the signed block size of the event; `label` says what it was for; `rule` decided its size
    (empty in an estimate saved before rules had names).
    """

    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    delta: tuple[int, ...]
    label: tuple[str, ...]
    category: tuple[str, ...]
    phase: tuple[str, ...]
    rule: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Certainty:
    """Bytes at the peak by how they are known, and the operators of which only the results are known (name ->
    calls).

    by_rule: "exact", "measured", "bounded" -> the rules behind those bytes, name -> bytes, largest first.
    assumed: on a device nobody has measured, what is taken to be as on one that was: name -> bytes of
        `device_used`.
    reserved_range, beside_range: least and most bytes the allocator may hold there, and the process beside
        it; None where the device was measured, and threads ask in one order (`runtimes/ranges.py`).
    kept_bytes, spare_bytes: how much less than the device's capacity CUDA may have with another driver, and
        how much more.
    allocated_range: least and most bytes allocated at the peak, where processes differ; else None.
    runs_at_worst: whether it runs, giving cached blocks back, with the least that driver and context may
        leave, although what it takes with room may be more.
    causes: why the allocator may hold more or less -> least and most bytes it holds by that alone, the widest
        first; empty in an estimate saved before they were kept.
    unasked: a note on a library that is not within reach to be asked, with what installs it -> least and most
        bytes the allocator may hold without its answers.
    """

    exact: int
    measured: int
    bounded: int
    unknown_operators: Mapping[str, int] = field(default_factory=dict)
    by_rule: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    reserved_range: tuple[int, int] | None = None
    beside_range: tuple[int, int] | None = None
    kept_bytes: int = 0
    spare_bytes: int = 0
    allocated_range: tuple[int, int] | None = None
    causes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    unasked: Mapping[str, Sequence[int]] = field(default_factory=dict)
    runs_at_worst: bool = False


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The request the allocator had no room for, and what it held then. All sizes in bytes.

    requested_bytes: as asked for, before the allocator rounds it.
    allocated_bytes, reserved_bytes: in use and held then; limit_bytes: what might have been held.
    free_bytes: what was free inside the held segments; largest_free_bytes, free_count: in which pieces.
    label, operator, module, source, phase: what the request was for, in the user's terms; phase is the named
        event under way ("1.backward"), of a program that ended there its operator's phase ("backward").
    cycle_bytes: held then by reference cycles that Python's collector had yet to free; exception_bytes: by
        nothing but the frames of another exception, which is being handled or kept.
    """

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    limit_bytes: int
    free_bytes: int = 0
    largest_free_bytes: int = 0
    free_count: int = 0
    label: str = ""
    operator: str = ""
    module: str = ""
    source: str = ""
    phase: str = ""
    cycle_bytes: int = 0
    exception_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of a job on a device with room for it, in bytes."""

    peak_allocated: int
    peak_reserved: int
    device_used: int


@dataclass(frozen=True, slots=True)
class AfterRun:
    """Memory left after one run of a session, in bytes.

    event: the run's name, as in `Estimate.marks`, whose figures are those before an arena shrinks. batch: of
    the run. allocated, reserved: in use, and held by the arena. device_used: what NVML shows then.
    """

    event: str
    batch: int | None
    allocated: int
    reserved: int
    device_used: int


@dataclass(frozen=True, slots=True)
class RankCourse:
    """One rank of a job whose ranks were all followed. All sizes in bytes.

    course: the most allocated in each of equally many parts of the rank's events, kept of the first ranks.
    out_of_memory: whether it ran out.
    """

    rank: int
    peak_allocated: int
    peak_reserved: int
    device_used: int
    out_of_memory: bool
    course: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One of several GPUs of a process. number: as in "cuda:1"; device: its profile's name. All sizes in
    bytes. out_of_memory: whether it ran out."""

    number: int
    device: str
    peak_allocated: int
    peak_reserved: int
    device_used: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """A model's need of GPU memory. All sizes in bytes.

    peak_allocated, peak_reserved, device_used: the runtime's figures (`torch.cuda.max_memory_allocated`,
        `max_memory_reserved`, what NVML counts for the process; for ONNX Runtime: arena in use, arena held,
        NVML).
    graph_peak: liveness estimate, each tensor freed at its last use.
    breakdown: bytes at the peak by category, summing to peak_allocated.
    by_module, by_line: bytes at the peak by module path and by source line, largest first.
    allocations, segments: every block and every piece of the device held, from which event to which; empty in
        an estimate saved before they were kept. peak_event: the event that reached the peak first, -1:
        nothing was allocated.
    iterations: the event after which each begins (-1: with the first event).
    ranks: the course of every rank, where all were followed: this estimate is that of the one with the
        largest need.
    devices: a row of each GPU of a process that has several; this estimate is that of the fullest, or of the
        one that ran out. () of one GPU.
    after_runs: memory left after each run of an ONNX Runtime session, at last the lasting one; () for other
        programs.
    refused: why the runtime would not run this as requested (a batch the file does not take, a file of
        weights that is too short), although its need would be known: it never fits; these are among `notes`
        as well.
    incomplete: why a program ended before its end (an error of its own, an exit code other than 0, Ctrl-C,
        something that cannot be followed), None where it ran through; every figure is then of what ran until
        that moment, and it never fits.
    unreached: an expected step that a program which ended normally never did (put anything on the GPU, take
        a step with its optimizer), shown before the verdict; "" without one.
    caveats: deviations that may change the figures as a whole (a compiled program is followed as eager code).
    out_of_memory: the request that finds no memory on the device, None where all are served. Every other
        figure is then the job's need with room; of a program followed while it ran, that until this moment.
    with_room: its need on a device with room, where this one has less and it runs nevertheless (kept blocks
        are given back, convolutions take cuDNN's next plans, an arena smaller regions): all other figures are
        then of this device. Else None.
    capacity_bytes: the device's memory by CUDA (`total_memory`). driver_bytes: of it, the driver's own part
        beside what NVML counts for processes.
    doubt: why it may end otherwise on this device than the figures say, "" without doubt.
    budget_bytes: device memory it may use at most, as given by the caller. device_assumed: no device was
        named and none is here.
    modelled: the software the figures depend on ("torch", "onnxruntime", "cuda", "cudnn", ...) -> the release
        they apply to ("2.11"); empty in an estimate saved before it was kept. installed: those of them that
        are installed in another release.
    step_seconds: seconds of a step, a number with its range and its parts (`StepTime`); None where it is not
        known: ONNX files, several ranks, a GPU without figures of its speed, an estimate saved before it was
        kept.
    fragmentation, growth: much memory reserved that is not in use; calls of a model that each leave more
        alive (`pipeline/diagnosis.py`). None where there is none, or it was not looked for.
    remedies: changes that make a program fit, where they were looked for
        (`analyzer_programs/ways/way_out.py`); attempts: sentences on the others, which may not fit, or were
        not followed far enough.
    engine: "trace" where the program or graph was followed, "emulate" where PyTorch's own CUDA build ran it
        (`analyzer.emulate`), "recording" where a snapshot of its allocator was read (`analyze explain FILE`).
    """

    target: str
    framework: str
    runtime: str
    mode: str
    batch: int | None
    optimizer: str
    device: str
    device_note: str
    capacity_bytes: int
    options: Mapping[str, Any]
    peak_allocated: int
    peak_reserved: int
    device_used: int
    peak_requested: int
    graph_peak: int
    saved_for_backward: int
    naive: Naive
    breakdown: Mapping[str, int]
    by_module: Mapping[str, int]
    by_line: Mapping[str, int]
    marks: tuple[MarkRow, ...]
    tensors: tuple[TensorRow, ...]
    timeline: Timeline
    certainty: Certainty
    notes: tuple[str, ...] = ()
    peak_at: str = ""
    out_of_memory: OutOfMemory | None = None
    allocations: Allocations = field(default_factory=Allocations)
    segments: tuple[SegmentRow, ...] = ()
    peak_event: int = -1
    iterations: tuple[int, ...] = ()
    ranks: tuple[RankCourse, ...] = ()
    refused: tuple[str, ...] = ()
    incomplete: str | None = None
    caveats: tuple[str, ...] = ()
    unreached: str = ""
    with_room: Room | None = None
    doubt: str = ""
    budget_bytes: int | None = None
    device_assumed: bool = False
    modelled: Mapping[str, str] = field(default_factory=dict)
    installed: Mapping[str, str] = field(default_factory=dict)
    driver_bytes: int = 0
    engine: str = "trace"
    step_seconds: StepTime | None = None
    fragmentation: Fragmentation | None = None
    growth: Growth | None = None
    remedies: tuple[Remedy, ...] = ()
    attempts: tuple[str, ...] = ()
    after_runs: tuple[AfterRun, ...] = ()
    devices: tuple[DeviceRow, ...] = ()

    def top(self, n: int = 10) -> tuple[TensorRow, ...]:
        """Return the n largest allocations alive at the peak, largest first."""
        return self.tensors[:n]

    @property
    def fullest(self) -> DeviceRow | None:
        """Row of the GPU that decides, of which all figures are: the one that ran out of memory, else the one
        that is fullest; None of a process with one."""
        order = [(row.out_of_memory, row.device_used, row.peak_allocated) for row in self.devices]
        return self.devices[order.index(max(order))] if order else None

    @property
    def peak_request(self) -> Origin | None:
        """Origin of the request that reached the peak; None if there was none or it was not kept."""
        place = bisect_left(self.allocations.born, self.peak_event)
        if self.peak_event not in self.allocations.born[place : place + 1]:
            return None
        return self.allocations.origins[self.allocations.origin[place]]

    @property
    def allocated_range(self) -> tuple[int, int]:
        """Least and most that may be in use at the peak; both `peak_allocated` if nothing is assumed."""
        return self.certainty.allocated_range or (self.peak_allocated, self.peak_allocated)

    @property
    def reserved_range(self) -> tuple[int, int]:
        """Least and most the allocator may hold at its peak; both `peak_reserved` if nothing is assumed."""
        return self.certainty.reserved_range or (self.peak_reserved, self.peak_reserved)

    @property
    def device_range(self) -> tuple[int, int]:
        """Least and most that NVML may show for the process; both `device_used` where nothing is assumed."""
        beside = self.device_used - self.peak_reserved
        least, most = self.certainty.beside_range or (beside, beside)
        return self.reserved_range[0] + least, self.reserved_range[1] + most

    @property
    def samples(self) -> int | None:
        """Samples of a step with all its micro-batches; None if no batch was given."""
        return None if self.batch is None else self.batch * int(self.options.get("grad_accumulation") or 1)

    @property
    def samples_per_second(self) -> tuple[float, float, float] | None:
        """Samples a second by a step's time, and by its greatest and its least; None where either is not
        known, and of generating tokens, whose steps are no samples."""
        time, samples = self.step_seconds, self.samples
        if time is None or samples is None or time.low <= 0 or self.mode == "generate":
            return None
        return samples / time.seconds, samples / time.high, samples / time.low

    @property
    def needed(self) -> Room:
        """Memory of the job with room: its own figures where the device has room."""
        return self.with_room or Room(self.peak_allocated, self.peak_reserved, self.device_used)

    def fits(self, device: str | int | None = None) -> bool:
        """Return whether it surely runs on its own device, and within the budget if there is one.

        device: another one, by a profile's name, a size ("24GiB") or bytes. Its capacity is compared with
            what the job takes with room, or took here; whether it runs in less is what an analysis for that
            device says.
        """
        from analyzer.devices import capacity_of, check_bare

        if isinstance(device, int):
            check_bare(device)
        limit = self.allowed_bytes if device is None else capacity_of(device)
        return not self.at_least and not self.refused and self.within(limit)

    @property
    def at_least(self) -> bool:
        """Whether every figure is a lower bound, because operators without a rule ran."""
        return bool(self.certainty.unknown_operators)

    @property
    def allowed_bytes(self) -> int:
        """Bytes the job may use: the device's capacity, or a budget below it."""
        return min(self.usable_bytes, self.budget_bytes or self.usable_bytes)

    @property
    def usable_bytes(self) -> int:
        """Bytes of the device a process may hold, as NVML counts them."""
        return self.capacity_bytes - self.driver_bytes

    def within(self, nbytes: int) -> bool:
        """Return whether it runs in so many bytes of device memory, by its figures."""
        return self.incomplete is None and not self.stopped and self.device_used <= nbytes

    def verdict(self, nbytes: int | None = None) -> str:
        """ "fits", "may not fit" or "does not fit" in so many bytes of device memory (default: what it may
        use).

        "may not fit": the figure does, and it is a lower bound (`at_least`), or on this GPU, which nobody
        measured, or in another order of the program's threads, more may be taken, or the driver may keep what
        is needed; or it does not, and less may, or the driver may have more to give; or either depends on
        workspaces that cuDNN was not asked about (`doubt`).
        """
        limit = self.allowed_bytes if nbytes is None else nbytes
        fits, certainty = self.within(limit), self.certainty
        least, most = self.device_range
        if not certainty.assumed:  # of a measured GPU what code is loaded decides nothing
            least, most = (end + self.device_used - self.peak_reserved for end in self.reserved_range)
        in_doubt = self.doubt and (limit == self.allowed_bytes or (limit > self.allowed_bytes and not fits))
        if (fits and self.at_least) or in_doubt:
            return "may not fit"
        least_limit = min(limit, max(limit, self.usable_bytes) - certainty.kept_bytes)
        given_at_most = limit + certainty.spare_bytes if limit >= self.usable_bytes else limit
        if fits and certainty.runs_at_worst and limit >= self.allowed_bytes:
            return "fits"
        possible = self.incomplete is None and (
            certainty.assumed or certainty.reserved_range or certainty.spare_bytes or certainty.kept_bytes
        )
        if possible and (most > least_limit if fits else least <= given_at_most):
            return "may not fit"
        return "fits" if fits else "does not fit"

    @property
    def stopped(self) -> bool:
        """Whether the figures end at a request that found no memory, instead of those with room."""
        return self.out_of_memory is not None and self.device_used <= self.allowed_bytes

    def __repr__(self) -> str:
        from analyzer.report import formats

        return in_python(str(formats.render("summary", "line", self)))

    def __str__(self) -> str:
        """Return the verdict and the estimates side by side."""
        from analyzer.report import formats

        return in_python(str(formats.render("summary", "text", self)).rstrip("\n"))

    def _repr_html_(self) -> str:
        """Return the notebook view."""
        from analyzer.report import formats

        return str(formats.render("notebook", "html", self))

    def to_json(self) -> str:
        """Return the estimate as JSON by the versioned schema `report/schema.json`."""
        from analyzer.report.json import to_dict

        return json.dumps(to_dict(self))
