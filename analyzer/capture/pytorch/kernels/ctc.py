"""The CTC loss: which of its kernels CUDA runs, and what those return.

Sources are files of `aten/src/ATen/native`, torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.kernels.layouts import META, like

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.compatible import CompatibleDevices

aten = torch.ops.aten


def _ctc_loss(compatible: CompatibleDevices) -> Callable[..., Any]:
    """`LossCTC.cpp`: cuDNN's where all integers are 32-bit tensors; else lengths are read on the host, and
    then it is as for lengths that are numbers.

    Lengths that only data tells are taken to be as long as they can be: all of the input, all of the targets.
    """

    def run(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> Any:
        steps, batch = log_probs.size(0), log_probs.size(1)
        longest = targets.size(1) if targets.dim() == 2 else -(-targets.size(0) // batch)

        def read(lengths: Any, most: int) -> list[int]:
            value = lengths if lengths.device.type != "meta" else compatible.known(lengths)
            return [most] * batch if value is None else [int(n) for n in value.tolist()]

        frames, labels = read(input_lengths, steps), read(target_lengths, longest)
        small = input_lengths.dtype == target_lengths.dtype == torch.int32
        if small and _cudnn_takes_ctc(log_probs, targets, frames, labels, blank):
            losses = aten._cudnn_ctc_loss.Tensor(
                log_probs, targets, input_lengths, target_lengths, blank, True, zero_infinity
            )[0]
            return _reduced_ctc(losses, target_lengths.to(losses.device), reduction, zero_infinity)
        return aten.ctc_loss.IntList(log_probs, targets, frames, labels, blank, reduction, zero_infinity)

    return run


def ctc_loss_of_numbers(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    """`LossCTC.cpp`: cuDNN's for 32-bit targets on the host, where every input is as long as the longest."""
    arguments = (log_probs, targets, input_lengths, target_lengths, blank)
    full = all(length == log_probs.size(0) for length in input_lengths)
    if targets.device.type == "cpu" and full and _cudnn_takes_ctc(*arguments):
        losses = aten._cudnn_ctc_loss.default(*arguments, True, zero_infinity)[0]
        lengths = torch.tensor(target_lengths, dtype=losses.dtype).to(losses.device)
        return _reduced_ctc(losses, lengths, reduction, zero_infinity)
    return aten.ctc_loss.IntList.decompose(*arguments, reduction, zero_infinity)


def _cudnn_takes_ctc(log_probs: Any, targets: Any, frames: list[int], labels: list[int], blank: int) -> bool:
    """Return the conditions common to both forms of `_use_cudnn_ctc_loss` (`cudnn/LossCTC.cpp`)."""
    return (
        torch.backends.cudnn.enabled
        and log_probs.device.type == "meta"
        and (blank, log_probs.dim(), targets.dim()) == (0, 3, 1)
        and (log_probs.dtype, targets.dtype) == (torch.float32, torch.int32)
        and targets.is_contiguous()
        and all(length < 256 and length <= most for length, most in zip(labels, frames, strict=False))
    )


def _reduced_ctc(losses: Any, lengths: Any, reduction: int, zero_infinity: bool) -> Any:
    """Zero infinite losses if asked, and apply the reduction, as the end of `ctc_loss_impl` does."""
    if zero_infinity:
        losses = torch.where(
            losses == float("inf"), torch.zeros((), dtype=losses.dtype, device=losses.device), losses
        )
    if reduction == 1:
        return (losses / lengths.clamp_min(1)).mean()
    return losses.sum() if reduction == 2 else losses


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """`cuda/LossCTC.cu`: the losses, and a row for every blank and character of the longest target."""
    batch, longest = log_probs.size(1), max(target_lengths, default=0)
    alpha = torch.empty((batch, log_probs.size(0), 2 * longest + 1), dtype=log_probs.dtype, device=META)
    return torch.empty(batch, dtype=log_probs.dtype, device=META), alpha


def cudnn_ctc_loss(log_probs: Any, *_: Any, **__: Any) -> Any:
    """`cudnn/LossCTC.cpp`: the losses and the gradient of the scores. Its workspace is cuDNN's secret, so the
    operator has no rule and is reported as unknown."""
    return torch.empty(log_probs.size(1), dtype=log_probs.dtype, device=META), like(log_probs)


def decisions(compatible: CompatibleDevices) -> dict[Any, Callable[..., Any]]:
    """Operator overload -> the CUDA decision."""
    return {aten.ctc_loss.Tensor: _ctc_loss(compatible), aten.ctc_loss.IntList: ctc_loss_of_numbers}


RESULTS: dict[Any, Callable[..., Any]] = {
    aten._cudnn_ctc_loss.default: cudnn_ctc_loss,
    aten._cudnn_ctc_loss.Tensor: cudnn_ctc_loss,
    aten._ctc_loss.default: ctc_loss,
}
