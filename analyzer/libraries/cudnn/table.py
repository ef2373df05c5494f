"""The tables of cuDNN's choices: one for each GPU or compute capability, read and written here.

The H200's was asked on the GPU itself; those of other compute capabilities ("sm86") of the same cuDNN with the GPU's public figures
in its place (`benchmarks/cudnn/elsewhere.py`). Asked both ways for the H200, 3,720 of 3,720 calls give the same list, engine by
engine, with the same notes, but that the last list lacks an engine compiled at run time (data 78, weight 70: no first choice), and the
same bytes but for six engines (forward 62, 67; data 67, 71; weight 65, 68). Those six are Hopper's: no other GPU's list has them.

A call of the table is a **family** (everything about a convolution but operation, dtype, layout and batch) at a batch.
`calibrate` asks the calls of the shipped table again on another GPU; `convolutions` looks workspaces up.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.shards import Joined, files

OPERATIONS = ("forward", "data", "weight")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
# What is kept of an answer (`answers.Answer`): the first plan's workspace with the default settings, in deterministic mode
# and without TF32; the workspace of benchmark mode's trials with each; the workspaces of the plans that follow the first
# (default settings); the largest of those that are timed.
FIRST, DETERMINISTIC, STRICT = "first", "deterministic", "strict"
TRIAL, DETERMINISTIC_TRIAL, STRICT_TRIAL = "trial", "deterministic_trial", "strict_trial"
AFTER = ("after1", "after2", "after3")
TIMED, FASTEST = "timed", "winner"
FIGURES = (FIRST, DETERMINISTIC, STRICT, TRIAL, DETERMINISTIC_TRIAL, STRICT_TRIAL, *AFTER, TIMED, FASTEST)
NO_PLAN, NOT_ASKED, AS_FIRST = -1, -2, -3

# The device whose calls are asked again elsewhere, and whose table stands in for a device without one.
MODELLED_ON = "h200"
# The table of a compute capability, where it is not called "sm86". cuDNN chose the same for an H100's figures as for the H200's
# (930 of 930 calls).
_TABLES = {"sm90": MODELLED_ON}
# Whose table stands in for one nobody made: Volta has neither bfloat16 nor TF32, as Turing; Orin is an Ampere; cuDNN 9.19 answers
# nothing for compute capability 10 without a GPU.
_STANDS_IN = {"sm70": "sm75", "sm72": "sm75", "sm75.large": "sm75", "sm87": "sm86", "sm121": "sm120"}
# Of compute capability 7.5 cuDNN chooses the same with 40 to 56 multiprocessors, otherwise with 68 and more (TITAN RTX: 178 of 930
# calls). Of 8.0, 8.6, 8.9, 9.0 and 12.0 it looks at no other figure than clocks, in 2 of 300 calls.
_LARGE_TURING_SMS = 60
# Neighbours that vote on a call nobody measured.
VOTERS = 6
# Batch sizes training and inference are run with most often are asked first.
_COMMON_BATCHES = (1, 32, 8, 64, 16, 4, 128, 2)

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One cuDNN convolution: x * w -> y; for "data" and "weight" the same shapes, other results.

    operation: "forward", "data" (gradient of x) or "weight" (gradient of w).
    x_shape, w_shape: (N, C, *spatial), (K, C/groups, *filter); padding, stride, dilation per spatial dimension.
    channels_last: all three tensors lie in NHWC order.
    """

    operation: str
    dtype: str
    channels_last: bool
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def groups(self) -> int:
        """C divided by the filter's channels."""
        return self.x_shape[1] // self.w_shape[1]

    @property
    def y_shape(self) -> tuple[int, ...]:
        """(N, K, *spatial out)."""
        spatial = tuple(
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, pad, stride, dilation in zip(
                self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation, strict=True
            )
        )
        return (self.x_shape[0], self.w_shape[0], *spatial)

    @property
    def family(self) -> tuple[int, ...]:
        """Everything but operation, dtype, layout and batch: C, spatial, K, C/groups, filter, padding, stride, dilation.

        Always 18 numbers: two spatial dimensions are written as three, the first being 0.
        """

        def three(values: Sequence[int]) -> tuple[int, ...]:
            return (*([0] * (3 - len(values))), *values)

        parts = (self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation)
        spatial, kernel, padding, stride, dilation = (three(part) for part in parts)
        channels = self.x_shape[1]
        return (channels, *spatial, *self.w_shape[:2], *kernel, *padding, *stride, *dilation)


def strides_of(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Strides of a packed tensor, in elements.

    >>> strides_of((2, 3, 4, 5), False), strides_of((2, 3, 4, 5), True)
    ((60, 20, 5, 1), (60, 1, 15, 3))
    """
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= shape[dimension]
    return tuple(strides)


class Measurements:
    """The table of one device (`profiles/NAME.convolutions.npz` with the files that follow it, `shards.py`; or the .npz file a
    calibrated profile names).

    Members: `about` (JSON: GPU, versions, date, method), `family` (int32 [families, 18], as `Convolution.family`), and
    for each dtype and layout measured, e.g. "float32.nchw": `.family` (row of the family table), `.batch`, and what cuDNN
    answered, sorted by family, then batch: `.forward`, `.data`, `.weight` are the workspaces with the default settings
    (bytes; -1: cuDNN has no plan, -2: not asked), `.trial.forward` and so on the other `FIGURES` (-3: as by default).
    """

    def __init__(self, name: str) -> None:
        shipped = resources.files("analyzer.devices").joinpath("profiles")
        own: list[Traversable] = (
            [Path(name)] if name.endswith(".npz") else files(shipped, f"{name}.convolutions")
        )
        self.joined = Joined(own)
        self._arrays: dict[str, np.ndarray[Any, Any]] = {"family": self.joined.families()}
        self.members = self.joined.members
        self.name = name
        self.about: dict[str, str] = json.loads(str(self.array("about")))
        self.families: Integers = self.array("family").astype(np.int64)
        self._row = self.joined.rows
        self._features = _features(self.families)
        self._classes = _classes(self.families)
        self._asked: dict[tuple[str, str, str, int], tuple[Integers, Integers]] = {}

    def array(self, member: str) -> np.ndarray[Any, Any]:
        """One member of the file, read when first asked for: most analyses need few."""
        if member not in self._arrays:
            self._arrays[member] = self.joined.array(member)
        return self._arrays[member]

    def family_row(self, call: Convolution) -> int | None:
        """Where the call's family is in the table."""
        return self._row.get(call.family)

    def batches(
        self, call: Convolution, family: int, dtype: str, figure: str = FIRST, *, known_only: bool = True
    ) -> tuple[Integers, Integers]:
        """Measured batch sizes of a family, ascending, and the workspaces at them; figure: one of `FIGURES`.

        Without `known_only` also those that were not asked, or have no plan, as the file writes them.
        """
        prefix = f"{dtype}.{'nhwc' if call.channels_last else 'nchw'}"
        asked = (prefix, call.operation, figure, family)
        found = self._asked.get(asked)
        if found is None:
            self._asked[asked] = found = self._batches(prefix, call.operation, figure, family)
        batches, sizes = found
        known = sizes >= 0
        return (batches[known], sizes[known]) if known_only else found

    def _batches(self, prefix: str, operation: str, figure: str, family: int) -> tuple[Integers, Integers]:
        member = member_of(prefix, operation, figure)
        if member not in self.members:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = self._rows(prefix, family)
        sizes = self.array(member)[rows].astype(np.int64)
        if figure != FIRST:
            sizes = np.where(sizes == AS_FIRST, self.array(f"{prefix}.{operation}")[rows], sizes)
        return self.array(f"{prefix}.batch")[rows].astype(np.int64), sizes

    def _rows(self, prefix: str, family: int) -> slice:
        """Where a family's batches are in the arrays of this prefix."""
        families = self.array(f"{prefix}.family")
        # In the array's own type: for numbers of another one it would be converted whole.
        start, stop = np.searchsorted(families, np.array([family, family + 1], families.dtype))
        return slice(int(start), int(stop))

    def nearest(self, call: Convolution, *, loosely: bool = False) -> Iterator[tuple[float, int]]:
        """(distance, family) of the nearest families, nearest first: of the call's class, or of its dimensions only."""
        family = np.array([call.family], dtype=np.int64)
        columns = slice(1) if loosely else slice(None)
        same = np.flatnonzero((self._classes[:, columns] == _classes(family)[:, columns]).all(axis=1))
        distance = np.abs(self._features[same] - _features(family)).sum(axis=1)
        order = np.argsort(distance, kind="stable")[: 40 * VOTERS]
        return ((float(distance[place]), int(same[place])) for place in order)


def _features(families: Integers) -> npt.NDArray[np.float64]:
    """Log channels and positions, and whether channels are multiples of 4 and 8: what engines ask about."""
    channels, k, c_each = families[:, 0], families[:, 4], families[:, 5]
    groups = np.maximum(channels // np.maximum(c_each, 1), 1)
    k_each = k // groups
    positions = np.maximum(families[:, 1:4], 1).prod(axis=1)
    columns = [np.log2(c_each), np.log2(np.maximum(k_each, 1)), np.log2(groups), np.log2(positions)]
    columns += [0.5 * (each % multiple == 0) for each in (c_each, k_each) for multiple in (4, 8)]
    columns += [1.0 * (each < 8) for each in (c_each, k_each)]
    columns += [0.25 * np.abs(families[:, 9:12]).sum(axis=1)]
    return np.stack(columns, axis=1)


def _classes(families: Integers) -> Integers:
    """Columns that must agree between neighbours: dimensions, filter, strides, dilation, grouping."""
    groups = np.maximum(families[:, 0] // np.maximum(families[:, 5], 1), 1)
    depthwise = (groups > 1) & (groups == families[:, 0])
    kinds = (groups > 1).astype(np.int64) + depthwise
    spatial = (families[:, 1] > 0).astype(np.int64) + (families[:, 2] == 1) * 2
    return np.column_stack([spatial, families[:, 6:9], families[:, 12:15], families[:, 15:18] > 1, kinds])


# Compute capability -> the last torch whose libraries do not know it, and the one whose kernels run there.
_BEFORE = {"sm89": ((2, 0), "sm86"), "sm86": ((1, 7), "sm80")}


def table_of_device(profile: DeviceProfile) -> str:
    """What `measurements` is asked for a GPU: its own table, or that of its compute capability.

    1. Within one compute capability cuDNN chooses alike, but on large Turing GPUs (`_LARGE_TURING_SMS`): asked for pairs of GPUs
       with other multiprocessors, clocks, L2 and memory, 930 of 930 calls are equal (A100 and A30, RTX 3090 and 3060, RTX 4090 and
       L4, RTX 5090 and 5060, H200 and H100), and 609 of 609 for a T4 and an RTX 2080.
    2. A cuDNN that is older than the architecture runs the kernels of the one before: of 8.9 until torch 2.0, whose wheels bring CUDA 11.7
       and cuDNN 8.5 (CUDA 11.8's release notes name 8.9 first), of 8.6 until torch 1.7 (CUDA 11.0; 11.1's name 8.6).
    """
    if "convolution" in profile.data:
        return str(profile.data["convolution"])
    capability = "sm{}{}".format(*profile.compute_capability)
    until, before = _BEFORE.get(capability, ((0, 0), ""))
    if profile.releases["torch"] <= until:
        capability = before
    if capability == "sm75" and profile.sm_count > _LARGE_TURING_SMS:
        return "sm75.large"
    return _TABLES.get(capability, capability)


@lru_cache(maxsize=8)
def measurements(device: str) -> Measurements:
    """The table of a GPU or a compute capability, or the one that stands in where it has none."""
    try:
        return Measurements(device)
    except FileNotFoundError:
        return measurements(_STANDS_IN.get(device, MODELLED_ON))


def member_of(prefix: str, operation: str, figure: str) -> str:
    """The file's name of one figure: "float32.nchw.forward", "float32.nchw.trial.forward"."""
    return f"{prefix}.{operation}" if figure == FIRST else f"{prefix}.{figure}.{operation}"


@lru_cache(maxsize=1)
def _groups() -> tuple[str, ...]:
    """The dtypes and layouts of the shipped table, "float32.nchw", as every process numbers them."""
    return tuple(
        member.removesuffix(".batch")
        for member in measurements(MODELLED_ON).members
        if member.endswith(".batch")
    )


def grid_calls(part: int, parts: int) -> Iterator[tuple[int, int, int, bool]]:
    """(group, family row, batch, whether all plans are asked for) of the shipped table: every `parts`-th call, common
    batch sizes first."""
    table = measurements(MODELLED_ON)
    order: list[tuple[int, int, int, int, bool]] = []
    for number, group in enumerate(_groups()):
        families, batches = table.array(f"{group}.family").tolist(), table.array(f"{group}.batch").tolist()
        member = member_of(group, OPERATIONS[0], TRIAL)
        trials = table.array(member) if member in table.members else np.full(len(families), NOT_ASKED)
        for family, batch, whole in zip(families, batches, (trials != NOT_ASKED).tolist(), strict=True):
            rank = _COMMON_BATCHES.index(batch) if batch in _COMMON_BATCHES else len(_COMMON_BATCHES)
            order.append((rank, number, family, batch, whole))
    order.sort()
    for _, number, family, batch, whole in order[part::parts]:
        yield number, family, batch, whole


def call_of(group: int, family: int, batch: int, operation: str) -> Convolution:
    """The convolution an entry of the table stands for."""
    dtype, _, layout = _groups()[group].partition(".")
    like = Convolution(operation, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ())
    return convolution_of(measurements(MODELLED_ON).families[family], batch, like)


def table_of(rows: np.ndarray[Any, Any], on_shipped: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a table (`Measurements`) from (group, family, batch, operation, one number for each of `FIGURES`).

    on_shipped: what was not asked is as in the shipped table, instead of unknown.
    """
    source = measurements(MODELLED_ON)
    arrays: dict[str, np.ndarray[Any, Any]] = {"family": source.array("family")}
    for number, group in enumerate(_groups()):
        own = rows[rows[:, 0] == number]
        if not own.size and not on_shipped:
            continue
        families, batches = source.array(f"{group}.family"), source.array(f"{group}.batch")
        known = {
            call: place for place, call in enumerate(zip(families.tolist(), batches.tolist(), strict=True))
        }
        places = np.array(
            [known[call] for call in zip(own[:, 1].tolist(), own[:, 2].tolist(), strict=True)], np.int64
        )
        wanted = np.arange(len(families)) if on_shipped else np.unique(places)
        arrays[f"{group}.family"], arrays[f"{group}.batch"] = families[wanted], batches[wanted]
        for index, operation in enumerate(OPERATIONS):
            asked = own[:, 3] == index
            for column, figure in enumerate(FIGURES, 4):
                member = member_of(group, operation, figure)
                if on_shipped and member in source.members:
                    sizes = source.array(member).copy()
                else:
                    sizes = np.full(len(families), NOT_ASKED, np.int64)
                answered = own[asked, column] != NOT_ASKED
                sizes[places[asked][answered]] = own[asked, column][answered]
                if (sizes[wanted] != NOT_ASKED).any():
                    arrays[member] = sizes[wanted]
    return arrays


def convolution_of(family: Integers, batch: int, like: Convolution) -> Convolution:
    """The convolution a row of the family table stands for."""
    channels, depth, *rest = (int(value) for value in family)
    skip = 0 if depth else 1
    spatial = (depth, rest[0], rest[1])[skip:]
    k, c_each = rest[2], rest[3]
    kernel, padding, stride, dilation = (tuple(rest[4 + 3 * i + skip : 7 + 3 * i]) for i in range(4))
    return Convolution(
        like.operation,
        like.dtype,
        like.channels_last,
        (batch, channels, *spatial),
        (k, c_each, *kernel),
        padding,
        stride,
        dilation,
    )


def write(
    path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, str], *, small: bool = True
) -> None:
    """Write a table that `Measurements` reads; `about`: GPU, versions, date, method.

    small: the members are packed with LZMA, which `numpy.load` reads as it reads deflated ones: half the size, and a minute's work for
    a table as large as the shipped one.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA if small else zipfile.ZIP_DEFLATED) as file:
        for name, array in {**arrays, "about": np.array(json.dumps(dict(about)))}.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
