"""Variance and deviation of complex numbers: those of the real and of the imaginary parts, added up.

Source: `aten/src/ATen/native/ReduceOps.cpp` (`std_var_out`, `std_var_mean_out`).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder

aten = torch.ops.aten


def _moments(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    if not x.is_complex():
        return NotImplemented
    kernel = aten.var.correction if func in _ALONE else aten.var_mean.correction
    with recorder:
        real, imaginary = ([*_each(kernel(of(x), *rest, **kwargs))] for of in (torch.real, torch.imag))
        result = real[0] + imaginary[0]
        if func in (aten.std.correction, aten.std_mean.correction):
            result.sqrt_()
        found = result if func in _ALONE else (result, torch.complex(real[1], imaginary[1]))
        for parts in (imaginary, real):  # in the order of C++
            while parts:
                parts.pop()
        return found


def _each(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


_ALONE = (aten.var.correction, aten.std.correction)
HANDLERS: dict[Any, OperatorHandler] = dict.fromkeys(
    (*_ALONE, aten.var_mean.correction, aten.std_mean.correction), _moments
)
