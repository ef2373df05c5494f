"""Variance and deviation of complex numbers: those of the real and of the imaginary parts, added up.

Source: `aten/src/ATen/native/ReduceOps.cpp` (`std_var_out`, `std_var_mean_out`).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder

aten = torch.ops.aten


def _variance(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    if not x.is_complex():
        return NotImplemented
    with recorder:
        real = aten.var.correction(torch.real(x), *rest, **kwargs)
        imaginary = aten.var.correction(torch.imag(x), *rest, **kwargs)
        result = real + imaginary
        del imaginary, real  # in the order of C++
        return result.sqrt_() if func is aten.std.correction else result


def _variance_and_mean(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    if not x.is_complex():
        return NotImplemented
    with recorder:
        real, real_mean = aten.var_mean.correction(torch.real(x), *rest, **kwargs)
        imaginary, imaginary_mean = aten.var_mean.correction(torch.imag(x), *rest, **kwargs)
        result = real + imaginary
        if func is aten.std_mean.correction:
            result.sqrt_()
        mean = torch.complex(real_mean, imaginary_mean)
        del imaginary_mean, imaginary, real_mean, real  # in the order of C++
        return result, mean


HANDLERS: dict[Any, OperatorHandler] = {
    aten.var.correction: _variance,
    aten.std.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
    aten.std_mean.correction: _variance_and_mean,
}
