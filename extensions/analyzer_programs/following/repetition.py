"""Steps that repeat are stored once: ten thousand of them need no more memory than ten.

1. A program is cut into **segments**: at the end of every optimizer step, and before every call of a model
   outside training (a batch of an evaluation).
2. A storage that lives across a boundary has a **role**: its size, and its number among equals. One that
   replaces a dead storage gets its role, so this step's gradients are what the last step's were.
3. A segment's **normal form** is everything that happened in it (operators, births, deaths, named events)
   with storages known by their order of birth in it, or by their role (the smallest without their number:
   of losses in a list the last one always has another). Floats are left out: they scale values
   (a learning rate), and decide no memory.
4. If the last p segments have the normal forms of the p before them, begin and end with the same roles in
   blocks of the same size, and reach no new peak, they are forgotten: whatever they left alive stands for
   what they found. p is at most `LONGEST`, which covers several optimizers and evaluations in between.
5. The allocator has to be laid out at their end as at their beginning, or once before; only when `PATIENCE`
   segments are stored does it no longer matter (blocks of equal size may go round for long), and then the
   addresses of what is alive between them are not to be trusted.
6. A program is **steady** where optimizer steps are forgotten so, with the allocator as it was: everything
   from then on happened already.
7. Where equal tensors go round among blocks of different sizes, the allocator may not repeat for very long.
   Then `ENOUGH` segments, or `FEWEST` of long ones, that each equal the one p before, leave as many tensors
   of each size, and reach no new peak, are **alike**: the program asks for the same again, and only the
   allocator's holes are not known to repeat. They may leave a few of the smallest blocks: losses in a list.

8. **Played** segments (`analyzer_programs/playing.py`) are as good as those that are run for what the
   allocator does: where a program that is only tried has `_TRIED` of them alike, whatever the allocator
   does, what follows is played, until it is steady as in 6 or 7.

Nothing is forgotten by the allocator: it has gone through every step (`analyzer_programs/live.py`), and a
peak that only a later step reaches, by fragmentation, is found and kept.

Not modelled: steps whose sizes differ are all stored, as those are that are only alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from analyzer.allocators import OutOfMemoryError
from analyzer.capture.pytorch.recording.memory import out_of_memory
from analyzer.graph import Birth, Death, Mark, Moment, Operator, Run, StreamUse, StreamWait, TensorMeta

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.memory import Memory
    from analyzer.capture.pytorch.recording.recorder import Recorder, RecordingCursor

LONGEST = 8
# So many segments are stored before the allocator's layout no longer matters, and so many layouts remembered.
PATIENCE = 10
LAYOUTS = 64
# So many segments are alike before the allocator's layout does not matter for when a program may be ended;
# fewer of long ones, down to the fewest, as many operators being as much evidence.
ENOUGH, FEWEST, _OPERATORS = 16, 6, 25_000
# Segments alike before the next ones are played, and the most optimizer steps that are.
_TRIED, _MOST_PLAYED = 2, 128
# Bytes of a tensor that may be left by every segment: a loss or two kept in a list.
_SMALL_BYTES, _SMALL_GROWTH = 512, 2048
# Bytes, whether on the device, number among equals.
Role: TypeAlias = tuple[int, bool, int]


class NormalForm:
    """A segment's normal form, computed only if another segment's operators return alike shapes."""

    __slots__ = ("_happened", "_normalize", "shapes")

    def __init__(self, shapes: object, normalize: Callable[[], Hashable]) -> None:
        self.shapes, self._normalize = shapes, normalize
        self._happened: Hashable = None

    @property
    def happened(self) -> Hashable:
        """The segment's events in normal form, computed once."""
        if self._happened is None:
            self._happened = self._normalize()
        return self._happened

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NormalForm) and (
            self is other or (self.shapes == other.shapes and self.happened == other.happened)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Segments that repeat at the end of one. period: segments until it does; steps: optimizer steps among
    them; alike: how many segments are alike in a row, 0 where the allocator is as it was, too; grown: bytes
    that they leave in small tensors, each period anew; played: optimizer steps that were played of them."""

    period: int
    steps: int
    alike: int = 0
    grown: int = 0
    played: int = 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """End of a segment. at: length of the recording; steps: optimizer steps in the segment.

    held: what lives then, role -> (storage, bytes of its block). kind: number of the normal form of the
        segment that ends here, -1 for the first. layouts: of the allocator, now and where segments since
        forgotten ended. lives: the roles but for small tensors', as one number; small: bytes of those.
    """

    at: RecordingCursor
    steps: int
    failures: int
    peaks: tuple[int, ...]
    held: Mapping[Role, tuple[int, int]]
    kind: int
    layouts: tuple[int, ...]
    lives: int
    small: int

    @property
    def state(self) -> dict[Role, int]:
        """Live storages by role, with the bytes of their blocks."""
        return {role: block for role, (_, block) in self.held.items()}


@dataclass(slots=True)
class _Numbers:
    """Numbers among equals: the smallest nobody has."""

    free: list[int] = field(default_factory=list)
    count: int = 0

    def take(self) -> int:
        """Return the lowest free number."""
        if self.free:
            return heappop(self.free)
        self.count += 1
        return self.count - 1


class Repetition:
    """Watches a program's segments for one capture.

    repeated_steps: optimizer steps that were forgotten because they repeat others. operators: of all
        segments that ended, forgotten ones included. waits: why the last one is not known to repeat.
    """

    def __init__(self, recorder: Recorder, memory: Memory) -> None:
        self._recorder, self._memory = recorder, memory
        self._boundaries: list[Boundary] = []
        self._roles: dict[int, Role] = {}
        self._numbers: dict[tuple[int, bool], _Numbers] = {}
        self._kinds: list[tuple[int, NormalForm]] = []  # the last one first
        self._kind_count = self._steps = 0
        self._lengths: deque[int] = deque(maxlen=LONGEST)  # operators of the last segments
        self.repeated_steps = self.operators = 0
        self.waits = ""
        self._runs: dict[int, int] = {}  # by period: segments in a row that are alike

    def end_segment(self) -> Repeats | None:
        """End a segment; return what repeats since, None if nothing does or nobody knows yet."""
        kind = -1
        if self._boundaries:
            kind = self._kind(self._normal())
            self._lengths.append(len(self._recorder.operators) - self._boundaries[-1].at.operators)
            self.operators += self._lengths[-1]
        self._assign()
        self._boundaries.append(self._boundary(kind))
        del self._boundaries[: -2 * LONGEST - 1]
        recurring = self._recurs()
        for period in range(1, (len(self._boundaries) - 1) // 2 + 1):
            if self._repeats(period):
                begin, now = self._boundaries[-1 - period], self._boundaries[-1]
                as_before = any(layout in begin.layouts for layout in now.layouts)
                if not as_before and len(self._boundaries) <= PATIENCE:
                    continue
                self._forget(begin, now)
                steps = sum(boundary.steps for boundary in self._boundaries[-period:])
                self.repeated_steps += steps
                self._runs = {period: self._runs.get(period, 0)}  # others would compare across the cut
                self._boundaries[-1 - period :] = [
                    replace(begin, layouts=(*begin.layouts, *now.layouts)[-LAYOUTS:])
                ]
                return Repeats(period, steps) if as_before else recurring
        return recurring

    def play(self) -> Repeats | None:
        """Play segments like the last ones until they are steady; return how they are, None where none are
        played. Raises torch.OutOfMemoryError."""
        bounds = self._boundaries
        period = next(filter(self._asks_again, range(1, LONGEST + 1)), 0)
        steps = sum(boundary.steps for boundary in bounds[-period:])
        if not period or not steps:
            return None
        begin, now, memory = bounds[-1 - period], bounds[-1], self._memory
        held = [now.held[role][0] for role in sorted(now.held)]
        peaks, layouts, quiet, played = memory.peaks, {now.layouts[-1]}, 0, 0
        least = self._enough(period)
        before, after = ({role: storage for role, (storage, _) in one.held.items()} for one in (begin, now))
        try:
            for _ in memory.play(begin.at.events, before, after, steps):
                played += 2 * steps
                quiet = quiet + 2 * period if _no_higher(memory.peaks, peaks) else 0
                peaks, layout = memory.peaks, hash(memory.layout(held))
                if layout in layouts and quiet:
                    return Repeats(period, steps, played=played)
                layouts.add(layout)
                if quiet >= least:
                    return Repeats(period, steps, quiet, played=played)
                if played >= _MOST_PLAYED:
                    return None
        except OutOfMemoryError as error:
            raise out_of_memory(error, memory) from None
        return None

    def _asks_again(self, period: int) -> bool:
        """Return whether enough segments are alike to play the next ones."""
        bounds, count = self._boundaries, max(_TRIED, 2 * period)
        return len(bounds) > count + period and all(
            _is_alike(bounds[-1 - at - period], bounds[-1 - at]) for at in range(count)
        )

    @property
    def grows(self) -> bool:
        """Whether each of many segments left more tensors alive."""
        counts = [len(boundary.held) for boundary in self._boundaries]
        return len(counts) > ENOUGH and all(before < after for before, after in pairwise(counts))

    def kinds(self, count: int) -> tuple[int, ...]:
        """Return the kinds of the last segments: equal ones asked for the same."""
        return tuple(boundary.kind for boundary in self._boundaries[-count:])

    def _recurs(self) -> Repeats | None:
        """Return what is alike (7), None without."""
        bounds = self._boundaries
        *_, before, now = (bounds[0], *bounds)
        is_new = not _no_higher(now.peaks, before.peaks)
        is_new |= now.failures != before.failures
        for period in range(1, LONGEST + 1):
            known = not is_new and period < len(bounds) and _is_alike(bounds[-1 - period], now)
            self._runs[period] = self._runs.get(period, 0) + 1 if known else 0
        self.waits = "waiting for the allocator to repeat" if any(self._runs.values()) else "steps differ"
        return self._alike(bounds)

    def _alike(self, bounds: Sequence[Boundary]) -> Repeats | None:
        """Return the shortest period after which enough segments are alike."""
        for period, count in self._runs.items():
            if count >= self._enough(period):
                grown = bounds[-1].small - bounds[-1 - period].small
                if grown <= period * _SMALL_GROWTH:
                    steps = sum(boundary.steps for boundary in bounds[-period:])
                    return Repeats(period, steps, count, max(grown, 0))
        return None

    def _enough(self, period: int) -> int:
        """Return how many segments have to be alike."""
        return max(min(_OPERATORS // max((1, *self._lengths)), ENOUGH), FEWEST, 2 * period)

    def _kind(self, normal: NormalForm) -> int:
        """Return the number of a normal form: that of an equal one, or a new one."""
        known = next((entry for entry in self._kinds if entry[1] == normal), None)
        if known is None:
            known = self._kind_count, normal
            self._kind_count += 1
        else:
            self._kinds.remove(known)
        self._kinds.insert(0, known)
        del self._kinds[2 * LONGEST + 1 :]
        return known[0]

    def _boundary(self, kind: int) -> Boundary:
        """Return the boundary at the current end of the recording."""
        recorder, memory = self._recorder, self._memory
        steps, self._steps = recorder.step - self._steps, recorder.step
        held = {role: (storage, memory.block_bytes(storage)) for storage, role in self._roles.items()}
        return Boundary(
            at=recorder.position(),
            steps=steps,
            failures=memory.failures,
            peaks=memory.peaks,
            held=held,
            kind=kind,
            layouts=(hash(memory.layout(held[role][0] for role in sorted(held))),),
            lives=hash(frozenset(role for role in held if not _is_small(role))),
            small=sum(_SMALL_BYTES for role in held if _is_small(role)),
        )

    def _repeats(self, period: int) -> bool:
        """Return whether the last segments equal those before, and nothing later depends on them."""
        *_, now = boundaries = self._boundaries
        begin, before = boundaries[-1 - period], boundaries[-1 - 2 * period]
        return (
            all(boundaries[-1 - i].kind == boundaries[-1 - period - i].kind for i in range(period))
            and now.peaks == begin.peaks
            and now.failures == before.failures
            and now.at.events - begin.at.events == begin.at.events - before.at.events
            and now.state == begin.state
        )

    def _forget(self, begin: Boundary, now: Boundary) -> None:
        """Drop what was recorded since `begin`; live storages take the numbers of those live at `begin`."""
        names = {
            storage: begin.held[role][0]
            for role, (storage, _) in now.held.items()
            if storage != begin.held[role][0]
        }
        self._memory.cut(begin.at.events, names)
        self._recorder.cut(begin.at, names)
        self._roles = {names.get(storage, storage): role for storage, role in self._roles.items()}

    def _assign(self) -> None:
        """Assign roles to live storages: kept, or taken over from dead ones, in order of birth."""
        alive = set(self._recorder.storages.alive())
        for storage in self._roles.keys() - alive:
            nbytes, on_device, number = self._roles.pop(storage)
            heappush(self._numbers[nbytes, on_device].free, number)
        for storage in sorted(alive - self._roles.keys()):
            growing = self._recorder.storages.all[storage]
            key = growing.nbytes, growing.on_device
            self._roles[storage] = (*key, self._numbers.setdefault(key, _Numbers()).take())

    def _normal(self) -> NormalForm:
        """Return the normal form of the ending segment, whose record stays until it is dropped."""
        begin, recorder = self._boundaries[-1], self._recorder
        normalize = partial(
            _happened,
            recorder.storages.program[begin.at.moments :],
            recorder.operators[begin.at.operators :],
            recorder.storages.all[begin.at.storages :],
            begin,
            dict(self._roles),
        )
        shapes = [
            output.shape if output is not None else None
            for operator in recorder.operators[begin.at.operators :]
            for output in operator.outputs[:1]
        ]
        return NormalForm((len(recorder.storages.program) - begin.at.moments, shapes), normalize)


def _is_small(role: Role) -> bool:
    """Return whether a tensor of the device takes its smallest block."""
    nbytes, on_device, _ = role
    return on_device and 0 < nbytes <= _SMALL_BYTES


def _no_higher(now: Sequence[int], before: Sequence[int]) -> bool:
    """Return whether peaks are those before, but for small tensors."""
    return now[1] <= before[1] and now[0] <= before[0] + _SMALL_GROWTH


def _is_alike(one: Boundary, other: Boundary) -> bool:
    """Return whether two segments have one normal form, and leave as many tensors of each size."""
    return one.kind == other.kind and one.lives == other.lives


def _happened(
    moments: Sequence[Moment],
    operators: Sequence[Operator],
    storages: Sequence[Any],
    begin: Boundary,
    roles: Mapping[int, Role],
) -> Hashable:
    """Return a segment's moments, operators and storages with storage numbers relative to its beginning, to
    compare segments. `operators` and `storages` are those since `begin`."""
    first = begin.at.storages

    def numbered(storage: int) -> Hashable:
        if storage >= first:
            return storage - first
        role = roles.get(storage)
        return role[:2] if role is not None and _is_small(role) else role

    def argument(value: Any) -> Hashable:
        if isinstance(value, TensorMeta):
            return numbered(value.storage), value.shape, value.stride, value.dtype, value.offset
        if isinstance(value, tuple):
            return tuple([argument(part) for part in value])
        return "float" if isinstance(value, float) else value

    form: list[Hashable] = []
    for moment in moments:
        if isinstance(moment, Run):
            operator = operators[moment.operator - begin.at.operators]
            place = (operator.name, operator.phase, operator.module, operator.source, operator.stream)
            keywords = tuple([(name, argument(value)) for name, value in operator.keywords.items()])
            form.append((*place, argument(operator.arguments), argument(operator.outputs), keywords))
        elif isinstance(moment, Birth):
            growing = storages[moment.storage - first]
            form.append(("birth", numbered(moment.storage), growing.nbytes, growing.on_device, moment.stream))
        elif isinstance(moment, StreamUse):
            form.append(("use", numbered(moment.storage), moment.stream))
        elif isinstance(moment, StreamWait):
            form.append(("wait", moment.stream, moment.by))
        elif isinstance(moment, Death):
            form.append(("death", numbered(moment.storage)))
        elif isinstance(moment, Mark):
            step, dot, name = moment.name.partition(".")
            form.append(("mark", name if dot and step.isdigit() else moment.name, moment.value))
    return tuple(form)
