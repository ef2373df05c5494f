"""Answers to a program that asks a tensor on the device for its value, or for a size that only data tells.

1. A value that is known (`values/known.py`) is told; what the user assumes for a line (`--assume`) comes
   before a guess.
2. An unknown fraction is taken for 1, since fractions scale values; integers and flags shape programs: an
   error that names the line, or, where a whole program is followed, a stand-in, which is noted.
3. A size nobody knows is the most it can be, and noted (`values/sizes.py`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter

from analyzer.capture.pytorch.recording.parts import has_parts
from analyzer.capture.pytorch.recording.places import Places
from analyzer.capture.pytorch.recording.schema import Schema
from analyzer.capture.pytorch.recording.sized_results import sized_result
from analyzer.capture.pytorch.recording.storages import DTYPE_NAMES, Storages
from analyzer.capture.pytorch.recording.twins import Twins
from analyzer.errors import CaptureError
from analyzer.graph import Phase
from analyzer.values import sizes
from analyzer.values.assumptions import Assumptions
from analyzer.values.branches import assumed, counted, everybody, falls, longest, rejected
from analyzer.values.budget import STAND_IN_ELEMENTS
from analyzer.values.calls import DispatchedCall
from analyzer.values.known import KnownValues

aten = torch.ops.aten
_LARGEST_STAND_IN = 1 << 22
ZEROS = (
    "values of CUDA tensors that are copied to the host or saved are zeros in what the program makes of them"
)
BY_NUMBERS = (
    "what the program decides by its numbers is decided here by those a CPU computes, with random numbers of"
    " its own: another run may decide otherwise"
)


class ProgramValues:
    """Answers for one capture. stands_in: unknown values get a stand-in instead of being an error; stood_in:
    the program has read one; note: says something once to the estimate's reader."""

    def __init__(
        self,
        places: Places,
        storages: Storages,
        known: KnownValues,
        twins: Twins,
        note: Callable[[str], None],
    ) -> None:
        self._places, self._storages, self._note = places, storages, note
        self._known_values, self._twins = known, twins
        self.stands_in = self.stood_in = False
        self.refused = ""  # the last question about values that had no answer
        self.assumptions = Assumptions()
        self._falling = itertools.count(1)

    # -- what is known

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor's value if known; for a sparse one only its parts' values are."""
        return None if has_parts(tensor) else self._twins.get(tensor)

    def filled(self, parts: list[torch.Tensor]) -> None:
        """Prepare the tensors for known values that are about to be written to all of them."""
        self._twins.filled(parts)

    def forget(self, tensor: torch.Tensor) -> None:
        """Mark the tensor's value as unknown."""
        if tensor.device.type == "meta":
            self._known_values.forget(tensor.untyped_storage()._cdata)

    def learn(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Store a value for the whole tensor, given as a host tensor of its shape and type."""
        with _disable_current_modes():
            if tensor.device.type != "meta":
                tensor.copy_(value)
                return
            self._overwritten(tensor, value)
            twin = self._twins.get(tensor)
            if twin is not None:
                twin.copy_(value)

    def learn_scattered(self, dense: torch.Tensor, value: torch.Tensor | None, most: int) -> None:
        """Store the numbers of a sparse tensor that was written out, None if unknown; no more than `most` of
        them are not zero."""
        if value is not None and self._known_values.scatter(dense):
            self.learn(dense, value)
        elif dense.device.type == "meta" and most < dense.numel():
            self._known_values.counts.bounded(dense, most)

    def load(self, tensor: torch.Tensor) -> None:
        """Make a part of a sparse tensor known if it is a copy of a large host tensor."""
        if tensor.device.type == "meta":
            self._known_values.load(tensor)

    def _overwritten(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Prepare `target` for the values of `source`, which are about to be written to all of it."""
        if target.numel() <= self._known_values.most(target) and self._twins.get(source) is not None:
            self._twins.overwritten(target)

    def learn_flags(self, flags: torch.Tensor, value: bool) -> None:
        """Assume one value for all these flags, as in a run with finite numbers."""
        if flags.numel() <= STAND_IN_ELEMENTS and self._twins.get(flags) is None:
            self._note("numbers are taken to be finite where the program asks whether they are")
            with _disable_current_modes():
                self._twins.put(flags, torch.full(flags.shape, value, device="cpu"), False)

    def follow(self, schema: Schema, args: Any, kwargs: Any, inputs: Any, results: Any, written: Any) -> None:
        """Compute what is known of an operator's results and of the tensors it wrote."""
        call = DispatchedCall(schema.func, args, kwargs)
        most = self._known_values.most_not_zero(call)
        self._follow(schema, call, inputs, results, written)
        for result in (written or results)[:1]:
            self._known_values.relate(call, most, result)

    def _follow(self, schema: Schema, call: DispatchedCall, inputs: Any, results: Any, written: Any) -> None:
        """Compute an operator's values if its inputs are known; else forget its results'."""
        func, args, _ = call
        if self._known_values.scattered:
            self._known_values.load_beside(inputs)
        if not (schema.from_nothing or schema.decides) and self._twins.lack(inputs):
            # A result of an unknown value is unknown.
            if schema.mutable:
                self._written(written or results)
            if func is aten.sum.default and self.stands_in and (note := rejected()):
                self._note(note)
                with _disable_current_modes():
                    self._twins.put(results[0], torch.zeros((), dtype=torch.long, device="cpu"), False)
            return
        if func is aten._amp_foreach_non_finite_check_and_unscale_.default:
            gradients, *_ = args
            for gradient in gradients:  # taken to be finite: the optimizer's step runs
                self.forget(gradient)
            return
        if self._known_values.budget.effort is not None:
            self._known_values.budget.effort.paused = self._places.phase is Phase.GENERATION
        if func is aten.copy_.default and written:
            target, source, *_ = args
            self._overwritten(target, source)
        if written and any(self._twins.get(t) is None for t in inputs):
            self._written(written)
            return
        values = self._known_values.operands(func, inputs, written)
        computed = self._known_values.follow(call, inputs, results, written, values)
        if computed is None and schema.mutable:
            self._written(written or results)

    def _written(self, tensors: list[torch.Tensor]) -> None:
        """Forget the known values of tensors that were written to."""
        for tensor in tensors:
            self._known_values.forget(tensor.untyped_storage()._cdata)

    def selects(self, mask: torch.Tensor, count: int) -> None:
        """Remember how many elements of a mask are true."""
        self._known_values.selects(mask, count)

    def generated(self, tokens: torch.Tensor, prompt: int) -> None:
        """Remember tokens that a generation made, behind a prompt of so many."""
        with torch._C.DisableTorchFunction():  # the program's own call comes here
            if tokens.device.type == "meta":
                self._known_values.counts.origins.generated(tokens, prompt)

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[None]:
        """While open, uninitialised tensors count as computed results whose values are unknown."""
        before, self._known_values.standing_in = self._known_values.standing_in, True
        try:
            yield
        finally:
            self._known_values.standing_in = before

    # -- what is told

    def host_value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor's value. Raises CaptureError naming the source line if it cannot be known."""
        self._storages.wait_here()
        value = self._twins.get(tensor)
        if value is not None and tensor.dtype is torch.bool:
            self._decides(tensor)
        if value is None and (assumed := self._assumption()) is not None:
            return torch.full(tensor.shape, assumed, dtype=tensor.dtype, device="cpu")
        if value is None and self.stands_in:
            return self._stand_in(tensor)
        if value is None:
            raise self.unknown(
                f"needs the value of a tensor of shape {tuple(tensor.shape)} and type"
                f" {DTYPE_NAMES[tensor.dtype]}, which is not known before the model runs"
            )
        return value

    def host_array(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor's value for an array; many unknown values are zeros in unmapped memory."""
        if not self.stands_in or tensor.numel() <= _LARGEST_STAND_IN or self._twins.get(tensor) is not None:
            return self.host_value(tensor)
        self._note(ZEROS)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return torch.from_numpy(numpy.zeros(tensor.shape, dtype=str(tensor.dtype)[6:]))

    def copied(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Copy a CUDA tensor into a real one: known values, or zeros (saved files, metrics)."""
        value = self._twins.get(source)
        if value is not None:
            return target.copy_(value)
        self._note(ZEROS)
        return target.zero_()

    def item(self, tensor: torch.Tensor) -> Any:
        """Return the value of `tensor.item()`: known, given by `--assume`, or assumed with a note."""
        self._storages.wait_here()
        if self._twins.get(tensor) is None and (assumption := self._assumption()) is not None:
            return torch.tensor(assumption, dtype=tensor.dtype, device="cpu").item()
        if self._twins.get(tensor) is None:
            if tensor.is_floating_point() and falls():
                self._note("the losses that L-BFGS reads are assumed to fall from step to step")
                return 1 / next(self._falling)
            if tensor.is_floating_point():
                self.stood_in = True
                self._note(
                    f"{self._places.line() or 'the optimizer'} reads a value only a real run has; 1.0 stands"
                    " in for it"
                )
                return 1.0
            length = longest()
            if length is not None:
                self._note("beam searches are assumed to go on to the longest length they may")
                return tensor.dtype is torch.bool or length
            branch = assumed() if tensor.dtype is torch.bool else None
            if branch is not None:
                self._note(branch[1])
                return branch[0]
        return self.host_value(tensor).item()

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an assumed value: ones; false for flags, which signal errors or the end; of a mask that was
        counted, as many as were.

        Noted with its line. Raises CaptureError for tensors too large to make up.
        """
        if tensor.numel() > _LARGEST_STAND_IN:
            raise self.unknown(f"reads {tensor.numel():,} values only a real run has")
        self.stood_in = True
        with _disable_current_modes():
            if (counted := self._known_values.counts.supposed(tensor)) is not None:
                return counted
        flag = tensor.dtype is torch.bool
        self._note(
            f"{self._places.line() or 'the program'} reads a value only a real run has;"
            f" {'false' if flag else '1'} stands in for it"
        )
        make = torch.zeros if flag else torch.ones
        return make(tensor.shape, dtype=tensor.dtype, device="cpu")

    def unknown(self, what: str) -> CaptureError:
        """Return the error of code that depends on data."""
        modules, line = self._places.modules, self._places.line()
        inside = f" (in module {modules[-1]})" if modules and modules[-1] else ""
        self.refused = f"{line or 'the model'} {what}{inside}"
        return CaptureError(
            self.refused,
            "make the branch independent of data, replace the value by a constant upper bound for the"
            f" analysis, or say it: --assume {line or 'FILE.py:LINE'}=VALUE",
        )

    def _assumption(self) -> bool | int | float | None:
        """Return the user's assumption (`--assume`) for the running line, None without one."""
        if not self.assumptions:
            return None
        frame = self._places.user_frame()
        return None if frame is None else self.assumptions.at(frame.f_code.co_filename, frame.f_lineno)

    def _decides(self, tensor: torch.Tensor) -> None:
        """Record that the program, or a size, depends on this known value."""
        if self._known_values.note_decision(tensor):
            self._note(BY_NUMBERS)

    # -- sizes

    def sized(self, call: DispatchedCall) -> Any:
        """Return the results of an operator whose size depends on values, known or not; None for an index
        without masks, which decides none."""
        out = None
        if call.name != "aten::index" or sizes.masks_of(call):
            count = sizes.count(call, self._twins.get, self._known_values.not_zero)
            if count is None:
                return self._of_unknown_size(call)
            out = sized_result(call, count)
        for value in tree_iter(call.args):
            if isinstance(value, torch.Tensor):
                self._decides(value)
        return out

    def _of_unknown_size(self, call: DispatchedCall) -> Any:
        """Return results at the assumed size, else the largest, with a note."""
        if everybody() and (count := sizes.most(call)) is not None:
            return sized_result(call, count)
        if (
            self.stands_in
            and call.name == "aten::nonzero"
            and self._assumption() is None
            and (few := counted())
        ):
            self._note(few[1])
            return sized_result(call, few[0])
        most = self._known_values.counts.most_results(call) if self.stands_in else None
        count = self.how_many(f"results {call.name.partition('::')[2]} has", most)
        if count is not None and (masks := sizes.masks_of(call)):
            self._known_values.counts.suppose(masks[0], count)
        if count is None:
            if sizes.unbounded(call):
                raise self.unknown(
                    f"calls {call.func.name()}, whose result's size depends on data nobody has yet"
                )
            return None
        return sized_result(call, count)

    def how_many(self, what: str, most: int | None, counted: str = "at its bound") -> int | None:
        """Return a count that data decides: the user's assumption, else the bound `most`, with a note."""
        assumed = self._assumption()
        if assumed is not None:
            return int(assumed)
        if most is not None:
            line = self._places.line()
            self._note(
                f"{line or 'the program'}: how many {what} depends on data; "
                f"counted {counted} (--assume {line or 'FILE.py:LINE'}=COUNT says another)"
            )
            self._storages.bound(most)
        return most
