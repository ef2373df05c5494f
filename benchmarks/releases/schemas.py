"""What each release of torch calls its operators' arguments, and which operators CUDA has no kernel for: `tests/data/releases/schemas`
and `composite`. The names that rules read, and the operators that are followed into their parts, are held to every supported release.

    pip download --no-deps --only-binary :all: --platform macosx_11_0_arm64 --python-version 3.11 torch==2.15.0    (the smallest wheel)
    python -m benchmarks releases schemas torch-*.whl

One file a release in each folder, with what differs from the releases before it: an overload's arguments by name, or true for one
that has a CompositeExplicit kernel and none for CUDA; null for what is no more. Read from
`torchgen/packaged/ATen/native/native_functions.yaml`, which every wheel holds; a file that is there is not written anew.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.harness import files

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "releases"
_LISTED = "torchgen/packaged/ATen/native/native_functions.yaml"
_FUNCTION = re.compile(r"(\w+)(?:\.(\w+))?\((.*)\) ->")
Names = dict[str, list[str]]  # an overload ("aten::sum.dim_IntList") and its arguments' names


def recorded() -> dict[tuple[int, int], Names]:
    """The names of every recorded release, all its overloads."""
    return _recorded("schemas")


def without_kernel() -> dict[tuple[int, int], frozenset[str]]:
    """The overloads of every recorded release that CUDA has no kernel for, and PyTorch makes of others."""
    return {release: frozenset(found) for release, found in _recorded("composite").items()}


def _recorded(kind: str) -> dict[tuple[int, int], dict[str, Any]]:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    entries: dict[str, Any] = {}
    paths = (FOLDER / kind).glob("*.json.gz")
    for release, path in sorted((_release(path.name.removesuffix(".json.gz")), path) for path in paths):
        changed = files.read(path)
        entries = {name: value for name, value in (entries | changed).items() if value is not None}
        found[release] = entries
    return found


@click.command("schemas")
@click.argument("wheels", nargs=-1, required=True)
def main(wheels: tuple[str, ...]) -> None:
    """Write the files of these wheels' releases that are not there yet, the oldest first."""
    for release, wheel in sorted((_release(Path(wheel).name.split("-")[1]), wheel) for wheel in wheels):
        for kind, entries in zip(("schemas", "composite"), _read(wheel), strict=True):
            _write(kind, release, entries)


def _write(kind: str, release: tuple[int, int], entries: Mapping[str, Any]) -> None:
    there = _recorded(kind)
    path = FOLDER / kind / f"{release[0]}.{release[1]}.json.gz"
    if any(later >= release for later in there):
        print(f"{path}: it or a later release is there already")
        return
    before = (list(there.values()) or [{}])[-1]
    changed = {name: value for name, value in entries.items() if before.get(name) != value}
    changed |= dict.fromkeys(set(before) - set(entries))
    path.parent.mkdir(exist_ok=True)
    files.write(path, changed, sort_keys=True)
    print(f"{path}: {len(changed)} of {len(entries)} overloads")


def _read(wheel: str) -> tuple[Names, dict[str, bool]]:
    listed = zipfile.ZipFile(wheel).read(_LISTED).decode()
    names: Names = {}
    composite: dict[str, bool] = {}
    for entry in re.split(r"^- func: ", listed, flags=re.MULTILINE)[1:]:
        found = _FUNCTION.match(entry)
        if found is None or (found[2] or "").endswith("out"):
            continue
        overload = f"aten::{found[1]}.{found[2] or 'default'}"
        # "Tensor(a!) self, int[2] stride=[1, 1], *, float p=0.5": the name is the last word before the default.
        plain = re.sub(r"\([^)]*\)", "", found[3])
        names[overload] = re.findall(r"(\w+)(?:=(?:\[[^]]*\]|[^,]*))?(?:,|$)", plain)
        kernels = set(
            re.findall(r"\w+(?=[\w, ]*:)", " ".join(re.findall(r"^    ([\w, ]+:)", entry, re.MULTILINE)))
        )
        if "CUDA" not in kernels and any(kernel.startswith("CompositeExplicit") for kernel in kernels):
            composite[overload] = True
    return names, composite


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
