"""The workspace cuDNN takes for a convolution: looked up where it was asked of cuDNN on the GPU, inferred elsewhere.

1. A measured call is what was measured. Any other is asked of cuDNN itself, where a library is within reach (`asked.py`); the rest is for
   where none is.
2. A 16-bit call measured only in the other 16-bit dtype is taken to be equal (90 % of pairs are).
3. Otherwise the nearest measured calls vote (`votes.py`), each with its form (`forms.py`).
4. **Settings** (`torch.backends.cudnn`): TF32 off and deterministic mode have answers of their own (`ConvolutionSettings.figure`).
5. **Benchmark mode** takes, the first time a convolution is seen, one workspace as large as the largest of all its plans
   (`trial`), then runs the fastest of the first ten (`workspace`): what was measured; else, for NCHW, what the nearest calls that
   were timed vote for; else cuDNN's first; between nothing and the largest of those ten. Of calls timed twice 82 % had the same
   winner. Left out, such votes are right in 75, 79, 66 % of calls at an unseen batch size (float32; forward, data, weight) and
   79, 78, 67 % (float16), cuDNN's first in 66, 75, 60 and 66, 62, 49 % (`python -m benchmarks cudnn votes --winners --calls 250`).
   For NHWC, of which few were timed, the first is as good a guess.
6. Where a plan's workspace finds no room, PyTorch asks for those of the plans after it: `ladders.py`.
7. Figures of rules 2, 3 and 5 carry the range the voters span.
8. A GPU has the table of its compute capability, and where nobody may vote there, what the H200 has to say; one without a table
   has that of the nearest (`table.measurements`). `Workspace.source` says so. Left out of another GPU's table, a vote in it is
   right in 64 % of calls (A100, RTX 3090, RTX 5090; T4: 53 %), the H200's own answer in 52 % (T4: 29 %).

Left out and voted on (`python -m benchmarks cudnn votes --calls 100`; float32 NCHW; forward, data, weight gradient), right in the
allocator's blocks: 86, 90, 76 % of calls at an unseen batch size; 81, 86, 64 % of convolutions unseen altogether, the true
figure within the range in 98, 97, 92 % (a few votes for small tensors are many times too high). 16-bit dtypes fare better. Trials above
16 MB within 5 %, at an unseen batch size and of a convolution unseen altogether: float32 NCHW 78, 93, 90 and 75, 91, 86 %; float16
NCHW 58, 65, 62 and 54, 63, 57 %; float16 NHWC 88, 88, 63 and 82, 86, 50 %.

How the data are made: `analyzer/runs/cudnn.py` (same calls as PyTorch makes, nothing run), as `analyze calibrate` does. Checked
against 77,576 calls executed through PyTorch: all but one agree (there PyTorch ran out of memory and took a second plan);
and 9,000 executed in benchmark mode: the trials of all that had any are as predicted, and no winner took more than the
largest of the ten first plans (63 % took what cuDNN's first choice takes).
Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`run_single_conv`, `get_plans_from_find`, `generate_and_filter_plans`).

Not modelled: both TF32 off and deterministic (taken as TF32 off); fewer trials where even the largest workspace finds no
room (PyTorch then tries with half of it, and so on).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from analyzer.libraries.cudnn.asked import library
from analyzer.libraries.cudnn.forms import parts_of
from analyzer.libraries.cudnn.table import (
    DETERMINISTIC,
    DETERMINISTIC_TRIAL,
    FASTEST,
    FIRST,
    MODELLED_ON,
    STRICT,
    STRICT_TRIAL,
    TIMED,
    TRIAL,
    Convolution,
    Measurements,
    measurements,
)
from analyzer.libraries.cudnn.votes import dtypes_of, voted

ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of workspace, the range they are believed to lie in, and how they are known.

    source: "asked" (of cuDNN itself, by the GPU's description), "measured" (what cuDNN was asked for this GPU, or for one of its compute capability), "inferred" (from the other
    16-bit dtype or the nearest calls that were asked) or "unknown", and the GPU they come from if it is another one.
    """

    nbytes: int
    low_bytes: int
    high_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class ConvolutionSettings:
    """`torch.backends.cudnn`'s, at the time of the call; float32 alone knows TF32."""

    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = True

    def figure(self, dtype: str, *, trial: bool = False) -> str:
        """Which of the table's figures tells what is taken, for a call or for benchmark mode's trials."""
        if not self.allow_tf32 and dtype == "float32":
            return STRICT_TRIAL if trial else STRICT
        if self.deterministic:
            return DETERMINISTIC_TRIAL if trial else DETERMINISTIC
        return TRIAL if trial else FIRST


DEFAULT = ConvolutionSettings()
_BENCHMARK = ConvolutionSettings(benchmark=True)


def workspace(call: Convolution, device: str, settings: ConvolutionSettings = DEFAULT) -> Workspace:
    """What the plan that runs takes for one call, by the rules of the module docstring."""
    figure = settings.figure(call.dtype)
    if not settings.benchmark:
        return _figure(call, device, figure)
    if settings == _BENCHMARK:
        fastest = _asked(call, device, FASTEST)
        if fastest is not None:
            return fastest
        if measurements(device).name == MODELLED_ON and not call.channels_last:
            figure = FASTEST
    found, highest = _figure(call, device, figure), _asked(call, device, TIMED)
    high = found.high_bytes if highest is None else highest.high_bytes
    return replace(
        found,
        nbytes=min(found.nbytes, high),
        low_bytes=0,
        high_bytes=max(found.high_bytes, high),
        source=found.source.replace("measured", "inferred"),
    )


def trial(call: Convolution, device: str, settings: ConvolutionSettings) -> Workspace:
    """What benchmark mode takes while it tries a call's plans: the largest of their workspaces."""
    return _figure(call, device, settings.figure(call.dtype, trial=True))


@lru_cache(maxsize=65536)
def _figure(call: Convolution, device: str, figure: str) -> Workspace:
    known = _asked(call, device, figure)
    if known is not None and known.source.startswith("measured"):
        return known
    return answered([call], device, figure)[0] or known or _by_vote(call, device, figure)


def answered(calls: Sequence[Convolution], device: str, figure: str) -> list[Workspace | None]:
    """What cuDNN itself says of calls the table does not have; None where nobody can be asked, or who is has no answer."""
    found = library(device)
    if found is None:
        return [None] * len(calls)
    return [answer and Workspace(*answer, ASKED) for answer in found.figure(calls, figure)]


@lru_cache(maxsize=65536)
def _asked(call: Convolution, device: str, figure: str) -> Workspace | None:
    """What cuDNN was asked, of this type or the other 16-bit one."""
    table = measurements(device)
    family = table.family_row(call)
    if family is not None:
        for place, dtype in enumerate(dtypes_of(call)):
            batches, sizes = table.batches(call, family, dtype, figure)
            exact = np.flatnonzero(batches == call.x_shape[0])
            if exact.size:
                nbytes = int(sizes[exact[0]])
                return Workspace(
                    nbytes, nbytes, nbytes, ("measured", "inferred")[place] + _origin(table, device)
                )
    return None


def _origin(table: Measurements, device: str) -> str:
    return "" if table.name == device else f" (transferred from {table.name})"


def _by_vote(call: Convolution, device: str, figure: str) -> Workspace:
    """What the nearest measured calls say: of this table, else of the H200's; else anything between nothing and three copies."""
    table = measurements(device)
    first = None if figure == FIRST else _figure(call, device, FIRST).nbytes
    batch = np.array(call.x_shape[:1], np.int64)
    found = voted(call, batch, table, figure, None if first is None else np.array([first], np.int64))
    if found is not None:
        nbytes, low, high = (int(part[0]) for part in found)
        return Workspace(nbytes, low, high, "inferred" + _origin(table, device))
    if table.name != MODELLED_ON:
        other = _figure(call, MODELLED_ON, figure)
        source = other.source.replace("measured", "inferred")
        return replace(other, source=f"{source} (transferred from {MODELLED_ON})")
    x, y, w, _ = parts_of(call, True)
    return Workspace(first or 0, 0, x + y + w, "unknown" + _origin(table, device))
