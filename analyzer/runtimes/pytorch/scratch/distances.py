"""Gradients of distances between points: a row of products for every pair, summed up.

Source: `aten/src/ATen/native/Distance.cpp` (`_cdist_backward`), `cuda/DistanceKernel.cu`
(`cdist_backward_kernel_impl`, `pdist_backward_kernel_impl`); orders and sizes as PyTorch's own host code asks
under the emulated runtime (torch 2.11).
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, dense
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Script, filled, present, rule


@rule("aten::_cdist_backward", name="distance-grad")
def distance_gradient(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous, then for every pair of points a row of numbers, which are summed over
    the other points."""
    first, second = present(operator, "x1"), present(operator, "x2")
    distances, grad = present(operator, "cdist"), present(operator, "grad", "grad_output")
    copies = script.copies(first, second, distances, grad)
    script.output(0)
    if 0 in (first.element_count, second.element_count, grad.element_count) or not operator.argument("p"):
        return
    *batch, points, width = first.shape
    shape = (*batch, second.shape[-2], points, width)
    buffer = dense(first, shape)
    pairs = script.temporary(bytes_of(buffer))
    sum_over(script, device, buffer, (len(batch),))
    script.release(pairs, *copies[::-1])


@rule("aten::_pdist_backward", name="pair-distance-grad")
def pair_distance_gradient(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """For every pair of points a row of numbers, which are summed over the other points."""
    source = filled(operator, "self")
    script.outputs()
    if not operator.argument("p"):
        return
    points, width = source.shape
    buffer = dense(source, (points - 1, points, width))
    script.temporary(bytes_of(buffer))
    sum_over(script, device, buffer, (0,))
