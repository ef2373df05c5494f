"""Fourier transforms by cuFFT: what they copy before they run.

1. A transform from complex to real numbers may write into its input, so it runs on a copy, made after the result.
2. Plans of lengths like those of the measured networks take no workspace: one or two dimensions of up to `_LONGEST`, whose
   only prime factors are 2, 3 and 5. Of any other transform a note says that it may.

Source: `aten/src/ATen/native/cuda/SpectralOps.cpp` (`_fft_c2r_cufft`, `use_optimized_cufft_path`); the copy as recorded (H200);
lengths of 64, 128, 384, 400 and 1,000 in FNet, a Fourier operator, a spectrogram and a state-space model, each exact (H200,
`benchmarks/accuracy/third_zoo.py`).

Not modelled: the workspaces of other plans; more than three dimensions, and transforms over the first two, which PyTorch does
in parts; inputs whose strides cuFFT cannot follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, integer_at, integers_at
from analyzer.runtimes.pytorch.scratch.script import Script, rule

_TRANSFORM, _TO_REAL = "aten::_fft_", "aten::_fft_c2r"
_LONGEST = 1000
_FACTORS = (2, 3, 5)
_NAMED = 3


@rule(_TO_REAL, name="inverse-real-transform")
def complex_to_real(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, then a contiguous copy of the input, which the transform may overwrite.

    Arguments: (self, dim, normalization, last_dim_size)
    """
    script.outputs()
    script.temporary(bytes_of(operator.inputs[0]))


def notes_on_transforms(operators: Iterable[Operator]) -> Iterator[str]:
    """Transforms unlike any that was measured, by their sizes."""
    found = dict.fromkeys(_sizes(operator) for operator in operators if operator.name.startswith(_TRANSFORM))
    others = ["x".join(map(str, sizes)) for sizes in found if not _like_a_measured_one(sizes)]
    if others:
        named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
        yield f"Fourier transforms of {named}: what cuFFT takes for them was not measured and is not counted: memory may be more"


def _sizes(operator: Operator) -> tuple[int, ...]:
    """The lengths that are transformed: (self, dim, normalization, ...); from complex to real the last one is an argument."""
    shape = operator.inputs[0].shape
    sizes = [shape[dim] for dim in integers_at(operator, 1, "dim") or ()]
    if operator.name.startswith(_TO_REAL) and sizes:
        sizes[-1] = integer_at(operator, 3, "last_dim_size", sizes[-1])
    return tuple(sizes)


def _like_a_measured_one(sizes: tuple[int, ...]) -> bool:
    return len(sizes) <= 2 and all(size <= _LONGEST and _is_smooth(size) for size in sizes)


def _is_smooth(size: int) -> bool:
    """Whether the size has no other prime factors than `_FACTORS`."""
    for factor in _FACTORS:
        while size > 1 and size % factor == 0:
            size //= factor
    return size <= 1
