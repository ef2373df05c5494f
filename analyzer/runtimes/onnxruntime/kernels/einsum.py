"""Temporaries of the Einsum kernel, step by step as it evaluates an equation.

1. Every operand is brought to one order of subscripts (order of first appearance; missing ones have size 1).
   An operand whose own subscripts are not in that order is copied.
2. Operands are multiplied pair by pair. Subscripts of a pair are batch (both sizes above 1), left (only the
   left is above 1), right (otherwise) or reduced. The left operand is copied to batch-left-reduced-right
   order and the right to batch-reduced-right-left order, where that is another order than it has; an
   intermediate that only moves dimensions of 1 is not copied.
3. The product is a new tensor; if its subscripts are not in the output's order, another copy; then it is
   copied to the output, which is allocated last. Everything lives until the kernel returns.

Source:
`core/providers/cpu/math/einsum_utils/{einsum_compute_preprocessor,einsum_typed_compute_processor}.cc`.
Measured: 24 calls in UNETR (`tests/data/ort`). Not modelled: repeated subscripts in one operand, sums before
products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def temporaries(equation: str, shapes: Sequence[tuple[int, ...]], element_bytes: int) -> list[int] | None:
    """Return the bytes of each temporary in order, None for an equation these rules do not cover."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(shapes):
        return None
    order = "".join(dict.fromkeys("".join(terms)))
    sizes_in_order: list[int] = []
    operands: list[dict[str, int]] = []
    for term, shape in zip(terms, shapes, strict=True):
        if len(set(term)) != len(term) or len(term) != len(shape):
            return None
        sizes = dict.fromkeys(order, 1) | dict(zip(term, shape, strict=True))
        operands.append(sizes)
        if [s for s in order if s in term] != list(term):
            sizes_in_order.append(element_bytes * math.prod(shape))
    current = operands[0]
    owned = False
    layout = order
    for place, right in enumerate(operands[1:], 1):
        later = set("".join(terms[place + 1 :])) | set(output)
        reduced = [s for s in order if s not in later and (s in "".join(terms[: place + 1]))]
        both = [s for s in order if s not in reduced and current[s] > 1 and right[s] > 1]
        only_left = [s for s in order if s not in reduced and current[s] > 1 and right[s] <= 1]
        rest = [s for s in order if s not in reduced and current[s] <= 1]
        for sizes, wanted, own in (
            (current, [*both, *only_left, *reduced, *rest], owned),
            (right, [*both, *reduced, *rest, *only_left], False),
        ):
            have = list(layout) if sizes is current else list(order)
            if wanted != have and not (own and _same_order(wanted, have, sizes)):
                sizes_in_order.append(element_bytes * math.prod(sizes.values()))
        product = {s: 1 if s in reduced else max(current[s], right[s]) for s in order}
        sizes_in_order.append(element_bytes * math.prod(product.values()))
        result = [*both, *only_left, *reduced, *rest]
        last = place == len(operands) - 1
        wanted = list(output) if last else list(order)
        have = [s for s in result if s in wanted]
        if have != wanted:
            sizes_in_order.append(element_bytes * math.prod(product.values()))
        current, owned, layout = product, True, order
    return sizes_in_order


def _same_order(wanted: list[str], have: list[str], sizes: dict[str, int]) -> bool:
    """Return whether only dimensions of 1 move."""
    return [s for s in wanted if sizes[s] > 1] == [s for s in have if sizes[s] > 1]
