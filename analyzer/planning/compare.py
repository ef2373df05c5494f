"""Two estimates of the same thing, before and after a change: what grew, by category, module and line.

1. The compared figures are those that have limits: peak allocated, peak reserved, device memory. They are
   exact and equal for equal programs, so the tolerance is 0 unless said otherwise.
2. The change **exceeds** the tolerance when one of them grew by more than that share of what it was.
3. Growth is located by the bytes at the peak: the differences of the two breakdowns, which sum to that of
   peak allocated. The peak may have moved to another moment; then the breakdowns are of different moments,
   and `moved` says so.
4. A **share** is one category's growth with the innermost module that encloses nine tenths of it: "saved for
   backward in encoder" when it grew in all of the encoder's layers, "... in encoder.layer.3.mlp" when only
   there.
5. Estimates of different targets, devices, modes, batches, options or releases can be compared; what differs
   is listed (`unlike`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzer import releases
from analyzer.devices import parse_size
from analyzer.errors import InputError, OptionError, file_like
from analyzer.report.attribution import path
from analyzer.report.command_line import written
from analyzer.results.difference import Change, Difference
from analyzer.results.estimate import Estimate

FIGURES = ("peak_allocated", "peak_reserved", "device_used")
_MODELS = (".onnx", ".py", ".pt2", ".pt", ".pth", ".safetensors")
_SETTINGS = ("target", "runtime", "mode", "batch", "optimizer", "device")


def compare(
    before: Estimate | str | os.PathLike[str],
    after: Estimate | str | os.PathLike[str],
    tolerance: float | str = 0.0,
) -> Difference:
    """Compare two estimates, files of `analyze --format json` or snapshots of PyTorch's allocator.

    tolerance: 0.01 allows 1 % more, "100MiB" so many bytes.

    Raises InputError for a file that is no estimate, OptionError for a tolerance that is no share.
    """
    allowed = parse_size(tolerance) if isinstance(tolerance, str) else 0
    tolerance = 0.0 if isinstance(tolerance, str) else tolerance
    if not 0 <= tolerance < float("inf"):
        raise OptionError(f"the tolerance is {tolerance}", "give a share of at least 0, such as 0.01 for 1 %")
    one, two = _opened(before), _opened(after)
    for name, estimate in (("before", one), ("after", two)):
        if estimate.incomplete is not None:
            raise InputError(
                f"the estimate {name} the change is incomplete: {estimate.incomplete}",
                "compare estimates of programs that ran through",
            )
    moved = (one.peak_at, two.peak_at)
    return Difference(
        one,
        two,
        tolerance,
        tuple(Change(name, getattr(one, name), getattr(two, name)) for name in FIGURES),
        _changes(one.breakdown, two.breakdown),
        _changes(one.by_module, two.by_module),
        _changes(one.by_line, two.by_line),
        shares(one, two),
        (
            *(
                (name, str(old), str(new))
                for name in _SETTINGS
                if (old := getattr(one, name)) != (new := getattr(two, name))
            ),
            *_options(one, two),
            *_releases(one, two),
        ),
        moved if moved[0] != moved[1] else None,
        allowed,
    )


def _opened(estimate: Estimate | str | os.PathLike[str]) -> Estimate:
    if isinstance(estimate, Estimate):
        return estimate
    from analyzer.recordings.opened import is_snapshot
    from analyzer.report.json import read

    path_of = Path(estimate)
    if path_of.suffix.lower() in _MODELS:
        raise InputError(
            f"{path_of} is a model, and no estimate of one",
            f"analyze it first: analyze {path_of} --format json -o {path_of.stem}.json",
        )
    if not path_of.exists():
        raise InputError(
            f"{path_of} cannot be read: no such file",
            f"{file_like(path_of)}write it with: analyze TARGET --format json -o FILE",
        )
    if is_snapshot(Path(estimate)):
        from analyzer.recordings.estimate import explain

        return explain(Path(estimate), ways_too=False).estimate
    return read(Path(estimate))


def _options(before: Estimate, after: Estimate) -> tuple[tuple[str, str, str], ...]:
    """Return the options that only one of them was made with, as people write them."""
    one, two = written(before.options), written(after.options)
    old, new = (
        " ".join(word for word in mine if word not in other) for mine, other in ((one, two), (two, one))
    )
    return (("options", old or "none", new or "none"),) if old or new else ()


def _releases(one: Estimate, two: Estimate) -> tuple[tuple[str, str, str], ...]:
    """Return differing releases of the figures; an older estimate without them differs from none."""
    names = [
        name for name in one.modelled if two.modelled.get(name, one.modelled[name]) != one.modelled[name]
    ]
    before, after = (releases.line({name: e.modelled[name] for name in names}, {}) for e in (one, two))
    return (("figures of", before, after),) if names else ()


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    changes = [Change(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return tuple(sorted((c for c in changes if c.grown), key=lambda c: (-abs(c.grown), c.name)))


def shares(before: Estimate | None, after: Estimate) -> tuple[Change, ...]:
    """Return each category's growth with its enclosing module; all bytes without `before`."""
    held: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for place, estimate in enumerate((before, after)):
        for row in estimate.tensors if estimate is not None else ():
            held[row.category][path(row, "module", after.framework)][place] += row.nbytes
    changes = []
    for category, by_module in held.items():
        was, now = (sum(sums[place] for sums in by_module.values()) for place in (0, 1))
        if was != now:
            grown = {module: (b - a) * (1 if now > was else -1) for module, (a, b) in by_module.items()}
            module = ".".join(_enclosing(grown))
            changes.append(Change(f"{category} in {module}" if module else category, was, now))
    return tuple(sorted(changes, key=lambda change: (-abs(change.grown), change.name)))


def _enclosing(grown: Mapping[tuple[str, ...], int]) -> Sequence[str]:
    """Return the innermost module around the largest values that make nine tenths of all."""
    positive = sorted(((n, m) for m, n in grown.items() if n > 0), key=lambda entry: (-entry[0], entry[1]))
    rest = 0.9 * sum(nbytes for nbytes, _ in positive)
    chosen = []
    for nbytes, module in positive:
        if rest <= 0:
            break
        chosen.append(module)
        rest -= nbytes
    first, last = min(chosen, default=()), max(chosen, default=())  # whatever all share, these two share
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]
