"""Drawing from distributions, and counting.

Source: `aten/src/ATen/native/Distributions.cpp` (`multinomial_out`), `cuda/MultinomialKernel.cu`,
`cuda/SummaryOps.cu` (`_bincount_cuda_template`), `cuda/Distributions.cpp` (`_s_dirichlet_cuda`),
`cuda/DistributionTemplates.h` (`bernoulli_kernel`); orders and sizes as recorded (H200, torch 2.11,
`tests/data/operators_h200.json.gz`).

Not modelled: counts summed in memory of each thread block (`weights` with many bins).
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.cub import scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, dense
from analyzer.runtimes.pytorch.scratch.reduction import (
    BOTH_AT_ONCE,
    ReductionKernel,
    both_extremes,
    converted,
    extreme,
    reduce,
    sum_over,
)
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, rule
from analyzer.runtimes.pytorch.scratch.sorting import topk_temporaries

# Weights are looked through once for their extremes, and with replacement divided in place: PyTorch 2.15's
# own host code.
_IN_ONE_PASS = Span(since=(2, 15))
_FLAG = "bool"
_DOUBLE = "float64"
_DOUBLE_BYTES = 8


@rule("aten::bernoulli", "aten::bernoulli_")
def bernoulli(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Probabilities of another type than the kernel reads are converted; without an argument they are the
    tensor itself."""
    target, chances = operator.tensor("self"), operator.tensor("p")
    script.outputs()
    if operator.name == "aten::bernoulli" and operator.argument("p") is None:
        chances = target
    if target is not None and chances is not None:
        converted(script, chances, _DOUBLE if target.dtype == _DOUBLE else "float32")


@rule("aten::multinomial", sure=(Basis.EXACT, Basis.MEASURED))
def multinomial(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Of one draw, or without replacement: flags of what the weights are checked for, exponentials of the
    weights' size, and what finding the largest takes. Several draws with replacement: a copy of the weights,
    normalised ones, and their running sums.
    """
    weights = filled(operator, "self")
    script.outputs()
    count = operator.integer("num_samples", default=1)
    if operator.integer("replacement") and count > 1:
        for _ in range(2 if script.torch_release in _IN_ONE_PASS else 3):
            script.temporary(bytes_of(weights))
        if weights.element_count == weights.shape[-1]:
            script.release(script.temporary(scan_bytes(device, weights.element_count, weights.dtype)))
        return
    _checks(script, device, weights)
    script.temporary(bytes_of(weights))
    drawn = dense(weights, weights.shape, weights.dtype)
    last = frozenset({len(weights.shape) - 1})
    if count == 1:
        places = ReductionKernel(16)
        reduce(
            script, device, drawn, last, ("int64",), kernel=places, keepdim=True, accumulates_in_result=False
        )
        return
    rows = weights.element_count // weights.shape[-1]
    script.temporary(rows * count * dtype_bytes(weights.dtype))
    # Exponentials lie as the weights do; the largest are found in a copy by rows.
    script.copies(weights)
    topk_temporaries(script, device, drawn, weights.shape[-1])


def _checks(script: Script, device: DeviceProfile, weights: TensorMeta) -> None:
    """Every weight is a finite number from zero up, and none of the sums is zero; two flags stay."""
    if script.torch_release in _IN_ONE_PASS:  # both live to the end
        both_extremes(script, device, weights)
        finite, positive = script.temporary(1), script.temporary(1)
        script.temporary(1)  # both
        read: tuple[int, ...] = (positive, finite)
    else:
        most = extreme(script, device, weights)
        finite = script.temporary(1)
        least = extreme(script, device, weights)
        positive = script.temporary(1)
        script.temporary(1)  # both
        read = (positive, least, finite, most)
    script.release(*read)
    if len(weights.shape) == 1:
        total = script.temporary(dtype_bytes(weights.dtype))
        sum_over(script, device, weights)
        script.temporary(1)  # whether it is zero
        script.release(total)
    else:
        rows = weights.shape[0]
        totals = script.temporary(rows * dtype_bytes(weights.dtype))
        sum_over(script, device, weights, (1,))
        zeros = script.temporary(rows)
        script.temporary(1)  # whether any is
        flags = dense(weights, (rows,), _FLAG)
        reduce(script, device, flags, frozenset({0}), (_FLAG,), kernel=ReductionKernel(1))
        script.release(zeros, totals)
    script.release(script.temporary(1))  # its opposite


@rule("aten::bincount")
def bincount(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Smallest and largest value, one after the other (from torch 2.13 on in one pass), each with a
    reduction's staging memory; then the counts. Weights other than float32 are converted to float64 first.
    """
    source = filled(operator, "self")
    weights = operator.tensor("weights")
    if weights is not None and weights.dtype not in ("float32", "float64"):
        script.temporary(weights.element_count * _DOUBLE_BYTES)
    if source.dtype != "uint8" and script.torch_release in BOTH_AT_ONCE:
        script.release(*both_extremes(script, device, source))
    else:
        for _ in range(1 if source.dtype == "uint8" else 2):
            script.release(extreme(script, device, source))
    script.outputs()


@rule("aten::_sample_dirichlet", name="dirichlet")
def dirichlet(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Gamma variates in the result, and their sums along the last dimension."""
    source = filled(operator, "self")
    script.outputs()
    if not source.shape:
        return
    script.temporary(source.element_count // source.shape[-1] * dtype_bytes(source.dtype))
    sum_over(script, device, dense(source, source.shape, source.dtype), (-1,))


@rule("aten::normal", "aten::normal_")
def normal(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, and, where means are a tensor and their deviation a number, one like it, which only its
    shape is taken of. Deviations in a tensor are looked at twice for one below zero.

    Source: `aten/src/ATen/native/DistributionTemplates.h` (`normal_impl`, `normal_out_impl`,
    `CHECK_NORMAL_TENSOR_STD`).
    """
    deviations = operator.tensor("std")
    _has_none_below_zero(script, device, deviations)
    script.outputs()
    _has_none_below_zero(script, device, deviations)
    if operator.name.endswith(".float_Tensor"):
        script.release(script.temporary(dtype_bytes(deviations.dtype) if deviations else 0))  # the mean
    if operator.name.endswith(".Tensor_float") and (result := operator.outputs[0]) is not None:
        script.release(script.temporary(bytes_of(result)))


def _has_none_below_zero(script: Script, device: DeviceProfile, tensor: TensorMeta | None) -> None:
    """Allocate for the least of all, and whether it is below zero."""
    if tensor is None or not tensor.element_count:
        return
    least = extreme(script, device, tensor)
    script.release(script.temporary(1), least)
