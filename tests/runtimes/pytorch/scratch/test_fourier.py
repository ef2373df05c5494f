"""Fourier transforms: what is copied before they run."""

from __future__ import annotations

import pytest

import analyzer
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from tests.runtimes.pytorch.scratch.stories import call, tensor, words


def test_a_transform_to_real_numbers_runs_on_a_copy() -> None:
    spectrum, sound = tensor(16, 128, 501, dtype="complex64"), tensor(16, 128, 1000)
    whole = 16 * 128 * 501 * 8
    assert words(call("aten::_fft_c2r", (spectrum, (2,), 2, 1000), (sound,))) == f"=0 +{whole} -{whole}"
    assert words(call("aten::_fft_r2c", (sound, (2,), 0, True), (spectrum,))) == "=0"


@pytest.mark.parametrize(
    ("shape", "dims", "said"),
    [
        ((4, 400), (1,), ""),
        ((4, 128, 384), (1, 2), ""),
        ((1000, 8), (0,), ""),
        ((4, 1), (1,), ""),
        ((4, 1009), (1,), "1009"),
        ((4, 64, 14), (1, 2), "64x14"),
        ((4, 1024), (1,), "1024"),
        ((4, 8, 8, 8), (1, 2, 3), "8x8x8"),
    ],
)
def test_transforms_unlike_measured_ones_are_named(
    shape: tuple[int, ...], dims: tuple[int, ...], said: str
) -> None:
    x = tensor(*shape, dtype="complex64")
    told = list(notes_on_transforms([call("aten::_fft_c2c", (x, dims, 0, True), (x,))] * 2))
    assert len(told) == bool(said) and (not said or told[0].startswith(f"Fourier transforms of {said}: "))


def test_the_length_of_a_real_result_is_what_counts() -> None:
    """Spectra of 501 numbers, of 1,000 samples and of 1,001."""
    calls = [
        call("aten::_fft_c2r", (tensor(4, half, dtype="complex64"), (1,), 2, size), (tensor(4, size),))
        for half, size in ((501, 1000), (501, 1001))
    ]
    (told,) = notes_on_transforms(calls)
    assert told.startswith("Fourier transforms of 1001: ") and told.endswith("memory may be more")


def test_an_estimate_says_so() -> None:
    torch = pytest.importorskip("torch")

    class Spectrum(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.fft.rfft(x).abs()

    notes = {
        size: analyzer.analyze(Spectrum(), (analyzer.TensorSpec((2, size)),), device="h200").notes
        for size in (1000, 1009)
    }
    assert any("transforms of 1009" in note for note in notes[1009])
    assert not any("Fourier" in note for note in notes[1000])
