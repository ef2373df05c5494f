"""Clouds of points, in the files of the collections that point networks are trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def modelnet_normals(folder: Path, train: int = 48, test: int = 24, points: int = 1200) -> None:
    """modelnet40_normal_resampled: SHAPE/SHAPE_0001.txt of x, y, z and a normal a line, with the lists of names."""
    rng = np.random.default_rng(0)
    shapes = [f"shape{chr(97 + k // 26)}{chr(97 + k % 26)}" for k in range(40)]
    for classes in (10, 40):
        (folder / f"modelnet{classes}_shape_names.txt").write_text("\n".join(shapes[:classes]) + "\n")
        told: dict[str, list[str]] = {"train": [], "test": []}
        for part, count in (("train", train), ("test", test)):
            for number in range(count):
                shape = shapes[number % classes]
                name = f"{shape}_{number + 5000 * (part == 'test'):04d}"
                (folder / shape).mkdir(exist_ok=True)
                np.savetxt(folder / shape / f"{name}.txt", rng.normal(size=(points, 6)), "%.5f", ",")
                told[part].append(name)
        for part, names in told.items():
            (folder / f"modelnet{classes}_{part}.txt").write_text("\n".join(names) + "\n")


def shapenet(folder: Path, train: int = 96, test: int = 32, points: int = 3000) -> None:
    """shapenetcore_partanno: points/*.pts and points_label/*.seg of categories, with the lists of the split."""
    rng = np.random.default_rng(0)
    categories = {"Airplane": "02691156", "Chair": "03001627", "Table": "04379243"}
    (folder / "synsetoffset2category.txt").write_text("".join(f"{n}\t{c}\n" for n, c in categories.items()))
    split = folder / "train_test_split"
    split.mkdir(exist_ok=True)
    number = 0
    for part, count in (("train", train), ("test", test), ("val", test)):
        names = []
        for _ in range(count):
            category = list(categories.values())[number % 3]
            (folder / category / "points").mkdir(parents=True, exist_ok=True)
            (folder / category / "points_label").mkdir(exist_ok=True)
            np.savetxt(folder / category / "points" / f"m{number}.pts", rng.normal(size=(points, 3)), "%.5f")
            np.savetxt(
                folder / category / "points_label" / f"m{number}.seg", rng.integers(1, 5, points), "%d"
            )
            names.append(f"shape_data/{category}/m{number}")
            number += 1
        (split / f"shuffled_{part}_file_list.json").write_text(json.dumps(names))


def modelnet_hdf5(folder: Path, train: int = 96, test: int = 48) -> None:
    """modelnet40_ply_hdf5_2048: points and classes."""
    import h5py

    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", test)):
        with h5py.File(folder / f"ply_data_{part}0.h5", "w") as file:
            file["data"] = rng.normal(size=(count, 2048, 3)).astype(np.float32)
            file["label"] = rng.integers(0, 40, (count, 1)).astype(np.uint8)


def omniglot_array(folder: Path, characters: int = 1623, size: int = 28) -> None:
    """omniglot.npy: twenty drawings of every character, as MAML's script keeps them once it has read them."""
    drawings = np.random.default_rng(0).random((characters, 20, 1, size, size))
    np.save(folder / "omniglot.npy", drawings.astype(np.float32))


def signed_distances(folder: Path, shapes: int = 16, points: int = 40_000) -> None:
    """SdfSamples/made/0/SHAPE.npz, points inside and outside of a shape with their distance, and split.json, as DeepSDF reads them."""
    rng = np.random.default_rng(0)
    place = folder / "SdfSamples/made/0"
    place.mkdir(parents=True, exist_ok=True)
    for n in range(shapes):
        drawn = rng.normal(0, 0.5, (points, 3))
        distance = np.linalg.norm(drawn, axis=1) - rng.uniform(0.4, 0.8)
        rows = np.concatenate([drawn, distance[:, None]], 1).astype(np.float32)
        np.savez(place / f"shape{n}.npz", pos=rows[distance > 0], neg=rows[distance <= 0])
    (folder / "split.json").write_text(json.dumps({"made": {"0": [f"shape{n}" for n in range(shapes)]}}))
