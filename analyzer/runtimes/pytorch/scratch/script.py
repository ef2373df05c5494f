"""An operator's allocations while it runs, in order: its outputs, and memory of its own.

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
6. A rule by full name ("aten::max.dim"), else by name without overload ("aten::max"), says it. The overload
   "default" is no part of a name: rules see "aten::max" for "aten::max.default". An operator without a rule
   allocates its results, in order, and nothing else: of those that `inert.py` lists that is the whole truth.
   Any other is **unknown**: its results are all that is known, and `known` is False. Its kernel's other
   memory has no bound that could be proven (`cdist` with p=1 takes 384 MiB in its backward pass, for operands
   of 0.9), so every figure is then a lower bound (`Estimate.at_least`).
7. A rule has a name that the output cites and `analyze explain` explains: its function's, with hyphens,
   unless `name` says another. Allocations that several rules share (cuBLAS's workspace, a reduction's
   staging) are a `part` with a name of its own, which its bytes carry instead.
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
from dataclasses import dataclass, field, fields
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
    """Takes a temporary, or a thread's `workspace` of that name, by the rule named.

    plan: of a cuDNN execution plan's workspace, which plan. smaller: the workspaces of its fallback plans,
        asked for one after the other where there is no room. assumed, assumed_less: as of `Malloc`.
    trials_of: it is for cudnn.benchmark's trials of the plan so named: taken where the thread has no such
        plan yet, and once it is given back the allocator's cache is emptied.
    """

    token: int
    nbytes: int
    basis: Basis = Basis.EXACT
    workspace: str = ""
    rule: str = field(default="", compare=False)
    plan: str = ""
    smaller: Sequence[int] = ()
    trials_of: str = ""
    assumed: int = 0
    assumed_less: int | None = None


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
        assumed_less: int | None = None,
    ) -> int:
        """Take `nbytes` (0: nothing, unless it may be more) until `release` or the operator's end; return a
        token."""
        token = self._next
        self._next += 1
        if nbytes > 0 or assumed:
            self.steps.append(
                Take(token, nbytes, basis, "", self.rule, plan, smaller, "", assumed, assumed_less)
            )
            self._open.append(token)
        return token

    def trials(self, nbytes: int, basis: Basis, plan: str, assumed: int, assumed_less: int) -> None:
        """Take `nbytes` while all plans are tried, the first time a thread needs this plan; then empty the
        cache.

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
            trials_of=plan,
            assumed=assumed,
            assumed_less=assumed_less,
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
            self.steps.append(Take(self._next, nbytes, basis, workspace=name, rule=self.rule))
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


RuleCode: TypeAlias = Callable[[Operator, DeviceProfile, Script], None]


class AbsentError(Exception):
    """A call lacks a tensor its kernel works on: what the rule has said so far is all, and the results."""


def present(operator: Operator, *names: str | int) -> TensorMeta:
    """Return an argument by its name, the first there is of several, or a result by its number. Raises
    AbsentError, which ends the rule, if it is no tensor."""
    words = [name for name in names if isinstance(name, str)]
    tensor = operator.tensor(*words) if words else operator.outputs[int(names[0])]
    if tensor is None:
        raise AbsentError
    return tensor


def filled(operator: Operator, *names: str | int) -> TensorMeta:
    """As `present`, of a tensor that has elements."""
    if not (tensor := present(operator, *names)).element_count:
        raise AbsentError
    return tensor


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
) -> Callable[[RuleCode], RuleCode]:
    """Register a rule under operator names: "aten::mm" serves every overload, "aten::mm.out" just that one.

    name: what the output calls it, by default the function's name with hyphens. sure: how its own bytes may
    be known.
    replace: it may take operators that have a rule already, or need none. Running the same definition again
    (a module executed twice) replaces the first.
    Raises RuleError for an operator that has a rule already and for a name that is taken or not fit to be
    one.
    """

    def register(function: RuleCode) -> RuleCode:
        new_rule = ScratchRule(_named(name, function), function, operators, _bases(sure))
        _check_name(new_rule)
        for operator in operators:
            earlier = OF_OPERATOR.get(operator)
            again = earlier is not None and _same(earlier, new_rule)
            if not replace and not again and (earlier is not None or is_inert(operator)):
                raise RuleError(
                    f"{operator} has a rule already: {earlier.name if earlier else 'inert'}",
                    "pass replace=True to take its place",
                )
        for operator in operators:
            OF_OPERATOR[operator] = new_rule
        BY_NAME[new_rule.name] = new_rule
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
        new_rule = ScratchRule(name, function, (), _bases(sure), Span(since, until))
        _check_name(new_rule)
        BY_NAME[name] = new_rule

        @functools.wraps(function)
        def named(script: Script, /, *arguments: P.args, **keywords: P.kwargs) -> T:
            if script.torch_release not in new_rule.span:
                return None  # type: ignore[return-value]
            outer, script.rule = script.rule, name
            try:
                return function(script, *arguments, **keywords)
            finally:
                script.rule = outer

        return named

    return register


def _named(name: str | None, function: RuleCode) -> str:
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


def _check_name(new_rule: ScratchRule) -> None:
    if not is_name(new_rule.name):
        raise RuleError(
            f"{new_rule.name!r} cannot name a rule",
            f"give name=... with at most {LONGEST_NAME} lower-case letters, digits and hyphens",
        )
    earlier = BY_NAME.get(new_rule.name)
    if earlier is not None and not _same(earlier, new_rule):
        raise RuleError(
            f"there is a rule named {new_rule.name} already, in {place(earlier.code)}", "give name=..."
        )


# -- the allocations of one call

_DEFAULT = ".default"
# Norms and products under `linalg_` are PyTorch's own kernels, triangular systems cuBLAS's: no solver is
# loaded (NVML of recorded runs). Nor is it by exponentials, which are products (`LinearAlgebra.cpp`). What
# works with LU factors loads it where cuSOLVER factorizes (`factorizations.py`): a stack of matrices is
# cuBLAS's (`tests/data/h100/linear_algebra_outside.json`).
_WITHOUT_SOLVER = (
    *(
        f"aten::linalg_{name}"
        for name in ("vector_norm", "matrix_norm", "norm", "cross", "vecdot", "diagonal")
    ),
    *("aten::_linalg_check_errors", "aten::linalg_solve_triangular", "aten::linalg_matrix_exp"),
    *("aten::linalg_lu_factor_ex", "aten::linalg_lu_solve", "aten::_linalg_solve_ex", "aten::linalg_inv_ex"),
    *("aten::_linalg_det", "aten::_linalg_slogdet"),
)
_LIBRARY_BY_PREFIX = {"aten::linalg_": "cusolver", "aten::_linalg_": "cusolver", "aten::_fft_": "cufft"}
_OPERATOR_FIELDS = [(entry.name, getattr(Operator, entry.name).__set__) for entry in fields(Operator)]
_SET_NAME = vars(Operator)["name"].__set__


@dataclass(frozen=True, slots=True)
class KernelAllocations:
    """An operator's allocations, its library families, and whether they are complete."""

    steps: tuple[Step, ...]
    libraries: frozenset[str]
    known: bool


def rule_for(name: str) -> ScratchRule | None:
    """Return an operator's rule: under its full name, else without the overload."""
    name = name.removesuffix(_DEFAULT)
    return OF_OPERATOR.get(name) or OF_OPERATOR.get(name.partition(".")[0])


def is_known(name: str) -> bool:
    """Return whether an operator's scratch is known: it has a rule or is inert."""
    return rule_for(name) is not None or is_inert(name)


def kernel_allocations(operator: Operator, device: DeviceProfile) -> KernelAllocations:
    """Return the allocations of one call on one device, in order."""
    scratch_rule, library = rule_for(operator.name), _library_of(operator.name)
    if scratch_rule is None and library is None and is_inert(operator.name.removesuffix(_DEFAULT)):
        return _results_alone(len(operator.outputs))
    if operator.name.endswith(_DEFAULT):
        operator = _renamed(operator, operator.name.removesuffix(_DEFAULT))
    rule_name = "" if scratch_rule is None else scratch_rule.name
    script = Script(len(operator.outputs), rule_name, device.releases["torch"])
    if scratch_rule is not None:
        _run_rule(scratch_rule, operator, device, script)
    if library is not None:
        script.library(library)
    known = scratch_rule is not None or is_inert(operator.name)
    return KernelAllocations(script.finish(), frozenset(script.libraries), known)


@functools.cache
def _results_alone(count: int) -> KernelAllocations:
    """Return the allocations of an operator that needs nothing besides so many results."""
    return KernelAllocations(Script(count).finish(), frozenset(), known=True)


@functools.cache
def _library_of(name: str) -> str | None:
    """Return the library whose code an operator of this name loads, whatever its rule."""
    if name.startswith(_WITHOUT_SOLVER):
        return None
    return next((library for prefix, library in _LIBRARY_BY_PREFIX.items() if name.startswith(prefix)), None)


def _renamed(operator: Operator, name: str) -> Operator:
    """Return the operator under another name, faster than `dataclasses.replace`."""
    renamed = object.__new__(Operator)
    for field_name, set_field in _OPERATOR_FIELDS:
        set_field(renamed, getattr(operator, field_name))
    _SET_NAME(renamed, name)
    return renamed


def _run_rule(scratch_rule: ScratchRule, operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Run the rule. Raises RuleError for an error of a rule that is not this project's."""
    code = scratch_rule.code
    if code.__module__.startswith("analyzer."):
        with contextlib.suppress(AbsentError):
            code(operator, device, script)
        return
    where = f"the rule {scratch_rule.name} ({place(code)}) on {operator.name}"
    try:
        code(operator, device, script)
    except Exception as error:
        raise RuleError(
            f"{where}: {type(error).__name__}: {error}",
            "mend the rule; a result or an argument may be None, a tensor of any rank or size 0",
        ) from error
    for step in script.steps:
        nbytes = 0 if isinstance(step, Give) else step.nbytes
        if nbytes is not None and not isinstance(nbytes, int):
            raise RuleError(f"{where} takes {nbytes!r} bytes", "sizes are whole numbers of bytes: // for /")
