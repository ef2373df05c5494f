"""What the public programs take on this machine's GPU:
python -m benchmarks public measure OUT [NAME ...] [--sources .public] [--processes 1] [--at-once 8] [--deadline S]

Each runs as it is in a copy of its own (`prepared.py`), in a process of its own, recorded by `benchmarks/harness/recorded_run.py`:
several at once, then, one after the other, those whose algorithms are timed (`alone`). No job begins that could not end before
the deadline (seconds from now), and what still runs then is ended. Writes OUT/rows.json anew after every job (a row a program,
and rank; `error`: what ended it early) and, at the end, OUT/histories.tgz (NAME.npz, NAME.rankR.npz; the longest are left out).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import recorded
from benchmarks.harness.processes import ProcessError, answer
from benchmarks.public import job_files
from benchmarks.public.prepared import Prepared, found, terminal

_EVENTS_KEPT = 200_000
_HISTORIES_BYTES = 15_000_000
_PREPARING_SECONDS = 90
_SAVING_SECONDS = 20  # after SIGTERM, until a process is killed
_ENDS = 1500  # characters of output kept where a program failed


class Measuring:
    """One run of this script: where its rows go, and when it must end."""

    def __init__(self, out: Path, sources: Path, copies: Path, deadline: float) -> None:
        self.out, self.sources, self.copies = out, sources, copies
        self.deadline = time.monotonic() + deadline
        self.rows: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Rows that are finished."""
        with self.lock:
            self.rows += rows
            (self.out / "rows.json").write_text(json.dumps(self.rows, indent=1) + "\n")
            for row in rows:
                told = row.get("error", "").strip().splitlines()[-1:]
                print(
                    recorded.named(row),
                    row.get("peak_allocated"),
                    row.get("nvml_peak"),
                    row.get("seconds"),
                    *told,
                    flush=True,
                )

    def prepare(self, job: dict[str, Any]) -> str:
        """Make a job's copy and data, in a process; what went wrong, if anything did."""
        names = (str(self.sources), str(self.copies), job["name"])
        one_thread = {"OMP_NUM_THREADS": "1"}
        try:
            answer(
                "benchmarks.public.prepared:started",
                *names,
                seconds=_PREPARING_SECONDS,
                environment=one_thread,
            )
        except ProcessError as error:
            return f"not prepared: {error}"
        return ""

    def run(self, job: dict[str, Any], port: int, prepared: Future[str]) -> None:
        """One job, as soon as it is prepared; whatever happens to it becomes its row."""
        try:
            wrong = prepared.result()
            rows = [{"error": wrong}] if wrong else self._rows(job, port)
        except Exception as error:
            rows = [{"error": f"{type(error).__name__}: {error}"}]
        self.add([{"name": job["name"], "domain": job["domain"], **row} for row in rows])

    def _rows(self, job: dict[str, Any], port: int) -> list[dict[str, Any]]:
        if self.left() < _SAVING_SECONDS + 10:
            return [{"error": "not begun: no time left"}]
        ready = found(job, self.copies)
        with terminal() as keyboard:
            processes = [self._start(job, ready, rank, port, keyboard) for rank in _ranks(job)]
            self._wait(processes, min(job["seconds"], self.left() - _SAVING_SECONDS))
        ranks = range(job["processes"]) if job["processes"] > 1 or job["spawns"] else [None]
        return [self._row(job, rank) for rank in ranks]

    def _start(
        self, job: dict[str, Any], ready: Prepared, rank: int | None, port: int, keyboard: int
    ) -> subprocess.Popen[bytes]:
        name = self.out / (job["name"] if rank is None else f"{job['name']}.rank{rank}")
        words = ["--until", str(job["until"])] if job["until"] else []
        words += ["--spawned"] if job["spawns"] else []
        words += ["-m"] if ready.module else []
        return recorded.start(
            name, [*words, ready.script, *ready.args],
            {"OMP_NUM_THREADS": "2", **ready.environment, **_world(job, rank, port)},
            cwd=ready.folder, stdin=keyboard, start_new_session=True,
        )  # fmt: skip

    def _wait(self, processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
        """Until all have ended: told to end after `seconds`, killed a while later, with the processes they started."""
        end = time.monotonic() + seconds
        for process in processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + min(_SAVING_SECONDS, max(1, self.left()))
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _row(self, job: dict[str, Any], rank: int | None) -> dict[str, Any]:
        name = job["name"] if rank is None else f"{job['name']}.rank{rank}"
        row = recorded.row(self.out / name)
        if rank is not None:
            row = {"rank": rank} | row
        elif not job["spawns"] and job["processes"] == 1:  # it may name itself the only rank of one
            row.pop("rank", None)
        if "error" in row:
            text = next(
                (t for t in (self.out / f"{name}.txt", self.out / f"{job['name']}.txt") if t.exists()), None
            )
            row["output"] = text.read_text(errors="replace")[-_ENDS:] if text else ""
        return row

    def pack(self) -> None:
        """OUT/histories.tgz, the shortest first as far as there is room."""
        kept = []
        for row in self.rows:
            file = self.out / f"{recorded.named(row)}.npz"
            if file.exists() and row.get("events", 0) <= _EVENTS_KEPT:
                kept.append(file)
        kept.sort(key=lambda file: file.stat().st_size)
        sizes = itertools.accumulate(file.stat().st_size for file in kept)
        recorded.pack(
            self.out, [file for file, size in zip(kept, sizes, strict=True) if size < _HISTORIES_BYTES]
        )


def _ranks(job: dict[str, Any]) -> list[int | None]:
    """The processes to start: one a rank where torchrun would start them."""
    return [*range(job["processes"])] if job["processes"] > 1 and not job["spawns"] else [None]


def _world(job: dict[str, Any], rank: int | None, port: int) -> dict[str, str]:
    """What torchrun tells a rank; where the program starts its ranks itself, where they meet."""
    told = recorded.world(rank or 0, job["processes"], port)
    if rank is None:
        meeting = ("MASTER_ADDR", "MASTER_PORT", "NCCL_NVLS_ENABLE")
        return {name: told[name] for name in meeting} if job["processes"] > 1 else {}
    return {**told, "GROUP_RANK": "0"}


def in_turn(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The longest first, so that none is left over at the end; of equals, one of each domain after the other, so that a
    deadline cuts none off."""
    of_domain: dict[str, int] = {}
    places = {}
    for job in jobs:
        places[job["name"]] = of_domain.get(job["domain"], 0)
        of_domain[job["domain"]] = places[job["name"]] + 1
    return sorted(jobs, key=lambda job: (-job["seconds"], places[job["name"]] / of_domain[job["domain"]]))


@click.command()
@click.argument("out", type=Path)
@click.argument("names", nargs=-1)
@click.option("--sources", type=Path, default=ROOT / ".public")
@click.option("--copies", type=Path, default=Path("/tmp/public"))
@click.option("--processes", default=1, help="the jobs of so many ranks")
@click.option("--at-once", default=8)
@click.option("--deadline", default=3600.0, help="seconds from now")
@click.option("--alone-seconds", default=240.0, help="of these, kept for jobs that run alone")
def measure(
    out: Path, names: tuple[str, ...], sources: Path, copies: Path, processes: int, at_once: int, deadline: float,
    alone_seconds: float,
) -> None:  # fmt: skip
    """Run every job, or those named (NAME, NAME*, DOMAIN/), several at once, then those that need the GPU alone."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = [job for job in job_files.chosen(job_files.load()[1], names) if job["processes"] == processes]
    together, alone = [j for j in jobs if not j["alone"]], [j for j in jobs if j["alone"]]
    measuring = Measuring(out.resolve(), sources.resolve(), copies.resolve(), deadline)
    started = time.monotonic()
    kept = alone_seconds if alone else 0.0
    measuring.deadline -= kept
    together, alone = in_turn(together), in_turn(alone)
    ports = {job["name"]: 29600 + 5 * n for n, job in enumerate(jobs)}
    makers = ThreadPoolExecutor(max(1, at_once // 2))
    ready = {job["name"]: makers.submit(measuring.prepare, job) for job in (*together, *alone)}

    def run(job: dict[str, Any]) -> None:
        measuring.run(job, ports[job["name"]], ready[job["name"]])

    try:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(run, together))
        measuring.deadline += kept
        for job in alone:
            run(job)
    finally:
        makers.shutdown(wait=False, cancel_futures=True)
        measuring.pack()
    failed = sum("error" in row for row in measuring.rows)
    print(f"{len(measuring.rows)} rows, {failed} with errors, {time.monotonic() - started:.0f} s")
