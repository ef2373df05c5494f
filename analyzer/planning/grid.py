"""Many analyses: targets x batches x options x devices from one file, on all cores, resumable.

    targets: [models/gpt2.py, models/resnet50.onnx]
    batches: [1, 8, 32]
    devices: [h200, rtx4090, 24GiB]
    strategies:
      as it is: {}
      mixed: {amp: bf16}
      recomputed: {amp: bf16, checkpoint: "transformer.h.*"}
    options: {mode: train, optimizer: adamw, input: [x=3x224x224]}

1. A **job** is one target, batch, device and strategy; a strategy is options (`analyzer.options.Options`) on
   top of the grid's own. Jobs are numbered in the order of the file: targets, then batches, strategies,
   devices. `batches`, `strategies` and `devices` may be left out.
2. Every finished job is a line in the journal, written at once; a grid that is run again with the same
   journal does the jobs that are missing. A last line that a killed run left half written does not count.
   Jobs are told apart by their words and by when their target's file was last changed.
3. A job that fails is a row that says why; the others go on, also when a worker process dies (`workers.py`).
4. The table is the jobs' rows in their order, so it does not depend on who computed what, or when.

Not modelled: jobs that want more memory than this machine has.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer import devices, files
from analyzer.errors import AnalyzerError, OptionError, did_you_mean, file_like
from analyzer.options import Options
from analyzer.planning.inputs import described_inputs
from analyzer.planning.workers import on_cores, on_ray

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate

_KEYS = ("targets", "batches", "devices", "strategies", "options")
_EXAMPLES = {
    "batches": "give a list, such as [1, 8, 32]",
    "input": "give texts, such as [x=3x224x224]",
}
FIGURES = ("peak_allocated", "peak_reserved", "device_used", "graph_peak", "naive", "capacity_bytes")
# Seconds, and samples a second: of a step of all micro-batches; empty where no time is known.
TIMES = ("step_seconds", "step_low", "step_high", "samples_per_second", "bound")
COLUMNS = ("job", "target", "batch", "strategy", "device", *FIGURES, *TIMES, "fits", "error")


@dataclass(frozen=True, slots=True)
class Job:
    """One analysis; `options` are the grid's, overridden by the strategy's."""

    job: int
    target: str
    batch: int | None
    strategy: str
    device: str | None
    options: Mapping[str, Any]


Row = dict[str, Any]
_LARGEST_BYTES = 1 << 20
_MOST_JOBS = 100_000


def load(path: Path) -> tuple[Job, ...]:
    """Return the jobs of a grid file. Raises OptionError for a file that is none, with the key at fault."""
    try:
        content = files.parse_yaml(files.read_text(path, _LARGEST_BYTES))
    except files.UnreadableError as error:
        raise OptionError(
            f"{path} is no grid: {error}", f"{file_like(path)}see: analyze grid --help"
        ) from error
    try:
        return jobs(content)
    except AnalyzerError as error:
        raise OptionError(f"{path}: {error.message}", error.hint) from error


def jobs(content: Any) -> tuple[Job, ...]:
    """Return every target, batch, strategy and device as a job, in file order. Raises AnalyzerError."""
    if not isinstance(content, Mapping):
        raise OptionError("a grid is a mapping", f"with the keys {', '.join(_KEYS)}")
    for key in content:
        if key not in _KEYS:
            raise OptionError(
                f"unknown key {key!r}", f"{did_you_mean(str(key), _KEYS)}keys: {', '.join(_KEYS)}"
            )
    targets = _list(content, "targets", str)
    if not targets:
        raise OptionError("'targets' names none", "give a list of files or package.module:attr")
    batches = _list(content, "batches", int) or [None]
    named = [None if d is None else str(d) for d in _list(content, "devices", (str, int)) or [None]]
    shared = _options(content.get("options") or {}, "options")
    strategies = content.get("strategies") or {"as it is": {}}
    if not isinstance(strategies, Mapping):
        raise OptionError("'strategies' is no mapping", "write NAME: {option: value}")
    # A device that does not exist is one error here, not one of every job.
    for device in filter(None, named):
        devices.resolve(device)
    whole = []
    for name, more in strategies.items():
        options = {**shared, **_options(more or {}, f"strategy {name!r}")}
        checked = {key: value for key, value in options.items() if key != "input"}
        for batch in batches:
            Options.of({**checked, "batch": batch})
        whole.append((str(name), options))
    count = len(targets) * len(batches) * len(whole) * len(named)
    if count > files.allowed(_MOST_JOBS):
        raise OptionError(
            f"the grid has {count:,} jobs: more than {files.allowed(_MOST_JOBS):,} are not planned",
            files.more(),
        )
    product = itertools.product(targets, batches, whole, named)
    return tuple(
        Job(number, target, batch, strategy[0], device, strategy[1])
        for number, (target, batch, strategy, device) in enumerate(product)
    )


def _list(content: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> list[Any]:
    entries = content.get(key) or []
    entries = entries if isinstance(entries, list) else [entries]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, kind):
            raise OptionError(
                f"{key!r} has {entry!r}",
                _EXAMPLES.get(key, "give names"),
            )
    return entries


def _options(given: Any, where: str) -> dict[str, Any]:
    """Return a cell's options. Raises OptionError for what is no mapping, or an unknown name."""
    if not isinstance(given, Mapping):
        raise OptionError(f"{where} is no mapping", "write option: value")
    left_out = ("batch", "device", "inputs", "targets")
    known = ["input", *(field.name for field in fields(Options) if field.name not in left_out)]
    for name in given:
        if name not in known:
            raise OptionError(
                f"{where} has no option {name!r}",
                f"{did_you_mean(str(name), known)}options: {', '.join(known)}",
            )
    if "input" in given:
        described_inputs("", texts := _list(given, "input", str), None)
        return {**given, "input": texts}
    return dict(given)


def row_of(job: Job) -> Row:
    """Analyse one job and return its row, also on failure; a worker's task."""
    import analyzer

    row = _named(job)
    try:
        with redirect_stdout(sys.stderr):  # the table may be on stdout
            options = dict(job.options)
            inputs = described_inputs(job.target, options.pop("input", ()), job.batch)
            estimate = analyzer.analyze(job.target, inputs, batch=job.batch, device=job.device, **options)
    except AnalyzerError as error:
        return row | {"error": error.message}
    except SystemExit as error:
        return row | {"error": f"the target ended the program (exit code {error.code})"}
    except Exception as error:  # a target's own code, or a bug here: one row, not the grid
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    row |= {name: getattr(estimate, name) for name in FIGURES if name != "naive"}
    row |= _times(estimate)
    return row | {"naive": estimate.naive.total, "fits": estimate.fits(), "error": ""}


def _times(estimate: Estimate) -> Row:
    """Return the figures named in `TIMES`."""
    time, speed = estimate.step_seconds, estimate.samples_per_second
    if time is None:
        return {}
    rate = None if speed is None else speed[0]
    return dict(zip(TIMES, (time.seconds, time.low, time.high, rate, time.bound), strict=True))


def run(
    todo: Sequence[Job],
    journal: Path | None = None,
    workers: int = 0,
    tell: Callable[[int, int], None] | None = None,
    ray: str | None = None,
    append: Callable[[Path, str], None] = files.append_text,
) -> tuple[Row, ...]:
    """Return all rows in order. journal: file of finished jobs, one a line, to which `append` adds. tell:
    (finished, all).

    workers: processes of this machine; 0 works in this one, which a target can end. ray: address of a Ray
        cluster that shall do the work ("auto", "ray://HOST:10001"). Raises OptionError for a journal of
        another grid.
    """
    done = _finished(journal, todo) if journal is not None and journal.exists() else {}
    if tell is not None:
        tell(len(done), len(todo))
    if journal is not None:
        append(journal, _rest_of_line(journal))
    with ExitStack() as stack:
        missing = [job for job in todo if job.job not in done]
        prints = {job.job: _fingerprint(job) for job in missing}
        for row in stack.enter_context(closing(_made(missing, workers, ray))):
            done[row["job"]] = row
            if journal is not None:
                append(journal, json.dumps({"of": prints[row["job"]], **row}) + "\n")
            if tell is not None:
                tell(len(done), len(todo))
    return tuple(done[job.job] for job in todo)


def _made(missing: Sequence[Job], workers: int, ray: str | None) -> Generator[Row, None, None]:
    """Yield rows as they are finished, on Ray, in worker processes or in this one."""
    if ray is not None:
        yield from on_ray(missing, row_of, _failed, ray)
    elif workers:
        yield from on_cores(missing, row_of, _failed, workers)
    else:
        yield from map(row_of, missing)


def _fingerprint(job: Job) -> str:
    """Return a job's fingerprint across runs: its options, and the state of its target's file."""
    return json.dumps({**asdict(job), "file": _state(job.target)}, sort_keys=True, default=str)


def _state(target: str) -> tuple[int, int] | None:
    """Return bytes and time of the last change of the named file, not of its imports."""
    for path in (target, target.rpartition(":")[0]):
        with suppress(OSError):
            status = Path(path).stat()
            return status.st_size, status.st_mtime_ns
    return None


def _finished(journal: Path, todo: Sequence[Job]) -> dict[int, Row]:
    """Return the journal's complete rows. Raises OptionError if it belongs to another grid."""
    known = {_fingerprint(job): job.job for job in todo}
    done: dict[int, Row] = {}
    try:
        lines = files.read_text(journal).splitlines()
    except files.UnreadableError as error:
        raise OptionError(
            f"the journal {journal} cannot be read: {error}", "give another --journal"
        ) from None
    for line in lines:
        try:
            row = files.parse_json(line)
            of = row.pop("of")
        except (files.UnreadableError, KeyError, AttributeError):
            continue
        if not isinstance(of, str) or of not in known:
            raise OptionError(
                f"{journal} is the journal of another grid, or of this one before it or a target was changed",
                "give another --journal, or remove it",
            )
        done[known[of]] = dict.fromkeys(COLUMNS) | row  # a journal from before a column was kept has none
    return done


def _rest_of_line(journal: Path) -> str:
    """Return the end of a half-written last line, so that the next one stands alone."""
    content = journal.read_bytes() if journal.exists() else b""
    return "\n" if content and not content.endswith(b"\n") else ""


def _named(job: Job) -> Row:
    """Return a job's row without figures."""
    return {name: getattr(job, name, None) for name in COLUMNS}


def _failed(job: Job) -> Row:
    return _named(job) | {"error": "the process that analysed it died"}
