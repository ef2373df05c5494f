"""Damaged ONNX files: each must end in an estimate or in one clear error.

    python -m benchmarks damaged score --count 20000 -o results.json              # two processes, a minute or two
    python -m benchmarks damaged score --count 1000000 --processes 16 -o results.json --seconds 500
    python -m benchmarks damaged score --seed 4711                                # one of them, with its traceback

With `-o` a campaign goes on where the file's ends: seeds it has are not tried again. `--seconds` stops it in between.

1. The file of a seed is `damage.damaged(seed)`, always the same. It is analysed as `analyzer.analyze` does, for ONNX
   Runtime on the GPU or its CPU provider; some estimates are also rendered, as text of some width and as JSON.
2. Found is what must not be: an exception that is no `AnalyzerError`, an error without a hint or with text that is no text,
   figures that contradict each other, more than 10 seconds of work, a process that died, more than 1 GiB of memory, a file
   opened outside the model's folder, anything written, started or connected to.
3. Memory: processes may have 1 GiB of addresses (RLIMIT_AS), Python and its libraries included. Files: an audit hook sees
   what Python opens; outside the folder lies a pipe, and whoever opens that, in whatever language, hangs.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import platform
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

# Before NumPy is imported: a pool of threads for every core would not go into a process's 1 GiB.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import onnx

import analyzer
from analyzer.errors import AnalyzerError
from analyzer.report import formats
from benchmarks import ROOT
from benchmarks.subjects.damaged.damage import LINK, OUTSIDE, Damaged, damaged
from benchmarks.subjects.damaged.models import WEIGHTS, WEIGHTS_DATA, bases, digest

SECONDS = 10
LIMIT_BYTES = 1 << 30
_SHARE = 2_000  # seeds a process takes at a time
_WAITING_SECONDS = 60  # on the clock: a machine may be busy with other things
_STUCK_SECONDS = 90  # then its process is ended: something that is not Python does not come back
_RENDERED = 10  # one estimate in so many is rendered as well
_KEPT = 200
_LONGEST_ERROR = 4_000
_OUTSIDE_EVENTS = frozenset({
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.system",
    "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "shutil.rmtree", "ctypes.dlopen",
})  # fmt: skip


@dataclass(slots=True)
class Results:
    """What came out, by seed ranges. outcomes: "estimate" or an error's class -> count. findings: what must not be."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    peak_bytes: int = 0

    def add(self, other: Results) -> None:
        """Those of other seeds as well."""
        self.ranges = _joined([*self.ranges, *other.ranges])
        self.outcomes += other.outcomes
        self.findings = (self.findings + other.findings)[:_KEPT]
        self.slowest = max(self.slowest, other.slowest)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "count": sum(last - first for first, last in self.ranges),
            "ranges": self.ranges,
            "models": digest(),
            "onnx": onnx.__version__,
            "python": platform.python_version(),
            "outcomes": dict(sorted(self.outcomes.items(), key=lambda item: -item[1])),
            "findings": self.findings,
            "slowest": {"seconds": self.slowest[0], "seed": self.slowest[1]},
            "peak_bytes": self.peak_bytes,
        }

    @classmethod
    def read(cls, path: Path) -> Results:
        """Those of an earlier campaign of the same models. Raises SystemExit for others."""
        if not path.exists():
            return cls()
        data = json.loads(path.read_text())
        if data["models"] != digest():
            raise SystemExit(f"{path} is about other models ({data['models']}, here {digest()})")
        return cls(
            _joined(map(tuple, data["ranges"])), Counter(data["outcomes"]), data["findings"],
            (data["slowest"]["seconds"], data["slowest"]["seed"]), data["peak_bytes"],
        )  # fmt: skip


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, neighbours as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if first == last:
            continue
        if found and found[-1][1] >= first:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def missing(have: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """What of a range of seeds is in none of these, in shares."""
    for begin, end in [*have, (last, last)]:
        for start in range(first, min(begin, last), _SHARE):
            yield start, min(start + _SHARE, begin, last)
        first = max(first, end)


class _Late(BaseException):
    """A file took too long."""


class _Watch:
    """What happens outside of the model's folder while a file is analysed."""

    def __init__(self, folder: Path) -> None:
        self.folder = f"{folder.resolve()}{os.sep}"
        self.own = tuple({f"{Path(place).resolve()}{os.sep}" for place in
                          (ROOT, sys.prefix, sys.base_prefix, *filter(None, sys.path))})  # fmt: skip
        self.armed = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event in _OUTSIDE_EVENTS:
            self.seen.append(f"{event} {arguments}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if f"{path}{os.sep}".startswith(self.folder) and not writes:
                return
            if writes or not path.startswith(self.own):
                self.seen.append(f"open {path}"[:200])


class Examiner:
    """Analyses damaged files in a folder that has what external data may be looked for in."""

    def __init__(self, around: Path) -> None:
        self.folder = around / "model"
        self.folder.mkdir()
        (self.folder / "folder").mkdir()
        (self.folder / WEIGHTS).write_bytes(WEIGHTS_DATA)
        (self.folder / "short.bin").write_bytes(b"12")
        os.mkfifo(self.folder / OUTSIDE)
        (self.folder / LINK).symlink_to(OUTSIDE)
        self.path = self.folder / "model.onnx"
        self.watch = _Watch(self.folder)

    def examine(self, item: Damaged) -> tuple[str, str]:
        """What came of a file ("estimate", an error's class, or "finding"), and of a finding what it is."""
        self.path.write_bytes(item.data)
        self.watch.seen.clear()
        self.watch.armed = True
        try:
            outcome = self._analyse(item)
        finally:
            self.watch.armed = False
        if self.watch.seen:
            return "finding", f"outside the folder: {self.watch.seen[0]}"
        return outcome

    def _analyse(self, item: Damaged) -> tuple[str, str]:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(_WAITING_SECONDS)
        try:
            estimate = analyzer.analyze(
                str(self.path), batch=item.batch, device="h200", runtime_options={"provider": item.provider}
            )
            wrong = contradiction(estimate, item.seed)
        except AnalyzerError as error:
            wrong = unclear(error)
            return ("finding", wrong) if wrong else (type(error).__name__, "")
        except _Late:
            return "finding", f"more than {SECONDS} seconds: {_last_lines()}"
        except (
            Exception,
            RecursionError,
        ) as error:  # what is looked for: any exception but the project's own
            return "finding", f"{type(error).__name__}: {str(error)[:200]}: {_last_lines()}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        return ("finding", wrong) if wrong else ("estimate", "")


def contradiction(estimate: Any, seed: int) -> str:
    """What cannot be in an estimate, or in how it is shown; "" if nothing."""
    if not estimate.device_used >= estimate.peak_reserved >= estimate.peak_allocated >= 0:
        return f"figures {estimate.device_used}, {estimate.peak_reserved}, {estimate.peak_allocated}"
    if min(estimate.graph_peak, estimate.naive.total, *estimate.breakdown.values(), 0) < 0:
        return "a negative figure"
    if seed % _RENDERED == 0:
        width = 40 + seed % 81
        text = formats.render("estimate", "text", estimate, formats.View(width=width))
        wide = next((line for line in text.splitlines() if len(line) > width), "")
        if wide:
            return f"a line of {len(wide)} columns of {width}: {wide}"
        if not text.replace("\n", "").isprintable():
            return "text that is not printable"
        json.loads(formats.render("estimate", "json", estimate))
    return ""


def unclear(error: AnalyzerError) -> str:
    """What is wrong with an error's text; "" if nothing."""
    if not error.message or not error.hint:
        return f"an error without message or hint: {error!r}"[:200]
    if not (error.message + error.hint).isprintable() or len(str(error)) > _LONGEST_ERROR:
        return f"an error whose text is no line: {str(error)[:200]!r}"
    if "internal error" in error.message:
        return error.message
    return ""


def _last_lines() -> str:
    """Where the exception that is being handled was raised, innermost last."""
    frames = traceback.extract_tb(sys.exc_info()[2])[-3:]
    return " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )


def _late(*_: Any) -> None:
    raise _Late


def _set_alarms() -> None:
    for which in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(which, _late)


def work(first: int, last: int, at: Any, until: float) -> Results:
    """Examine these seeds in this process; `at[0]` is the one that is being examined. Stops at `until`
    (`time.monotonic`)."""
    results = Results()
    seed = first
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examiner = Examiner(Path(folder))
        _set_alarms()
        for seed in range(first, last):
            at[0] = seed
            if time.monotonic() > until:
                break
            item = damaged(seed)
            started = time.process_time()
            outcome, what = examiner.examine(item)
            results.outcomes[outcome] += 1
            results.slowest = max(results.slowest, (round(time.process_time() - started, 2), seed))
            if outcome == "finding":
                results.findings.append({"seed": seed, "base": item.base, "what": what})
        else:
            seed = last
    results.ranges = _joined([(first, seed)])
    results.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return results


def _child(first: int, last: int, at: Any, until: float, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    sys.dont_write_bytecode = True
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # what the libraries say of damaged files
    pipe.send(work(first, last, at, until))


@dataclass(slots=True)
class _Slot:
    """A process at work on seeds up to `last`. seen: the seed it was at, and since when."""

    process: Any
    pipe: Any
    at: Any
    first: int
    last: int
    seen: tuple[int, float]


def campaign(ranges: Iterable[tuple[int, int]], processes: int, until: float, tell: Any = None) -> Results:
    """Examine ranges of seeds in processes of their own, up to `until` (`time.monotonic`)."""
    bases()
    context = multiprocessing.get_context("fork")
    results, left, slots = Results(), list(ranges)[::-1], list[_Slot]()
    while slots or (left and time.monotonic() < until):
        while left and len(slots) < processes and time.monotonic() < until:
            first, last = left.pop()
            here, there = context.Pipe(duplex=False)
            at = context.Array("q", [first], lock=False)
            process = context.Process(target=_child, args=(first, last, at, until, there))
            process.start()
            there.close()
            slots.append(_Slot(process, here, at, first, last, (first, time.monotonic())))
        multiprocessing.connection.wait([slot.pipe for slot in slots], timeout=1)
        for slot in list(slots):
            found, rest = _state(slot)
            if found is not None:
                results.add(found)
                slots.remove(slot)
                left += [part for part in rest if part[0] < part[1]]
                if tell is not None:
                    tell(results)
    return results


def _state(slot: _Slot) -> tuple[Results | None, list[tuple[int, int]]]:
    """The results of a process that has ended (None: it goes on), and the seeds it left because it died."""
    now = time.monotonic()
    if slot.pipe.poll():
        try:
            found: Results = slot.pipe.recv()
            slot.process.join()
            return found, []
        except EOFError:
            slot.process.join()
    elif slot.process.is_alive():
        if slot.at[0] != slot.seen[0]:
            slot.seen = (slot.at[0], now)
        if now - slot.seen[1] < _STUCK_SECONDS:
            return None, []
        slot.process.kill()
        slot.process.join()
    seed = slot.at[0]
    what = f"the process ended with code {slot.process.exitcode}, or was stuck in a library"
    lost = Results([(seed, seed + 1)], Counter(finding=1), [{"seed": seed, "base": "", "what": what}])
    # What came before in this share is tried again: its counts died with the process.
    return lost, [(slot.first, seed), (seed + 1, slot.last)]


@click.command("score")
@click.option("--first", default=0, help="the first seed")
@click.option("--count", default=20_000)
@click.option("--processes", default=2)
@click.option("--seconds", default=86_400.0, help="stop after so many")
@click.option("--seed", type=int, help="only this one, here, with its traceback")
@click.option("-o", "--output", type=Path)
def main(
    first: int, count: int, processes: int, seconds: float, seed: int | None, output: Path | None
) -> int:
    """Analyse the damaged file of every seed; 1 if something was found."""
    if seed is not None:
        return _one(seed)
    known = Results.read(output) if output else Results()
    started = time.monotonic()

    def tell(found: Results) -> None:
        done = sum(end - begin for begin, end in found.ranges)
        rate = done / (time.monotonic() - started)
        print(f"{done:,} files, {rate:.0f} a second, {len(found.findings)} findings", file=sys.stderr)

    ranges = missing(known.ranges, first, first + count)
    known.add(campaign(ranges, processes, started + seconds, tell))
    text = json.dumps(known.plain(), indent=1) + "\n"
    if output:
        output.write_text(text)
    print(text)
    return 1 if known.findings else 0


def _one(seed: int) -> int:
    """Examine one file, and raise what it raises."""
    item = damaged(seed)
    print(f"seed {seed}: {item.base}, batch {item.batch}, {item.provider}, {len(item.data)} bytes")
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        examiner = Examiner(Path(folder))
        _set_alarms()
        print(*examiner.examine(item))
        estimate = analyzer.analyze(
            str(examiner.path), batch=item.batch, device="h200", runtime_options={"provider": item.provider}
        )
    print(formats.render("estimate", "text", estimate))
    return 0
