"""What `observe.py` saw of each release of torch: the shards of `tests/data/releases`, which are only added to.

`torch_2.6.json` is the first of torch 2.6, `torch_2.6_2.json` the second; a program on a GPU stands in one of them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import ASKED, Choices, Workspace, choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Question
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.releases import parse
from benchmarks import ROOT

DATA = ROOT / "tests" / "data" / "releases"


def rows() -> dict[str, dict[str, dict[str, list[int]]]]:
    """Release, device and program, oldest release first: the figures that `observe.py` names. A row that two shards have is an error."""
    found: dict[str, dict[str, dict[str, list[int]]]] = {}
    for path in sorted(DATA.glob("torch_*.json"), key=lambda path: (parse(_release(path)), path.stem)):
        release = found.setdefault(_release(path), {})
        for device, programs in json.loads(path.read_text())["devices"].items():
            known = release.setdefault(device, {})
            if twice := known.keys() & programs:
                raise ValueError(f"{path.name}: {device} has {', '.join(sorted(twice))} in another shard too")
            known.update(programs)
    return found


@contextlib.contextmanager
def convolutions() -> Iterator[None]:
    """While open, convolutions take what the emulated library took for them while the releases were observed."""
    put: list[tuple[Choices, tuple[Convolution, ConvolutionSettings, bool]]] = []
    rows = json.loads((DATA / "cudnn_while_observed.json").read_text())["rows"]
    for device, *fields, settings, trial, nbytes in rows:
        call = Question.read(["pytorch", *fields[:5], (), *fields[5:], False]).call
        choices, key = choices_of(load(device)), (call, ConvolutionSettings(*settings), trial)
        choices._known[key] = Workspace.known(nbytes, ASKED)
        put.append((choices, key))
    try:
        yield
    finally:
        for choices, key in put:
            del choices._known[key]


def next_shard(release: str) -> Path:
    """Where further rows of a release go: a file that is not there yet."""
    count = sum(_release(path) == release for path in DATA.glob("torch_*.json"))
    return DATA / f"torch_{release}{f'_{count + 1}' if count else ''}.json"


def _release(shard: Path) -> str:
    return shard.stem.split("_")[1]
