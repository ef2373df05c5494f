"""Releases of torch by GPUs: what PyTorch's own binaries take, emulated, for the programs of `release_programs.py`.

    python -m benchmarks releases matrix PYTHON [--devices h200,l4] [--programs "blocks;unet"]
    python -m benchmarks releases table

PYTHON has a CUDA build of torch. Its rows go into `tests/data/releases/torch_RELEASE.json`, which a test holds our figures to; `table`
writes into docs/evidence/RELEASES.md how many are the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from analyzer.devices import resolve
from analyzer.emulation import launch
from analyzer.emulation.cudnn import Cudnn
from analyzer.emulation.kernels import Kernels
from analyzer.emulation.questions import Questions
from analyzer.errors import AnalyzerError
from analyzer.releases import parse, written

DEVICES = ("h200", "h100", "a100-80gb", "t4", "l4", "rtx4090", "b200")
HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "tests" / "data" / "releases"


def main(arguments: list[str]) -> int:
    """Observe one release on all devices."""
    said = argparse.ArgumentParser("python -m benchmarks releases matrix")
    said.add_argument("python")
    said.add_argument("--devices", default=",".join(DEVICES))
    said.add_argument("--programs", default="")
    asked = said.parse_args(arguments)
    torch = launch.find_torch(asked.python)
    path = DATA / f"torch_{written(parse(torch.version))}.json"
    for name in asked.devices.split(","):
        started = time.monotonic()
        profile, _ = resolve(name)
        with (
            Questions({**Cudnn(profile).topics, **Kernels(torch.packages).topics}) as questions,
            launch.environment(torch, profile, questions.environment) as variables,
        ):
            programs = filter(None, asked.programs.split(";"))
            code = launch.run([torch.python, HERE / "observe.py", path, name, *programs], variables)
        print(
            f"torch {torch.version} on {name}: exit code {code}, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        if code:
            return code
    return 0


def table() -> list[str]:
    """Our figures beside the observed ones, as the lines of a section of RELEASES.md: some minutes."""
    sys.path.insert(0, str(HERE))  # where `release_programs` is imported by its own name, as PYTHON does
    from release_figures import predicted

    observed = {
        path.stem.removeprefix("torch_"): json.loads(path.read_text())["devices"]
        for path in DATA.glob("torch_*.json")
    }
    releases = sorted(observed, key=parse)
    names = {(device, name) for of in observed.values() for device, rows in of.items() for name in rows}
    same, count = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    refused = defaultdict[str, list[str]](list)
    peaks, off = 0, defaultdict[str, list[tuple[str, str, float]]](list)
    for device, name in sorted(names):
        mine = [release for release in releases if name in observed[release].get(device, {})]
        try:
            all_found = list(predicted(device, name, mine))
        except AnalyzerError as error:
            refused[device].append(f"{name} ({error.message})")
            continue
        for release, found in zip(mine, all_found, strict=True):
            seen = observed[release][device][name]
            count[release, device] += 1
            same[release, device] += found == seen
            peaks += found[:2] == seen[:2]
            if found[:2] != seen[:2]:
                off[name].append(
                    (release, device, 100 * max(found[0] / seen[0] - 1, found[1] / seen[1] - 1, key=abs))
                )
    lines = [
        "## The matrix",
        "",
        f"Every request and peak of {sum(count.values()):,} programs, each under one release on one GPU: of {sum(same.values()):,} all figures (peaks "
        f"allocated, reserved and requested, how many requests and bytes) are those of PyTorch's own binary under the emulated runtime, of {peaks:,} "
        "the peaks allocated and reserved. A cell: the same in all, of how many.",
        "",
        f"| torch | {' | '.join(DEVICES)} |",
        f"|---|{'--:|' * len(DEVICES)}",
    ]
    for release in releases:
        cells = [
            f"{same[release, d]} of {count[release, d]}" if count[release, d] else "no code" for d in DEVICES
        ]
        lines.append(f"| {release} | {' | '.join(cells)} |")
    lines += [f"\nNot followed on {device}: {'; '.join(names)}." for device, names in sorted(refused.items())]
    lines += ["", "Other peaks (the larger difference of the two, in %):", ""]
    for name, cells_off in sorted(off.items()):
        by_value = defaultdict[str, list[str]](list)
        for release, device, percent in cells_off:
            by_value[f"{percent:+.2f}"].append(f"{release} {device}")
        told = "; ".join(f"{value} ({', '.join(sorted(where))})" for value, where in sorted(by_value.items()))
        lines.append(f"- {name}: {told}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
