"""An `Estimate` as JSON and back, by the versioned schema in `schema.json`.

1. Keys are the attributes of `Estimate`; sizes are integers in bytes, of any size.
2. Derived figures are written for readers and ignored when read: `naive.gradients`, `naive.sent_gradients`,
   `naive.optimizer_state`, `naive.inference`, `naive.training`, `naive.total`, `fits`, `verdict`, `at_least`,
   `allocated_range`, `reserved_range`, `device_range`, `headroom_bytes`, `samples_per_second` (by the step's
   time, by its greatest, by its least).
3. `schema` counts up only when a key changes its meaning or goes; new keys do not change it.
4. Names are written as they are: JSON escapes what a terminal must not see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from analyzer import __version__, files
from analyzer.errors import InputError, file_like
from analyzer.liveness.naive import Naive
from analyzer.report.checked import problem
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean
from analyzer.results.diagnosis import Fragmentation, Growth, Remedy, UnderSetting
from analyzer.results.estimate import (
    AfterRun,
    Allocations,
    Certainty,
    DeviceRow,
    Estimate,
    MarkRow,
    Origin,
    OutOfMemory,
    RankCourse,
    Room,
    SegmentRow,
    TensorRow,
    Timeline,
)
from analyzer.results.step_time import StepTime

SCHEMA = 1
_NAIVE_SUMS = ("gradients", "sent_gradients", "optimizer_state", "inference", "training", "total")
# Keys of the lists that sweep, fit, what-if, compare and advise write.
_OTHERS = ("rows", "fits", "strategies", "figures", "ways")


def to_dict(estimate: Estimate) -> dict[str, Any]:
    """Return the estimate in plain Python values, in the order of `Estimate`'s attributes."""
    document: dict[str, Any] = {"schema": SCHEMA, "analyzer": __version__}
    document |= _json_value(estimate)
    naive = estimate.naive
    document["naive"] |= {name: getattr(naive, name) for name in _NAIVE_SUMS}
    document["certainty"]["unknown_operators"] = {
        name: {"calls": calls, "bound_bytes": None}
        for name, calls in estimate.certainty.unknown_operators.items()
    }
    document["at_least"] = estimate.at_least
    document["fits"] = estimate.fits()
    document["verdict"] = estimate.verdict()
    document["allocated_range"] = list(estimate.allocated_range)
    document["reserved_range"] = list(estimate.reserved_range)
    document["device_range"] = list(estimate.device_range)
    speed = estimate.samples_per_second
    document["samples_per_second"] = None if speed is None else list(speed)
    document["headroom_bytes"] = estimate.usable_bytes - estimate.device_used
    return document


def render(estimate: Estimate, _: View = PLAIN) -> str:
    """Return the JSON text, one line for each key of the document."""
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in to_dict(estimate).items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_dict(document: Mapping[str, Any]) -> Estimate:
    """Return the estimate `to_dict` wrote. Raises InputError if `document` is none, or has another schema."""
    if not isinstance(document, Mapping) or "schema" not in document:
        raise InputError(
            "this is not an estimate: it has no 'schema'",
            "write one with: analyze TARGET --format json -o FILE",
        )
    if any(isinstance(document.get(name), list) for name in _OTHERS):
        raise InputError(
            "this is not an estimate but another command's result",
            "write one with: analyze TARGET --format json -o FILE",
        )
    if document["schema"] != SCHEMA:
        raise InputError(
            f"the estimate has schema {document['schema']!r}, this version reads {SCHEMA}",
            "make the estimate again with this version",
        )
    if wrong := problem(document):
        raise InputError(
            f"the estimate is damaged: {clean(wrong)}", "make it again: analyze TARGET --format json -o FILE"
        )
    try:
        values: dict[str, Any] = {
            field.name: document[field.name] for field in fields(Estimate) if field.name in document
        }
        values["naive"] = _row(Naive, document["naive"])
        values["marks"] = tuple(_row(MarkRow, row) for row in document["marks"])
        values["tensors"] = tuple(_row(TensorRow, row) for row in document["tensors"])
        values["timeline"] = _row(Timeline, document["timeline"])
        unknown = {name: entry["calls"] for name, entry in document["certainty"]["unknown_operators"].items()}
        values["certainty"] = _row(Certainty, {**document["certainty"], "unknown_operators": unknown})
        values["notes"] = tuple(document["notes"])
        if "allocations" in document:
            origins = tuple(_row(Origin, row) for row in document["allocations"]["origins"])
            values["allocations"] = _row(Allocations, {**document["allocations"], "origins": origins})
            values["segments"] = tuple(_row(SegmentRow, row) for row in document["segments"])
            values["iterations"] = tuple(document["iterations"])
        values["ranks"] = tuple(_row(RankCourse, row) for row in document.get("ranks", ()))
        values["refused"] = tuple(document.get("refused", ()))
        values["caveats"] = tuple(document.get("caveats", ()))
        if document.get("out_of_memory") is not None:
            values["out_of_memory"] = _row(OutOfMemory, document["out_of_memory"])
        if document.get("with_room") is not None:
            values["with_room"] = _row(Room, document["with_room"])
        if document.get("step_seconds") is not None:
            values["step_seconds"] = _row(StepTime, document["step_seconds"])
        if document.get("fragmentation") is not None:
            rows = tuple(_row(UnderSetting, row) for row in document["fragmentation"]["settings"])
            values["fragmentation"] = _row(Fragmentation, {**document["fragmentation"], "settings": rows})
        if document.get("growth") is not None:
            values["growth"] = _row(Growth, document["growth"])
        values["remedies"] = tuple(_row(Remedy, row) for row in document.get("remedies", ()))
        values["attempts"] = tuple(document.get("attempts", ()))
        values["devices"] = tuple(_row(DeviceRow, row) for row in document.get("devices", ()))
        values["after_runs"] = tuple(_row(AfterRun, row) for row in document.get("after_runs", ()))
        return Estimate(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the estimate is damaged: {error}", "make it again: analyze TARGET --format json -o FILE"
        ) from error


def read(path: Path) -> Estimate:
    """Return the estimate in a file. Raises InputError, with the file's name in it."""
    try:
        return loads(files.read_text(path))
    except files.UnreadableError as error:
        raise InputError(
            f"{path} cannot be read: {error}",
            f"{file_like(path)}write it with: analyze TARGET --format json -o FILE",
        ) from error
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error


def loads(text: str) -> Estimate:
    """Return the estimate in a JSON text. Raises InputError."""
    try:
        return from_dict(files.parse_json(text))
    except files.UnreadableError as error:
        raise InputError(
            f"this is not an estimate: {error}",
            "give a file written by: analyze TARGET --format json -o FILE",
        ) from error


def _row(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """`kind` from its own keys of `values`, lists as tuples."""
    field_names = {field.name for field in fields(kind)}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in field_names})


def _json_value(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_json_value(entry) for entry in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
