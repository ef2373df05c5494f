"""What one operator allocates while it runs, in order: its outputs, and memory of its own.

A rule is a function `(operator, device, script) -> None` registered under the operator's name with `@rule`.
It lists the kernel's allocations, in the order the kernel makes them, on the `script`; what several rules do
alike is a part (`@part`):

    @rule("aten::some_op")
    def some_op(operator, device, script):
        copy = script.temporary(nbytes)     # taken now
        script.output(0)                    # the first result is allocated now
        script.release(copy)                # given back now

1. Results a rule does not mention are allocated, in order, before anything else the rule does if it mentions
   none, otherwise after. Results that are views or in-place allocate nothing: `output` on them is no
   allocation.
2. Temporaries a rule does not release are given back when the operator ends, last taken first (C++ locals).
3. A result the kernel keeps in host memory (random-number seeds of attention) is named by `on_host` and never
   allocated; one whose storage is larger than its shape says (a loss reduced in place) by `output(index,
   nbytes)`.
4. `workspace` is memory a library takes once per thread and keeps (cuBLAS): taken at this point the first
   time only.
5. Each byte says how sure it is (`Basis`): EXACT (decided by the framework's code), MEASURED (a library's
   choice, from recorded measurements), BOUNDED (neither: an upper bound).
6. An operator without a rule allocates its results only. `inert.py` lists the operators for which that is
   right; anything else without a rule counts as unknown (`registry.py`).
7. A rule has a name that the output cites and `analyze explain` explains: its function's, with hyphens,
   unless `name` says another. What several rules do alike (cuBLAS's workspace, a reduction's staging) is a
   `part` with a name of its own, which the bytes it takes carry instead.
8. A part that holds for some releases of torch only says `since` and `until` (`analyzer/releases.py`); under
   others it takes nothing.

`analyzer.rule` is this decorator: a user's rule is one like any other. It may not take an operator from an
existing rule unless it says `replace=True`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from analyzer.devices import DeviceProfile
from analyzer.errors import RuleError
from analyzer.graph import Operator, TensorMeta
from analyzer.releases import ALWAYS, RECORDED, Release, Span
from analyzer.runtimes.pytorch.scratch.inert import is_inert
from analyzer.runtimes.pytorch.scratch.layout import contiguous_copy_bytes
from analyzer.runtimes.rules import LONGEST_NAME, file_of, is_name, place

P = ParamSpec("P")
T = TypeVar("T")


class Basis(enum.Enum):
    """How a number of bytes is known."""

    EXACT = "exact"
    MEASURED = "measured"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class Take:
    """Takes a temporary, or with `keep` a thread's workspace of that name, by the rule named.

    plan: of a cuDNN execution plan's workspace, which plan. smaller: the workspaces of its fallback plans,
        asked for one after the other where there is no room. assumed, less: as of `Malloc`.
    tries: it is for cudnn.benchmark's trials of the plan so named: taken where the thread has no such plan
        yet, and once it is given back the allocator's cache is emptied.
    """

    token: int
    nbytes: int
    basis: Basis = Basis.EXACT
    keep: str = ""
    rule: str = field(default="", compare=False)
    plan: str = ""
    smaller: Sequence[int] = ()
    tries: str = ""
    assumed: int = 0
    less: int | None = None


@dataclass(frozen=True, slots=True)
class Give:
    """Frees the temporary `token`."""

    token: int


@dataclass(frozen=True, slots=True)
class Output:
    """Allocates result `index` if it is a new storage; `nbytes` overrides the captured size."""

    index: int
    nbytes: int | None = None
    rule: str = field(default="", compare=False)


Step: TypeAlias = Take | Give | Output


@dataclass(slots=True)
class Script:
    """Records a rule's steps; `finish` adds remaining results and frees open temporaries.

    host_outputs: results that are never allocated on the device. rule: the name of the rule, or part of one,
    at work.
    torch_release: the one whose parts hold.
    """

    output_count: int
    rule: str = ""
    torch_release: Release = RECORDED["torch"]
    steps: list[Step] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)
    host_outputs: set[int] = field(default_factory=set)
    _open: list[int] = field(default_factory=list)
    _next: int = 0

    def temporary(
        self,
        nbytes: int,
        basis: Basis = Basis.EXACT,
        plan: str = "",
        smaller: Sequence[int] = (),
        assumed: int = 0,
        less: int | None = None,
    ) -> int:
        """Take `nbytes` (0: nothing) until `release` or the operator's end; return a token."""
        token = self._next
        self._next += 1
        if nbytes > 0:
            self.steps.append(Take(token, nbytes, basis, "", self.rule, plan, smaller, "", assumed, less))
            self._open.append(token)
        return token

    def trials(self, nbytes: int, basis: Basis, plan: str, assumed: int = 0) -> None:
        """Take `nbytes` (`assumed` of them unknown) while all plans are tried, the first time a thread needs
        this plan; then empty the cache.

        Where there is no room for them half is taken, and so on.
        """
        token = self._next
        self._next += 1
        halves = tuple(nbytes >> times for times in range(1, nbytes.bit_length() + 1))
        trials = Take(
            token,
            nbytes,
            basis,
            rule=self.rule,
            plan=f"{plan} (trials)",
            smaller=halves,
            tries=plan,
            assumed=assumed,
        )
        self.steps += [trials, Give(token)]

    def temporaries(self, *sizes: int) -> list[int]:
        """Take as many temporaries, of these bytes; return their tokens."""
        return [self.temporary(nbytes) for nbytes in sizes]

    def copies(self, *tensors: TensorMeta | None) -> list[int]:
        """Take a contiguous copy of each tensor that is not contiguous; return their tokens."""
        return self.temporaries(*map(contiguous_copy_bytes, tensors))

    def release(self, *tokens: int) -> None:
        """Free these temporaries now, one after the other."""
        for token in tokens:
            if token in self._open:
                self._open.remove(token)
                self.steps.append(Give(token))

    @contextlib.contextmanager
    def function(self) -> Iterator[None]:
        """While open, a PyTorch function runs; at its end its memory is freed, last first."""
        before = set(self._open)
        yield
        for token in [token for token in reversed(self._open) if token not in before]:
            self.release(token)

    def workspace(self, name: str, nbytes: int, basis: Basis = Basis.EXACT) -> None:
        """Take a library's workspace, which each thread allocates once and keeps."""
        if nbytes > 0:
            self.steps.append(Take(self._next, nbytes, basis, keep=name, rule=self.rule))
            self._next += 1

    def output(self, index: int, nbytes: int | None = None) -> None:
        """Allocate result `index`; `nbytes` if its shape does not tell (cuDNN's reserve)."""
        if index < self.output_count and index not in self.host_outputs:
            self.steps.append(Output(index, nbytes, "" if nbytes is None else self.rule))

    def outputs(self) -> None:
        """Allocate all results not yet allocated, in order."""
        mentioned = {step.index for step in self.steps if isinstance(step, Output)} | self.host_outputs
        self.steps.extend(Output(index) for index in range(self.output_count) if index not in mentioned)

    def on_host(self, index: int) -> None:
        """Mark result `index` as host memory, which takes nothing of the device."""
        self.host_outputs.add(index)

    def library(self, family: str) -> None:
        """Load a library family ("cublas", "cudnn", "cusolver", "cufft") the first time."""
        self.libraries.add(family)

    def finish(self) -> tuple[Step, ...]:
        """Allocate remaining results, free what is open, and return all steps."""
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


Tell: TypeAlias = Callable[[Operator, DeviceProfile, Script], None]


class AbsentError(Exception):
    """A call lacks a tensor its kernel works on: what the rule has said so far is all, and the results."""


def present(operator: Operator, *names: str | int) -> TensorMeta:
    """Return an argument by its name, the first there is of several, or a result by its number. Raises
    AbsentError, which ends the rule, if it is no tensor."""
    words = [name for name in names if isinstance(name, str)]
    found = operator.tensor(*words) if words else operator.outputs[int(names[0])]
    if found is None:
        raise AbsentError
    return found


def filled(operator: Operator, *names: str | int) -> TensorMeta:
    """As `present`, of a tensor that has elements."""
    if not (found := present(operator, *names)).element_count:
        raise AbsentError
    return found


@dataclass(frozen=True, slots=True)
class ScratchRule:
    """A named rule. operators: those it covers, none for a part. sure: how its bytes are known.

    span: the releases of torch it holds for.
    """

    name: str
    code: Callable[..., object]
    operators: tuple[str, ...]
    sure: tuple[Basis, ...]
    span: Span = ALWAYS


# By operator ("aten::mm": every overload; "aten::mm.out": that one), and by name, parts included.
OF_OPERATOR: dict[str, ScratchRule] = {}
BY_NAME: dict[str, ScratchRule] = {}


def rule(
    *operators: str,
    name: str | None = None,
    sure: Basis | tuple[Basis, ...] = Basis.EXACT,
    replace: bool = False,
) -> Callable[[Tell], Tell]:
    """Register a rule under operator names: "aten::mm" serves every overload, "aten::mm.out" just that one.

    name: what the output calls it, by default the function's name with hyphens. sure: how its own bytes may
    be known.
    replace: it may take operators that have a rule already, or need none. Running the same definition again
    (a module executed twice) replaces the first.
    Raises RuleError for an operator that has a rule already and for a name that is taken or not fit to be
    one.
    """

    def register(function: Tell) -> Tell:
        made = ScratchRule(_named(name, function), function, operators, _bases(sure))
        _check_name(made)
        for operator in operators:
            known = OF_OPERATOR.get(operator)
            again = known is not None and _same(known, made)
            if not replace and not again and (known is not None or is_inert(operator)):
                raise RuleError(
                    f"{operator} has a rule already: {known.name if known else 'inert'}",
                    "pass replace=True to take its place",
                )
        for operator in operators:
            OF_OPERATOR[operator] = made
        BY_NAME[made.name] = made
        return function

    return register


def part(
    name: str,
    sure: Basis | tuple[Basis, ...] = Basis.EXACT,
    since: Release | None = None,
    until: Release | None = None,
) -> Callable[[Callable[Concatenate[Script, P], T]], Callable[Concatenate[Script, P], T]]:
    """Name what several rules do alike: the bytes taken while the function runs carry this name.

    since, until: the releases of torch it holds for; under others the function does not run, and gives None.
    """

    def register(function: Callable[Concatenate[Script, P], T]) -> Callable[Concatenate[Script, P], T]:
        made = ScratchRule(name, function, (), _bases(sure), Span(since, until))
        _check_name(made)
        BY_NAME[name] = made

        @functools.wraps(function)
        def named(script: Script, /, *arguments: P.args, **keywords: P.kwargs) -> T:
            if script.torch_release not in made.span:
                return None  # type: ignore[return-value]
            outer, script.rule = script.rule, name
            try:
                return function(script, *arguments, **keywords)
            finally:
                script.rule = outer

        return named

    return register


def _named(name: str | None, function: Tell) -> str:
    return name or function.__name__.strip("_").lower().replace("_", "-")


def _bases(sure: Basis | tuple[Basis, ...]) -> tuple[Basis, ...]:
    return (sure,) if isinstance(sure, Basis) else sure


def _same(one: ScratchRule, other: ScratchRule) -> bool:
    """Return whether both are one definition, run twice."""
    first, second = one.code, other.code
    return (first.__module__, first.__qualname__, file_of(first)) == (
        second.__module__,
        second.__qualname__,
        file_of(second),
    )


def _check_name(made: ScratchRule) -> None:
    if not is_name(made.name):
        raise RuleError(
            f"{made.name!r} cannot name a rule",
            f"give name=... with at most {LONGEST_NAME} lower-case letters, digits and hyphens",
        )
    known = BY_NAME.get(made.name)
    if known is not None and not _same(known, made):
        raise RuleError(f"there is a rule named {made.name} already, in {place(known.code)}", "give name=...")
