"""When cuDNN puts the engine of a matrix product first, from recorded answers: python -m benchmarks cudnn product

Asks the library within reach, which lists all but these engines, for recorded convolutions of an H200 that are
products or weight gradients of 3 x 3 filters, and grows a tree of decisions for each operation, type and layout; writes
`analyzer/libraries/cudnn/product_order.json`. A call counts where the recorded workspace is the product's or that
of the first listed plan, not both. Prints in what share of calls held back the decision is right, beside the
share of the more frequent answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import OPERATIONS, Convolution
from analyzer.libraries.cudnn.products import ORDER, UNLISTED, features, share, tree_name, unlisted_plan
from analyzer.libraries.cudnn.recorded import record
from benchmarks import ROOT

_DEPTH, _LEAST = 6, 15
_CLOSE = 400  # bytes for alignment, which a plan's knobs decide
_AT_ONCE = 500


def recorded(operation: str, dtype: str, last: bool, size: int, count: int) -> list[tuple[Convolution, int]]:
    """Recorded convolutions of such filters, square and with strides of one, drawn with a seed, and their
    workspaces; of 1 x 1 without padding."""
    table = record("h200")
    if table is None:
        raise click.ClickException("the recorded answers of an H200 are not here")
    layout = f"{dtype}.{'nhwc' if last else 'nchw'}"
    rows = table._array("family")[table._array(f"{layout}.family")].astype(np.int64)
    batches, taken = (table._array(f"{layout}.{name}").astype(np.int64) for name in ("batch", operation))
    dense = (rows[:, 0] == rows[:, 5]) & (rows[:, 1] == 0) & (taken >= 0)
    unit = (
        (rows[:, 6] <= 1) & (rows[:, 7:9] == size).all(1) & (rows[:, 9] == 0) & (rows[:, 13:15] == 1).all(1)
    )
    unit &= (rows[:, 16:18] == 1).all(1)
    places = np.flatnonzero(dense & unit)
    np.random.default_rng(7).shuffle(places)
    if size == 1:
        places = places[rows[places, 10:12].max(1) == 0]
    found = []
    for place in places[:count]:
        row = rows[place]
        call = Convolution(
            operation, dtype, last, (int(batches[place]), int(row[0]), int(row[2]), int(row[3])),
            (int(row[4]), int(row[0]), size, size), (int(row[10]), int(row[11])), (1, 1), (1, 1),
        )  # fmt: skip
        found.append((call, int(taken[place])))
    return found


def grown(values: list[dict[str, float]], first: np.ndarray[Any, Any], depth: int = _DEPTH) -> Any:
    """A tree: [feature, limit, below, above], or the share of calls in which the product was first."""
    mean = float(first.mean())
    if depth == 0 or len(first) < 2 * _LEAST or mean in (0.0, 1.0):
        return round(mean, 3)
    best: tuple[float, str, float] | None = None
    for name in values[0]:
        column = np.array([each[name] for each in values])
        order = np.argsort(column, kind="stable")
        sums, counts = np.cumsum(first[order]), np.arange(1, len(first) + 1)
        left = sums / counts
        right = (sums[-1] - sums[:-1]) / (len(first) - counts[:-1])
        impurity = counts[:-1] * left[:-1] * (1 - left[:-1]) + (len(first) - counts[:-1]) * right * (
            1 - right
        )
        cut = np.flatnonzero(np.diff(column[order]) > 0)
        cut = cut[(cut + 1 >= _LEAST) & (len(first) - cut - 1 >= _LEAST)]
        if len(cut):
            place = cut[np.argmin(impurity[cut])]
            if best is None or impurity[place] < best[0]:
                limit = (column[order[place]] + column[order[place + 1]]) / 2
                best = float(impurity[place]), name, round(float(limit), 4)
    if best is None or best[0] >= len(first) * mean * (1 - mean):
        return round(mean, 3)
    _, name, limit = best
    below = np.array([each[name] <= limit for each in values])
    parts = [
        grown([v for v, is_in in zip(values, side, strict=True) if is_in], first[side], depth - 1)
        for side in (below, ~below)
    ]
    return parts[0] if parts[0] == parts[1] else [name, limit, *parts]


def labelled(drawn: list[tuple[Convolution, int]]) -> Iterator[tuple[str, dict[str, float], bool]]:
    """Of each call that tells: the tree it is for, what it looks at, and whether the unlisted plan was first."""
    choices = choices_of(load("h200"))
    for start in range(0, len(drawn), _AT_ONCE):
        part = drawn[start : start + _AT_ONCE]
        for (call, taken), plans in zip(part, choices.plans([call for call, _ in part]), strict=True):
            unlisted = unlisted_plan(call)
            listed = next((plan for plan in plans or () if plan.engine not in UNLISTED), None)
            if unlisted is None or listed is None:
                continue
            is_first = 0 <= taken - unlisted.workspace_bytes <= _CLOSE
            if is_first != (abs(taken - listed.workspace_bytes) <= _CLOSE):
                yield tree_name(call, unlisted), features(call, listed, unlisted), is_first


# Operation, type, channels last, size of the filters. How a weight's gradient splits the sum where channels
# come last is not known.
_DRAWN = [
    (operation, dtype, last, 1)
    for operation in OPERATIONS
    for dtype in ("float32", "float16", "bfloat16")
    for last in (False, True)
    if not (last and operation == "weight")
] + [("weight", "float32", False, 3)]


@click.command()
@click.option("--calls", default=3000, help="Of each operation, type and layout, at most.")
def main(calls: int) -> None:
    """Ask, grow the trees, and write them."""
    trees = {}
    for operation, dtype, last, size in _DRAWN:
        found = list(labelled(recorded(operation, dtype, last, size, calls // 4 if last else calls)))
        if len(found) < 4 * _LEAST:
            continue
        name, values = found[0][0], [each for _, each, _ in found]
        answers = np.array([each for *_, each in found])
        held = len(found) // 5
        tree = grown(values[held:], answers[held:])
        right = np.mean(
            [(share(tree, v) >= 0.5) == f for v, f in zip(values[:held], answers[:held], strict=True)]
        )
        same = max(answers.mean(), 1 - answers.mean())
        print(
            f"{name}: {len(found)} calls, right in {100 * right:.1f} % of {held} held back, always the same in {100 * same:.1f} %",
            flush=True,
        )
        trees[name] = grown(values, answers)
    path = ROOT / "analyzer/libraries/cudnn" / ORDER
    path.write_text(json.dumps(trees, separators=(",", ":")).replace('],"', '],\n"') + "\n", "utf-8")
