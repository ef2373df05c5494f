"""Trees of decisions of what cuDNN answered on an H100 (`python -m benchmarks cudnn unlisted`); needs lightgbm (`pip install lightgbm==4.7.0`).

    python -m benchmarks cudnn grow sm90 FILES       where cuDNN puts its engines on cuBLAS, for one compute capability
    python -m benchmarks cudnn besides FILES         what products an image take besides (`unlisted handle FILE --kind images`, `layers`)

grow: a convolution counts once for each plan on cuBLAS it has that takes other bytes than the first listed plan, and again with that plan's
engine unknown, as it is in the recorded tables; a single product that is first, for whether its sum is added up in parts. besides: each whose
first plan is a product an image. Every fifth convolution is held back: of these the command prints in what share the decision is right, and how
many of those are right that are sure. One of a thousand, held back, goes to `tests/data/h100/first_plans.json.gz` or `products_besides.json.gz`.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.libraries.cudnn import besides as besides_trees
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.first_plan import SPLIT, UNKNOWN_ENGINE, features, group
from analyzer.libraries.cudnn.on_cublas import (
    ENGINES,
    PRODUCT,
    is_single_product,
    plans_on_cublas,
    product_bytes,
)
from analyzer.libraries.cudnn.recorded import RELEASE
from analyzer.libraries.cudnn.trees import SURE
from benchmarks import ROOT
from benchmarks.cudnn.record import FOLDER, write

_HELD_BACK, _KEPT_OF = 5, 1000
_FEWEST = 20  # positive answers, below which a group is a constant
_ROUNDED = 512
_KEPT = ROOT / "tests/data/h100"
# Kept are 14 significant bits of a node's value, float32: fewer pack better. Of `besides` 8, and few trees, so that the
# wheel stays small: 120 trees of 63 leaves are right for 1 to 4 % more, in 450 KB more.
_BITS, _FEW_BITS = 0xFFFFFC00, 0xFFFF0000
_FEW_TREES = {"num_leaves": 40, "num_iterations": 6, "learning_rate": 0.6}
_PARAMETERS = {
    "objective": "binary", "learning_rate": 0.15, "min_data_in_leaf": 5, "lambda_l2": 1.0,
    "verbose": -1, "num_threads": 1, "seed": 1, "deterministic": True, "force_row_wise": True,
}  # fmt: skip
Answer = tuple[Convolution, list[tuple[int, int]]]  # engine and bytes of the plans up to the first listed one
# A group of trees, what is looked at, once or in two ways, and whether the answer is yes.
Row = tuple[str, list[list[float]], bool]


def answers(files: Iterable[Path]) -> Iterator[Answer]:
    """Each convolution once that has an answer."""
    decoder, seen = json.JSONDecoder(), set()
    for path in files:
        for line in path.read_text().splitlines():
            fields, end = decoder.raw_decode(line)
            call = Question.read(["pytorch", *fields]).call
            if line[end:].strip() not in ("", "[]") and call not in seen:
                seen.add(call)
                yield call, json.loads(line[end:])


def first_plans(call: Convolution, plans: list[tuple[int, int]]) -> Iterator[Row]:
    """Whether each plan on cuBLAS is first, looked at with and without the listed plan's engine."""
    engines = ENGINES[call.operation]
    listed = next((Plan(*plan) for plan in plans if plan[0] not in engines.values()), None)
    if listed is None:
        return
    for kind, plan in plans_on_cublas(call).items():
        single = kind == PRODUCT and is_single_product(call)
        if not single and abs(plan.workspace_bytes - listed.workspace_bytes) < _ROUNDED:
            continue
        looks = [features(call, each, plan) for each in (listed, listed._replace(engine=UNKNOWN_ENGINE))]
        first, nbytes = plans[0]
        yield group(kind, call), looks, first == engines[kind]
        if single and first == engines[kind]:
            yield group(SPLIT, call), looks, abs(nbytes - plan.workspace_bytes) >= _ROUNDED


def more_bytes(call: Convolution, plans: list[tuple[int, int]]) -> int:
    """What a product an image takes besides."""
    return plans[0][1] - (product_bytes(call) or 0)


def some_besides(call: Convolution, plans: list[tuple[int, int]]) -> Iterator[Row]:
    """Whether a product an image takes some."""
    yield besides_trees.group(call), [besides_trees.features(call)], more_bytes(call, plans) > 0


def judged(shares: np.ndarray[Any, Any], answers: np.ndarray[Any, Any]) -> str:
    """In what share of the convolutions held back the decision is right, and how many of those are right that are sure."""
    right, sure = (shares >= 0.5) == answers, np.abs(shares - 0.5) > 0.5 - SURE
    of_these = right[sure].mean() if sure.any() else 1.0
    return (
        f"right in {100 * right.mean():.2f} % of {len(answers)} held back, sure in {100 * sure.mean():.1f} %, of these right in "
        f"{100 * of_these:.2f} %"
    )


def flat(trees: Iterable[dict[str, Any]], bits: int) -> dict[str, np.ndarray[Any, Any]]:
    """Grown trees as `trees.py` reads them. bits: those of a value that are kept."""
    roots, feature, value, right = [], [], [], []

    def walk(node: dict[str, Any]) -> None:
        place = len(feature)
        leaf = "leaf_value" in node
        feature.append(-1 if leaf else node["split_feature"])
        value.append(node["leaf_value"] if leaf else node["threshold"])
        right.append(0)
        if not leaf:
            walk(node["left_child"])
            right[place] = len(feature)
            walk(node["right_child"])

    for tree in trees:
        roots.append(len(feature))
        walk(tree)
    return {
        "roots": np.array(roots, np.int32), "feature": np.array(feature, np.int8),
        "value": (np.array(value, np.float32).view(np.uint32) & np.uint32(bits)).view(np.float32),
        "right": np.array(right, np.int32),
    }  # fmt: skip


def grown(
    name: str,
    calls: Iterable[Answer],
    rows: Callable[..., Iterator[Row]],
    parameters: dict[str, Any],
    bits: int,
) -> list[Answer]:
    """Grow a table's trees, print how right they are, and write them; return one answer of a thousand."""
    import lightgbm

    found: dict[str, list[tuple[list[list[float]], bool, bool]]] = defaultdict(list)
    kept, count = [], 0
    for call, plans in calls:
        for key, looks, yes in rows(call, plans):
            found[key].append((looks, yes, count % _HELD_BACK == 0))
        if count % _KEPT_OF == 0:
            kept.append((call, plans))
        count += 1
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, cells in sorted(found.items()):
        looks, yes, held = (np.array([cell[place] for cell in cells]) for place in range(3))
        positive = int(yes.sum())
        if not positive:
            continue
        if min(positive, len(yes) - positive) < _FEWEST:
            share = min((positive + 0.5) / (len(yes) + 1), 1 - 0.5 / (len(yes) + 1))
            trees, right = [{"leaf_value": float(np.log(share / (1 - share)))}], "the same everywhere"
        else:
            data = np.concatenate([*looks[~held].swapaxes(0, 1)]), np.tile(yes[~held], looks.shape[1])
            booster = lightgbm.train(_PARAMETERS | parameters, lightgbm.Dataset(*data))
            trees = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
            right = judged(booster.predict(looks[held, 0]), yes[held])
        print(f"{key}: {positive} of {len(yes)} yes, {right}", flush=True)
        arrays |= {f"{key}.{member}": array for member, array in flat(trees, bits).items()}
    about = {"cudnn": ".".join(map(str, RELEASE)), "method": __doc__ or "", "calls": str(count)}
    write(FOLDER / f"{name}.npz", arrays, about)
    return kept


@click.command()
@click.argument("name")
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--leaves", default=15, help="31 for sm90.")
@click.option("--trees", default=40, help="60 for sm90.")
def main(name: str, files: tuple[Path, ...], leaves: int, trees: int) -> None:
    """Grow the trees of what is first on one compute capability."""
    parameters = {"num_leaves": leaves, "num_iterations": trees}
    found = grown(f"{name}.first", answers(files), first_plans, parameters, _BITS)
    path = _KEPT / "first_plans.json.gz"
    kept = {
        **json.loads(gzip.decompress(path.read_bytes())),
        name: [(fields_of(call), plans) for call, plans in found],
    }
    path.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), mtime=0))


@click.command()
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
def besides(files: tuple[Path, ...]) -> None:
    """Grow the trees of what products an image take besides."""
    counted = (
        (call, plans)
        for call, plans in answers(files)
        if plans[0][0] == ENGINES[call.operation][PRODUCT] and not is_single_product(call)
    )
    found = grown("sm90.besides", counted, some_besides, _FEW_TREES, _FEW_BITS)
    kept = [(fields_of(call), more_bytes(call, plans)) for call, plans in found]
    (_KEPT / "products_besides.json.gz").write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def fields_of(call: Convolution) -> tuple[Any, ...]:
    """A convolution as the answers have it."""
    return Question.of(call).fields[1:10]
