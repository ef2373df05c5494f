"""The batch as a variable: a range of batches in pieces, each one program (`program.py`), and where one ends and why.

1. Batch 1 is a piece of its own: dimensions of size 1 have no order among strides, broadcast, and are squeezed away.
2. A range is captured at its ends and in between; when the three are one program, the range is one piece. A number that
   three captures cannot check (a square) is given a fourth. All steps are captured once; elsewhere the first, where
   the later ones repeat it (`steps.py`).
3. Otherwise the largest batch is searched, by bisection, up to which the program is that of the range's beginning: there
   the piece ends, and the next begins. A batch that is like none of its neighbours, or cannot be captured, is a piece of
   its own; what the target said is kept.
4. A batch at which a question about sizes is answered otherwise than at the captures (`questions.py`) is captured itself.
5. After `MOST_CAPTURES` captures the rest is taken one by one: such a range is no piece (`program` is None), each of its
   batches is captured when it is asked for.

Not modelled: a batch inside a piece, never captured, at which the program is another one and then the same again for a reason
that no question about sizes tells.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.pipeline.assemble import Captured
from analyzer.planning.figures import EagerFigures, Figures
from analyzer.planning.program import BatchProgram, NotTheSame
from analyzer.planning.session_figures import SessionFigures
from analyzer.planning.steps import Repetition
from analyzer.planning.subject import Subject
from analyzer.runtimes.pytorch.settings import alloc_conf

MOST_CAPTURES = 40
_SHORT = 4
_MOST_POINTS = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Batches `low` to `high`, both included. figures: what tells theirs, None where each batch is captured by itself.

    program: the one they share; None for a session, too, which plans its graph anew at each batch.
    ends: why the next batch is another program, "" at the end of the range. error: why it cannot be captured.
    """

    low: int
    high: int
    program: BatchProgram | None
    figures: EagerFigures | SessionFigures | None
    ends: str = ""
    error: str = ""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """While open, Python looks for no cycles: much is made here and kept, and looking through captured programs again and
    again would take longer than all the rest. (The command line does without for good.)"""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Pieces:
    """The pieces of a range, captured as needed. `captured`: batch → what was captured there."""

    def __init__(self, subject: Subject, low: int, high: int) -> None:
        """Raises AnalyzerError when neither end of the range can be captured."""
        self.subject = subject
        self.captured: dict[int, Captured | AnalyzerError] = {}
        self._repetition: Repetition | None = None
        self._conf = alloc_conf(subject.options.runtime_options)
        self.pieces: tuple[Piece, ...] = ()
        if subject.joined:
            with uncollected():
                self.pieces = tuple(self._found(low, high))

    def on(self, subject: Subject) -> Pieces | None:
        """The same pieces on the subject's device: programs are not joined once more. None where one is another program there."""
        other = copy.copy(self)
        other.subject, other.captured = subject, {}
        pieces: list[Piece] = []
        for batch, captured in self.captured.items():
            known = (
                captured
                if isinstance(captured, AnalyzerError)
                else subject.moved(captured, self.subject.options.device)
            )
            if known is None:
                return None
            other.captured[batch] = known
        for piece in self.pieces:
            if piece.figures is None:
                pieces.append(piece)
            elif piece.program is None:
                return None  # a session is planned for its device
            else:
                program = piece.program.on([_made(other.captured[batch]) for batch in piece.program.batches])
                pieces.append(replace(piece, program=program, figures=EagerFigures(program, self._conf)))
        other.pieces = tuple(pieces)
        return other

    def at(self, batch: int, limit: tuple[int, bool] | None = None) -> Figures:
        """The figures at a batch of the range, under a limit if there is one. Raises AnalyzerError."""
        piece = self.piece(batch)
        if piece is not None and piece.error:
            problem = self.captured[batch]
            assert isinstance(problem, AnalyzerError)
            raise problem
        if piece is not None and piece.figures is not None:
            try:
                if not _changed(piece, batch):
                    return piece.figures.at(batch, limit)
            except ArithmeticError:  # a number that is whole only at some batches
                pass
            self._at(batch)
        return figures_of(self.analysis(batch, limit), with_room=limit is None)

    def prepare(self, batches: Sequence[int]) -> None:
        """What `at` will be asked for, so that what these batches share is done once."""
        for piece in self.pieces:
            if piece.figures is not None:
                piece.figures.prepare([batch for batch in batches if piece.low <= batch <= piece.high])

    def analysis(self, batch: int, limit: tuple[int, bool] | None = None) -> Analysis:
        """A batch with all there is to know of it. Raises AnalyzerError."""
        if not self.subject.joined:
            return self.subject.analysis(batch)
        piece = self.piece(batch)
        program = None if piece is None or piece.error or _changed(piece, batch) else piece.program
        if batch not in self.captured and program is not None:
            return self.subject.assembled(program.at(batch), batch, limit)
        return self.subject.assembled(self._at(batch), batch, limit)

    def piece(self, batch: int) -> Piece | None:
        """The piece a batch belongs to; None outside the range, and for targets that have no pieces."""
        return next((piece for piece in self.pieces if piece.low <= batch <= piece.high), None)

    def _at(self, batch: int) -> Captured:
        """Raises AnalyzerError, the same one again for a batch that failed before."""
        if batch not in self.captured:
            try:
                self.captured[batch] = self.subject.captured(batch, listen=True)
            except AnalyzerError as error:
                self.captured[batch] = error
        found = self.captured[batch]
        if isinstance(found, AnalyzerError):
            raise found
        return found

    def captured_at(self, batch: int) -> Captured:
        """What was captured at a batch, also outside the range: one step where later steps repeat it. Raises AnalyzerError."""
        if batch not in self.captured and self._repetition is not None:
            try:
                first = self.subject.captured(batch, steps=1, listen=True)
                self.captured[batch] = self._repetition.with_all_steps(first)
            except (AnalyzerError, NotTheSame):
                pass  # what all steps say of it is what the user should read
        return self._at(batch)

    def _joined(self, *batches: int) -> tuple[BatchProgram | None, EagerFigures | SessionFigures]:
        """The program captured at the range's ends and in between. Raises NotTheSame, also for a batch that cannot be captured."""
        try:
            captures = [self.captured_at(batch) for batch in batches]
            if not self.subject.eager:
                return None, SessionFigures(batches, captures, self.subject.options.runtime_options)
            program = BatchProgram(batches, captures)
            return program, EagerFigures(program, self._conf)
        except AnalyzerError as error:
            raise NotTheSame(error.message) from error
        except NotTheSame as different:
            low, *_, high = sorted(batches)
            more = next(
                (b for b in ((3 * low + high) // 4, low + 3) if low < b < high and b not in batches), None
            )
            if not different.number or more is None or len(batches) > _MOST_POINTS:
                raise
        return self._joined(*batches, more)

    def _found(self, low: int, high: int) -> list[Piece]:
        found: list[Piece] = []
        for end in (high, low):
            try:
                whole = self._at(end)
                with contextlib.suppress(NotTheSame):
                    if self.subject.eager and self.subject.options.steps > 1:
                        self._repetition = Repetition(whole)
                break
            except AnalyzerError:
                continue
        else:
            self._at(low)
        while low <= high:
            if low == 1 or high - low < _SHORT - 1:
                found.append(self._alone(low))
            elif len(self.captured) >= MOST_CAPTURES:
                found.append(Piece(low, high, None, None))
            else:
                found.append(self._next(low, high))
            low = found[-1].high + 1
        return found

    def _alone(self, batch: int, ends: str = "") -> Piece:
        try:
            captured = self.captured_at(batch)
            if not self.subject.eager:
                return Piece(batch, batch, None, None, ends)
            program = BatchProgram([batch], [captured])
            return Piece(batch, batch, program, EagerFigures(program, self._conf), ends)
        except AnalyzerError as error:
            return Piece(batch, batch, None, None, ends, error.message)
        except NotTheSame:
            return Piece(batch, batch, None, None, ends)

    def _next(self, low: int, high: int) -> Piece:
        """The piece that begins at `low`."""
        try:
            return Piece(low, high, *self._joined(low, (low + high) // 2 | 1, high))
        except NotTheSame as different:
            if different.anywhere:
                return Piece(low, high, None, None)
            reason = different.where
        try:
            best = self._joined(low, low + 1, low + 2)
        except NotTheSame as different:
            return self._alone(low, different.where)
        good, bad = low + 2, high
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                best, good = self._joined(low, low + 1, middle), middle
            except NotTheSame as different:
                bad, reason = middle, different.where
        return Piece(low, good, *best, ends=reason)


def pieces_of(subject: Subject, low: int, high: int) -> Pieces:
    """The pieces of a range, from those of another device where it is the same program there. Raises AnalyzerError."""
    known = subject.pieces.setdefault((low, high), [])
    with uncollected():
        found = next(filter(None, (pieces.on(subject) for pieces in known)), None)
    if found is None:
        found = Pieces(subject, low, high)
        known.append(found)
    return found


def _made(captured: Captured | AnalyzerError) -> Captured:
    assert isinstance(captured, Captured)
    return captured


def _changed(piece: Piece, batch: int) -> bool:
    """Whether a batch of the piece may be another program after all: what it asks about sizes is answered otherwise."""
    program = piece.program
    return program is not None and batch not in program.batches and program.questions.changed(batch)


def figures_of(analysis: Analysis, with_room: bool = True) -> Figures:
    """The figures of an analysis; with room, or as they are."""
    estimate = analysis.estimate
    needed = estimate.needed if with_room else estimate
    return Figures(
        estimate.batch or 0,
        needed.peak_allocated,
        needed.peak_reserved,
        needed.device_used,
        estimate.naive.total,
        analysis.played.failure is not None,
        len(analysis.played.refused),
    )
