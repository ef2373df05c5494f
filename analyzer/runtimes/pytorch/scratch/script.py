"""What one operator allocates while it runs, in order: its outputs, and memory of its own.

A rule is a function `(operator, device, script) -> None` registered under the operator's name with `@rule`. It tells
the story of the kernel's allocations in the order the kernel makes them:

    @rule("aten::some_op")
    def some_op(operator, device, script):
        copy = script.temporary(nbytes)     # taken now
        script.output(0)                    # the first result is allocated now
        script.release(copy)                # given back now

1. Results a rule does not mention are allocated, in order, before anything else the rule does if it mentions none,
   otherwise after. Results that are views or in-place allocate nothing: `output` on them is no allocation.
2. Temporaries a rule does not release are given back when the operator ends, last taken first (C++ locals).
3. A result the kernel keeps in host memory (random-number seeds of attention) is named by `on_host` and never
   allocated; one whose storage is larger than its shape says (a loss reduced in place) by `output(index, nbytes)`.
4. `workspace` is memory a library takes once per thread and keeps (cuBLAS): taken at this point the first time only.
5. Each byte says how sure it is (`Basis`): EXACT (decided by the framework's code), MEASURED (a library's choice,
   from recorded measurements), BOUNDED (neither: an upper bound).
6. An operator without a rule allocates its results only. `inert.py` lists the operators for which that is right;
   anything else without a rule counts as unknown (`registry.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator


class Basis(enum.Enum):
    """How sure a number of bytes is."""

    EXACT = "exact"
    MEASURED = "measured"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class Take:
    """A temporary (or, with `keep`, a per-thread workspace named `keep`) of `nbytes` is taken.

    optional: what the operator does without it, where there is no room, and from then on; "": it cannot.
    """

    token: int
    nbytes: int
    basis: Basis = Basis.EXACT
    keep: str = ""
    optional: str = ""


@dataclass(frozen=True, slots=True)
class Give:
    """The temporary `token` is given back."""

    token: int


@dataclass(frozen=True, slots=True)
class Output:
    """Result number `index` is allocated, if it is a new storage; `nbytes` overrides the captured size."""

    index: int
    nbytes: int | None = None


Step: TypeAlias = Take | Give | Output


@dataclass(slots=True)
class Script:
    """Records a rule's story; `finish` completes it by rules 1 and 2 of the module docstring.

    host_outputs: results that are never allocated on the device.
    """

    output_count: int
    steps: list[Step] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)
    host_outputs: set[int] = field(default_factory=set)
    _open: list[int] = field(default_factory=list)
    _next: int = 0

    def temporary(self, nbytes: int, basis: Basis = Basis.EXACT, optional: str = "") -> int:
        """Take `nbytes` (0 takes nothing) until `release` or the operator's end. Returns a token for `release`."""
        token = self._next
        self._next += 1
        if nbytes > 0:
            self.steps.append(Take(token, nbytes, basis, optional=optional))
            self._open.append(token)
        return token

    def release(self, token: int) -> None:
        """Give the temporary back now."""
        if token in self._open:
            self._open.remove(token)
            self.steps.append(Give(token))

    def workspace(self, name: str, nbytes: int, basis: Basis = Basis.EXACT) -> None:
        """A library workspace kept for good, one per thread; only the first request of a thread allocates."""
        if nbytes > 0:
            self.steps.append(Take(self._next, nbytes, basis, keep=name))
            self._next += 1

    def output(self, index: int, nbytes: int | None = None) -> None:
        """Result `index` is allocated now; `nbytes` where its shape does not tell (cuDNN's reserve, a shrunk loss)."""
        if index < self.output_count and index not in self.host_outputs:
            self.steps.append(Output(index, nbytes))

    def outputs(self) -> None:
        """All results not yet mentioned are allocated now, in order."""
        mentioned = {step.index for step in self.steps if isinstance(step, Output)} | self.host_outputs
        self.steps.extend(Output(index) for index in range(self.output_count) if index not in mentioned)

    def on_host(self, index: int) -> None:
        """Result `index` lives in host memory: it takes nothing of the device."""
        self.host_outputs.add(index)

    def library(self, family: str) -> None:
        """The operator loads this library family's modules ("cublas", "cudnn", "cusolver", "cufft") the first time."""
        self.libraries.add(family)

    def finish(self) -> tuple[Step, ...]:
        """The complete story."""
        if not any(isinstance(step, Output) for step in self.steps):
            self.steps[:0] = [
                Output(index) for index in range(self.output_count) if index not in self.host_outputs
            ]
        else:
            self.outputs()
        for token in reversed(self._open):
            self.steps.append(Give(token))
        self._open.clear()
        return tuple(self.steps)


Rule: TypeAlias = Callable[[Operator, DeviceProfile, Script], None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under operator names: "aten::mm" serves every overload, "aten::mm.out" just that one."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two scratch rules for {name}")
            RULES[name] = function
        return function

    return register
