"""What pages say alike: tables, how near predictions are, and the parts of a page that commands write.

A part stands between two marks, `<!-- NAME: written by ... -->` and `<!-- /NAME -->`; what is around them is written by people.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
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


def shown(value: object) -> str:
    """A value as it is kept, numbers with four digits."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={shown(some)}" for key, some in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def records(rows: Sequence[Mapping[str, object]]) -> str:
    """A table of rows as they are kept."""
    return table(list(rows[0]), [map(shown, row.values()) for row in rows])


def spread(errors: Iterable[float]) -> tuple[int, float, float, float]:
    """Of errors' sizes: how many are none, the median, the 95th percentile and the largest."""
    sizes = sorted(map(abs, errors))
    far = sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]
    return sizes.count(0), statistics.median(sizes), far, sizes[-1]


def middle_and_far(errors: Iterable[float]) -> str:
    """ "4.3% / 20.5%": the median and the 95th percentile of errors' sizes, as parts of what was measured."""
    known = list(errors)
    _, middle, far, _ = spread(known or [0.0])
    return f"{middle:.1%} / {far:.1%}" if known else ""


def worst(rows: Iterable[T], name: Callable[[T], str], error: Callable[[T], float]) -> str:
    """ "gpt2 8 train adamw, -22%": the row whose error is largest."""
    far = max(rows, key=lambda row: abs(error(row)), default=None)
    return "" if far is None else f"{name(far)}, {error(far):+.0%}"


def by_kind(
    rows: Sequence[T], kind: Callable[[T], str], cells: Callable[[Sequence[T]], Iterable[object]]
) -> list[list[object]]:
    """A line a kind of rows, the largest first, and one of all: its name, how many rows, and the cells that are said of them. Kinds of
    one or two rows stand together."""
    kinds: dict[str, list[T]] = {}
    for row in rows:
        kinds.setdefault(kind(row), []).append(row)
    small = [name for name, some in kinds.items() if len(some) < 3]
    if len(small) > 1:
        kinds["kinds of one or two"] = [row for name in small for row in kinds.pop(name)]
    ordered = sorted(kinds.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return [[name, len(some), *cells(some)] for name, some in (*ordered, ("all", rows))]


def figure_cells(
    runs: Sequence[tuple[str, Mapping[str, float] | None]], names: Iterable[str] = FIGURES
) -> list[str]:
    """Cells of some runs (name, errors of figures in percent; None where nothing was predicted, which counts as not exact): for each
    figure how many are exact, and the median and 95th percentile; then the figure that is furthest off."""
    known = [(run, errors) for run, errors in runs if errors is not None]
    if not known:
        return [""] * (2 * len(list(names)) + 1)
    cells = []
    for name in names:
        exact, middle, far, _ = spread(errors[name] for _, errors in known)
        cells += [f"{exact} of {len(runs)}", f"{middle:.2f} / {far:.2f} %"]
    run, name, error = max(
        ((run, name, error) for run, errors in known for name, error in errors.items()),
        key=lambda one: abs(one[2]),
    )
    return [*cells, f"{run}, {name} {error:+.2f} %" if error else ""]


def figure_head(names: Iterable[str] = FIGURES) -> list[str]:
    """The head of `figure_cells`."""
    return [*(f"{name}{more}" for name in names for more in (" exact", ", median / p95")), "furthest off"]


def exactness(errors: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Rows under `EXACTNESS` for each figure's errors in percent."""
    rows = []
    for name, some in errors.items():
        exact, *sizes = spread(some)
        rows.append([name, f"{exact} of {len(some)}", *(f"{size:.3f}" for size in sizes)])
    return rows


def mib(nbytes: float) -> str:
    """ "1,392": whole MiB."""
    return f"{nbytes / MIB:,.0f}"


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
