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


def traffic(
    folder: Path, rows: int = 640, nodes: int = 207, length: int = 12, adjacency: str = "adj_mx.pkl"
) -> None:
    """train.npz, val.npz and test.npz of speeds at sensors (x and y of `length` steps, speed and time of day), and who is near whom."""
    import pickle

    rng = np.random.default_rng(0)
    for part, count in (("train", rows), ("val", rows // 5), ("test", rows // 5)):
        x, y = (rng.uniform(0, 70, (count, length, nodes, 2)).astype(np.float32) for _ in range(2))
        np.savez(folder / f"{part}.npz", x=x, y=y)
    near = (rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < 0.1)).astype(np.float32)
    np.fill_diagonal(near, 1)
    names = [str(n) for n in range(nodes)]
    (folder / adjacency).write_bytes(pickle.dumps((names, {name: n for n, name in enumerate(names)}, near)))


def anomalies(folder: Path, rows: int = 6000, count: int = 25) -> None:
    """train.csv, test.csv and test_label.csv of a server's measurements, as PSM has them: the time in the first column."""
    rng = np.random.default_rng(0)
    names = ",".join(["timestamp", *(f"feature_{n}" for n in range(count))])
    for name in ("train.csv", "test.csv"):
        values = np.concatenate([np.arange(rows)[:, None], rng.normal(size=(rows, count))], 1)
        np.savetxt(folder / name, values, "%.4f", ",", header=names, comments="")
    labels = np.stack([np.arange(rows), rng.random(rows) < 0.1], 1)
    np.savetxt(folder / "test_label.csv", labels, "%d", ",", header="timestamp,label", comments="")


def labelled_tsv(
    folder: Path, name: str = "Made", rows: int = 120, length: int = 400, classes: int = 4
) -> None:
    """NAME/NAME_TRAIN.tsv and NAME_TEST.tsv: a class and a series a line, as the UCR archive has them."""
    rng = np.random.default_rng(0)
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part in ("TRAIN", "TEST"):
        values = np.concatenate([(np.arange(rows) % classes)[:, None], rng.normal(size=(rows, length))], 1)
        np.savetxt(folder / name / f"{name}_{part}.tsv", values, "%.5f", "\t")
