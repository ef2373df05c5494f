"""Convolutions for machines that have no cuDNN: asked here, by a GPU's description, and added to the recorded tables.

Run: `python -m benchmarks cudnn record CALLS.jsonl [--table sm89 ...]` with a cuDNN 9.19 within reach (`ANALYZER_PYTHON`). CALLS.jsonl has
one convolution a line, as `Convolution` has its fields, with "searcher" (default "pytorch"). A call a table has stays as it is. The
tables were begun with the answers of 23 November 2026 (an H200 by a handle; T4, A100, RTX 3090, 4090 and 5090 by their descriptions).
"""

from __future__ import annotations

import itertools
import json
import lzma
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np

from analyzer.devices import load
from analyzer.libraries.cudnn import recorded
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import OPERATIONS, PYTORCH, Convolution, Plan, Question
from analyzer.libraries.cudnn.finding import library_for
from analyzer.libraries.cudnn.on_cublas import product_bytes
from analyzer.libraries.cudnn.plans import DEFAULT, ConvolutionSettings, passing
from analyzer.libraries.cudnn.recorded import RELEASE, member_of, record
from benchmarks import ROOT

FOLDER = ROOT / "analyzer/libraries/cudnn/recorded"
# Whose description stands for each table.
GPUS = {
    "h200": "h200", "sm75": "t4", "sm80": "a100-80gb", "sm86": "rtx3090", "sm89": "rtx4090",
    "sm120": "rtx5090", "sm100": "b200",
}  # fmt: skip
_SETTINGS = {
    recorded.FIRST: DEFAULT,
    recorded.DETERMINISTIC: ConvolutionSettings(deterministic=True),
    recorded.STRICT: ConvolutionSettings(allow_tf32=False),
}
# What often takes as much as the largest trial with the default settings.
_LIKE_TRIAL = (recorded.TRIALS[recorded.DETERMINISTIC], recorded.TRIALS[recorded.STRICT], recorded.TIMED)
# Bytes by the file's member, of each dtype and layout, family, batch.
Cell = tuple[str, tuple[int, ...], int]
Rows = dict[Cell, dict[str, int]]


def figures(question: Question, plans: tuple[Plan, ...]) -> dict[str, int]:
    """What a table keeps of a list of plans."""
    first = plans[0].workspace_bytes
    if question.searcher != PYTORCH:
        return {question.searcher: first}
    chosen = {figure: passing(plans, question.call.dtype, settings) for figure, settings in _SETTINGS.items()}
    found = {figure: kept[0].workspace_bytes for figure, kept in chosen.items() if kept}
    found[recorded.TRIALS[recorded.FIRST]] = max(plan.workspace_bytes for plan in plans)
    return {
        name: recorded.AS_FIRST if name != recorded.FIRST and nbytes == first else nbytes
        for name, nbytes in found.items()
    }


def rows_of(name: str) -> Rows:
    """What a table has."""
    if record(name) is None:
        return {}
    table, rows = np.load(FOLDER / f"{name}.npz"), Rows()
    families = [tuple(row) for row in table["family"].tolist()]
    for group in (member.removesuffix(".batch") for member in table if member.endswith(".batch")):
        places = zip(table[f"{group}.family"].tolist(), table[f"{group}.batch"].tolist(), strict=True)
        cells = [rows.setdefault((group, families[family], batch), {}) for family, batch in places]
        for member in table:
            if member.startswith(f"{group}.") and not member.endswith((".family", ".batch")):
                for cell, nbytes in zip(cells, table[member].tolist(), strict=True):
                    if nbytes != recorded.NOT_ASKED:
                        cell[member] = nbytes
    return rows


def arrays_of(rows: Rows) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a table."""
    numbers = {family: number for number, family in enumerate(sorted({family for _, family, _ in rows}))}
    arrays: dict[str, np.ndarray[Any, Any]] = {"family": np.array(list(numbers), np.int32)}
    for group in sorted({group for group, *_ in rows}):
        cells = sorted((family, batch) for one, family, batch in rows if one == group)
        arrays[f"{group}.family"] = np.array([numbers[family] for family, _ in cells], np.int32)
        arrays[f"{group}.batch"] = np.array([batch for _, batch in cells], np.int32)
        found = [rows[group, *cell] for cell in cells]
        for member in sorted({member for cell in found for member in cell}):
            arrays[member] = np.array([cell.get(member, recorded.NOT_ASKED) for cell in found], np.int64)
        for operation, figure in itertools.product(OPERATIONS, _LIKE_TRIAL):
            member = member_of(group, operation, figure)
            trial = arrays.get(member_of(group, operation, recorded.TRIALS[recorded.FIRST]))
            if trial is not None and member in arrays:  # LZMA packs each member alone
                alike = (arrays[member] == trial) & (trial > recorded.NOT_ASKED)
                arrays[member][alike] = recorded.AS_TRIAL
    return arrays


class _Numbers(zipfile.LZMACompressor):  # type: ignore[misc]
    """LZMA told that what it packs are numbers of eight bytes, and given its time: a tenth less than zipfile's own."""

    def _init(self) -> bytes:
        told = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 3, "pb": 3}
        properties = lzma._encode_filter_properties(told)  # type: ignore[attr-defined]
        self._comp = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[told])
        return struct.pack("<BBH", 9, 4, len(properties)) + properties


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, str]) -> None:
    """A table that `Record` reads, packed with LZMA: `numpy.load` reads it as it reads deflated ones, and it is half as large."""
    packing = mock.patch.object(zipfile, "LZMACompressor", _Numbers)
    with packing, zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for name, array in {**arrays, "about": np.array(json.dumps(dict(about)))}.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def asked(gpu: str, questions: Iterable[Question]) -> Iterator[tuple[Question, tuple[Plan, ...]]]:
    """The questions cuDNN answers for a GPU, with a handle's bytes; those whose answer is no more than a range are left out."""
    profile, library = load(gpu), library_for((2, 11))
    if library is None or library.release != RELEASE:
        raise click.ClickException(
            "no cuDNN 9.19 within reach: name an environment that has it in ANALYZER_PYTHON"
        )
    every = [question for question in questions if product_bytes(question.call) is None]
    asker = Asker(library, json.dumps(dict(profile.cudnn_device), sort_keys=True))
    choices = choices_of(profile)
    for question, answer in zip(every, asker.ask(every), strict=True):
        plans = tuple(choices.by_handle(question.call, plan) for plan in answer or ())
        if plans and not plans[0].knobs:
            yield question, plans


@click.command()
@click.argument("calls", type=click.Path(exists=True, path_type=Path))
@click.option("--table", "tables", multiple=True, default=tuple(GPUS), show_default=True)
def main(calls: Path, tables: tuple[str, ...]) -> None:
    """Ask for every call and add the answers to the tables."""
    questions: dict[Question, None] = {}
    for line in calls.read_text().splitlines():
        fields = json.loads(line)
        searcher = fields.pop("searcher", PYTORCH)
        call = Convolution.read(fields)
        questions[Question(call, call.y_shape, searcher, whole=searcher == PYTORCH)] = None
    for name in tables:
        for file, frontend in ((name, False), (f"{name}.frontend", True)):
            answers = Rows()
            wanted = [question for question in questions if (question.searcher != PYTORCH) is frontend]
            for question, plans in asked(GPUS[name], wanted):
                call = question.call
                group = f"{call.dtype}.{'nhwc' if call.channels_last else 'nchw'}"
                found = answers.setdefault((group, call.family, call.x_shape[0]), {})
                for figure, nbytes in figures(question, plans).items():
                    found[member_of(group, call.operation, figure)] = nbytes
            if answers:
                rows, before = rows_of(file), record(file)
                rows |= {cell: found | rows.get(cell, {}) for cell, found in answers.items()}
                gpu = load(GPUS[name]).cudnn_device["deviceName"]
                about = {"gpu": gpu, "cudnn": "9.19.0", "method": __doc__ or ""}
                write(FOLDER / f"{file}.npz", arrays_of(rows), before.about if before else about)
                print(f"{file}: {len(answers)} calls")
