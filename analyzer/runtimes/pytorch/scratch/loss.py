"""Loss functions.

Source: `aten/src/ATen/native/Loss.cpp` (`mse_loss_out`, `smooth_l1_loss_out`, `huber_loss`),
`aten/src/ATen/native/cuda/Loss.cu`, `NLLLoss2d.cu`, `MultiMarginLoss.cu`, `MultiLabelMarginCriterion.cu`,
`LossCTC.cu` (`ctc_loss_backward_gpu_template`).

Not modelled: what cuDNN's CTC takes for itself (32-bit targets, concatenated, with blank 0):
`aten::_cudnn_ctc_loss` is reported as an operator without a rule.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, dense
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import AbsentError, Script, present, rule
from analyzer.runtimes.pytorch.scratch.tensor_iterator import pointwise_strides

_NO_REDUCTION = 0
_LONG = 8
_LARGE = 450  # the measure of steps, samples and characters beyond which a CTC problem is a large one


def _elements(operator: Operator) -> TensorMeta:
    """Return all elements' losses as a tensor: input and target broadcast, pointwise layout. Raises
    AbsentError where nothing is summed up."""
    source, target = present(operator, "self"), present(operator, "target")
    if operator.integer("reduction", default=1) == _NO_REDUCTION:
        raise AbsentError
    shape, strides = pointwise_strides((source, target))
    return replace(source, shape=shape, stride=strides, offset=0)


@rule("aten::mse_loss", "aten::smooth_l1_loss")
def pointwise_loss(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element's loss is computed into the result, whose storage keeps that size when it shrinks to a
    scalar; it is summed from a second tensor of all losses. Without reduction: the result alone.
    """
    losses = _elements(operator)
    script.output(0, bytes_of(losses))
    script.temporary(bytes_of(losses))
    sum_over(script, device, losses)


@rule("aten::huber_loss")
def huber_loss(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element's loss goes to a temporary, which is summed into a fresh scalar. Without reduction: the
    result alone.
    """
    losses = _elements(operator)
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


@rule("aten::_ctc_loss_backward", name="ctc-loss-grad")
def ctc_loss_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The lengths, `log_beta` (as much again as the forward pass saved) and the gradient; in a large problem,
    then the sum of both tables over blanks and what `logsumexp` takes for it. Where losses may be infinite,
    the result is chosen from the gradient and zero at the end.
    """
    scores, alpha = present(operator, "log_probs"), present(operator, "log_alpha")
    steps, batch, labels = scores.shape
    large = 2 * steps + 24 * batch // 10 + 2 * labels // 10 > _LARGE
    chosen = large and operator.argument("zero_infinity") is True
    for _ in range(3):
        script.temporary(_LONG * batch)
    script.temporary(bytes_of(alpha))
    if chosen:
        script.temporary(bytes_of(scores))
    else:
        script.output(0)
    if not large:
        return
    size = dtype_bytes(scores.dtype)
    each = batch * steps
    blanks = each * (alpha.shape[2] // 2 + 1) * size
    both, result = script.temporary(blanks), script.temporary(each * size)
    maxima = script.temporary(each * size)
    script.release(script.temporary(each))  # which of them are infinite
    script.release(maxima)
    exponentials, summed = script.temporary(blanks), script.temporary(each * size)
    script.release(exponentials, result, summed, both)
    if chosen:
        script.temporaries(size, batch)
        script.output(0)
