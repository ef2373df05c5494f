"""Who chose what, as recommenders' training scripts read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def sequences(folder: Path, name: str = "ml-1m.txt", users: int = 600, items: int = 3416) -> None:
    """A user and an item a line, in the order of time; every item comes at least once."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 200, users)
    drawn = rng.integers(1, items + 1, lengths.sum())
    drawn[:items] = rng.permutation(items) + 1
    owner = np.repeat(np.arange(1, users + 1), lengths)
    (folder / name).write_text("".join(f"{u} {i}\n" for u, i in zip(owner, drawn, strict=True)))


def lists(folder: Path, users: int = 2950, items: int = 4000) -> None:
    """train.txt and test.txt: a user and all the items it chose a line."""
    rng = np.random.default_rng(0)
    train, test = [], []
    for user in range(users):
        chosen = rng.choice(items, rng.integers(15, 60), replace=False)
        cut = len(chosen) * 4 // 5
        train.append(" ".join(map(str, [user, *chosen[:cut]])))
        test.append(" ".join(map(str, [user, *chosen[cut:]])))
    train[0] = f"{train[0]} {items - 1}"
    (folder / "train.txt").write_text("\n".join(train) + "\n")
    (folder / "test.txt").write_text("\n".join(test) + "\n")


def movielens(
    folder: Path, name: str = "ratings.dat", users: int = 6040, items: int = 3952, count: int = 40_000
) -> None:
    """A user, an item, its rating and the time a line, separated as MovieLens 1M has them."""
    rng = np.random.default_rng(0)
    chosen = zip(rng.integers(1, users + 1, count), rng.integers(1, items + 1, count), strict=True)
    lines = [
        f"{users}::{items}::5::978300760",
        *(f"{u}::{i}::{(u + i) % 5 + 1}::978300760" for u, i in chosen),
    ]
    (folder / name).write_text("\n".join(lines) + "\n")


def held_out(folder: Path, users: int = 6000, held: int = 1000, items: int = 20_108, each: int = 40) -> None:
    """unique_sid.txt, train.csv and, for users that are not in it, validation_tr.csv, validation_te.csv, test_tr.csv, test_te.csv."""
    rng = np.random.default_rng(0)
    (folder / "unique_sid.txt").write_text("\n".join(map(str, range(items))) + "\n")
    first = 0
    for name, count in (("train", users), ("validation", held), ("test", held)):
        rows = [(first + u, i) for u in range(count) for i in rng.choice(items, each, replace=False)]
        parts = {name: rows} if name == "train" else {f"{name}_tr": rows[::5], f"{name}_te": rows[1::5]}
        for part, chosen in parts.items():
            (folder / f"{part}.csv").write_text("uid,sid\n" + "".join(f"{u},{i}\n" for u, i in chosen))
        first += count
