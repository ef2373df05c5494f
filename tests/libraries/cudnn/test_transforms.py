"""The engines that multiply Fourier transforms, as benchmark mode's trials took them on an H100 (torch 2.11, cuDNN 9.19, 26 November 2026)."""

from __future__ import annotations

import pytest

from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.transforms import transforms_bytes


def convolution(
    operation: str, x: tuple[int, ...], w: tuple[int, ...], pad: int = 0, **more: object
) -> Convolution:
    dims = len(x) - 2
    geometry = {"padding": (pad,) * dims, "stride": (1,) * dims, "dilation": (1,) * dims}
    call = {"operation": operation, "dtype": "float32", "channels_last": False, "x_shape": x, "w_shape": w}
    return Convolution(**{**call, **geometry, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "measured"),
    [
        (convolution("forward", (64, 64, 1, 196), (192, 64, 1, 1)), 8_657_092_608),
        (convolution("weight", (64, 64, 1, 196), (192, 64, 1, 1)), 8_666_677_248),
        (convolution("forward", (64, 32, 1, 100), (96, 32, 1, 1)), 817_901_568),
        (convolution("weight", (64, 32, 1, 100), (96, 32, 1, 1)), 1_092_976_640),
        (convolution("forward", (8, 384, 57, 86), (192, 96, 4, 4), 1), 2_953_273_408),
        (convolution("forward", (2, 11, 114, 91), (32, 11, 3, 3), 1, channels_last=True), None),
        (convolution("data", (8, 1, 16, 94), (256, 1, 5, 5)), 19_009_536),
        (convolution("data", (6, 32, 17, 4), (11, 32, 3, 4), padding=(2, 2)), 2_654_720),
        (convolution("data", (3, 3, 78, 56), (16, 3, 3, 3), 1), 705_024),
    ],
    ids=str,
)  # fmt: skip
def test_what_they_took(call: Convolution, measured: int | None) -> None:
    found = transforms_bytes(call)
    assert found is not None
    if measured is not None:
        assert 0 <= measured - found <= 128
    else:  # all three tensors are laid out anew
        plain = transforms_bytes(convolution("forward", call.x_shape, call.w_shape, 1))
        x, w, y = 2 * 11 * 114 * 91, 32 * 11 * 9, 2 * 32 * 114 * 91
        assert plain is not None and found - plain == 4 * (x + w + y)


@pytest.mark.parametrize(
    "call",
    [
        convolution("forward", (2, 3, 300, 20), (4, 3, 3, 3)),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), 3),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), stride=(2, 2)),
        convolution("weight", (2, 3, 20, 20), (4, 3, 3, 3), dilation=(2, 2)),
        convolution("data", (2, 3, 20, 20), (4, 3, 1, 1)),
        convolution("forward", (2, 3, 20, 20), (4, 3, 3, 3), dtype="bfloat16"),
        convolution("forward", (2, 3, 9, 9, 9), (4, 3, 3, 3, 3)),
    ],
    ids=str,
)
def test_what_they_cannot_compute(call: Convolution) -> None:
    assert transforms_bytes(call) is None
