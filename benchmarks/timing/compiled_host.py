"""What compiled code takes of the host, out of what was recorded: `extensions/analyzer_timing/compiled.json`.

1. **value** and **call**: chains of 4 and of 64 products with a weight, and of as many layers, replayed as CUDA graphs ("loops" in
   compiled.json.gz), so that little but calls and their values is left. A value is an argument or a result of a compiled graph;
   `VALUES` counts them, as AOTAutograd's graphs have them. Seconds are those of the chain, less its graph's replay, over the factor by
   which that machine's host was the faster; the mean of both kinds of chain. Of a backward pass what an empty one takes is left out
   (`host.json.gz`: "backward of one", less its product's part).
2. **node** and **replay**: graphs of 1 and of 1,000 kernels ("graph" there).
3. **launch**: the least squares, of relative errors, of the compiled development cases' host time, less all others; of cases with more
   than ten launches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import click

import analyzer_timing
from analyzer_timing.host import factor_of
from benchmarks.harness.files import read
from benchmarks.timing.pack import RAW

FILE = Path(analyzer_timing.__file__).parent / "compiled.json"
FORWARD, BACKWARD, INFERENCE = "forward", "backward", "inference"
_SHORT, _LONG = 4, 64
_MICRO = 1e6
LOOPS = "loops"
_MODE = "reduce-overhead"
# Of a chain of n: values of a graph, and kernels, by pass; each as (of every link, besides).
VALUES = {
    "weights": {FORWARD: (3, 2), BACKWARD: (3, 2), INFERENCE: (1, 2)},
    "modules": {FORWARD: (4, 2), BACKWARD: (4, 2), INFERENCE: (2, 2)},
}
KERNELS = {
    "weights": {FORWARD: 1, BACKWARD: 2, INFERENCE: 1},
    "modules": {FORWARD: 1, BACKWARD: 3, INFERENCE: 1},
}
_FEW = 10


def figures() -> dict[str, Any]:
    """Microseconds by name, as the package's file has them, of the host of `extensions/analyzer_timing/host.py`."""
    content, plain = read(RAW / "compiled.json.gz"), read(RAW / "host.json.gz")["seconds"]
    factor = factor_of(content["host"])
    loops = next(row["loops"] for row in content["rows"] if row["set"] == LOOPS)
    node, replay = _of_graphs(loops["graph"], factor)
    empty = _MICRO * (plain["backward of one"] - plain["mul_scalar"][2])
    call, value = {}, {}
    for which in (FORWARD, BACKWARD, INFERENCE):
        each = {kind: _of_chain(loops, kind, which, factor, (node, replay)) for kind in VALUES}
        value[which] = round(mean(each[kind][0] for kind in each), 2)
        call[which] = round(mean(each[kind][1] for kind in each) - (empty if which == BACKWARD else 0.0), 1)
    found = {"call": call, "value": value, "replay": round(replay, 2), "node": round(node, 3)}
    return found | {"launch": round(_launch(content, found, factor), 1)}


def _of_graphs(graphs: Mapping[str, Mapping[str, float]], factor: float) -> tuple[float, float]:
    """Return a node's and a replay's microseconds."""
    one, many = (
        mean(row["host"] for name, row in graphs.items() if name.split()[0] == count)
        for count in ("1", "1000")
    )
    node = (many - one) / 999
    return _MICRO * node / factor, _MICRO * (one - node) / factor


def _of_chain(
    loops: Mapping[str, Any], kind: str, which: str, factor: float, graph: tuple[float, float]
) -> tuple[float, float]:
    """Return a value's and a call's microseconds, of one kind of chain."""
    ending, part = (" no_grad", FORWARD) if which == INFERENCE else ("", which)
    each, besides = VALUES[kind][which]
    node, replay = graph
    taken = [
        _MICRO * loops[f"{kind} {count} {_MODE}{ending}"][part] / factor
        - replay
        - node * KERNELS[kind][which] * count
        for count in (_SHORT, _LONG)
    ]
    value = (taken[1] - taken[0]) / (each * (_LONG - _SHORT))
    return value, taken[0] - value * (each * _SHORT + besides)


def _launch(content: Mapping[str, Any], found: Mapping[str, Any], factor: float) -> float:
    """Return a launch's microseconds."""
    from analyzer.devices import load
    from analyzer_emulation.step import graph_of
    from analyzer_timing import compiled
    from analyzer_timing.rates import rates_of
    from analyzer_timing.step import last_step, launches_of
    from benchmarks.timing.cases import COMPILED, tag
    from benchmarks.timing.compiled_score import LAUNCHES

    measured = {tag(row["case"]): row["host"] for row in content["rows"] if "wall" in row}
    recorded, rates = read(LAUNCHES)["cases"], rates_of(load("h100"))
    assert rates is not None
    above = below = 0.0
    for case in COMPILED["development"]:
        name = tag(case)
        if name not in measured or name not in recorded:
            continue
        graph = graph_of(recorded[name])
        launches = launches_of(graph, last_step(graph), rates, 1.0).values()
        count = sum(compiled.is_launch(launch.operator) for launch in launches)
        others = sum(
            launch.host if (own := compiled.seconds_of(launch.operator, found)) is None else own
            for launch in launches
            if not compiled.is_launch(launch.operator)
        )
        if count > _FEW:
            took = _MICRO * measured[name] / factor
            above += count * (took - _MICRO * others) / took**2
            below += (count / took) ** 2
    return above / below


@click.command("compiled_host")
def main() -> None:
    """Write the package's file out of what was recorded."""
    FILE.write_text(json.dumps(figures(), indent=1) + "\n", encoding="utf-8")
