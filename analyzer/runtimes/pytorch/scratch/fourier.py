"""Fourier transforms by cuFFT: what they copy before they run.

1. A transform from complex to real numbers may write into its input, so it runs on a copy, made after the result.

Source: `aten/src/ATen/native/cuda/SpectralOps.cpp` (`_fft_c2r_cufft`, `use_optimized_cufft_path`); the copy as recorded (H200).

Not modelled: plans' workspaces, which lengths with large prime factors take; more than three dimensions, and transforms
over the first two, which PyTorch does in parts; inputs whose strides cuFFT cannot follow.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import bytes_of
from analyzer.runtimes.pytorch.scratch.script import Script, rule


@rule("aten::_fft_c2r", name="inverse-real-transform")
def complex_to_real(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, then a contiguous copy of the input, which the transform may overwrite.

    Arguments: (self, dim, normalization, last_dim_size)
    """
    script.outputs()
    script.temporary(bytes_of(operator.inputs[0]))
