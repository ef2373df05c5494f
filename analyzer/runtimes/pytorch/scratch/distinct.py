"""Which values there are: `unique` and its kin.

Source: `aten/src/ATen/native/cuda/UniqueCub.cu` (`UniqueCub`, `compute_unique`); CUB's
`dispatch_radix_sort.cuh`, `dispatch_select_if.cuh`, `dispatch_reduce_by_key.cuh`; `cuda/Unique.cu`
(`unique_dim_cuda_template`). Orders and sizes as recorded (H200, torch 2.11,
`tests/data/h200/operators_masks.json.gz`); of rows, under the emulated runtime.

Not modelled: flags (`bool`), which are counted instead.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.cub import (
    aliased_bytes,
    changes_bytes,
    count_bytes,
    distinct_bytes,
    merge_sort_keys_bytes,
    radix_sort_bytes,
    runs_bytes,
    thrust_distinct_bytes,
    thrust_scan_bytes,
    thrust_unique_bytes,
)
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, permuted
from analyzer.runtimes.pytorch.scratch.script import Script, filled, rule

_INDEX_BYTES, _INT_BYTES = 8, 4
_TRUTH_VALUES = 2


@rule("aten::_unique2", "aten::_unique", name="unique")
def unique(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The values are sorted into a copy, with their positions where the places of all are wanted, which are
    numbered before; then every run of equal ones is written once. Truth values are counted instead.
    """
    source = filled(operator, "self")
    count, width = source.element_count, dtype_bytes(source.dtype)
    inverse = bool(operator.argument("return_inverse"))
    script.copies(source)
    if source.dtype == "bool":
        _truth_values(device, count, script, inverse, bool(operator.argument("return_counts")))
        return
    script.temporary(bytes_of(source))  # sorted
    if not inverse:
        script.release(
            script.temporary(radix_sort_bytes(device, count, 8 * width, width, 0, "float" in source.dtype))
        )
    else:
        positions = script.temporary(count * _INDEX_BYTES)
        script.temporary(count * _INDEX_BYTES)  # where each was
        script.release(script.temporary(radix_sort_bytes(device, count, 8 * width, width, _INDEX_BYTES)))
        script.release(positions)
    _runs(device, source, script, inverse, bool(operator.argument("return_counts")), _INDEX_BYTES)


@rule("aten::unique_consecutive", name="unique-consecutive")
def unique_consecutive(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every run of equal values is written once; what is not contiguous is copied before."""
    source = filled(operator, "self")
    dim = operator.argument("dim")
    if dim is not None and (dim != 0 or len(source.shape) != 1):
        _distinct_rows(operator, device, script, source, sorts=False)
        return
    script.copies(source)
    inverse, counts = operator.argument("return_inverse"), operator.argument("return_counts")
    _runs(device, source, script, bool(inverse), bool(counts), _INT_BYTES)


@rule("aten::unique_dim", "aten::unique_dim_consecutive", name="unique-rows")
def unique_rows(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Positions of the rows along a dimension, sorted by merging unless equal rows follow each other already;
    a running sum of where rows change for the places of all, thrust's counts, and the rows that are kept.
    """
    sorts = not operator.name.endswith("consecutive")
    _distinct_rows(operator, device, script, filled(operator, "self"), sorts)


def _distinct_rows(
    operator: Operator, device: DeviceProfile, script: Script, source: TensorMeta, sorts: bool
) -> None:
    """`unique_dim_cuda_template`, `cuda/Unique.cu`: rows are compared through their sorted positions."""
    dim = operator.integer("dim") % max(len(source.shape), 1)
    first = [dim, *(place for place in range(len(source.shape)) if place != dim)]
    count = source.shape[dim] if source.shape else 1
    script.copies(permuted(source, first if source.shape else ()))
    positions = script.temporary(count * _INDEX_BYTES)
    if sorts:
        script.release(script.temporary(merge_sort_keys_bytes(count)))
    if operator.argument("return_inverse"):
        changes = script.temporary(count * _INDEX_BYTES)
        script.output(1)
        script.release(script.temporary(aliased_bytes()))
        script.release(script.temporary(thrust_scan_bytes(device, count)))
        script.release(changes)
    if operator.argument("return_counts"):
        places = script.temporary((count + 1) * _INDEX_BYTES)
        script.release(script.temporary(thrust_unique_bytes(device, count)))
        script.output(2)
        script.release(script.temporary(aliased_bytes()))
        script.release(places)
    else:
        script.release(script.temporary(thrust_distinct_bytes(device, count)))
    script.output(0)
    script.release(positions)


def _truth_values(device: DeviceProfile, count: int, script: Script, inverse: bool, counts: bool) -> None:
    """`UniqueCub<bool>`: how many are true, which is summed up; room for both values and their counts."""
    script.temporary(_INT_BYTES)
    script.release(script.temporary(count_bytes(device, count)))
    script.output(0, _TRUTH_VALUES)
    if counts:
        script.output(2, _TRUTH_VALUES * _INDEX_BYTES)
    else:
        script.temporary(_TRUTH_VALUES * _INDEX_BYTES)
    if inverse:
        script.output(1)


def _runs(
    device: DeviceProfile,
    source: TensorMeta,
    script: Script,
    inverse: bool,
    counts: bool,
    change_bytes: int,
) -> None:
    """`compute_unique`: the results, as large as the input for a start. change_bytes: of what says where
    values change, which are as wide as the places of sorted ones, and integers of others."""
    count = source.element_count
    if inverse:
        script.output(1)
        changes = script.temporary(count * change_bytes)
        script.release(script.temporary(changes_bytes(device, count)))
        script.release(changes)
    script.output(0, bytes_of(source))
    length = script.temporary(_INDEX_BYTES)
    if counts:
        script.output(2, count * _INDEX_BYTES)
    script.release(
        script.temporary(
            runs_bytes(count) if counts else distinct_bytes(device, count, dtype_bytes(source.dtype))
        )
    )
    script.release(length)
