"""FakeGPU beside this package's emulation on measured programs: docs/evidence/EMULATION_PEERS.md.

    python -m benchmarks emulation peers FAKEGPU FOLDER PYTHON [NAME ...]

FAKEGPU: a checkout of github.com/FanBB2333/FakeGPU, built there (`cmake -S . -B build && cmake --build build`). FOLDER: programs measured on an
H200 (`programs/jobs.json`, `h200/programs/rows.json`). PYTHON: of an environment with torch 2.11.0+cu130 and what the programs need, and
PyYAML; its file's name begins with "python". NAME: only these are run anew. What was found lies beside the page, as JSON.

Each program runs three times: here, under FakeGPU's `fakecuda` (PyTorch's operators on the CPU) and under its `native` runtime (CUDA's
libraries intercepted, as here). Its figures are those of its own report of a run (`fakegpu preflight`).
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

PAGE = ROOT / "docs" / "evidence" / "EMULATION_PEERS.md"
DATA = PAGE.with_name("emulation_peers.json")
NAMES = (
    "mnist", "gpt_char", "gpt_char_fp32", "lora", "generate_static", "settings_gpt_default", "compile_gpt",
)  # fmt: skip
LONGEST_SECONDS = 180
GIB = 2**30
TOOLS = {"here": "analyze emulate", "fakecuda": "FakeGPU, fakecuda", "native": "FakeGPU, native"}


def ran(command: Sequence[str | Path], variables: Mapping[str, str], last: Path) -> dict[str, Any]:
    """Seconds of a command's processors and the most host memory of one of its processes; and why it failed. last: what it printed."""
    with last.open("w") as printed:
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=printed, stderr=printed, start_new_session=True
        )
        until = time.monotonic() + LONGEST_SECONDS
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.1)
        late = ended[0] == 0
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            ended = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    usage = ended[2]
    found: dict[str, Any] = {
        "seconds": round(usage.ru_utime + usage.ru_stime, 1), "host_bytes": usage.ru_maxrss * 1024
    }  # fmt: skip
    if late:  # what was ended tells nothing of those it had started
        found = {
            "seconds": LONGEST_SECONDS,
            "host_bytes": None,
            "failed": f"not through in {LONGEST_SECONDS} s",
        }
    elif process.returncode:
        found["failed"] = f"ended with code {process.returncode}"
    return found


def here(program: Path, job: Mapping[str, Any], python: str, folder: Path) -> dict[str, Any]:
    """This package's."""
    out = folder / "estimate.json"
    command = [
        sys.executable, "-m", "analyzer", "emulate", "--python", python, "--device", "h200", "--format", "json", "-o", out,
        program, *job["args"],
    ]  # fmt: skip
    found = ran(command, {"PYTHONPATH": str(ROOT), **job["environment"]}, folder / "printed")
    if "failed" not in found:
        estimate = json.loads(out.read_text("utf-8"))
        found |= {"allocated": estimate["peak_allocated"], "reserved": estimate["peak_reserved"]}
    return found


def theirs(
    runtime: str, fakegpu: Path, program: Path, job: Mapping[str, Any], python: str, folder: Path
) -> dict[str, Any]:
    """FakeGPU's, from its report."""
    command = [
        python, "-m", "fakegpu", "preflight", "--runtime", runtime, "--build-dir", fakegpu / "build", "--profile", "h200",
        "--device-count", "1", "--report-dir", folder, "--", python, program, *job["args"],
    ]  # fmt: skip
    found = ran(command, {"PYTHONPATH": str(fakegpu), **job["environment"]}, folder / "printed")
    report = folder / "preflight_report.json"
    if not report.exists():
        return {**found, "failed": found.get("failed", "no report")}
    said = json.loads(report.read_text("utf-8"))
    if "failed" in found:
        if not found["failed"].startswith("not through"):
            found["failed"] = _why(said, folder)
        return found
    device = next(iter(said["devices"]), None)
    if said["exit_code"] or device is None:
        return {**found, "failed": _why(said, folder)}
    allocated = device.get("allocated_peak_memory")
    reserved = device.get("peak_reserved_memory", device["peak_memory"])
    return found | {"allocated": allocated, "reserved": reserved}


def _why(report: Mapping[str, Any], folder: Path) -> str:
    """The program's own last error, in one line."""
    if report["exit_code"] is not None and report["exit_code"] < 0:
        return f"ended by {signal.Signals(-report['exit_code']).name}"
    printed = folder / "preflight_stderr.log"
    lines = printed.read_text("utf-8", errors="replace").splitlines() if printed.exists() else []
    errors = [line.strip() for line in lines if line[:1].isalpha() and "Error" in line.partition(":")[0]]
    return errors[-1][:120] if errors else f"{report['status']}, exit code {report['exit_code']}"


def _gib(nbytes: int | None) -> str:
    return "-" if nbytes is None else f"{nbytes / GIB:.1f} GiB"


def cell(found: Mapping[str, Any], measured: int, which: str) -> str:
    """How far a tool is off."""
    if "failed" in found or found.get(which) is None:
        return "-"
    off = 100 * (found[which] / measured - 1)
    return "exact" if not off else f"{off:+.2f} %"


def page(rows: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """The page."""
    told = [
        "# Emulation, beside FakeGPU",
        "",
        "Written by `python -m benchmarks emulation peers`; never edited. Programs measured on an H200 (torch 2.11.0+cu130), run without a GPU by "
        f"`analyze emulate` and by [FakeGPU](https://github.com/FanBB2333/FakeGPU) {rows['version']}: its `fakecuda` runtime runs PyTorch's operators on "
        "the CPU and tracks tensors, its `native` runtime answers CUDA's libraries from host memory. Errors are against the measured peaks; seconds are "
        "those of all processors, host memory that of the largest process. FakeGPU's are those of `fakegpu preflight`'s report; no answer where the "
        "program ended in an error, or after three minutes.",
        "",
    ]
    for tool, title in TOOLS.items():
        mine = {name: row[tool] for name, row in rows["programs"].items() if tool in row}
        done = [name for name, found in mine.items() if "failed" not in found]
        off = sorted(abs(100 * (mine[n]["allocated"] / measured[n]["peak_allocated"] - 1)) for n in done)
        if off:
            told.append(
                f"- {title}: {len(done)} of {len(mine)} programs; allocated off by {statistics.median(off):.2f} % in the median, {off[-1]:.2f} % at most; "
                f"{statistics.median(mine[n]['seconds'] for n in done):.0f} s and {statistics.median(mine[n]['host_bytes'] for n in done) / GIB:.1f} GiB in "
                "the median"
            )
        else:
            told.append(f"- {title}: 0 of {len(mine)} programs")
    told += [
        "",
        "| program | measured allocated, reserved, MiB | tool | allocated | reserved | seconds | host memory | cannot |",
        "|---|--:|---|--:|--:|--:|--:|---|",
    ]
    for name, row in rows["programs"].items():
        peaks = " / ".join(
            f"{measured[name][which] / 2**20:,.0f}" for which in ("peak_allocated", "peak_reserved")
        )
        for tool, title in TOOLS.items():
            found = row[tool]
            told.append(
                f"| {name} | {peaks} | {title} | {cell(found, measured[name]['peak_allocated'], 'allocated')} | "
                f"{cell(found, measured[name]['peak_reserved'], 'reserved')} | {found['seconds']:.0f} | "
                f"{_gib(found['host_bytes'])} | {found.get('failed', '').replace('|', ' ')} |"
            )
    return "\n".join(told) + "\n"


@click.command("peers")
@click.argument("fakegpu", type=Path)
@click.argument("folder", type=Path)
@click.argument("python")
@click.argument("names", nargs=-1)
def main(fakegpu: Path, folder: Path, python: str, names: tuple[str, ...]) -> None:
    """Run the programs, all or those named, here and under FakeGPU, and write the page."""
    fakegpu = fakegpu.resolve()
    jobs = {job["name"]: job for job in json.loads((folder / "programs/jobs.json").read_text("utf-8"))}
    rows = json.loads((folder / "h200/programs/rows.json").read_text("utf-8"))
    measured = {row["name"]: row for row in rows}
    found = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {"programs": {}}
    found["version"] = (fakegpu / "fakegpu/_version.py").read_text("utf-8").split('"')[1]
    for name in names or NAMES:
        job, program = jobs[name], (folder / jobs[name]["program"]).resolve()
        row = {}
        for tool in TOOLS:
            with tempfile.TemporaryDirectory() as out:
                row[tool] = (
                    here(program, job, python, Path(out))
                    if tool == "here"
                    else theirs(tool, fakegpu, program, job, python, Path(out))
                )
            print(name, tool, row[tool], flush=True)
        found["programs"][name] = row
        found["programs"] = {name: found["programs"][name] for name in NAMES if name in found["programs"]}
        DATA.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        PAGE.write_text(page(found, measured), "utf-8")
