"""Connectionist temporal classification on PyTorch's own kernel.

1. Lengths and offsets are three vectors of 64-bit integers on the device while the operator runs.
2. The backward pass keeps as much again as the forward pass saved (`log_beta` beside `log_alpha`). A large
   problem is done by whole-tensor operators, of which the sum of both under `logsumexp` and its result are
   the largest; a small one by one kernel.

Source: `aten/src/ATen/native/cuda/LossCTC.cu` (`ctc_loss_gpu_template`, `ctc_loss_backward_gpu_template`).
Not modelled: what cuDNN's CTC takes for itself (32-bit targets, concatenated, with blank 0):
`aten::_cudnn_ctc_loss` is reported as an operator without a rule.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of
from analyzer.runtimes.pytorch.scratch.script import Script, rule

_LONG = 8
_LARGE = 450  # the measure of steps, samples and characters beyond which a problem is a large one


@rule("aten::_ctc_loss")
def ctc_loss(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Lengths of targets and inputs and the targets' offsets, eight bytes for every sample each; then what
    the backward pass will need, then the losses.
    """
    scores = operator.tensor("log_probs")
    if scores is None:
        return
    for _ in range(3):
        script.temporary(_LONG * scores.shape[1])
    script.output(1)
    script.output(0)


@rule("aten::_ctc_loss_backward", name="ctc-loss-grad")
def ctc_loss_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The lengths, `log_beta` and the gradient; in a large problem, then the sum of both tables over blanks
    and what `logsumexp` takes for it. Where losses may be infinite, the result is chosen from the gradient
    and zero at the end.
    """
    scores, alpha = operator.tensor("log_probs"), operator.tensor("log_alpha")
    if scores is None or alpha is None:
        return
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
