"""The rows of a grid as one table: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.report.csv import csv_records
from analyzer.report.formats import PLAIN, View


def render_csv(rows: Sequence[Mapping[str, Any]], _: View = PLAIN) -> str:
    """Return a CSV with one row for each job, in bytes, unknown values empty."""
    return csv_records(_columns(rows), rows)


def render_parquet(rows: Sequence[Mapping[str, Any]], _: View = PLAIN) -> bytes:
    """Return the same table as Parquet. Raises ModuleNotFoundError without pyarrow."""
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({name: [row[name] for row in rows] for name in _columns(rows)})
    pyarrow.parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(rows[0]) if rows else []
