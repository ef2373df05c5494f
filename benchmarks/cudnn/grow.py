"""Trees of decisions for where cuDNN puts its engines on cuBLAS: python -m benchmarks cudnn grow sm90 FILES

Of answers that `python -m benchmarks cudnn unlisted` wrote on a GPU, for one compute capability; needs lightgbm
(`pip install lightgbm==4.7.0`). A convolution counts once for each plan on cuBLAS it has that takes other bytes than the first listed
plan, and again with that plan's engine unknown, as it is in the recorded tables; a single product that is first, for
whether its sum is added up in parts. Every fifth convolution is held back: of these the
command prints in what share the decision is right, and how many of those are right that are sure. A thousandth of all, from those held
back, goes to `tests/data/h100/first_plans.json.gz`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.first_plan import SPLIT, UNKNOWN_ENGINE, features, group
from analyzer.libraries.cudnn.on_cublas import ENGINES, PRODUCT, is_single_product, plans_on_cublas
from analyzer.libraries.cudnn.recorded import RELEASE
from analyzer.libraries.cudnn.trees import SURE
from benchmarks import ROOT
from benchmarks.cudnn.record import write

_HELD_BACK = 5
_FEWEST = 20  # positive answers, below which a group is a constant
_ROUNDED = 512
_BITS = 0xFFFFFC00  # 14 significant ones
_KEPT = ROOT / "tests/data/h100/first_plans.json.gz"
PARAMETERS = {
    "objective": "binary", "learning_rate": 0.15, "min_data_in_leaf": 5, "lambda_l2": 1.0,
    "verbose": -1, "num_threads": 1, "seed": 1, "deterministic": True, "force_row_wise": True,
}  # fmt: skip


def answers(files: tuple[Path, ...]) -> Iterator[tuple[Convolution, list[tuple[int, int]]]]:
    """Each convolution once, with engine and bytes of its plans up to the first listed one."""
    decoder, seen = json.JSONDecoder(), set()
    for path in files:
        for line in path.read_text().splitlines():
            fields, end = decoder.raw_decode(line)
            call = Question.read(["pytorch", *fields, False]).call
            if line[end:].strip() not in ("", "[]") and call not in seen:
                seen.add(call)
                yield call, json.loads(line[end:])


def rows(
    call: Convolution, plans: list[tuple[int, int]]
) -> Iterator[tuple[str, list[float], list[float], bool]]:
    """For each plan on cuBLAS a convolution has: its group, what is looked at with and without the listed plan's engine, and
    whether it is first."""
    engines = ENGINES[call.operation]
    listed = next((Plan(*plan) for plan in plans if plan[0] not in engines.values()), None)
    if listed is None:
        return
    for kind, plan in plans_on_cublas(call).items():
        single = kind == PRODUCT and is_single_product(call)
        if not single and abs(plan.workspace_bytes - listed.workspace_bytes) < _ROUNDED:
            continue
        unknown = listed._replace(engine=UNKNOWN_ENGINE)
        looks = [features(call, each, plan) for each in (listed, unknown)]
        first, nbytes = plans[0]
        yield group(kind, call), *looks, first == engines[kind]
        if single and first == engines[kind]:
            yield group(SPLIT, call), *looks, abs(nbytes - plan.workspace_bytes) >= _ROUNDED


def judged(shares: np.ndarray[Any, Any], answers: np.ndarray[Any, Any]) -> str:
    """In what share of the convolutions held back the decision is right, and how many of those are right that are sure."""
    right, sure = (shares >= 0.5) == answers, np.abs(shares - 0.5) > 0.5 - SURE
    of_these = right[sure].mean() if sure.any() else 1.0
    return (
        f"right in {100 * right.mean():.2f} % of {len(answers)} held back, sure in {100 * sure.mean():.1f} %, of these right in "
        f"{100 * of_these:.2f} %"
    )


def flat(booster: Any, bits: int = _BITS) -> dict[str, np.ndarray[Any, Any]]:
    """A grown ensemble as `trees.py` reads it. bits: as of `arrays_of`."""
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

    for tree in booster.dump_model()["tree_info"]:
        roots.append(len(feature))
        walk(tree["tree_structure"])
    return arrays_of(roots, feature, value, right, bits)


def arrays_of(
    roots: list[int], feature: list[int], value: list[float], right: list[int], bits: int = _BITS
) -> dict[str, np.ndarray[Any, Any]]:
    """Nodes by member of a table; bits: those of their values, float32, that are kept: fewer pack better."""
    return {
        "roots": np.array(roots, np.int32), "feature": np.array(feature, np.int8),
        "value": (np.array(value, np.float32).view(np.uint32) & np.uint32(bits)).view(np.float32),
        "right": np.array(right, np.int32),
    }  # fmt: skip


@click.command()
@click.argument("name")
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--leaves", default=15, help="31 for sm90.")
@click.option("--trees", default=40, help="60 for sm90.")
def main(name: str, files: tuple[Path, ...], leaves: int, trees: int) -> None:
    """Grow the trees of one compute capability."""
    import lightgbm

    found: dict[str, list[tuple[list[float], list[float], bool, bool]]] = {}
    kept = []
    for number, (call, plans) in enumerate(answers(files)):
        held = number % _HELD_BACK == 0
        for key, known, unknown, first in rows(call, plans):
            found.setdefault(key, []).append((known, unknown, first, held))
        if number % (200 * _HELD_BACK) == 0:
            kept.append((Question.of(call).fields[1:10], plans))
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, cells in sorted(found.items()):
        known, unknown = np.array([cell[0] for cell in cells]), np.array([cell[1] for cell in cells])
        first, held = (np.array([cell[place] for cell in cells]) for place in (2, 3))
        positive = int(first.sum())
        if not positive:
            continue
        if min(positive, len(first) - positive) < _FEWEST:
            share = min((positive + 0.5) / (len(first) + 1), 1 - 0.5 / (len(first) + 1))
            grown = arrays_of([0], [-1], [float(np.log(share / (1 - share)))], [0])  # the same everywhere
            print(f"{key}: {positive} of {len(first)} first")
        else:
            data = np.concatenate([known[~held], unknown[~held]]), np.tile(first[~held], 2)
            booster = lightgbm.train(PARAMETERS | {"num_leaves": leaves}, lightgbm.Dataset(*data), trees)
            shares = booster.predict(known[held])
            print(f"{key}: {positive} of {len(first)} first, {judged(shares, first[held])}", flush=True)
            grown = flat(booster)
        arrays |= {f"{key}.{member}": array for member, array in grown.items()}
    about = {"cudnn": ".".join(map(str, RELEASE)), "method": __doc__ or "", "calls": str(number + 1)}
    write(ROOT / f"analyzer/libraries/cudnn/recorded/{name}.first.npz", arrays, about)
    before = json.loads(gzip.decompress(_KEPT.read_bytes())) if _KEPT.exists() else {}
    _KEPT.write_bytes(gzip.compress(json.dumps({**before, name: kept}, sort_keys=True).encode(), mtime=0))
