"""The page of PyTorch's own tests traced beside emulated: `python -m benchmarks operators table`, from what is kept (`recorded.py`).

Each case that differs stands under a reason (`REASONS`), or under none.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness.pages import MIB, table
from benchmarks.operators.recorded import Row, compared_rows, kept

PAGE = ROOT / "docs/evidence/DISPATCHER.md"
KINDS = ("same", "order", "sizes", "not followed", "emulator")
_CUDNN = "cuDNN's workspace, where it is a table's or a bound's on one side"
_NORMS = "its degree and squarings depend on the matrices' norms: taken to be the highest, and one"
_DATA = "values decide how large a result is, and one of the two sides does not know them"
_ZEROS = "twice: zeros without memory are added in place, of tensors without memory into a copy"
_REFLECTORS = "twice: the loop over reflectors that is itself differentiated is not described, the one that writes in place is"
_CONJUGATES = "twice: a conjugate that is copied is kept for the second pass, a lazy one is not"
_BRANCHES = "twice: branches that are both ready are followed in another order"
_WEIGHTS = "twice: the weights are made contiguous behind the result, not before it"
# Words of an error of the emulated runtime -> why it cannot go on.
_OF_THE_RUNTIME = {
    "TooLong": "the emulated runtime was ended at its time limit",
    "cusparseSDDMM": "the emulated runtime has no products at a sparse matrix's places (cuSPARSE's SDDMM)",
}
# Entry, or the beginning of its name -> why it differs.
REASONS = {
    "matrix_exp": _NORMS,
    "linalg.matrix_exp": _NORMS,
    "sparse.sampled_addmm": "products of what has elements are refused in plain words",
    "nonzero": _DATA,
    "unique": _DATA,
    "Rprop": "whether a gradient changed its sign is data, which steers what its state is multiplied by",
    "prod": "no element is taken to be zero, as in nearly every program; the emulated runtime takes all to be",
    "repeat_interleave": "the sample scaled contradicts itself: its result's size is not the sum of its repeats",
    "nn.functional.conv": _CUDNN,
    "nn.Conv": _CUDNN,
    "nn.functional.one_hot": "how many classes there are is data: each side takes another number",
    "nn.functional.soft_margin_loss": "a gradient that is not contiguous is copied at another moment",
    "multinomial": "probabilities that are not contiguous are copied for each check",
    "view_copy": "PyTorch's kernel for meta tensors refuses what is not contiguous",
    "cumprod": "values of small samples are known to be zero on one side, and products beside zeros take more",
    "nn.CTCLoss": "targets that are not contiguous are copied for each check",
    "nn.functional.ctc_loss": "targets that are not contiguous are copied for each check",
    "nn.SoftMarginLoss": "a gradient that is not contiguous is copied at another moment",
    **dict.fromkeys(("special.i0e", "special.i1e"), _ZEROS),
    **dict.fromkeys(("linalg.householder_product", "ormqr"), _REFLECTORS),
    **dict.fromkeys(("nn.ConvTranspose", "nn.LazyConvTranspose"), _WEIGHTS),
    **dict.fromkeys(("linalg.vander", "masked.cumprod"), _CONJUGATES),
    **dict.fromkeys(("nn.LSTMCell", "nn.MultiheadAttention"), _BRANCHES),
    "div.floor_rounding": "twice: what nobody asks for is freed in another order at the end",
    "fft.ifft": "cuFFT needs no work area for 248 points, where the rule takes one",
    "to_sparse": "twice: a mask's projection of a sparse tensor (_sparse_mask_projection) is refused in plain words",
    "linalg.eigh": "twice: a diagonal is written in place, of tensors without memory into a copy",
    "lu_solve": "twice: a lazily conjugated gradient is copied once more, to be added",
    "nn.functional.binary_cross_entropy_with_logits": (
        "twice: the target's gradient is multiplied by the weight in place, the input's is not"
    ),
    "nn.functional.nll_loss": "Python's garbage collector frees an earlier case's memory in between",
    "_batch_norm_with_update": (
        "cuDNN's workspace where it normalizes channels-last, and a copy of what is not contiguous"
    ),
    "masked.prod": "the gradient of a single factor that keeps its dimension calls nothing of meta tensors",
}


def reason(row: Row) -> str:
    """Why a case differs; empty where nobody has said."""
    if row.kind == "emulator":
        return next((said for words, said in _OF_THE_RUNTIME.items() if words in row.at), "")
    found = [said for name, said in REASONS.items() if row.case[1].startswith(name)]
    return found[-1] if found else ""


def page(rows: Sequence[Row]) -> str:
    """The page."""
    groups: dict[tuple[Any, ...], list[Row]] = collections.defaultdict(list)
    for row in rows:
        database, _, dtype, scale, _, layout, way = row.case
        groups[row.torch, database, dtype, scale, f"{layout}, {way}"].append(row)
    counted = [
        (*key, *_counted(found), max(row.date for row in found)) for key, found in sorted(groups.items())
    ]
    head = ("torch", "list", "type", "times the size", "layout, way", "cases", *KINDS, "same", "compared")
    differing = [row for row in rows if row.kind != "same"]
    over = sum(row.under_bytes > MIB for row in differing)
    worst = max(differing, key=lambda row: row.under_bytes, default=None)
    under = "" if worst is None else f"{worst.case[1]} ({worst.under_bytes:,} bytes)"
    return f"""# PyTorch's own tests, traced beside emulated

Written by `python -m benchmarks operators table` from what is kept in
`tests/data/emulation/lists/compared`. A case is a call of PyTorch's own test lists (`op_db`, `module_db`,
`optim_db`) and its backward pass, as an H200's; *same*: the same requests to the allocator in the same order,
and the same order of returns, as by PyTorch's own host code under the emulated runtime. What PyTorch refuses,
scaled, counts for nothing. *compared*: when the last of them was.

{table(head, [*counted, ("all", "", "", "", "", *_counted(rows), "")])}
{f"Under by more than 1 MiB: {over}; worst {under}." if under else ""}

## What differs

{table(("entry", "cases", "torch", "how", "where first", "under by, bytes", "reason"), _entries(differing))}"""


def _entries(differing: Sequence[Row]) -> Iterator[tuple[object, ...]]:
    """The rows of the entries that differ."""
    entries: dict[str, list[Row]] = collections.defaultdict(list)
    for row in differing:
        entries[row.case[1]].append(row)
    for name, found in sorted(entries.items()):
        kinds = ", ".join(dict.fromkeys(row.kind for row in found))
        under = max(row.under_bytes for row in found)
        at = found[0].at.replace("|", "/")[:90]
        releases = ", ".join(sorted({row.torch.partition("+")[0] for row in found}))
        yield name, len(found), releases, kinds, at, f"{under:,}", reason(found[0]) or "not yet found"


def _counted(rows: Sequence[Row]) -> tuple[str, ...]:
    kinds = collections.Counter(row.kind for row in rows)
    run = len(rows) - kinds["emulator"]
    counts = (f"{kinds[kind]:,}" for kind in KINDS)
    return f"{len(rows):,}", *counts, f"{100 * kinds['same'] / max(run, 1):.2f} %"


def counting() -> list[Row]:
    """The kept cases that PyTorch runs."""
    return [row for row in compared_rows(kept("compared")) if row.kind in KINDS]


@click.command("table")
def main() -> None:
    """Write docs/evidence/DISPATCHER.md."""
    PAGE.write_text(page(counting()), encoding="utf-8")
