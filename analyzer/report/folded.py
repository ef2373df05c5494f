"""The bytes at the peak as folded stacks, which flame graph viewers read: `flamegraph.pl`, speedscope,
inferno.

One line a stack: names from the outside in with ";" between them, a space, bytes. The lines sum to
`peak_allocated`.
Source: Brendan Gregg's FlameGraph, `stackcollapse.pl` ("folded" format).
"""

from __future__ import annotations

from collections import Counter

from analyzer.report import attribution
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, operator_name
from analyzer.results.estimate import Estimate


def render(estimate: Estimate, _: View = PLAIN) -> str:
    """Return the file: target, module path, operator, tensor; largest first."""
    sums = Counter[str]()
    for row in estimate.tensors:
        names = (
            estimate.target,
            *(attribution.path(row, "module", estimate.framework) or (attribution.NAMELESS["module"],)),
            operator_name(row.operator) or row.category,
            row.name,
        )
        sums[";".join(_frame(name) for name in names)] += row.nbytes
    return "".join(f"{stack} {nbytes}\n" for stack, nbytes in sums.most_common())


def _frame(name: str) -> str:
    """Return a name that ends neither its frame nor its line."""
    return clean(name).replace(";", ",") or "-"
