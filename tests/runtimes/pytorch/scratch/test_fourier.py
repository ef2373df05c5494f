"""Fourier transforms: what is copied before they run."""

from __future__ import annotations

from tests.runtimes.pytorch.scratch.stories import call, tensor, words


def test_a_transform_to_real_numbers_runs_on_a_copy() -> None:
    spectrum, sound = tensor(16, 128, 501, dtype="complex64"), tensor(16, 128, 1000)
    whole = 16 * 128 * 501 * 8
    assert words(call("aten::_fft_c2r", (spectrum, (2,), 2, 1000), (sound,))) == f"=0 +{whole} -{whole}"
    assert words(call("aten::_fft_r2c", (sound, (2,), 0, True), (spectrum,))) == "=0"
