"""From an operator to its story (`script.py`).

1. A rule by full name ("aten::max.dim"), else by name without overload ("aten::max"), tells the story. The overload
   "default" is no part of a name: rules see "aten::max" for "aten::max.default".
2. Without a rule, results are allocated in order, and nothing else. For operators `inert.py` lists that is the
   whole truth.
3. Any other operator is **unknown**: its story is the same, `known` is False, and `bound_bytes` says what it may take
   besides: contiguous copies of its inputs and float32 accumulators for its results, the two habits that explain
   nearly all scratch memory here. The bound is reported, not added to the story: adding it would make a wrong
   number of a probably right one, since most unknown operators are pointwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.inert import is_inert
from analyzer.runtimes.pytorch.scratch.layout import contiguous_copy_bytes
from analyzer.runtimes.pytorch.scratch.script import RULES, Rule, Script, Step

_FLOAT = 4
_DEFAULT = ".default"
# Norms and products under `linalg_` are PyTorch's own kernels: no solver is loaded (NVML of recorded runs).
_OWN_KERNELS = (
    "aten::linalg_vector_norm",
    "aten::linalg_matrix_norm",
    "aten::linalg_norm",
    "aten::linalg_cross",
    "aten::linalg_vecdot",
    "aten::linalg_diagonal",
)
_LIBRARY_BY_PREFIX = {"aten::linalg_": "cusolver", "aten::_linalg_": "cusolver", "aten::_fft_": "cufft"}


@dataclass(frozen=True, slots=True)
class Story:
    """An operator's allocations, the library families it loads, whether it is understood, and, if not, what it may
    take besides its results at most (bytes)."""

    steps: tuple[Step, ...]
    libraries: frozenset[str]
    known: bool
    bound_bytes: int = 0


def rule_for(name: str) -> Rule | None:
    """The rule that tells an operator's story, by rule 1."""
    name = name.removesuffix(_DEFAULT)
    return RULES.get(name) or RULES.get(name.partition(".")[0])


def is_known(name: str) -> bool:
    """Whether an operator's scratch memory is understood: a rule tells it, or it is inert."""
    return rule_for(name) is not None or is_inert(name)


def story_of(operator: Operator, device: DeviceProfile) -> Story:
    """The allocations of one call on one device, in order."""
    if operator.name.endswith(_DEFAULT):
        operator = replace(operator, name=operator.name.removesuffix(_DEFAULT))
    function = rule_for(operator.name)
    script = Script(len(operator.outputs))
    if function is not None:
        function(operator, device, script)
    known = function is not None or is_inert(operator.name)
    for prefix, family in _LIBRARY_BY_PREFIX.items():
        if operator.name.startswith(prefix) and not operator.name.startswith(_OWN_KERNELS):
            script.library(family)
    bound_bytes = 0 if known else unknown_bound(operator)
    return Story(script.finish(), frozenset(script.libraries), known, bound_bytes)


def unknown_bound(operator: Operator) -> int:
    """Bytes an unknown operator is assumed to take at most besides its results (rule 3)."""
    copies = sum(contiguous_copy_bytes(tensor) for tensor in operator.inputs)
    accumulators = sum(output.element_count * _FLOAT for output in operator.outputs if output is not None)
    return copies + accumulators
