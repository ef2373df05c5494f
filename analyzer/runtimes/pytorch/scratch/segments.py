"""Segments of a tensor, each reduced to one row.

1. Lengths are summed up to offsets, behind a zero; of offsets the lengths are taken.
2. What is not contiguous is copied; segments of numbers, not of rows, are CUB's, which takes a byte.

3. Before all that lengths are checked, unless `unsafe` says they need not be: the least of them, then each
   row's sum.

Source: `aten/src/ATen/native/SegmentReduce.cpp`, `cuda/SegmentReduce.cu` (`_get_complete_sum`); as PyTorch's
own host code asks under the emulated runtime (torch 2.11); the checks as recorded on an H200.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta
from analyzer.runtimes.pytorch.scratch.cub import scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Script, rule

_INDEX_BYTES = 8


@rule("aten::segment_reduce", "aten::_segment_reduce_backward", name="segments")
def segments(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous, the result, and where segments begin."""
    lengths, offsets, data = (operator.tensor(name) for name in ("lengths", "offsets", "data"))
    forward = "backward" not in operator.name
    if forward and lengths is not None and not operator.argument("unsafe"):
        _checks(lengths, device, script)
    script.copies(*(operator.tensor(name) for name in ("grad", "output", "data")))
    script.copies(operator.tensor("offsets") if lengths is None else lengths)
    script.outputs()
    if lengths is not None:
        rows = lengths.element_count // max(lengths.shape[-1], 1)
        zero = script.temporary(rows * _INDEX_BYTES)
        places = rows * (lengths.shape[-1] + 1)
        script.temporary(places * _INDEX_BYTES)
        script.release(zero)
        script.release(script.temporary(scan_bytes(device, places)))
    elif offsets is not None:
        script.temporary(bytes_of(offsets) // max(offsets.shape[-1], 1) * max(offsets.shape[-1] - 1, 0))
    if forward and data is not None and len(data.shape) == 1:
        script.release(script.temporary(1))


def _checks(lengths: TensorMeta, device: DeviceProfile, script: Script) -> None:
    """Allocate for the checks that no length is negative and that each row sums to the whole."""
    least = script.temporary(_INDEX_BYTES)
    sum_over(script, device, lengths)
    script.release(least)
    rows = lengths.element_count // max(lengths.shape[-1], 1)
    sums = script.temporary(rows * _INDEX_BYTES)
    sum_over(script, device, lengths, (len(lengths.shape) - 1,))
    script.release(script.temporary(rows), script.temporary(1))
    script.release(sums)
