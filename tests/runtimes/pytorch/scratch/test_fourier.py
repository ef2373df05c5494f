"""Fourier transforms: what is copied before they run, and which have a note."""

from __future__ import annotations

import math

import pytest

import analyzer
from analyzer.libraries.cufft import FourierPlan, is_recorded
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from tests.runtimes.pytorch.scratch.handwritten import call, tensor, words


def test_a_transform_to_real_numbers_runs_on_a_copy() -> None:
    spectrum, sound = tensor(16, 128, 501, dtype="complex64"), tensor(16, 128, 1000)
    whole = 16 * 128 * 501 * 8
    assert words(call("aten::_fft_c2r", (spectrum, (2,), 2, 1000), (sound,))) == f"=0 +{whole} -{whole}"
    assert words(call("aten::_fft_r2c", (sound, (2,), 0, True), (spectrum,))) == "=0"


def test_four_dimensions_are_done_in_two_parts() -> None:
    """Into another buffer each. The batch and what lies behind the dimension do not fold into one: the input is copied."""
    x = tensor(2, 4, 4, 4, 4, dtype="complex64")
    whole, half = 2 * 4**4 * 8, 2 * 4**3 * 3 * 8
    assert words(call("aten::_fft_c2c", (x, (1, 2, 3, 4), 0, True), (x,))) == (
        f"+{whole} =0 +{whole} -{whole} -{whole}"
    )
    one = tensor(1, 4, 4, 4, 4, dtype="complex64")
    allocations = words(call("aten::_fft_c2c", (one, (1, 2, 3, 4), 0, True), (one,)))
    assert allocations == f"+{whole // 2} =0 -{whole // 2}"
    real, spectrum = tensor(2, 4, 4, 4, 4), tensor(2, 4, 4, 4, 3, dtype="complex64")
    assert words(call("aten::_fft_r2c", (real, (1, 2, 3, 4), 0, True), (spectrum,))) == (
        f"+{half} =0 +{half} -{half} -{half}"
    )
    assert words(call("aten::_fft_c2r", (spectrum, (1, 2, 3, 4), 2, 4), (real,))) == (
        f"=0 +{half} +{half} -{half} +{half} -{half} -{half}"
    )


def test_a_signal_that_starts_between_two_complex_numbers_is_copied() -> None:
    sound, spectrum = tensor(8, 64, offset=1), tensor(8, 33, dtype="complex64")
    assert words(call("aten::_fft_r2c", (sound, (1,), 0, True), (spectrum,))) == "=0 +2048 -2048"


def test_odd_rows_of_real_numbers_are_paired() -> None:
    """Three signals of 645 x 645 make two pairs, each complex; none such was recorded, and a note says so."""
    image, spectrum = tensor(3, 645, 645), tensor(3, 645, 323, dtype="complex64")
    transform = call("aten::_fft_r2c", (image, (1, 2), 0, True), (spectrum,))
    taken = 2 * 645 * 645 * 8 + math.ceil(2 * 645 * 646 * 8 / 1024) * 1024
    assert words(transform) == f"=0 +{taken}? -{taken}?"
    assert "Fourier transforms of 645x645" in "".join(notes_on_transforms([transform]))


def test_half_precision_takes_a_copy_of_what_lies_in_strides() -> None:
    """Folds, but cuFFT has no strides in half precision."""
    x = tensor(64, 8, dtype="complex32")
    assert words(call("aten::_fft_c2c", (x, (0,), 0, True), (x,))) == "=0 +2048 -2048"


@pytest.mark.parametrize("length", [1018, 4097, 10007, 100003])
def test_bluestein_is_the_first_smooth_length_that_holds_both(length: int) -> None:
    """1018 = 2 x 509 was not recorded."""
    smooth = [2**a * 3**b * 5**c for a in range(20) for b in range(13) for c in range(9)]
    padded = min(size for size in smooth if size >= 2 * length - 1)
    x = tensor(16, length, dtype="complex64")
    buffer = math.ceil(16 * padded * 8 / 1024) * 1024
    sure = "?" if length != 1009 else ""
    assert (
        words(call("aten::_fft_c2c", (x, (1,), 0, True), (x,)))
        == f"=0 +{2 * buffer}{sure} -{2 * buffer}{sure}"
    )


@pytest.mark.parametrize(
    ("shape", "dims", "said"),
    [
        ((4, 400), (1,), ""),
        ((4, 128, 384), (1, 2), ""),
        ((1000, 8), (0,), ""),
        ((4, 1), (1,), ""),
        ((4, 1009), (1,), ""),
        ((4, 1024), (1,), ""),
        ((4, 8, 8, 8), (1, 2, 3), ""),
        ((4, 1013), (1,), "1013"),
        ((4, 100003), (1,), "100003"),
        ((4, 64, 26), (1, 2), ""),
        ((4, 64, 626), (1, 2), "64x626"),
        ((4, 2**23), (1,), f"{2**23}"),
        ((4096, 4), (0,), "4096"),
        ((8192, 64), (0, 1), "8192x64"),
        ((4, 256, 256, 256), (1, 2, 3), "256x256x256"),
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
        for size in (1000, 1013)
    }
    assert any("transforms of 1013" in note for note in notes[1013])
    assert not any("Fourier" in note for note in notes[1000])


@pytest.mark.parametrize(("longest", "longer", "lengths"), [(4096, 8192, (64,)), (131, 256, (64, 64))])
def test_planes_and_volumes_were_recorded_up_to_a_length(
    longest: int, longer: int, lengths: tuple[int, ...]
) -> None:
    """The workspace of longer ones is a bound, also of powers of two, which rows have kernels for."""
    for length, known in ((longest, True), (longer, False)):
        assert is_recorded(FourierPlan((*lengths, length), 1, real=False, real_bytes=4)) is known
        assert is_recorded(FourierPlan((length, *lengths), 1, real=False, real_bytes=4)) is known
    assert is_recorded(FourierPlan((longer,), 1, real=False, real_bytes=4))
