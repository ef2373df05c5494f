"""Which convolutions whole programs run that nobody asked cuDNN about: followed by `analyze run`, written as a list of calls.

Run: `python -m benchmarks cudnn programs --output CALLS.npz [PROGRAM.py ARGS...]`, without a program those of
`PROGRAMS`, in the folder `tests/programs`, and the networks of `_USUAL`, which such programs train. Each convolution is also
listed at the batches of `_BATCHES`, in the dtype and layout it ran in: `ask.py` takes the list to a GPU.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np

import analyzer
from analyzer.libraries.cudnn.table import Convolution, measurements
from analyzer.runtimes.pytorch.scratch import convolution
from benchmarks import ROOT
from benchmarks.cudnn.calls import GROUPS, Calls, asked_calls
from benchmarks.networks import torchvision_cpu

_FOLDER = ROOT / "tests/programs"
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)
_ELEMENTS_MAX = 2**31
# Program, then for each argument the values it takes, in all combinations.
PROGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    "gan.py": {"--width": ("32", "48", "64", "96", "128"), "--steps": ("1",)},
    "ppo.py": {"--size": ("84", "64", "96"), "--length": ("4",), "--updates": ("1",)},
    "diffusion.py": {"--width": ("32", "64", "96", "128"), "--size": ("32", "64"), "--steps": ("1",)},
    "speech.py": {
        "--model": ("wav2vec", "listener"),
        "--frames": ("400", "600", "800", "1000"),
        "--steps": ("1",),
    },
    "prefetching.py": {"--size": ("32", "64", "128", "224"), "--steps": ("2",)},
}
_SWITCHES = {"diffusion.py": ("", "--amp")}
# Channels in and out, then spatial sizes, filter, stride and padding of what small networks for games, digits and sound
# begin and end with.
_USUAL = tuple(
    [(c, k, size, size, *form)
     for size in (64, 84, 96) for c in (1, 3, 4, 12) for k, *form in ((16, 8, 8, 4, 0), (32, 8, 8, 4, 0))]
    + [(c, 2 * c, size, size, 4, 4, 2, 0) for c in (16, 32) for size in (15, 20, 23)]
    + [(64, k, size, size, 3, 3, 1, 0) for k in (32, 64) for size in (6, 9, 10)]
    + [(c, k, 28, 28, *form) for c in (1, 3) for k in (6, 10, 16, 20, 32) for form in ((5, 5, 1, 0), (3, 3, 1, 0))]
    + [(c, k, size, size, *form) for size in (10, 12, 13, 14, 24, 26) for c, k in ((6, 16), (10, 20), (20, 50), (32, 64))
       for form in ((5, 5, 1, 0), (3, 3, 1, 0))]
    + [(3, k, 32, 32, *form) for k in (6, 32, 64) for form in ((5, 5, 1, 0), (3, 3, 1, 0))]
    + [(c, 1, 4, 4, 4, 4, 1, 0) for c in (256, 384, 512, 768, 1024)]
    + [(8 * k, latent, 4, 4, 4, 4, 1, 0) for k in (32, 48, 64, 96, 128) for latent in (64, 100, 128, 256)]
    + [(c, k, 80, frames, 11, 11, 2, 5) for c, k in ((1, 32), (32, 32)) for frames in (400, 800, 1600)]
    + [(1, k, 1, 16000, 1, *form) for k in (32, 64, 128, 512) for form in ((80, 4, 0), (80, 16, 38), (10, 5, 0))]
    + [(80, k, 1, frames, 1, 3, 1, 1) for k in (256, 384, 512) for frames in (400, 800, 1000, 1500, 3000)]
)  # fmt: skip


def combinations() -> Iterator[tuple[str, list[str]]]:
    """Every program with every choice of its arguments."""
    for name, arguments in PROGRAMS.items():
        for switch in _SWITCHES.get(name, ("",)):
            for values in itertools.product(*arguments.values()):
                given = [part for pair in zip(arguments, values, strict=True) for part in pair]
                yield str(_FOLDER / name), given + ([switch] if switch else [])


# A convolution met: dtype and layout, family, batch.
Met = tuple[str, tuple[int, ...], int]


def met_while(follow: Callable[[], object], known: bool = False) -> set[Met]:
    """The convolutions an analysis meets and the table does not know, or all it meets."""
    found = set[Met]()
    ask = convolution.workspace

    def noted(call: Convolution, *rest: Any, **named: Any) -> Any:
        answer = ask(call, *rest, **named)
        if known or answer.source != "measured":
            group = f"{call.dtype}.{'nhwc' if call.channels_last else 'nchw'}"
            found.add((group, call.family, call.x_shape[0]))
        return answer

    with mock.patch.object(convolution, "workspace", noted):
        follow()
    return found


def seen_in(program: str, arguments: list[str]) -> set[Met]:
    """Those of a program."""
    return met_while(lambda: analyzer.run(program, arguments, device="h200", until=2))


def usual() -> Iterator[Met]:
    """The convolutions of `_USUAL`, in float32 and both 16-bit types; one dimension has stride and padding of its own."""
    for c, k, height, width, across, along, stride, padding in _USUAL:
        flat = height == 1
        strides, paddings = ((1, stride), (0, padding)) if flat else ((stride,) * 2, (padding,) * 2)
        call = Convolution(
            "forward",
            "float32",
            False,
            (1, c, height, width),
            (k, c, across, along),
            paddings,
            strides,
            (1, 1),
        )
        for group in ("float32.nchw", "bfloat16.nchw", "float16.nchw"):
            yield group, call.family, 32


def _usual_type_first(call: tuple[Any, ...]) -> tuple[Any, ...]:
    return (GROUPS.index(call[0]), *call[1:])


def write(seen: set[Met], batches: Iterable[int], output: Path) -> None:
    """These convolutions, and each at every one of `batches` as well, as a list of calls that nobody asked yet."""
    families = sorted({family for _, family, _ in seen})
    number = {family: row for row, family in enumerate(families)}
    asked = asked_calls(measurements("h200"), None)
    wanted = dict.fromkeys(sorted(seen, key=_usual_type_first))
    for group, family in sorted({(group, family) for group, family, _ in seen}, key=_usual_type_first):
        channels, depth, height, width, k = family[:5]
        for batch in batches:
            if max(channels, k) * max(depth, 1) * height * width * batch < _ELEMENTS_MAX:
                wanted[group, family, batch] = None
    entries = [
        (number[family], GROUPS.index(group), batch)
        for group, family, batch in wanted
        if (group, family, batch) not in asked
    ]
    Calls(np.array(families), np.array(entries)).write(output)


@click.command("programs", context_settings={"ignore_unknown_options": True})
@click.option("--output", type=Path, required=True, help="the list (.npz)")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def main(output: Path, program: tuple[str, ...]) -> None:
    """List what a program, or all of `PROGRAMS`, meets and the table lacks."""
    torchvision_cpu.enable()
    runs = [(program[0], list(program[1:]))] if program else list(combinations())
    seen = set() if program else set(usual())
    for name, arguments in runs:
        try:
            seen |= seen_in(name, arguments)
        except analyzer.AnalyzerError as error:
            print(f"{name} {arguments}: {error}", file=sys.stderr)
        print(f"{Path(name).name} {' '.join(arguments)}: {len(seen)} convolutions", file=sys.stderr)
    write(seen, _BATCHES, output)
