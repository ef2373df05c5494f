"""Which of a model's blocks to checkpoint: what recomputing each would free, and what it would cost, asked of
its graph.

1. A stack of blocks (`capture/pytorch/module/blocks.py`) is checkpointed block by block. Of what the forward
   pass keeps, that is freed which is made in a block and which its backward pass alone reads, but for the
   least from which it can be computed again (`liveness/recomputation.py`); what is kept of other blocks, or
   for them, is there.
2. The price is the floating-point operations of the block's operators that run again (`flops.py`).
3. While a block runs again, all it keeps is there: what is gained is what all blocks free less the most that
   one of them keeps.
4. Offered is the stack, or all stacks alike, that gains most, and what gains most an operation where that is
   another, of those that gain a tenth as much.
5. How much of all that is kept could be computed again cheaply (`recomputable_bytes`) is a bound: what
   selective checkpointing, or the partitioner of `torch.compile`, may find.

No figure of a strategy comes from here: each that is offered is captured and simulated as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzer.graph import Graph, Operator, Phase, view_of
from analyzer.liveness.lifetimes import saved_for_backward
from analyzer.liveness.recomputation import Recomputation, recomputation
from analyzer.planning.flops import flops_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of checkpointing some blocks in one forward pass: saved bytes freed, the most that one block holds
    while it runs again, and the operations that run again."""

    freed_bytes: int
    largest_bytes: int
    operations: int

    @property
    def net_bytes(self) -> int:
        """Freed bytes less those of the block that runs again."""
        return self.freed_bytes - self.largest_bytes


def patterns(graph: Graph, model: torch.nn.Module) -> list[str]:
    """Return patterns for `--checkpoint`, cheapest recomputation first; none if nothing is gained."""
    from analyzer.capture.pytorch.module.blocks import stacks

    gains = {pattern: gain(graph, blocks) for pattern, blocks in stacks(model).items()}
    most = max(gains, key=lambda pattern: gains[pattern].net_bytes, default="")
    if not most or gains[most].net_bytes <= 0:
        return []
    worth = [pattern for pattern in gains if 10 * gains[pattern].net_bytes >= gains[most].net_bytes]
    best = max(worth, key=lambda pattern: gains[pattern].net_bytes / max(gains[pattern].operations, 1))
    return sorted({most, best}, key=lambda pattern: gains[pattern].operations)


def gain(graph: Graph, blocks: list[str]) -> Gain:
    """Return the gain of checkpointing the modules with these paths."""
    saved = frozenset(saved_for_backward(graph).storages)
    every = [recomputed(graph, block, saved) for block in blocks]
    return Gain(
        sum(each.saved_bytes - each.kept_bytes for each in every),
        max((each.saved_bytes for each in every), default=0),
        sum(flops_of(graph.operators[index]) for each in every for index in each.operators),
    )


def recomputed(graph: Graph, path: str, saved: frozenset[int]) -> Recomputation:
    """Return what computing a module again takes, of what is saved, is made in it and read by its backward
    pass alone."""
    view = view_of(graph)

    def users(index: int) -> Iterator[Operator]:
        yield from (graph.operators[~maker] for maker in view.pred[index])
        readers = (graph.operators[~reader] for reader in view.succ[index])
        yield from (reader for reader in readers if reader.phase is Phase.BACKWARD)

    def inside(operator: Operator) -> bool:
        return is_inside(operator, path)

    own = [index for index in saved if all(map(inside, users(index)))]
    return recomputation(graph, own, inside, saved.difference(own))


def is_inside(operator: Operator, path: str) -> bool:
    """Return whether an operator is of a module."""
    return operator.module == path or operator.module.startswith(f"{path}.")


def recomputable_bytes(graph: Graph) -> int:
    """Return the saved bytes that can be recomputed without running a product, convolution, attention or
    non-PyTorch operator twice."""

    def cheap(operator: Operator) -> bool:
        return operator.name.startswith("aten::") and flops_of(operator) == 0

    least = recomputation(graph, saved_for_backward(graph).storages, cheap)
    return least.saved_bytes - least.kept_bytes
