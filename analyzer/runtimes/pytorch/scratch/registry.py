"""From an operator to what its kernel allocates (`script.py`).

1. A rule by full name ("aten::max.dim"), else by name without overload ("aten::max"), says it. The overload
   "default" is no part of a name: rules see "aten::max" for "aten::max.default".
2. Without a rule, results are allocated in order, and nothing else. For operators `inert.py` lists that is
   the whole truth.
3. Any other operator is **unknown**: its results are all that is known, and `known` is False. What its kernel
   takes besides has no bound that could be proven (`cdist` with p=1 takes 384 MiB in its backward pass, for
   operands of 0.9), so every figure is then a lower bound (`Estimate.at_least`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields
from functools import cache

from analyzer.devices import DeviceProfile
from analyzer.errors import RuleError
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.inert import is_inert
from analyzer.runtimes.pytorch.scratch.script import OF_OPERATOR, AbsentError, Give, ScratchRule, Script, Step
from analyzer.runtimes.rules import place

_DEFAULT = ".default"
# Norms and products under `linalg_` are PyTorch's own kernels, triangular systems cuBLAS's: no solver is
# loaded (NVML of recorded runs). Nor is it by exponentials, which are products (`LinearAlgebra.cpp`). What
# works with LU factors loads it where cuSOLVER factorizes (`factorizations.py`): a stack of matrices is
# cuBLAS's (`tests/data/h100/linear_algebra_outside.json`).
_OWN_KERNELS = (
    *(
        f"aten::linalg_{name}"
        for name in ("vector_norm", "matrix_norm", "norm", "cross", "vecdot", "diagonal")
    ),
    *("aten::_linalg_check_errors", "aten::linalg_solve_triangular", "aten::linalg_matrix_exp"),
    *("aten::linalg_lu_factor_ex", "aten::linalg_lu_solve", "aten::_linalg_solve_ex", "aten::linalg_inv_ex"),
    *("aten::_linalg_det", "aten::_linalg_slogdet"),
)
_LIBRARY_BY_PREFIX = {"aten::linalg_": "cusolver", "aten::_linalg_": "cusolver", "aten::_fft_": "cufft"}
_LOADING = tuple(_LIBRARY_BY_PREFIX)


@dataclass(frozen=True, slots=True)
class KernelAllocations:
    """An operator's allocations, its library families, and whether they are complete."""

    steps: tuple[Step, ...]
    libraries: frozenset[str]
    known: bool


# Allocations of operators that need nothing besides their results, by how many these are.
_PLAIN: dict[int, KernelAllocations] = {}
_FIELDS = [(field.name, getattr(Operator, field.name).__set__) for field in fields(Operator)]
_NAME = vars(Operator)["name"].__set__


def _rule_named(name: str) -> ScratchRule | None:
    return OF_OPERATOR.get(name) or OF_OPERATOR.get(name.partition(".")[0])


def rule_for(name: str) -> ScratchRule | None:
    """Return an operator's rule: under its full name, else without the overload."""
    return _rule_named(name.removesuffix(_DEFAULT))


def is_known(name: str) -> bool:
    """Return whether an operator's scratch is known: it has a rule or is inert."""
    return rule_for(name) is not None or is_inert(name)


def kernel_allocations(operator: Operator, device: DeviceProfile) -> KernelAllocations:
    """Return the allocations of one call on one device, in order."""
    found = rule_for(operator.name)
    count = len(operator.outputs)
    if found is None and _needs_nothing(operator.name):
        plain = _PLAIN.get(count)
        if plain is None:
            plain = _PLAIN[count] = KernelAllocations(Script(count).finish(), frozenset(), known=True)
        return plain
    if operator.name.endswith(_DEFAULT):
        operator = _renamed(operator, operator.name.removesuffix(_DEFAULT))
    script = Script(len(operator.outputs), found.name if found is not None else "", device.releases["torch"])
    if found is not None:
        _run_rule(found, operator, device, script)
    known = found is not None or is_inert(operator.name)
    if _loads(operator.name):
        script.library(
            next(of for prefix, of in _LIBRARY_BY_PREFIX.items() if operator.name.startswith(prefix))
        )
    return KernelAllocations(script.finish(), frozenset(script.libraries), known)


def _renamed(operator: Operator, name: str) -> Operator:
    """Return the operator under another name, faster than `dataclasses.replace`."""
    made = object.__new__(Operator)
    for field, keep in _FIELDS:
        keep(made, getattr(operator, field))
    _NAME(made, name)
    return made


@cache
def _needs_nothing(name: str) -> bool:
    """Return whether an operator without a rule is inert and loads no library."""
    name = name.removesuffix(_DEFAULT)
    return is_inert(name) and not _loads(name)


def _loads(name: str) -> bool:
    """Return whether an operator of this name loads a library's code."""
    return name.startswith(_LOADING) and not name.startswith(_OWN_KERNELS)


def _run_rule(found: ScratchRule, operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Run the rule. Raises RuleError for an error of a rule that is not this project's."""
    if found.code.__module__.startswith("analyzer."):
        with contextlib.suppress(AbsentError):
            found.code(operator, device, script)
        return
    where = f"the rule {found.name} ({place(found.code)}) on {operator.name}"
    try:
        found.code(operator, device, script)
    except Exception as error:
        raise RuleError(
            f"{where}: {type(error).__name__}: {error}",
            "mend the rule; a result or an argument may be None, a tensor of any rank or size 0",
        ) from error
    for step in script.steps:
        nbytes = 0 if isinstance(step, Give) else step.nbytes
        if nbytes is not None and not isinstance(nbytes, int):
            raise RuleError(f"{where} takes {nbytes!r} bytes", "sizes are whole numbers of bytes: // for /")
