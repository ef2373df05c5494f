"""Kernels that Inductor compiles: elementwise operators and reductions, fused.

1. A kernel moves what its arguments hold: of each as much as it reads and writes at different places, each
   place at most as often as the kernel has elements, and never more than the argument has
   (`SIMDKernel.estimate_kernel_num_bytes`, `torch/_inductor/codegen/simd.py`).
2. That takes as long as PyTorch's own sum of two tensors takes for as many bytes (`table.py`).
3. Each element takes instructions (indices, conversions, functions such as `erf`): while an elementwise
   kernel's bytes move, of two that take about as long the root of their squares; besides, where a reduction's
   threads wait for each other.

Source: of 3's figures, the least logarithms of 919 kernels of the 16 development cases
(`tests/data/h100/timing/compiled.json.gz`), whose own times lie `_SPREAD` apart.
Not modelled: Triton's choice of blocks; atomic additions; windows that overlap (pooling); products that
Inductor writes itself (`max-autotune`), of which bytes and elements alone count.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.graph.model import Operator
from analyzer_timing.elementwise import size_of
from analyzer_timing.rates import Rates
from analyzer_timing.traffic import vectors
from analyzer_timing.work import Work

# Instructions of an element: elementwise, reduced by threads that hold a whole row, by threads that go along
# it; and how many times as long as a sum a reduction's bytes take.
_ELEMENTWISE, _PERSISTENT, _LOOPED = 42.0, 67.0, 28.0
_REDUCED = 1.1
_SPREAD = {"pointwise": 0.2, "": 0.3}


def fused(operator: Operator, rates: Rates) -> list[Work]:
    """Return the work of a kernel. Its keywords: kind ("pointwise", "reduction", "persistent_reduction"),
    numel (its elements, 0 where nobody knows), reads and writes (places of each tensor)."""
    places = [operator.integers(name) or () for name in ("reads", "writes")]
    numel, kind = operator.integer("numel"), str(operator.argument("kind"))
    moved = [0, 0]
    for number, tensor in enumerate(operator.inputs):
        for which, count in enumerate(many[number] for many in places):
            most = count * numel if numel else tensor.element_count * bool(count)
            moved[which] += min(most, tensor.element_count) * size_of(tensor)
    read, nbytes = moved[0], sum(moved)
    if not nbytes:
        return []
    work = vectors("add", 4, nbytes, read, rates)
    computing = 2 * numel / rates.vector  # a data sheet counts an instruction as two operations
    if "reduction" in kind:
        each = _PERSISTENT if kind.startswith("persistent") else _LOOPED
        base = work.base * _REDUCED + computing * each
    else:
        base = float((work.base**2 + (computing * _ELEMENTWISE) ** 2) ** 0.5)
    return [replace(work, base=base, kind=f"fused:{kind}", spread=_SPREAD.get(kind, _SPREAD[""]))]
