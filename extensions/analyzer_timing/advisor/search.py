"""The search among ways to train or run a PyTorch module: the order of trials, and which are skipped.

1. **Free** changes (the fused optimizer, channels-last) are kept where they make a step shorter.
2. A way that fits ends its branch: whatever is added to it takes longer. One that is slower than the best
   that fits, before anything is added to it, ends too.
3. **Accumulation** divides the batch: tried from the fewest micro-batches that should fit: the whole batch's
   analysis gives the part that stays, the rest is divided.
4. **Checkpointing** is that of all blocks, and that of the blocks the knapsack chooses (`knapsack.py`) for
   what the device has less what the process takes besides what is alive. If the analysis of a choice does
   not fit, the knapsack is solved again for as many bytes less.
5. Where neither fits, both are tried together.
6. **Allocator**: expandable segments, where the bytes in use would fit and the reserved bytes do not.
7. **Changes of numbers** (precision, optimizers of 8 bits, accumulation under batch norm) only on request.

Every way is analysed: nothing here decides that one fits. At most `MOST` analyses are made.

Not modelled: a way between two that were tried whose time lies below both.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.analysis import Analysis
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.planning import changes as offered
from analyzer.planning.changes import FREE, RESULTS, SLOWER, Change
from analyzer.results.estimate import Estimate
from analyzer_timing.advisor.blocks import Blocks, blocks_of
from analyzer_timing.advisor.knapsack import cheapest
from analyzer_timing.advisor.trials import Trials
from analyzer_timing.results import Way

MOST = 20
_ROUNDS = 3
_FUSED = ("sgd", "sgdm", "adam", "adamw", "adagrad")
_AMPERE = (8, 0)
# Of divided batches: how much above the device one may be said to be and still be tried.
_NEARLY, _DIVISIONS = 1.02, 2
_STAYS = ("parameters", "buffers", "optimizer state")
Ways = Sequence[Change]


class Search:
    """Search for one job. base: the job as it is. numbers: changes of computed numbers may be tried.

    tried: every way, in order.
    """

    def __init__(self, trials: Trials, base: tuple[Way, Analysis], numbers: bool) -> None:
        self._trials, self._options, self._numbers = trials, trials.options, numbers
        self.tried: list[Way] = [base[0]]
        self._base = base[1]
        self._batch = self._options.batch or base[1].graph.batch
        self._train = self._options.mode == "train"
        self._normalizes = any("batch_norm" in operator.name for operator in base[1].graph.operators)

    def run(self) -> list[Way]:
        """Return every way that was tried."""
        root = self._free()
        roots = [root]
        if self._numbers:
            roots += [[*root, change] for change in precisions(self._base, self._options)]
        for changes in sorted(roots, key=lambda changes: order(self._way(changes))):
            self._explore(changes)
        if self._numbers and self._train and not self._fitting():
            self._eight_bits(root)
        return self.tried

    def _free(self) -> list[Change]:
        """Return the free changes that make a step shorter."""
        kept: list[Change] = []
        for change in free(self._base.graph, self._options):
            other = self._way([*kept, change])
            if order(other) < order(self._way(kept)):
                kept.append(change)
        return kept

    def _explore(self, root: list[Change]) -> None:
        """Search one branch for the fastest fitting way among additions to `root`."""
        plain = self._way(root)
        if plain.verdict == "fits" or plain.estimate is None or not self._promising(plain):
            return
        if self._with_segments(root):
            return
        if not self._train:
            return
        paths = self._paths()
        blocks = self._blocks(root, paths)
        divided = self._split(root, plain, paths)
        if not paths:
            return
        everything = [*root, self._checkpoint(paths)]
        fits = self._way(everything).verdict == "fits" or self._with_segments(everything)
        if fits or self._fits_below(plain):
            self._some(root, plain, blocks)
        if not self._fitting():
            self._both(root, paths, divided)

    def _fits_below(self, plain: Way) -> bool:
        """Whether some way fits, and takes longer than this one, so that something between may be found."""
        return any(order(plain) < order(way) for way in self._fitting())

    def _split(self, root: list[Change], plain: Way, paths: list[str]) -> dict[str, Blocks]:
        """Divide the batch by as few as fit; of other divisions return what their blocks give."""
        assert plain.estimate is not None
        failed: dict[str, Blocks] = {}
        for change in self._divisions(plain.estimate)[:_DIVISIONS]:
            way = self._way([*root, change])
            if way.verdict == "fits":
                break
            failed[change.name] = self._blocks([*root, change], paths)
            if self._with_segments([*root, change]):
                break
        return failed

    def _divisions(self, estimate: Estimate) -> list[Change]:
        """Accumulations that should fit, the fewest micro-batches first."""
        if not self._batch or (self._normalizes and not self._numbers):
            return []
        stays = sum(estimate.breakdown.get(name, 0) for name in _STAYS)
        stays += estimate.needed.device_used - estimate.needed.peak_reserved
        rest = max(estimate.needed.device_used - stays, 0)
        gradients = estimate.breakdown.get("parameters", 0)
        return [
            self._accumulation(k)
            for k in range(2, self._batch + 1)
            if self._batch % k == 0 and stays + gradients + rest / k <= _NEARLY * estimate.allowed_bytes
        ]

    def _accumulation(self, k: int) -> Change:
        assert self._batch is not None
        cost = RESULTS if self._normalizes else SLOWER
        return offered.accumulation(self._options, self._batch, k, cost)

    def _both(self, root: list[Change], paths: list[str], known: dict[str, Blocks]) -> None:
        """Try divided batches with as few blocks recomputed as fit; all, if the knapsack finds none. known:
        analysed blocks by division."""
        recomputed = self._way([*root, self._checkpoint(paths)]).estimate
        if recomputed is None:
            return
        for change in self._divisions(recomputed)[:_DIVISIONS]:
            divided = [*root, change]
            blocks = known.get(change.name) or self._blocks(divided, paths)
            if self._some(divided, self._way(divided), blocks):
                return
            everything = [*divided, self._checkpoint(paths)]
            if self._way(everything).verdict == "fits" or self._with_segments(everything):
                return

    def _blocks(self, changes: list[Change], paths: list[str]) -> Blocks:
        """Return what recomputing each of these blocks gives under the changes."""
        if not paths or self._full(changes):
            return Blocks((), ())
        way, analysis = self._trials.with_graph(changes)
        self._note(way)
        return Blocks((), ()) if analysis is None else blocks_of(analysis, paths)

    def _some(self, root: list[Change], way: Way, blocks: Blocks) -> bool:
        """Choose blocks by the knapsack, with less memory until they fit; return whether they do."""
        if way.estimate is None:
            return False
        beside = way.estimate.needed.device_used - blocks.peak_bytes
        limit = way.estimate.allowed_bytes - beside
        for _ in range(_ROUNDS):
            chosen = cheapest(blocks.costs, blocks.rows, limit)
            if not chosen or len(chosen) == len(blocks.blocks):
                return False
            if not self._worth(way, sum(blocks.costs[place] for place in chosen)):
                return False
            some = [*root, self._checkpoint([blocks.blocks[place].path for place in chosen])]
            tried = self._way(some)
            if tried.verdict == "fits" or self._with_segments(some):
                return True
            if tried.estimate is None:
                return False
            over = tried.estimate.needed.device_used - tried.estimate.allowed_bytes
            limit -= max(over, min(blocks.blocks[place].freed_bytes for place in chosen) // 2)
        return False

    def _worth(self, plain: Way, cost: float) -> bool:
        """Whether a way that computes so much again may be faster than the best that fits."""
        best = min((way.seconds for way in self._fitting() if way.seconds is not None), default=None)
        if plain.seconds is None or best is None or plain.estimate is None:
            return True
        k = int(plain.estimate.options.get("grad_accumulation") or 1)
        return plain.seconds + cost * k < best

    def _with_segments(self, changes: list[Change]) -> bool:
        """Return whether expandable segments make it fit, tried where bytes in use would."""
        estimate, more = self._way(changes).estimate, offered.expandable(self._options)
        if estimate is None or not more or self._trials.config:
            return False
        beside = estimate.needed.device_used - estimate.needed.peak_reserved
        if estimate.needed.peak_allocated + beside > estimate.allowed_bytes:
            return False
        return self._way([*changes, *more]).verdict == "fits"

    def _eight_bits(self, root: list[Change]) -> None:
        """States of the optimizer in 8 bits, with the best precision."""
        kept = [part for part in root if "optimizer" not in part.options]
        for change in offered.eight_bits(self._options):
            for precision in [[], *([part] for part in precisions(self._base, self._options))]:
                self._way([*kept, *precision, change])

    def _checkpoint(self, paths: list[str]) -> Change:
        from analyzer.capture.pytorch.module.blocks import pattern_of

        assert self._trials.model is not None
        return offered.checkpoint(pattern_of(self._trials.model, paths))

    def _paths(self) -> list[str]:
        """Return the model's repeated blocks; none if the job says itself what to recompute."""
        if self._trials.model is None or self._options.checkpoint is not None:
            return []
        from analyzer.capture.pytorch.module.blocks import repeated

        return list(repeated(self._trials.model))

    def _way(self, changes: Ways) -> Way:
        if self._full(changes):
            return Way(" + ".join(change.name for change in changes), {}, None, error="not tried")
        way = self._trials.way(changes)
        self._note(way)
        return way

    def _full(self, changes: Ways) -> bool:
        """Whether it is one more than may be analysed."""
        return self._trials.count >= MOST and not self._trials.knows(changes)

    def _note(self, way: Way) -> None:
        if all(other.name != way.name for other in self.tried):
            self.tried.append(way)

    def _fitting(self) -> list[Way]:
        return [way for way in self.tried if way.verdict == "fits"]

    def _promising(self, plain: Way) -> bool:
        """Whether something added to it may still be faster than the best that fits."""
        return not self._fitting() or self._fits_below(plain)


def order(way: Way) -> tuple[float, float]:
    """Return a sort key: fastest first, without times by operations a sample; failures last."""
    if way.estimate is None:
        return float("inf"), float("inf")
    return (way.seconds or 0.0, 0.0) if way.seconds is not None else (0.0, way.operations)


def free(graph: Graph, options: Options) -> list[Change]:
    """Return changes that may be faster and affect numbers only by rounding."""
    fused = offered.implementations(options, {"fused": FREE}, _FUSED)
    return [*fused, *offered.channels_last(graph, options)]


def precisions(base: Analysis, options: Options) -> list[Change]:
    """Half precision, as the device has it, where the job has none."""
    old = base.profile.compute_capability < _AMPERE
    return [change for change in offered.precisions(options) if ("fp16" in change.options.values()) == old]
