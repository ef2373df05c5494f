"""Texts nobody wrote: words, characters, tokens and lines in the files that language models' training scripts read.

Every maker is deterministic. Words are "wN"; how often one comes falls off as in real text, so a vocabulary has a head and a tail.
"""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

_LETTERS = "".join(map(chr, range(32, 127))) + "\n" + " etaoinshrdlu" * 8


def _words(count: int, vocabulary: int, seed: int = 0) -> list[str]:
    """`count` words; the first `vocabulary` of them hold each word once, so that its size is known."""
    rng = np.random.default_rng(seed)
    drawn = rng.zipf(1.3, count) % vocabulary
    drawn[: min(vocabulary, count)] = rng.permutation(vocabulary)[:count]
    return [f"w{number}" for number in drawn]


def words(folder: Path, sizes: dict[str, int] | None = None, vocabulary: int = 2000, line: int = 20) -> None:
    """Text files of so many words each, `line` to a line."""
    for seed, (name, count) in enumerate(
        (sizes or {"train.txt": 60_000, "valid.txt": 6_000, "test.txt": 6_000}).items()
    ):
        text = _words(count, vocabulary, seed)
        lines = [" ".join(text[at : at + line]) for at in range(0, count, line)]
        (folder / name).write_text("\n".join(lines) + "\n")


def characters(folder: Path, sizes: dict[str, int] | None = None) -> None:
    """Text files of so many characters each; a name that ends in .gz is packed."""
    for seed, (name, count) in enumerate((sizes or {"input.txt": 100_000}).items()):
        letters = np.random.default_rng(seed).choice(list(_LETTERS), count)
        raw = "".join(letters).encode()
        (folder / name).write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)


def enwik8(folder: Path, name: str = "enwik8.gz", count: int = 90_200_000) -> None:
    """As many characters as programs expect that train on the first 90 million of enwik8: one random million, again and again."""
    block = "".join(np.random.default_rng(0).choice(list(_LETTERS), 1_000_000)).encode()
    with gzip.GzipFile(folder / name, "wb", compresslevel=1, mtime=0) as packed:
        for at in range(0, count, len(block)):
            packed.write(block[: count - at])


def headlines(folder: Path, name: str = "train.txt", rows: int = 3000, classes: int = 10) -> None:
    """A Chinese headline and its class a line, separated by a tabulator."""
    rng = np.random.default_rng(0)
    lines = (
        "".join(map(chr, rng.integers(0x4E00, 0x5600, rng.integers(12, 28)))) + f"\t{row % classes}\n"
        for row in range(rows)
    )
    (folder / name).write_text("".join(lines), encoding="utf-8")


def tokens(
    folder: Path, sizes: dict[str, int] | None = None, vocabulary: int = 50_257, vocabulary_file: bool = False
) -> None:
    """Token numbers as nanoGPT and its kin store them: uint16, raw (.bin) or as an array (.npy); with `vocabulary_file` also the
    meta.pkl of a character vocabulary."""
    for seed, (name, count) in enumerate((sizes or {"train.bin": 200_000, "val.bin": 50_000}).items()):
        drawn = np.random.default_rng(seed).integers(0, vocabulary, count).astype(np.uint16)
        if name.endswith(".npy"):
            np.save(folder / name, drawn)
        else:
            drawn.tofile(folder / name)
    if vocabulary_file:
        stoi = {chr(33 + number): number for number in range(vocabulary)}
        meta = {"vocab_size": vocabulary, "stoi": stoi, "itos": {v: k for k, v in stoi.items()}}
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def sentence_pairs(folder: Path, name: str = "corpus.txt", lines: int = 1000, vocabulary: int = 500) -> None:
    """Two sentences a line, separated by a tabulator."""
    text = _words(lines * 16, vocabulary)
    made = (text[at : at + 16] for at in range(0, lines * 16, 16))
    (folder / name).write_text("".join(" ".join(row[:8]) + "\t" + " ".join(row[8:]) + "\n" for row in made))


def hellaswag(folder: Path, rows: int = 4) -> None:
    """Questions with four endings, as hellaswag_val.jsonl holds them."""
    text = _words(rows * 100, 300)
    made: list[dict[str, Any]] = []
    for at in range(0, rows * 100, 100):
        endings = [" ".join(text[at + 30 + 10 * k : at + 40 + 10 * k]) for k in range(4)]
        made.append(
            {"ctx": " ".join(text[at : at + 30]), "label": at // 100 % 4, "endings": endings, "ind": at}
        )
    (folder / "hellaswag_val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))


def names(folder: Path, name: str = "names.txt", count: int = 5000) -> None:
    """One lower-case name a line, 3 to 12 letters."""
    rng = np.random.default_rng(0)
    rows = (
        "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(3, 13))) for _ in range(count)
    )
    (folder / name).write_text("\n".join(rows) + "\n")


def bert_vocabulary(folder: Path, corpus: str = "corpus.txt", name: str = "vocab.small") -> None:
    """The pickled vocabulary of a corpus, as BERT-pytorch's own `bert-vocab` makes it: of the class in its repository."""
    import sys

    sys.path.insert(0, str(next(parent for parent in folder.parents if (parent / "bert_pytorch").is_dir())))
    from bert_pytorch.dataset.vocab import WordVocab  # type: ignore[import-not-found]

    with (folder / corpus).open() as rows:
        WordVocab(rows).save_vocab(str(folder / name))


def console_script(folder: Path, name: str, module: str, function: str) -> None:
    """What pip would make of a package's entry point."""
    (folder / name).write_text(f"from {module} import {function}\n\n{function}()\n")


def llmc_tokens(folder: Path, sizes: dict[str, int] | None = None, vocabulary: int = 50_257) -> None:
    """Token numbers as llm.c stores them: a header of 256 numbers (20240520, 1, how many), then uint16."""
    for seed, (name, count) in enumerate((sizes or {"train.bin": 200_000}).items()):
        head = np.zeros(256, np.int32)
        head[:3] = 20240520, 1, count
        drawn = np.random.default_rng(seed).integers(0, vocabulary, count).astype(np.uint16)
        (folder / name).write_bytes(head.tobytes() + drawn.tobytes())


def chats(
    folder: Path, name: str = "chats.jsonl", kind: str = "text", rows: int = 256, words: int = 120
) -> None:
    """Lines of JSON: a "text" each; or "conversations" of two turns; or two such, "chosen" and "rejected"."""
    text = _words(rows * words * 2, 3000)
    lines = []
    for at in range(0, rows * words * 2, words * 2):
        asked, told = (" ".join(text[at + k * words : at + (k + 1) * words]) for k in (0, 1))
        turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]
        other = [turns[0], {"role": "assistant", "content": asked}]
        row: dict[str, Any] = {"text": told}
        row = {"conversations": turns} if kind == "conversations" else row
        row = {"chosen": turns, "rejected": other} if kind == "preferences" else row
        lines.append(json.dumps(row))
    (folder / name).write_text("\n".join(lines) + "\n")
