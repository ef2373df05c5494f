"""What each release of torch calls its operators' arguments: `tests/data/releases/schemas`, by which the names that rules read are
held to every supported release.

    pip download --no-deps --only-binary :all: --platform macosx_11_0_arm64 --python-version 3.11 torch==2.15.0    (the smallest wheel)
    python -m benchmarks releases schemas torch-*.whl

One file a release, with what differs from the releases before it: an overload's arguments by name, null for one that is gone. Read
from `torchgen/packaged/ATen/native/native_functions.yaml`, which every wheel holds; a file that is there is not written anew.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parents[2] / "tests" / "data" / "releases" / "schemas"
_LISTED = "torchgen/packaged/ATen/native/native_functions.yaml"
_FUNCTION = re.compile(r"^- func: (\w+)(?:\.(\w+))?\((.*)\) ->", re.MULTILINE)
Names = dict[str, list[str]]  # an overload ("aten::sum.dim_IntList") and its arguments' names


def recorded() -> dict[tuple[int, int], Names]:
    """Every recorded release, with all its overloads."""
    found: dict[tuple[int, int], Names] = {}
    names: Names = {}
    for release, path in sorted(
        (_release(path.name.removesuffix(".json.gz")), path) for path in SCHEMAS.glob("*.gz")
    ):
        changed = json.loads(gzip.decompress(path.read_bytes()))
        names = {name: value for name, value in (names | changed).items() if value is not None}
        found[release] = names
    return found


def main(arguments: list[str]) -> int:
    """Write the files of these wheels' releases that are not there yet, the oldest first."""
    SCHEMAS.mkdir(exist_ok=True)
    for release, wheel in sorted((_release(Path(wheel).name.split("-")[1]), wheel) for wheel in arguments):
        there = recorded()
        if release in there or any(later > release for later in there):
            print(f"{wheel}: {release} or a later release is there already")
            continue
        names, before = _names(wheel), (list(there.values()) or [{}])[-1]
        changed: dict[str, list[str] | None] = {n: v for n, v in names.items() if before.get(n) != v}
        changed |= dict.fromkeys(set(before) - set(names))
        text = json.dumps(changed, sort_keys=True, separators=(",", ":"))
        path = SCHEMAS / f"{release[0]}.{release[1]}.json.gz"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{path.name}: {len(changed)} of {len(names)} overloads")
    return 0


def _names(wheel: str) -> Names:
    listed = zipfile.ZipFile(wheel).read(_LISTED).decode()
    found: Names = {}
    for name, overload, arguments in _FUNCTION.findall(listed):
        if not overload.endswith("out"):
            # "Tensor(a!) self, int[2] stride=[1, 1], *, float p=0.5": the name is the last word before the default.
            words = re.findall(r"(\w+)(?:=(?:\[[^]]*\]|[^,]*))?(?:,|$)", re.sub(r"\([^)]*\)", "", arguments))
            found[f"aten::{name}.{overload or 'default'}"] = words
    return found


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
