"""What each strategy saves, predicted and measured on this machine's GPU: a row a strategy, for the committed record.

    PYTHONPATH=. python benchmarks/what_if.py -o tests/data/h200/what_if.json

Every strategy `analyze what-if` names for RetinaNet, ViT and GPT-2 is run by `analyzer.verify` in a process of its own
(three steps, random weights). Needs an NVIDIA GPU and the packages the models need; about a minute a strategy. `--check`
needs no GPU: it compares a record with today's predictions and exits with 1 when a saving is off by more than 0.5 % of the
base's device memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
JOBS: dict[str, dict[str, Any]] = {
    "retinanet_r50_fpn.py": {"batch": 8, "mode": "train", "optimizer": "adam"},
    "vit_b_16.py": {"batch": 64, "mode": "train", "optimizer": "adamw"},
    "gpt2.py": {"batch": 16, "mode": "train", "optimizer": "adamw"},
}
FIGURES = ("peak_allocated", "peak_reserved", "device_used")
ALLOWED = 0.005


def predicted() -> list[dict[str, Any]]:
    """A row a model and strategy."""
    from analyzer.planning.what_if import what_if

    rows = []
    for name, options in JOBS.items():
        for strategy in what_if(ROOT / "models" / name, device="h200", **options):
            row = {"model": name, "strategy": strategy.name, "options": {**options, **strategy.changes}}
            if strategy.estimate is not None:
                row["predicted"] = {figure: getattr(strategy.estimate, figure) for figure in FIGURES}
            rows.append(row | ({"error": strategy.error} if strategy.error else {}))
    return rows


def measure(rows: list[dict[str, Any]], output: Path) -> None:
    """Adds `measured` to each row, writing the record after each; rows the record has already are not run again."""
    from analyzer.verify import verify

    before = json.loads(output.read_text()) if output.exists() else []
    known = {(row["model"], row["strategy"]): row for row in before if "measured" in row}
    for row in rows:
        if "predicted" not in row:
            continue
        if (row["model"], row["strategy"]) in known:
            row.update(known[row["model"], row["strategy"]])
            continue
        try:
            result = verify(ROOT / "models" / row["model"], graph=False, **row["options"])
        except Exception as error:  # a strategy that does not run is part of the record
            row["error"] = f"{type(error).__name__}: {error}"
        else:
            row["measured"] = {figure.name: figure.measured for figure in result.figures}
            row["environment"] = dict(result.environment)
        print(
            f"{row['model']:<24} {row['strategy']:<50} {row.get('measured') or row.get('error')}", flush=True
        )
        done = [entry for entry in rows if "measured" in entry or "error" in entry]
        output.write_text(json.dumps(done, indent=1) + "\n")


def check(record: list[dict[str, Any]]) -> int:
    """Savings of today's predictions beside the record's measurements; how many are off by more than `ALLOWED`."""
    today = {(row["model"], row["strategy"]): row.get("predicted") for row in predicted()}
    base = {row["model"]: row for row in record if row["strategy"] == "as it is"}
    off = 0
    for row in record:
        ours = today.get((row["model"], row["strategy"]))
        if ours is None or "measured" not in row:
            continue
        first = base[row["model"]]
        whole = _device(first["measured"])
        measured = whole - _device(row["measured"])
        told = today[row["model"], "as it is"]
        assert told is not None
        saved = told["device_used"] - ours["device_used"]
        error = (saved - measured) / whole
        off += abs(error) > ALLOWED
        print(
            f"{row['model']:<24} {row['strategy']:<50} saves {saved:>15,} measured {measured:>15,} {100 * error:+.2f} %"
        )
    return off


def _device(figures: dict[str, int]) -> int:
    """Device memory, by the name `verify` gives it."""
    return next(value for name, value in figures.items() if name.startswith("device"))


def main() -> int:
    """See the module docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "tests" / "data" / "h200" / "what_if.json"
    )
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        return int(check(json.loads(given.output.read_text())) > 0)
    measure(predicted(), given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
