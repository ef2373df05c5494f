"""cuDNN workspaces of Conv and ConvTranspose in the CUDA provider, by algorithm search mode.

1. The provider asks cuDNN's frontend for one plan: heuristics mode B for EXHAUSTIVE (the default), A for HEURISTIC,
   the fallback list for DEFAULT. The plan's workspace is taken from the arena while the kernel runs.
   Source: `core/providers/cuda/nn/conv.cc` (`CreateCudnnFeExecutionPlan`); 1-D convolutions get a trailing axis of 1.
2. Plans were asked for 12,474 convolutions of 80 models at batches 1 to 64 (`devices/profiles/*.onnxruntime.json.gz`,
   with provenance). A measured shape gives its figure.
3. Any other shape takes the **form** of the nearest measured one of its kind (same search, transposed or not,
   depthwise, grouped or dense, pointwise or not; nearest in the logarithms of batch, channels, extent and kernel):
   measured workspaces are sums of copies of input (x), weights (w) and output (y) in NHWC order, plus a rest. In
   1-of-1 forms nothing is copied. The fallback list needs 4 bytes a weight position of one output channel at most.
4. A device without a table uses the H200's, as a bound.

Not modelled: `cudnn_conv_use_max_workspace=0`, cuDNN versions other than the table's.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile

TOPIC = "onnxruntime"
SEARCH = {"EXHAUSTIVE": 0, "HEURISTIC": 1, "DEFAULT": 2}
_DTYPES = {"float32": (0, 4), "float16": (1, 2)}


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution: shapes with batch (`x`, `y`), weights, and geometry; 2-D or 3-D."""

    transposed: bool
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: str = "float32"
    nhwc: bool = False

    def padded(self) -> Convolution:
        """A 1-D convolution with a trailing axis of 1 (rule 1)."""
        if len(self.x) != 3:
            return self
        return Convolution(
            self.transposed, (*self.x, 1), (*self.w, 1), (*self.y, 1), (*self.stride, 1), (*self.pad, 0),
            (*self.dilation, 1), self.groups, self.dtype, self.nhwc,
        )  # fmt: skip

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must agree for two convolutions to be compared (rule 3)."""
        depthwise = self.groups > 1 and self.w[1] == 1
        pointwise = all(size == 1 for size in self.w[2:]) and not any(self.pad)
        strided = any(size != 1 for size in self.stride)
        return (self.transposed, len(self.x), depthwise, self.groups > 1, pointwise, pointwise and strided)

    @property
    def place(self) -> tuple[float, ...]:
        """Where it lies among its kind: logarithms of what cuDNN's choice depends on."""
        channels = self.x[1] / self.groups
        outputs = self.y[1] / self.groups
        return tuple(
            math.log2(max(value, 1))
            for value in (
                self.x[0], channels, outputs, math.prod(self.x[2:]), math.prod(self.w[2:]), math.prod(self.stride),
                math.prod(self.dilation),
            )
        )  # fmt: skip

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of x, w and y."""
        size = _DTYPES.get(self.dtype, (0, 4))[1]
        return tuple(size * math.prod(shape) for shape in (self.x, self.w, self.y))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Form:
    """workspace = x * size(x) + w * size(w) + y * size(y) + rest bytes."""

    x: int
    w: int
    y: int
    rest: int


@dataclass(slots=True)
class _Table:
    exact: dict[tuple[Any, ...], int] = field(default_factory=dict)
    by_kind: dict[tuple[Any, ...], list[tuple[tuple[float, ...], Form]]] = field(default_factory=dict)


def workspace(convolution: Convolution, search: str, device: DeviceProfile) -> tuple[int, str]:
    """Bytes and how they are known ("measured" or "bounded"). Search: EXHAUSTIVE, HEURISTIC or DEFAULT."""
    convolution = convolution.padded()
    mode = SEARCH[search]
    path = device.data.get(TOPIC)
    table = _load(path)
    own = path is not None
    found = table.exact.get(_key(convolution, mode))
    if found is not None:
        return found, "measured" if own else "bounded"
    if mode == 2:
        return 4 * convolution.w[1] * math.prod(convolution.w[2:]), "bounded"
    dtype = _DTYPES.get(convolution.dtype, (0, 4))[0]
    near = table.by_kind.get((*convolution.kind, mode, dtype, convolution.nhwc)) or table.by_kind.get(
        (*convolution.kind, 0, 0, False), []
    )
    if not near:
        return sum(convolution.sizes), "bounded"
    place = convolution.place
    form = min(near, key=lambda item: sum((a - b) ** 2 for a, b in zip(item[0], place, strict=True)))[1]
    x, w, y = convolution.sizes
    return form.x * x + form.w * w + form.y * y + form.rest, "bounded"


def _key(convolution: Convolution, mode: int) -> tuple[Any, ...]:
    c = convolution
    dtype = _DTYPES.get(c.dtype, (-1, 0))[0]
    return (c.transposed, c.x, c.w, c.y, c.stride, c.pad, c.dilation, c.groups, dtype, c.nhwc, mode)


@lru_cache(maxsize=4)
def _load(path: Path | None) -> _Table:
    """The table of a device, or the H200's."""
    file = (
        path
        if path is not None
        else resources.files("analyzer.devices") / "profiles" / "h200.onnxruntime.json.gz"
    )
    with file.open("rb") as stream, gzip.open(stream, "rt") as text:
        content = json.load(text)
    table = _Table()
    names = {number: name for name, (number, _) in _DTYPES.items()}
    for geometry, batch, mode, dtype, nhwc, nbytes in content["measurements"]:
        transposed, x, w, stride, pad, dilation, groups, y = content["geometries"][geometry]
        convolution = Convolution(
            bool(transposed), (batch, *x), tuple(w), (batch, *y), tuple(stride), tuple(pad), tuple(dilation), groups,
            names[dtype], bool(nhwc),
        )  # fmt: skip
        table.exact[_key(convolution, mode)] = nbytes
        kind = (*convolution.kind, mode, dtype, bool(nhwc))
        table.by_kind.setdefault(kind, []).append((convolution.place, _form(convolution, nbytes)))
    return table


def _form(convolution: Convolution, nbytes: int) -> Form:
    """The largest set of copies that fits into a measured workspace, and the rest."""
    x, w, y = convolution.sizes
    best = Form(0, 0, 0, nbytes)
    for choice in ((1, 1, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1)):
        rest = nbytes - choice[0] * x - choice[1] * w - choice[2] * y
        if 0 <= rest < best.rest:
            best = Form(*choice, rest)
    return best
