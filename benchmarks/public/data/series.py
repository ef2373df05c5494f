"""Measurements over time, as forecasting scripts read them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np


def hourly(
    folder: Path, name: str = "ETTh1.csv", rows: int = 14_400, first: str = "2016-07-01 00:00:00"
) -> None:
    """A date and seven columns an hour, the last of them "OT"."""
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=(rows, 7)), axis=0)
    start = datetime.fromisoformat(first)
    lines = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    for row in range(rows):
        when = start + timedelta(hours=row)
        lines.append(f"{when}," + ",".join(f"{value:.4f}" for value in values[row]))
    (folder / name).write_text("\n".join(lines) + "\n")


def columns(folder: Path, name: str = "electricity.csv", rows: int = 4000, count: int = 321) -> None:
    """A date and `count` columns an hour, the last of them "OT"."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, count))
    start = datetime(2016, 7, 1)
    lines = ["date," + ",".join([*map(str, range(count - 1)), "OT"])]
    for row in range(rows):
        lines.append(f"{start + timedelta(hours=row)}," + ",".join(f"{value:.3f}" for value in values[row]))
    (folder / name).write_text("\n".join(lines) + "\n")
