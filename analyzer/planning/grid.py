"""Many analyses: targets x batches x options x devices from one file, on all cores, resumable.

    targets: [models/gpt2.py, models/resnet50.onnx]
    batches: [1, 8, 32]
    devices: [h200, rtx4090, 24GiB]
    strategies:
      as it is: {}
      mixed: {amp: bf16}
      recomputed: {amp: bf16, checkpoint: "transformer.h.*"}
    options: {mode: train, optimizer: adamw}

1. A **job** is one target, batch, device and strategy; a strategy is options (`analyzer.options.Options`) on top of the
   grid's own. Jobs are numbered in the order of the file: targets, then batches, strategies, devices. `batches`,
   `strategies` and `devices` may be left out.
2. Every finished job is a line in the journal, written at once; a grid that is run again with the same journal does the
   jobs that are missing. A last line that a killed run left half written does not count.
3. A job that fails is a row that says why; the others go on. A worker process that dies costs its jobs one more attempt
   each, alone in a process of its own, and is a failure then.
4. The table is the jobs' rows in their order, so it does not depend on who computed what, or when.

Not modelled: jobs that want more memory than this machine has.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError, OptionError, did_you_mean
from analyzer.options import Options

_KEYS = ("targets", "batches", "devices", "strategies", "options")
FIGURES = (
    "peak_allocated",
    "peak_reserved",
    "device_used",
    "graph_peak",
    "naive",
    "capacity_bytes",
)
COLUMNS = ("job", "target", "batch", "strategy", "device", *FIGURES, "fits", "error")


@dataclass(frozen=True, slots=True)
class Job:
    """One analysis: `options` are the grid's with the strategy's on top."""

    job: int
    target: str
    batch: int | None
    strategy: str
    device: str | None
    options: Mapping[str, Any]


Row = dict[str, Any]
_ENVIRONMENT = dict(os.environ)


def load(path: Path) -> tuple[Job, ...]:
    """The jobs of a grid file. Raises OptionError for a file that is none, with the key that is at fault."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}", "give a grid file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(
            f"{path} is no YAML: {' '.join(str(error).split())}", "see: analyze grid --help"
        ) from error
    try:
        return jobs(content)
    except OptionError as error:
        raise OptionError(f"{path}: {error.message}", error.hint) from error


def jobs(content: Any) -> tuple[Job, ...]:
    """Every target, batch, strategy and device as a job, in the order of the file. Raises OptionError."""
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
    devices = [None if d is None else str(d) for d in _list(content, "devices", (str, int)) or [None]]
    shared = _options(content.get("options") or {}, "options")
    strategies = content.get("strategies") or {"as it is": {}}
    if not isinstance(strategies, Mapping):
        raise OptionError("'strategies' is no mapping", "write NAME: {option: value}")
    whole = []
    for name, more in strategies.items():
        options = {**shared, **_options(more or {}, f"strategy {name!r}")}
        Options.of(options)  # what makes no sense is said now, not by every job
        whole.append((str(name), options))
    product = itertools.product(targets, batches, whole, devices)
    return tuple(
        Job(number, target, batch, strategy[0], device, strategy[1])
        for number, (target, batch, strategy, device) in enumerate(product)
    )


def _list(content: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> list[Any]:
    found = content.get(key) or []
    found = found if isinstance(found, list) else [found]
    for entry in found:
        if isinstance(entry, bool) or not isinstance(entry, kind):
            raise OptionError(
                f"{key!r} has {entry!r}",
                "give a list, such as [1, 8, 32]" if key == "batches" else "give names",
            )
    return found


def _options(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise OptionError(f"{where} is no mapping", "write option: value")
    known = [
        field.name for field in fields(Options) if field.name not in ("batch", "device", "inputs", "targets")
    ]
    for name in given:
        if name not in known:
            raise OptionError(
                f"{where} has no option {name!r}",
                f"{did_you_mean(str(name), known)}options: {', '.join(known)}",
            )
    return dict(given)


def row_of(job: Job) -> Row:
    """The analysis of one job as a row of the table, also when it fails; what a worker runs."""
    import analyzer

    row: Row = {
        "job": job.job,
        "target": job.target,
        "batch": job.batch,
        "strategy": job.strategy,
        "device": job.device,
    }
    row |= dict.fromkeys((*FIGURES, "fits"))
    try:
        found = analyzer.analyze(job.target, batch=job.batch, device=job.device, **job.options)
    except AnalyzerError as error:
        return row | {"error": error.message}
    except Exception as error:  # a target's own code, or a bug here: one row, not the grid
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    row |= {name: getattr(found, name) for name in FIGURES if name != "naive"}
    return row | {"naive": found.naive.total, "fits": found.fits(), "error": ""}


def run(
    todo: Sequence[Job],
    journal: Path | None = None,
    workers: int = 1,
    tell: Callable[[int, int], None] | None = None,
    ray: str | None = None,
) -> tuple[Row, ...]:
    """The rows of all jobs, in order. journal: where finished jobs are kept, one a line. tell: (finished, all) after each.

    ray: address of a Ray cluster that shall do the work ("auto", "ray://HOST:10001"). Raises OptionError for a journal of another grid.
    """
    done = _finished(journal, todo) if journal is not None and journal.exists() else {}
    missing = [job for job in todo if job.job not in done]
    made = _on_ray(missing, ray) if ray is not None else _on_cores(missing, workers)
    stream = None
    try:
        if journal is not None:
            _mend(journal)
            stream = journal.open("a", encoding="utf-8")
        for row in made:
            done[row["job"]] = row
            if stream is not None:
                stream.write(json.dumps({"of": _print(todo[row["job"]]), **row}) + "\n")
                stream.flush()
            if tell is not None:
                tell(len(done), len(todo))
    finally:
        if stream is not None:
            stream.close()
    return tuple(done[job.job] for job in todo)


def _print(job: Job) -> str:
    """What makes a job the same one in another run."""
    return json.dumps(asdict(job), sort_keys=True, default=str)


def _finished(journal: Path, todo: Sequence[Job]) -> dict[int, Row]:
    """What the journal has; a last line left half written does not count. Raises OptionError when it is another grid's."""
    known = {_print(job): job.job for job in todo}
    done: dict[int, Row] = {}
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
            of = row.pop("of")
        except (ValueError, KeyError, AttributeError):
            continue
        if of not in known:
            raise OptionError(
                f"{journal} is the journal of another grid, or of this one before it was changed",
                "give another --journal, or remove it",
            )
        done[known[of]] = row
    return done


def _mend(journal: Path) -> None:
    """A half-written last line gets its end, so that the next one stands alone."""
    if journal.exists() and (content := journal.read_bytes()) and not content.endswith(b"\n"):
        with journal.open("ab") as stream:
            stream.write(b"\n")


def _on_cores(missing: Sequence[Job], workers: int) -> Iterator[Row]:
    """Rows as they are finished, by processes of this machine."""
    if workers <= 1:
        yield from map(row_of, missing)
        return
    lost: list[Job] = []
    # Fresh ones: torch's threads do not survive a fork.
    with _pool(workers) as pool:
        running: dict[Future[Row], Job] = {}
        waiting = list(reversed(missing))
        try:
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    running[pool.submit(row_of, waiting[-1])] = waiting[-1]
                    waiting.pop()
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    job = running.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        lost.append(job)
                        continue
                    yield future.result()
        except BrokenProcessPool:
            pass
        lost += [*running.values(), *reversed(waiting)]
    for job in sorted(lost, key=lambda entry: entry.job):
        yield _alone(job)


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes with the environment this one had when it began to plan: what a target has set since (MONAI sets
    cuBLAS's variable when it is imported) is for its own job."""
    return ProcessPoolExecutor(workers, get_context("spawn"), _with_environment, (_ENVIRONMENT,))


def _with_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _alone(job: Job) -> Row:
    """One job in a process of its own."""
    with _pool(1) as pool:
        try:
            return pool.submit(row_of, job).result()
        except BrokenProcessPool:
            return _dead(job)


def _dead(job: Job) -> Row:
    named = {name: getattr(job, name) for name in ("job", "target", "batch", "strategy", "device")}
    return {**dict.fromkeys(COLUMNS), **named, "error": "the process that analysed it died"}


def _on_ray(missing: Sequence[Job], address: str) -> Iterator[Row]:
    """Rows as they are finished, by a Ray cluster."""
    try:
        import ray
    except ModuleNotFoundError:
        from analyzer.errors import MissingDependencyError

        raise MissingDependencyError(
            "a grid on a Ray cluster needs ray, which is not installed", "pip install 'analyzer[ray]'"
        ) from None
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False)
    try:
        remote = ray.remote(num_cpus=1, max_retries=1)(row_of)
        pending = {remote.remote(job): job for job in missing}
        while pending:
            finished, _ = ray.wait(list(pending), num_returns=1)
            for reference in finished:
                job = pending.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError:
                    yield _dead(job)
    finally:
        if started:
            ray.shutdown()
