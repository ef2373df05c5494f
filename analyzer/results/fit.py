"""The answer to "which is the largest batch?" (`planning/fit.py` looks for it), and for which length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.results.estimate import Estimate, OutOfMemory


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer. All sizes in bytes.

    batch: the largest that surely runs, 0 when no batch does. perhaps: the largest that may, above it, 0
        where none is in doubt. brief: its estimate under the limit, which may be without what lies where
        (`at` has that), and without ranges; None when batch is 0. look_at: the whole one, made
        when `at` is read; None where `brief` is whole.
    fails: the next batch that fails, 0 for the one after the answer. failure: its request without room.
        look_beyond: its analysis, made when `beyond` is read; None when nothing larger was tried.
    limit: what the allocator may hold. device_bound: whether the device says so, rather than a limit of its
        own.
    notes: what a reader of the answer should know. samples: None; with it `batch` is the length that so many
        samples may have at most (`longest`).
    option: the script's own option whose value `batch` is ("--batch-size"), "" without (`planning/vary.py`).
    also: larger batches that would run nevertheless, since fragmented memory is not monotonic. gaps: smaller
        ones that would not. captures: batches that were captured. refused: what the program itself said at
        `fails`, "" where it is memory that lacks.
    verdict, reserved_range: of the answer, "fits", or "may not fit" where it does not run on this GPU, which
        nobody measured, if what is assumed of it is at its worst; of no answer, "does not fit", or "may not
        fit" where one sample runs if that is at its best. Between what the allocator holds then, the figure
        itself on a GPU that was measured. beyond_verdict: of the batch that fails, "does not fit", or "may
        not fit" where it runs if what is assumed is at its best.
    growth: of the next batch, where its allocator takes more at once than it is asked for: a sentence.
    """

    batch: int
    brief: Estimate | None
    limit: int
    device_bound: bool
    also: tuple[int, ...] = ()
    captures: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    samples: int | None = None
    gaps: tuple[int, ...] = ()
    fails: int = 0
    failure: OutOfMemory | None = None
    look_beyond: Callable[[], Estimate] | None = field(default=None, repr=False, compare=False)
    refused: str = ""
    verdict: str = ""
    reserved_range: tuple[int, int] = (0, 0)
    beyond_verdict: str = ""
    option: str = ""
    growth: str = ""
    perhaps: int = 0
    look_at: Callable[[], Estimate] | None = field(default=None, repr=False, compare=False)

    @property
    def what(self) -> str:
        """The name of what `batch` counts: "batch", "length", or a script's option."""
        return self.option or ("batch" if self.samples is None else "length")

    @property
    def at(self) -> Estimate | None:
        """The estimate of the batch under the limit; None when batch is 0."""
        return self.brief if self.look_at is None else self.look_at()

    @property
    def beyond(self) -> Estimate | None:
        """The estimate of the next batch that fails; None when nothing larger was tried."""
        return None if self.look_beyond is None else self.look_beyond()

    @property
    def headroom(self) -> int:
        """Bytes the allocator might still hold at that batch."""
        return self.limit - (self.brief.peak_reserved if self.brief is not None else 0)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The answer. target: its name. devices: as asked. lengths: samples' lengths, ascending; fits: by length,
    an answer a device (None: nothing larger was tried there, or the program itself fails at this length).
    notes: why it ends where it ends."""

    target: str
    devices: tuple[str, ...]
    fits: dict[int, tuple[Fit | None, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def batch(self, length: int, place: int) -> int:
        """Return the largest batch of a length on a device; 0 where not one sample runs."""
        fit = self.fits[length][place]
        return 0 if fit is None else fit.batch
