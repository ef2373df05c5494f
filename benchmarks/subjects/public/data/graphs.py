"""Graphs of the sizes of those that papers use, with random edges, in the files that their readers open."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np


def _edges(nodes: int, edges: int, seed: int = 0) -> np.ndarray:
    """So many different pairs of two nodes, none twice."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, nodes, (edges * 2, 2))
    drawn = np.unique(np.sort(drawn[drawn[:, 0] != drawn[:, 1]], axis=1), axis=0)
    return drawn[rng.permutation(len(drawn))[:edges]]


def cora_content(folder: Path, nodes: int = 2708, features: int = 500, edges: int = 5429) -> None:
    """cora.content and cora.cites: a node's number, its words as 0 and 1, its class; and who cites whom."""
    rng = np.random.default_rng(0)
    classes = ["Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods"]
    classes += ["Reinforcement_Learning", "Rule_Learning", "Theory"]
    has = rng.random((nodes, features)) < 0.0127
    has[:, 0] = True  # rows are divided by their sums
    rows = (
        f"{1000 + node}\t" + "\t".join(map(str, has[node].astype(int))) + f"\t{classes[node % 7]}\n"
        for node in range(nodes)
    )
    (folder / "cora.content").write_text("".join(rows))
    (folder / "cora.cites").write_text("".join(f"{a + 1000}\t{b + 1000}\n" for a, b in _edges(nodes, edges)))


def planetoid(
    folder: Path, name: str = "Cora", nodes: int = 2708, features: int = 1433, classes: int = 7
) -> None:
    """FOLDER/Cora/raw/ind.cora.*: sparse words of the nodes, classes as 0 and 1, neighbours, which nodes are tested."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    words = sparse.csr_matrix((rng.random((nodes, features)) < 0.0127).astype(np.float32))
    told = np.eye(classes, dtype=np.int32)[np.arange(nodes) % classes]
    neighbours: dict[int, list[int]] = defaultdict(list)
    for a, b in _edges(nodes, 2 * nodes - 138):
        neighbours[int(a)].append(int(b))
        neighbours[int(b)].append(int(a))
    for node in range(nodes):
        neighbours[node] = neighbours[node]
    rest = nodes - 1000
    known = 20 * classes
    parts = {
        "x": words[:known], "tx": words[rest:], "allx": words[:rest],
        "y": told[:known], "ty": told[rest:], "ally": told[:rest], "graph": neighbours,
    }  # fmt: skip
    for part, value in parts.items():
        (raw / f"ind.{name.lower()}.{part}").write_bytes(pickle.dumps(value))
    (raw / f"ind.{name.lower()}.test.index").write_text(
        "".join(f"{n}\n" for n in rng.permutation(1000) + rest)
    )


def many(folder: Path, name: str = "MUTAG", graphs: int = 188, classes: int = 2, labels: int = 7) -> None:
    """FOLDER/MUTAG/raw/MUTAG_*.txt: many small graphs as the TU collection stores them."""
    rng = np.random.default_rng(0)
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    sizes = rng.integers(10, 29, graphs)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    pairs = [
        _edges(size, size + 2, seed) + start
        for seed, (size, start) in enumerate(zip(sizes, first, strict=True))
    ]
    both = np.concatenate([np.concatenate([pair, pair[:, ::-1]]) for pair in pairs]) + 1
    files = {
        "A": [f"{a}, {b}" for a, b in both],
        "graph_indicator": [str(number + 1) for number, size in enumerate(sizes) for _ in range(size)],
        "graph_labels": [str(number % classes) for number in range(graphs)],
        "node_labels": [str(label) for label in rng.integers(0, labels, sizes.sum())],
        "edge_labels": [str(label) for label in rng.integers(0, 4, len(both))],
    }
    for part, rows in files.items():
        (raw / f"{name}_{part}.txt").write_text("\n".join(rows) + "\n")


def triples(folder: Path, count: int = 30_000) -> None:
    """train.txt of a knowledge graph whose entities.dict, relations.dict, valid.txt and test.txt are there; these get shorter."""
    rng = np.random.default_rng(0)
    entities = [row.split("\t")[1] for row in (folder / "entities.dict").read_text().splitlines()]
    relations = [row.split("\t")[1] for row in (folder / "relations.dict").read_text().splitlines()]
    for name, rows in {"train.txt": count, "valid.txt": 64, "test.txt": 64}.items():
        heads, tails = rng.integers(0, len(entities), (2, rows))
        middle = rng.integers(0, len(relations), rows)
        text = (
            f"{entities[a]}\t{relations[r]}\t{entities[b]}\n"
            for a, r, b in zip(heads, middle, tails, strict=True)
        )
        (folder / name).write_text("".join(text))


def tagged(folder: Path, name: str = "MUTAG", graphs: int = 188, classes: int = 2, tags: int = 7) -> None:
    """FOLDER/MUTAG/MUTAG.txt: many small graphs, each with its nodes' tags and neighbours, as GIN's program reads them."""
    rng = np.random.default_rng(0)
    lines = [str(graphs)]
    for number, size in enumerate(rng.integers(10, 29, graphs)):
        neighbours: dict[int, list[int]] = {node: [] for node in range(size)}
        for a, b in _edges(int(size), int(size) + 2, number):
            neighbours[int(a)].append(int(b))
            neighbours[int(b)].append(int(a))
        lines.append(f"{size} {number % classes}")
        lines += [
            " ".join(map(str, [rng.integers(0, tags), len(near), *near])) for near in neighbours.values()
        ]
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.txt").write_text("\n".join(lines) + "\n")
