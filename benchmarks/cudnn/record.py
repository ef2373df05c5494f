"""Convolutions for machines that have no cuDNN: asked here, by a GPU's description, and added to the recorded tables.

Run: `python -m benchmarks cudnn record CALLS.jsonl [--table sm89 ...]` with a cuDNN 9.19 within reach (`ANALYZER_PYTHON`). CALLS.jsonl has
one convolution a line, as `Convolution` has its fields, with "searcher" (default "pytorch"). A call a table has stays as it is. The
tables were begun with the answers of 23 November 2026 (an H200 by a handle; T4, A100, RTX 3090, 4090 and 5090 by their descriptions).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.devices import load
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import PYTORCH, Convolution, Plan, Question
from analyzer.libraries.cudnn.finding import library_for
from analyzer.libraries.cudnn.on_cublas import product_bytes
from analyzer.libraries.cudnn.plans import DEFAULT, ConvolutionSettings, passing
from analyzer.libraries.cudnn.recorded import (
    AS_FIRST,
    DETERMINISTIC,
    FIRST,
    NOT_ASKED,
    RELEASE,
    STRICT,
    TRIAL,
    member_of,
    record,
)
from benchmarks import ROOT

FOLDER = ROOT / "analyzer/libraries/cudnn/recorded"
# Whose description stands for each table.
GPUS = {
    "h200": "h200",
    "sm75": "t4",
    "sm80": "a100-80gb",
    "sm86": "rtx3090",
    "sm89": "rtx4090",
    "sm120": "rtx5090",
    "sm100": "b200",
}
_SETTINGS = {
    FIRST: DEFAULT,
    DETERMINISTIC: ConvolutionSettings(deterministic=True),
    STRICT: ConvolutionSettings(allow_tf32=False),
}
Cell = tuple[str, tuple[int, ...], int]  # dtype and layout, family, batch


def figures(plans: tuple[Plan, ...], dtype: str) -> dict[str, int]:
    """What a table keeps of a list of plans."""
    found = {}
    for figure, settings in _SETTINGS.items():
        chosen = passing(plans, dtype, settings)
        if chosen:
            found[figure] = chosen[0].workspace_bytes
    found[TRIAL] = max(plan.workspace_bytes for plan in plans)
    return {
        name: AS_FIRST if name != FIRST and nbytes == found[FIRST] else nbytes
        for name, nbytes in found.items()
    }


def added(
    name: str, answers: Mapping[tuple[Cell, str], Mapping[str, int]]
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a table with more answers: (cell, operation) to figure to bytes."""
    table = record(name)
    old = {} if table is None else dict(np.load(FOLDER / f"{name}.npz"))
    rows: dict[Cell, dict[str, int]] = {}
    families = [tuple(row) for row in old["family"].tolist()] if old else []
    for group in {member.removesuffix(".batch") for member in old if member.endswith(".batch")}:
        members = [
            member
            for member in old
            if member.startswith(f"{group}.") and not member.endswith((".family", ".batch"))
        ]
        places = zip(old[f"{group}.family"].tolist(), old[f"{group}.batch"].tolist(), strict=True)
        for place, (family, batch) in enumerate(places):
            cell = rows.setdefault((group, families[family], batch), {})
            cell |= {member: int(old[member][place]) for member in members if old[member][place] != NOT_ASKED}
    for (cell_, operation), found in answers.items():
        cell = rows.setdefault(cell_, {})
        for figure, nbytes in found.items():
            cell.setdefault(member_of(cell_[0], operation, figure), nbytes)
    numbers = {family: number for number, family in enumerate(sorted({family for _, family, _ in rows}))}
    arrays: dict[str, np.ndarray[Any, Any]] = {"family": np.array(list(numbers), np.int32)}
    for group in sorted({group for group, *_ in rows}):
        cells = sorted((numbers[family], batch, family) for one, family, batch in rows if one == group)
        arrays[f"{group}.family"] = np.array([number for number, *_ in cells], np.int32)
        arrays[f"{group}.batch"] = np.array([batch for _, batch, _ in cells], np.int32)
        found_here = [rows[group, family, batch] for _, batch, family in cells]
        for member in sorted({member for cell in found_here for member in cell}):
            arrays[member] = np.array([cell.get(member, NOT_ASKED) for cell in found_here], np.int64)
    return arrays


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, str]) -> None:
    """A table that `Record` reads, packed with LZMA: `numpy.load` reads it as it reads deflated ones, and it is half as large."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for name, array in {**arrays, "about": np.array(json.dumps(dict(about)))}.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def asked(gpu: str, questions: Iterable[Question]) -> Iterable[tuple[Question, tuple[Plan, ...]]]:
    """The questions cuDNN answers for a GPU, with a handle's bytes; those whose answer is no more than a range are left out."""
    profile, library = load(gpu), library_for((2, 11))
    if library is None or library.release != RELEASE:
        raise click.ClickException(
            "no cuDNN 9.19 within reach: name an environment that has it in ANALYZER_PYTHON"
        )
    every = [question for question in questions if product_bytes(question.call) is None]
    asker, choices = (
        Asker(library, json.dumps(dict(profile.cudnn_device), sort_keys=True)),
        choices_of(profile),
    )
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
        questions[
            Question.of(Convolution.read(fields), whole=searcher == PYTORCH)._replace(searcher=searcher)
        ] = None
    for name in tables:
        for frontend in (False, True):
            answers: dict[tuple[Cell, str], dict[str, int]] = {}
            wanted = [question for question in questions if (question.searcher != PYTORCH) is frontend]
            for question, plans in asked(GPUS[name], wanted):
                call = question.call
                cell = (
                    f"{call.dtype}.{'nhwc' if call.channels_last else 'nchw'}",
                    call.family,
                    call.x_shape[0],
                )
                found = (
                    {question.searcher: plans[0].workspace_bytes} if frontend else figures(plans, call.dtype)
                )
                answers.setdefault((cell, call.operation), {}).update(found)
            if answers:
                file = f"{name}.frontend" if frontend else name
                before = record(file)
                about = {
                    "gpu": load(GPUS[name]).cudnn_device["deviceName"],
                    "cudnn": "9.19.0",
                    "method": __doc__ or "",
                }
                write(FOLDER / f"{file}.npz", added(file, answers), before.about if before else about)
                print(f"{file}: {len(answers)} calls")
