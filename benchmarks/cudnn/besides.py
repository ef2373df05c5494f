"""Trees for what products an image take besides (`analyzer/libraries/cudnn/besides.py`): python -m benchmarks cudnn besides FILES

Of answers that `python -m benchmarks cudnn unlisted handle FILE --kind images` wrote on an H100; needs lightgbm
(`pip install lightgbm==4.7.0`). Counted is each convolution whose first plan is a product an image; every fifth is held
back: of these the command prints in what share the decision is right, and how many of those are right that are sure.
One of a thousand, held back, goes to `tests/data/h100/products_besides.json.gz`: the question's fields, and bytes besides.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import click
import numpy as np

from analyzer.libraries.cudnn.besides import features, group
from analyzer.libraries.cudnn.convolution import Question
from analyzer.libraries.cudnn.on_cublas import ENGINES, PRODUCT, is_single_product, product_bytes
from analyzer.libraries.cudnn.recorded import RELEASE
from benchmarks import ROOT
from benchmarks.cudnn.grow import PARAMETERS, answers, flat, judged
from benchmarks.cudnn.record import write

_HELD_BACK, _KEPT_OF = 5, 1000
# Few trees, and values of 8 significant bits, so that the wheel stays small: 120 trees of 63 leaves are right for 1 to 4 % more, in 450 KB more.
_LEAVES, _TREES, _RATE, _BITS = 40, 6, 0.6, 0xFFFF0000
_KEPT = ROOT / "tests/data/h100/products_besides.json.gz"


@click.command()
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
def main(files: tuple[Path, ...]) -> None:
    """Grow the trees."""
    import lightgbm

    found: dict[str, list[tuple[list[float], bool, bool]]] = defaultdict(list)
    kept, count = [], 0
    for call, plans in answers(files):
        engine, nbytes = plans[0]
        if engine != ENGINES[call.operation][PRODUCT] or is_single_product(call):
            continue
        besides = nbytes - (product_bytes(call) or 0)
        found[group(call)].append((features(call), besides > 0, count % _HELD_BACK == 0))
        if count % _KEPT_OF == 0:
            kept.append((Question.of(call).fields[1:10], besides))
        count += 1
    arrays: dict[str, np.ndarray] = {}
    for key, cells in sorted(found.items()):
        data, some, held = (np.array([cell[place] for cell in cells]) for place in range(3))
        booster = lightgbm.train(
            PARAMETERS | {"num_leaves": _LEAVES, "learning_rate": _RATE},
            lightgbm.Dataset(data[~held], some[~held]),
            _TREES,
        )
        shares = booster.predict(data[held])
        print(f"{key}: {some.sum()} of {len(some)} take some, {judged(shares, some[held])}", flush=True)
        arrays |= {f"{key}.{member}": array for member, array in flat(booster, _BITS).items()}
    about = {"cudnn": ".".join(map(str, RELEASE)), "method": __doc__ or "", "calls": str(count)}
    write(ROOT / "analyzer/libraries/cudnn/recorded/sm90.besides.npz", arrays, about)
    _KEPT.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
