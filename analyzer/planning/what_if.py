"""What a job would need if it were run otherwise: strategies side by side, each analysed, none guessed.

1. Every strategy is the same target with other options, captured and simulated as any analysis is; one that
   the target does not take is kept with what was said.
2. What changes the numbers of a model (precision, 8 bits, another optimizer) is offered beside what does not;
   `cost` orders them: 0 free, 1 slower or other kernels, 2 changes results, 3 more GPUs, 4 a larger GPU.
3. **Checkpointing** is of the blocks a model repeats: of those whose recomputation frees most, and of those
   that free most an operation, as the base's graph says (`checkpoints.py`). Its price is computing their
   forward pass again: `extra_compute` is the share of floating-point operations a sample added (`flops.py`).
4. **Accumulation** divides the batch by k and runs k of them a step: the effective batch stays.
5. **More GPUs**: training with FSDP2 on `GPUS` of them, inference split over `SPLIT` by tensor parallelism
   where the layers' names are known. The batch is that of one rank, so the job does as many times more.
6. Combinations are those people take together: mixed precision with checkpointing, both with accumulation,
   and each of what is free on top.

7. A model's configuration has strategies of its own (`configurations.py`).

8. A step's time is that of each strategy's own analysis (`Estimate.step_seconds`), of all micro-batches.

Not modelled: the time of several GPUs, and of what runs compiled; offloading; what a change does to a model's
quality.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.options import Options, takes_options
from analyzer.parallelism import parse
from analyzer.pipeline import analysis
from analyzer.pipeline.workload import Workload
from analyzer.planning.checkpoints import patterns, recomputable_bytes
from analyzer.planning.countdown import Countdown
from analyzer.report.command_line import changed
from analyzer.results.estimate import Estimate
from analyzer.results.strategy import Strategy
from analyzer.targets import Target
from analyzer.targets import parse as parse_target

if TYPE_CHECKING:
    import torch

_ACCUMULATED = (2, 4)
GPUS, SPLIT = 8, 2
_MORE_GPUS = 3
_FUSED = ("sgd", "adam", "adamw", "adagrad")
_EIGHT_BITS = ("adam", "adamw", "adagrad", "rmsprop")
_PAIR = 2
# ONNX Runtime's settings that decide memory, and their cheaper values.
_ARENA = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "enable_mem_pattern": "0",
}


@takes_options
def what_if(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Any = None,
    *,
    largest: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Strategy]:
    """The base first, then every strategy in the order of what it saves. Options as for `analyzer.analyze`.

    largest: also the largest batch of each on the device; takes a search each. Raises AnalyzerError when the
    base fails.
    """
    chosen = Options.of({"inputs": inputs, **options})
    searches = _Searches(target) if largest else None
    try:
        return _side_by_side(target, chosen, searches, progress)
    finally:
        if searches is not None:
            gc.unfreeze()


def _side_by_side(
    target: Any, options: Options, searches: _Searches | None, progress: Callable[[str], None] | None
) -> list[Strategy]:
    """Return the target as it is, then its variants: those that fail last, the most saved first."""
    base = _analysed(target, options, progress, searches=searches)
    trained = options.mode == "train" and base.graph.framework == "pytorch"
    cheap = recomputable_bytes(base.graph) if trained else 0
    found = [Strategy("as it is", {}, base.estimate, recomputable=cheap)]
    work = _work(base, options)
    offered = variants(base, options, target)
    steps = Countdown(len(offered) + (searches is not None), progress)
    if searches is not None:
        searches.expect([{}, *(changes for _, _, changes in offered)])
        steps.begin("as it is")
        found = [searches.with_largest(found[0], options, base, steps.tell)]
        searches.done({})
    for variant in offered:
        steps.begin(variant[0])
        found.append(_strategy(target, options, base.estimate, work, variant, steps.tell, searches=searches))
        if searches is not None:
            searches.done(variant[2])
    return [found[0], *sorted(found[1:], key=lambda s: (s.estimate is None, -s.saved, s.cost, s.name))]


class _Searches:
    """The largest batch of each strategy. Strategies that differ in the allocator's settings alone are one
    captured program: it is kept until the last of them."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._open: dict[str, Workload] = {}
        self._to_come: Counter[str] = Counter()

    def expect(self, every: Iterable[Mapping[str, Any]]) -> None:
        """Take the changes of all strategies that will be asked for."""
        self._to_come.update(map(_program_of, every))

    def workload(self, options: Options, changes: Mapping[str, Any]) -> Workload:
        """Return the target under a strategy's options, any batch. Raises AnalyzerError."""
        program = _program_of(changes)
        known = self._open.get(program)
        if known is None or known.model is None:
            known = self._open[program] = Workload(self._target, replace(options, batch=None))
        return known.alike(runtime_options=options.runtime_options)

    def with_largest(
        self, strategy: Strategy, options: Options, found: Analysis, progress: Callable[[str], None] | None
    ) -> Strategy:
        """Return `strategy`, analysed as `found`, with its largest batch, or the error."""
        from analyzer.planning.fit import largest_batch

        try:
            largest = largest_batch(self.workload(options, strategy.changes), found, progress)
        except AnalyzerError as error:
            return replace(strategy, error=error.message)
        return replace(strategy, largest=largest)

    def done(self, changes: Mapping[str, Any]) -> None:
        """End a strategy and drop captures that no later one needs."""
        program = _program_of(changes)
        self._to_come[program] -= 1
        if self._to_come[program] <= 0:
            self._open.pop(program, None)
        # A search leaves its captures in cycles, some hundred MiB, and a command line collects none by
        # itself. What is kept is not looked through again and again.
        gc.collect()
        gc.freeze()


def _program_of(changes: Mapping[str, Any]) -> str:
    """Return a key of the changes that affect the program itself, without runtime options."""
    return repr(sorted((name, repr(value)) for name, value in changes.items() if name != "runtime_options"))


def cheapest(strategies: list[Strategy]) -> Strategy | None:
    """Return the fitting strategy of least cost, operations, then memory; None if none fits."""
    fitting = [s for s in strategies if s.estimate is not None and s.estimate.verdict() == "fits"]
    return min(fitting, key=lambda s: (s.cost, s.extra_compute, len(s.changes), -s.saved), default=None)


def first_that_fits(
    target: Any, options: Options, base: Analysis, progress: Callable[[str], None] | None = None
) -> Strategy | None:
    """Return the cheapest change that makes `base`, an analysis of the target, fit its device and budget: the
    first that does in the order of `cheapest`, none after it is tried; where none does for certain, the first
    that may. None when none does. Raises AnalyzerError when the target cannot be opened again."""
    Workload(target, options)
    work, perhaps = _work(base, options), None
    ordered = sorted(variants(base, options, target), key=lambda v: (v[1], len(v[2])))
    steps = Countdown(len(ordered), progress)
    for variant in ordered:
        steps.begin(variant[0])
        tried = _strategy(target, options, base.estimate, work, variant, steps.tell, needs=False)
        verdict = "" if tried.estimate is None else tried.estimate.verdict()
        if verdict == "fits":
            return tried
        if verdict == "may not fit" and perhaps is None:
            perhaps = tried
    return perhaps


def _is_config(target: Any) -> bool:
    """Return whether it is a model's configuration (`configurations.py`)."""
    if not isinstance(target, (str, os.PathLike)):
        return False
    parsed = parse_target(target)
    return isinstance(parsed, Target) and parsed.kind == "config"


def _analysed(
    target: Any,
    options: Options,
    progress: Callable[[str], None] | None,
    needs: bool = True,
    changes: Mapping[str, Any] = MappingProxyType({}),
    searches: _Searches | None = None,
) -> Analysis:
    """Return the analysis under some options, from a search's own capture where there is one."""
    batch = options.batch
    if batch is not None and searches is not None:
        workload = searches.workload(options, changes)
        if workload.runtime is not None and workload.model is not None:
            return workload.analysis(batch)  # a search goes on from what is captured here
    if batch is None or not options.inputs:
        return analysis(target, options, progress, needs)
    return analysis(target, Workload(target, options).at(batch), progress, needs)


def _strategy(
    target: Any,
    options: Options,
    base: Estimate,
    work: float,
    variant: tuple[str, int, dict[str, Any]],
    progress: Callable[[str], None] | None,
    needs: bool = True,
    searches: _Searches | None = None,
) -> Strategy:
    """Return a variant beside `base`: bytes saved, and the share of operations more than `work`."""
    name, cost, changes = variant
    typed = changed(options, changes)
    try:
        other = replace(options, **changes)
        found = _analysed(target, other, progress, needs, changes, searches)
    except AnalyzerError as error:
        return Strategy(name, changes, None, cost, error=error.message, typed=typed)
    extra = _work(found, other) / work - 1 if work else 0.0
    strategy = Strategy(
        name,
        changes,
        found.estimate,
        cost,
        max(round(extra, 4), 0.0),
        base.needed.device_used - found.estimate.needed.device_used,
        typed=typed,
    )
    return strategy if searches is None else searches.with_largest(strategy, other, found, progress)


def _work(found: Analysis, options: Options) -> float:
    """Return floating-point operations per sample and step; 0 if unknown (extrapolated tokens)."""
    if found.graph.framework != "pytorch" or options.mode == "generate":
        return 0.0
    from analyzer.planning.flops import flops

    samples = (found.graph.batch or 1) * options.grad_accumulation
    return flops(found.graph) / samples


def variants(base: Analysis, options: Options, target: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """(name, cost, changes) of every strategy the base's options leave open."""
    if _is_config(target):
        from analyzer.planning.configurations import variants as of_configuration

        return [*_expandable(options), *of_configuration(options, os.fspath(target))]
    if base.graph.framework == "onnx":
        given = options.runtime_options
        left = {key: value for key, value in _ARENA.items() if str(given.get(key, "")) != value}
        singles = [
            (f"{key}={value}", 0 if key != "enable_mem_pattern" else 1, _setting(options, {key: value}))
            for key, value in left.items()
        ]
        together = f"{'both' if len(left) == _PAIR else f'all {len(left)}'} of these settings"
        return singles + ([(together, 1, _setting(options, left))] if len(left) >= _PAIR else [])
    precise = _precisions(base, options)
    free = _free(base, options)
    frugal = _frugal(base, options, target) if options.mode == "train" else []
    singles = [*free, *precise, *frugal]
    recomputed = next((entry for entry in reversed(frugal) if "checkpoint" in entry[2]), None)
    split = next((entry for entry in frugal if "grad_accumulation" in entry[2]), None)
    mixed = next((entry for entry in precise if "amp" in entry[2]), None)
    sets = [[mixed, recomputed], [mixed, split], [recomputed, split], [mixed, recomputed, split]]
    pairs = [[part for part in parts if part is not None] for parts in sets]
    if free:
        pairs.append([part for part in (free[0], mixed, recomputed) if part is not None])
    combined = [_merged(parts) for parts in pairs if len(parts) >= _PAIR]
    more = _more_gpus(options, target)
    return [*singles, *{name: (name, cost, changes) for name, cost, changes in combined}.values(), *more]


def _merged(parts: list[tuple[str, int, dict[str, Any]]]) -> tuple[str, int, dict[str, Any]]:
    changes: dict[str, Any] = {}
    for _, _, part in parts:
        changes |= part
    return " + ".join(name for name, _, _ in parts), max(cost for _, cost, _ in parts), changes


def _setting(options: Options, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"runtime_options": {**options.runtime_options, **more}}


def _expandable(options: Options) -> list[tuple[str, int, dict[str, Any]]]:
    """Segments that expand, where the allocator's settings say nothing of them."""
    known = str(options.runtime_options.get("alloc_conf") or "")
    if "expandable_segments" in known:
        return []
    conf = ",".join(filter(None, (known, "expandable_segments:True")))
    return [("expandable segments", 0, _setting(options, {"alloc_conf": conf}))]


def _free(base: Analysis, options: Options) -> list[tuple[str, int, dict[str, Any]]]:
    """Return changes that affect no number: allocator, optimizer implementation, memory format."""
    found = _expandable(options)
    name = options.optimizer
    if options.mode == "train" and isinstance(name, str) and name in _FUSED:
        found.append((f"{name}_fused", 0, {"optimizer": f"{name}_fused"}))
        found.append((f"{name}_forloop", 1, {"optimizer": f"{name}_forloop"}))
    convolutions = [
        operator for operator in base.graph.operators if operator.name.startswith("aten::convolution")
    ]
    planar = all(len(tensor.shape) < 5 for operator in convolutions for tensor in operator.inputs)
    if convolutions and planar and not options.channels_last:
        found.append(("channels last", 1, {"channels_last": True}))
    return found


def _more_gpus(options: Options, target: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """Return changes that spread the model over several GPUs, or more thinly."""
    known = None if options.parallel is None else parse(options.parallel)
    texts = []
    if options.mode == "train" and (known is None or known.kind == "ddp"):
        texts = [f"fsdp2:{GPUS if known is None else known.size}"]
    elif known is None:
        from analyzer.capture.pytorch.world.wrapping import linear_pairs

        model = Workload(target, replace(options, batch=None)).model
        texts = [f"tp:{SPLIT}"] if model is not None and linear_pairs(model) else []
    cost = _MORE_GPUS if known is None else 1
    return [(str(parse(text)), cost, {"parallel": text}) for text in texts]


def _precisions(base: Analysis, options: Options) -> list[tuple[str, int, dict[str, Any]]]:
    found: list[tuple[str, int, dict[str, Any]]] = []
    if options.amp is None and options.dtype in (None, "float32"):
        found.append(("amp bf16", 2, {"amp": "bf16"}))
        found.append(("amp fp16", 2, {"amp": "fp16"}))
        found.append(("pure bf16", 2, {"dtype": "bfloat16"}))
    del base
    return found


def _frugal(base: Analysis, options: Options, target: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """Return changes for training only: accumulation, checkpointing, an optimizer with 8-bit or no state."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    batch = options.batch or base.graph.batch
    for k in _ACCUMULATED:
        if batch and batch % k == 0:
            changes = {"batch": batch // k, "grad_accumulation": options.grad_accumulation * k}
            found.append((f"accumulation x{k}", 1, changes))
    if (
        options.checkpoint is None
        and (model := Workload(target, replace(options, batch=None)).model) is not None
    ):
        for pattern in patterns(base.graph, model):
            found.append((f"checkpoint {pattern}", 1, {"checkpoint": pattern}))
    name = options.optimizer
    if isinstance(name, str) and name.partition("_")[0] in _EIGHT_BITS and not name.endswith("_8bit"):
        name = f"{name.partition('_')[0]}_8bit"
        found.append((name, 2, {"optimizer": name}))
    if options.optimizer != "sgd":
        found.append(("sgd", 2, {"optimizer": "sgd"}))
    return found
