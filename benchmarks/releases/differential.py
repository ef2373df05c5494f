"""Random requests to a release's own allocator beside our simulator: every segment and every block, many times on the way.

    python -m benchmarks releases differential PYTHON [--requests 1000000] [--seed 1] [--programs "default;expandable"]

PYTHON has a CUDA build of torch, which runs under the emulated runtime. Each program of `requests.py` is carried out by both; a state
that differs ends it, and is printed. What came of it goes into `differential/torch_RELEASE.json` beside this file, which
`python -m benchmarks releases table` shows.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.process import Process
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create
from analyzer.allocators.pytorch.settings import ties_of
from analyzer.devices import DeviceProfile, load
from analyzer.releases import parse, written
from analyzer_emulation import launch
from benchmarks import ROOT
from benchmarks.subjects.requests import POINT, PROGRAMS, STREAMS, carry_out

COUNTS = ROOT / "benchmarks" / "releases" / "differential"
# In which order PyTorch looks whether its streams are done: that of a hash table, found by trying all. It decides which of two neighbours
# that two streams give back at once takes up the other, and so in torch 2.12 how old the block is that is left.
ORDER = (0, *range(STREAMS - 1, 0, -1))


class Ours:
    """Our simulator, on a device that has done with a stream's work as soon as it is asked: at the next request."""

    def __init__(self, conf: str, profile: DeviceProfile, release: tuple[int, int]) -> None:
        self.refused = 0
        self.of: PyTorchAllocator = create(
            conf,
            Process(),
            ties=ties_of(release),
            device_total_bytes=profile.capacity_bytes,
            limit_bytes=profile.capacity_bytes - profile.context_bytes,
        )

    def take(self, nbytes: int, stream: int, tensor: bool) -> Any:  # noqa: ARG002
        if nbytes:
            for each in ORDER:
                self.of.wait(each)
        try:
            return self.of.malloc(nbytes, stream)
        except OutOfMemoryError:
            self.refused += 1
            return None

    def give(self, memory: Any) -> None:
        self.of.free(memory)

    def use(self, memory: Any, stream: int) -> None:
        self.of.use(memory, stream)

    def synchronize(self) -> None:
        pass  # PyTorch hears of it at the next request

    def empty_cache(self) -> None:
        self.of.empty_cache()

    def fraction(self, value: float) -> None:
        self.of.end_event("set_per_process_memory_fraction", value)

    def state(self) -> Any:
        of = self.of
        figures = [
            of.allocated,
            of.peak_allocated,
            of.reserved,
            of.peak_reserved,
            of.requested,
            of.peak_requested,
        ]
        segments = [
            [
                segment.address,
                segment.size,
                segment.small,
                segment.stream,
                segment.expandable,
                [
                    [block.size, block.requested, block.allocated + 2 * block.pending]
                    for block in segment.blocks
                ],
            ]
            for segment in of.snapshot()
        ]
        return [figures, segments]


@click.command("differential")
@click.argument("python")
@click.option("--requests", default=1_000_000)
@click.option("--seed", default="1")
@click.option("--programs", "named", default="", help="these only, with ; between them")
def main(python: str, requests: int, seed: str, named: str) -> int:
    """Play all programs on one release; 1 where a state differs."""
    torch = launch.find_torch(python)
    release = parse(torch.version)
    chosen = {
        name: PROGRAMS[name]
        for name in [*filter(None, named.split(";"))] or PROGRAMS
        if release >= PROGRAMS[name].since
    }
    each = -(-requests // len(chosen) // POINT) * POINT
    found = {}
    for name in chosen:
        started = time.monotonic()
        found[name] = beside(torch, name, seed, each)
        print(f"torch {torch.version}, {name}: {found[name]}, {time.monotonic() - started:.0f} s", flush=True)
    if not named:
        COUNTS.mkdir(exist_ok=True)
        told = {"torch": torch.version, "seed": seed, "programs": found}
        (COUNTS / f"torch_{written(release)}.json").write_text(json.dumps(told, indent=1) + "\n")
    return int(any(counts["equal"] < counts["points"] for counts in found.values()))


def beside(torch: launch.Torch, name: str, seed: str, count: int) -> dict[str, int]:
    """One program on both sides: how many requests, points, segments and blocks were compared, at how many points all was equal (those
    after the first difference count as different), how many requests found no room, and how often the driver was asked for memory or
    given some back."""
    program = PROGRAMS[name]
    profile = load("h200")
    if program.room is not None:
        profile = replace(profile, capacity_bytes=profile.context_bytes + program.room)
    with tempfile.TemporaryDirectory() as folder, launch.environment(torch.cuda, profile, {}) as variables:
        out = Path(folder) / "states"
        own = (
            {"PYTORCH_CUDA_ALLOC_CONF": program.conf, "PYTORCH_ALLOC_CONF": program.conf}
            if program.conf
            else {}
        )
        own["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # that there is no room, it warns of each time
        command = [torch.python, "-m", "benchmarks.releases.request_states", name, seed, str(count), out]
        code = launch.run(command, {**variables, **own, "PYTHONPATH": str(ROOT)})
        if code:
            raise SystemExit(f"torch {torch.version}, {name}: exit code {code}")
        side = Ours(program.conf, profile, parse(torch.version))
        counts = {"requests": count, "points": count // POINT, "equal": 0, "segments": 0, "blocks": 0}
        with out.open() as lines:
            states = carry_out(program, seed, count, side)
            for line, state in zip(lines, states, strict=True):
                real, ours = comparable(json.loads(line)), comparable(state)
                if real != ours:
                    print(f"{name}, seed {seed}: differs after {(counts['equal'] + 1) * POINT} requests")
                    print("\n".join(differences(real, ours)), flush=True)
                    break
                counts["equal"] += 1
                counts["segments"] += len(real[1])
                counts["blocks"] += sum(len(segment[-1]) for segment in real[1])
    return {**counts, "refused": side.refused, "exchanges": side.of.device_calls}


def comparable(state: Any) -> Any:
    """A state with the addresses of expandable ranges counted from the lowest of their pool: where a range begins is the driver's choice."""
    figures, segments = state
    lowest: dict[Any, int] = {}
    for address, _, small, stream, expandable, _ in segments:
        if expandable:
            lowest[small, stream] = min(address, lowest.get((small, stream), address))
    found = [[s[0] - lowest[s[2], s[3]] if s[4] else s[0], *s[1:]] for s in segments]
    return [figures, sorted(found, key=lambda s: (s[2:5] if s[4] else [], s[0]))]


def differences(real: Any, ours: Any) -> list[str]:
    """Both sides of what differs, a line each."""
    lines = [f"  peaks: {real[0]}, ours {ours[0]}"] if real[0] != ours[0] else []
    for sign, one, other in (("real", real[1], ours[1]), ("ours", ours[1], real[1])):
        lines += [f"  {sign}: {segment}" for segment in one if segment not in other][:6]
    return lines


def table() -> list[str]:
    """What came of each release, as the lines of a section of RELEASES.md."""
    found = {
        path.stem.removeprefix("torch_"): json.loads(path.read_text()) for path in COUNTS.glob("torch_*.json")
    }
    lines = [
        "## Random requests",
        "",
        "The same random requests (`benchmarks/subjects/requests.py`) to PyTorch's own caching allocator under the emulated runtime and to our "
        f"simulator: {len(PROGRAMS)} programs of settings, four streams, `record_stream`, `empty_cache`, limits by fraction and by the device. After "
        f"every {POINT} requests each segment and block is compared (address, bytes, what was requested, state, stream, kind), and what is allocated, "
        "reserved and requested with its peaks. An expandable range's addresses count from its lowest page.",
        "",
        "| torch | requests | without room | exchanges with the driver | segments compared | blocks compared | states that are the same |",
        f"|---|{'--:|' * 6}",
    ]
    for release in sorted(found, key=parse):
        programs = found[release]["programs"].values()
        total = {name: sum(counts[name] for counts in programs) for name in next(iter(programs))}
        lines.append(
            f"| {found[release]['torch']} | {total['requests']:,} | {total['refused']:,} | {total['exchanges']:,} | {total['segments']:,} | "
            f"{total['blocks']:,} | {total['equal']:,} of {total['points']:,} |"
        )
    return [
        *lines,
        "",
        "What it found: in torch 2.12 alone, of several free blocks of one size, the block that was made first serves (pull request 178362 of PyTorch; "
        "a block that is handed out of a larger one is new, the rest is the old one); a block that another stream still uses counts as requested, not as "
        "allocated; since torch 2.13 an expandable segment asks NVML for a fabric.",
    ]
