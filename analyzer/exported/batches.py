"""The batches that an exported program takes.

1. The first dimensions that were exported as a symbol vary together; the other inputs stay as they were
   exported, which the program checks when it is called, like the range of a symbol.
2. Several symbols are one batch if the sample inputs have one size there; if not, nothing says which of them
   is the batch, and the samples are all there is.

Source: PyTorch 2.13, `torch/_export/utils.py` (`_check_input_constraints_for_graph`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analyzer.errors import InputError

_UNCHECKED_LEAST = 2  # a range that begins there or below begins at 0


def batches_of(
    name: str, program: Any, device: str
) -> tuple[int, Callable[[int], tuple[tuple[Any, ...], tuple[()]]] | None]:
    """Return the batch of a program's sample inputs, and a function from a batch to inputs and targets: on a
    device, without targets; None of a program without samples. It raises InputError for a batch that the
    program does not take."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    samples, structure = tree_flatten(tuple((program.example_inputs or ((), {}))[0]))
    shapes = {
        place: sample.shape
        for place, sample in enumerate(samples)
        if isinstance(sample, torch.Tensor) and sample.dim()
    }
    symbols = {place: symbol for place, symbol in _symbols(program).items() if place in shapes}
    is_one = len({shapes[place][0] for place in symbols}) == 1
    own = max(1, shapes[min(symbols or shapes)][0]) if shapes else 1

    def make_batch(batch: int) -> tuple[tuple[Any, ...], tuple[()]]:
        if batch != own and not is_one:
            apart = "has inputs whose first dimensions vary apart, and none of them is the batch"
            reason = apart if symbols else f"was exported for a batch of {own:,} alone"
            raise InputError(f"{name} {reason}", f"leave --batch out, or {_EXPORT}")
        made = list(samples)
        for place, symbol in symbols.items() if is_one else ():
            _check_range(name, batch, program.range_constraints.get(symbol))
            made[place] = torch.zeros((batch, *shapes[place][1:]), dtype=samples[place].dtype, device=device)
        return tuple(tree_unflatten(made, structure)), ()

    return own, make_batch if samples else None


_EXPORT = "export it with one first dimension that varies: dynamic_shapes=({0: Dim('batch')},)"


def _symbols(program: Any) -> dict[int, Any]:
    """Return the first dimensions that are symbols, by the place of their input."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    symbols = {}
    for place, name in enumerate(program.graph_signature.user_inputs):
        node = nodes.get(name)
        shape = () if node is None else getattr(node.meta.get("val"), "shape", ())
        if shape and not isinstance(shape[0], int):
            symbols[place] = shape[0].node.expr
    return symbols


def _check_range(name: str, batch: int, span: Any) -> None:
    """Raise InputError for a batch beyond a symbol's range. span: None of an expression of symbols."""
    if span is None:
        return
    least = span.lower if span.lower > _UNCHECKED_LEAST else 0
    if not least <= batch <= span.upper:
        raise InputError(
            f"{name} was exported for batches from {max(1, least)} to {span.upper}, and this is {batch:,}",
            "give a batch of these, or export it with another range: Dim('batch', max=...)",
        )
