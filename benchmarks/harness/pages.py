"""What pages say alike: tables, how near predictions are, and the parts of a page that commands write.

A part stands between two marks, `<!-- NAME: written by ... -->` and `<!-- /NAME -->`; what is around them is written by people.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MIB = 2**20
# What is predicted of a run, and what a row of `recorded_run.py` calls it.
FIGURES = {"allocated": "peak_allocated", "reserved": "peak_reserved", "device": "nvml_peak"}
EXACTNESS = ("figure", "byte-exact", "median %", "95th percentile %", "maximum %")


def prose(module: str) -> dict[str, str]:
    """The fixed texts of a page, by section, from the Markdown file beside the module that writes it."""
    text = Path(module).with_suffix(".md").read_text(encoding="utf-8")
    _, *found = re.split(r"^<!-- section: (\w+) -->\n", text, flags=re.M)
    return {name: said.removesuffix("\n") for name, said in zip(found[::2], found[1::2], strict=True)}


def table(head: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    """A Markdown table; align: a letter a column, "r" for numbers that stand to the right, which the others need not say."""
    line = "".join("--:|" if letter == "r" else "---|" for letter in align.ljust(len(head)))
    body = ("| " + " | ".join(map(str, row)) + " |" for row in rows)
    return "\n".join([f"| {' | '.join(head)} |", f"|{line}", *body]) + "\n"


def spread(errors: Iterable[float]) -> tuple[int, float, float, float]:
    """Of errors' sizes: how many are none, the median, the 95th percentile and the largest."""
    sizes = sorted(map(abs, errors))
    far = sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]
    return sizes.count(0), statistics.median(sizes), far, sizes[-1]


def exactness(errors: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Rows under `EXACTNESS` for each figure's errors in percent."""
    rows = []
    for name, some in errors.items():
        exact, *sizes = spread(some)
        rows.append([name, f"{exact} of {len(some)}", *(f"{size:.3f}" for size in sizes)])
    return rows


def off(found: float, measured: float) -> str:
    """How far a prediction is from what was measured: "exact", or "+1.20 %"."""
    return "exact" if found == measured else f"{100 * (found / measured - 1):+.2f} %"


def beside(found: float, measured: float) -> str:
    """Two cells for figures in bytes: MiB measured, and how far the prediction is from it."""
    return f"{measured / MIB:,.1f} | {off(found, measured)}"


def errors(found: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    """How far each of `FIGURES` is from what was measured, in percent; what failed ("error") counts as 100."""
    return {
        name: 100.0 if "error" in found else 100 * (found[name] / row[measured] - 1)
        for name, measured in FIGURES.items()
    }


def cells(found: Mapping[str, Any], row: Mapping[str, Any], failed: str) -> str:
    """Two cells for each of `FIGURES`; failed: the word where nothing was predicted."""
    return " | ".join(
        f"{row[measured] / MIB:,.1f} | {failed}" if "error" in found else beside(found[name], row[measured])
        for name, measured in FIGURES.items()
    )


def summary(all_errors: Sequence[Mapping[str, float]]) -> str:
    """A table: of each figure how many are exact, and the middle and far end of the errors in percent."""
    return table(EXACTNESS, exactness({name: [each[name] for each in all_errors] for name in FIGURES}))


def _marks(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: [^>]*-->\n)(.*?)(<!-- /{name} -->)", re.S)


def part(page: Path, name: str) -> str:
    """A part as it stands in the page, without its marks."""
    found = _marks(name).search(page.read_text(encoding="utf-8"))
    assert found, f"{page} has no part {name}"
    return found[2]


def write_part(page: Path, name: str, text: str) -> None:
    """The page with the part anew; what is around it stays."""
    part(page, name)
    text = text if text.endswith("\n") else text + "\n"
    new = _marks(name).sub(lambda found: f"{found[1]}{text}{found[3]}", page.read_text(encoding="utf-8"))
    page.write_text(new, encoding="utf-8")
