"""Loss functions.

1. `mse_loss` and `smooth_l1_loss` compute every element's loss into their *result*, shrink the result to a
   scalar (its storage stays), and sum into it: the elements' losses are a second temporary.
2. `huber_loss` reduces a temporary into a fresh scalar; `binary_cross_entropy` reduces into a scalar that is
   copied over its own, shrunk, full-size result.
3. Negative log likelihood needs nothing beyond its result and total weight, but copies non-contiguous input
   in 2-D.

Source: `aten/src/ATen/native/Loss.cpp` (`mse_loss_out`, `smooth_l1_loss_out`, `huber_loss`),
`aten/src/ATen/native/cuda/Loss.cu`, `NLLLoss2d.cu`, `MultiMarginLoss.cu`, `MultiLabelMarginCriterion.cu`.

4. Margin losses sum a loss a row, where there are several; the one for several labels makes what is not
   contiguous so, and which classes are targets before its own.

Connectionist temporal classification is in `ctc.py`.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, dense
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule
from analyzer.runtimes.pytorch.scratch.tensor_iterator import pointwise_strides

_NO_REDUCTION = 0


def _elements(operator: Operator) -> TensorMeta | None:
    """Return all elements' losses as a tensor: input and target broadcast, pointwise layout."""
    source, target = operator.tensor("self"), operator.tensor("target")
    if source is None or target is None:
        return None
    shape, strides = pointwise_strides((source, target))
    return replace(source, shape=shape, stride=strides, offset=0)


@rule("aten::mse_loss", "aten::smooth_l1_loss")
def pointwise_loss(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element's loss is computed into the result, whose storage keeps that size when it shrinks to a
    scalar; it is summed from a second tensor of all losses. Without reduction: the result alone.
    """
    losses = _elements(operator)
    if losses is None or operator.integer("reduction", default=1) == _NO_REDUCTION:
        return
    script.output(0, bytes_of(losses))
    script.temporary(bytes_of(losses))
    sum_over(script, device, losses)


@rule("aten::huber_loss")
def huber_loss(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element's loss goes to a temporary, which is summed into a fresh scalar. Without reduction: the
    result alone.
    """
    losses = _elements(operator)
    if losses is None or operator.integer("reduction", default=1) == _NO_REDUCTION:
        return
    script.temporary(bytes_of(losses))
    script.output(0)
    sum_over(script, device, losses)


@rule("aten::binary_cross_entropy")
def binary_cross_entropy(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element's loss is computed into the result, whose storage keeps that size; its sum is a scalar of
    its own, copied over the result once that has shrunk. Without reduction: the result alone.
    """
    losses = present(operator, "self")
    if operator.integer("reduction", default=1) == _NO_REDUCTION:
        return
    script.output(0, bytes_of(losses))
    script.temporary(dtype_bytes(losses.dtype))
    sum_over(script, device, losses)


@rule("aten::multi_margin_loss", "aten::multilabel_margin_loss_forward", name="margin-loss")
def margin_loss(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A loss a row, summed up where there are several rows and a reduction; input and target are copied where
    they are not contiguous."""
    source = present(operator, "self")
    labels = len(operator.outputs) > 1
    if not labels:
        script.output(0)
    script.copies(source, operator.tensor("target"))
    if labels:
        script.output(1)
    rows = source.shape[0] if len(source.shape) > 1 else 0
    if rows and operator.integer("reduction", default=1) != _NO_REDUCTION:
        script.temporary(rows * dtype_bytes(source.dtype))
        losses = dense(source, (rows,))
        script.outputs()
        sum_over(script, device, losses)
    script.outputs()


@rule("aten::nll_loss_forward", "aten::nll_loss_backward")
def nll_loss(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Negative log likelihood copies what is not contiguous: input, target and weight.

    Forward (self, target, weight, ...), backward (grad, self, target, weight, ...).
    Source: `nll_loss_forward_out_cuda_template`, `nll_loss_backward_out_cuda_template` (NLLLoss.cu).
    """
    script.outputs()
    script.copies(*(operator.tensor(name) for name in ("self", "target", "weight")))


@rule("aten::nll_loss2d_forward", "aten::nll_loss2d_backward", name="nll-loss-2d")
def nll_loss2d(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Negative log likelihood a pixel: the total weight is allocated before the loss; input, target and
    weight that are not contiguous are copied, the weight alone where nothing is summed up. Source:
    NLLLoss2d.cu.
    """
    backward = operator.name.endswith("backward")
    if not backward:
        script.output(1)  # the total weight comes first
    script.outputs()
    summed = operator.integer("reduction", default=1) != 0
    if summed and not backward:
        script.copies(operator.tensor("self"))
    for name in ("target", "weight"):
        if summed or name == "weight":
            script.copies(operator.tensor(name))
