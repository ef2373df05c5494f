"""Figures of every release of torch beside what its own binary asks for, on the torch that is installed.

The observations are PyTorch's CUDA builds themselves (`benchmarks/releases/observe.py`), on a CUDA runtime that computes nothing.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from release_figures import predicted
from release_programs import PROGRAMS

from analyzer.releases import Span, parse
from tests.paths import ROOT

OBSERVED = {
    path.stem.removeprefix("torch_"): json.loads(path.read_text())
    for path in sorted((ROOT / "tests" / "data" / "releases").glob("torch_*.json"))
}
CASES = sorted(
    {(device, name) for seen in OBSERVED.values() for device, of in seen["devices"].items() for name in of}
)


# Where the peaks are PyTorch's, and not every request: CUB of CUDA 12 takes some bytes more or less (builds until torch 2.10), and until
# torch 2.8 `x[:, 0]` is two operators to autograd, of which the first takes a gradient of the whole (autograd is the installed torch's).
PEAKS_ALONE = {"indices": Span(until=(2, 10)), "sampled, inference": Span(until=(2, 10))} | dict.fromkeys(
    ("recurrent", "resampled", "temporal", "unet", "unet, bf16"), Span(until=(2, 8))
)
# Until torch 2.8 that gradient also meets a free block of another size: up to 2 MiB reserved.
ALLOCATED_ALONE = dict.fromkeys(("patches", "patches, bf16"), Span(until=(2, 8)))
# torch 2.12 alone: with the same requests and segments a smaller block serves one of them (up to 0.6 % less allocated).
ALL_BUT_ALLOCATED = dict.fromkeys(("decoder, bf16", "encoder, bf16", "encoder, fp16"), Span((2, 12), (2, 12)))
ON_CUDNN = ("h100", "h200", "b200")  # whose attention in half precision is cuDNN's
# bfloat16 on Turing, which has none: PyTorch runs other kernels there, and such programs are refused here (`cuda/functions.py`).
OFF = [("t4", name) for name in PROGRAMS if name.endswith("bf16")]
# Every program on the GPU of the measurements, every fifth on the others; the campaign runs all.
SAMPLED = {case for number, case in enumerate(CASES) if case[0] == "h200" or number % 5 == 0}


@pytest.mark.parametrize(
    ("device", "name"),
    [
        pytest.param(*case, marks=[] if case in SAMPLED else [pytest.mark.campaign])
        for case in CASES
        if case not in OFF
    ],
)
def test_every_release_to_the_byte(device: str, name: str) -> None:
    observed = {
        release: seen["devices"][device][name]
        for release, seen in OBSERVED.items()
        if name in seen["devices"].get(device, {})
    }
    found = dict(zip(observed, predicted(device, name, list(observed)), strict=True))
    for spans, count in ((PEAKS_ALONE, 3), (ALLOCATED_ALONE, 1)):
        for release in observed:
            if name in spans and parse(release) in spans[name]:
                found[release], observed[release] = found[release][:count], observed[release][:count]
    for release in observed:
        if name in ALL_BUT_ALLOCATED and parse(release) in ALL_BUT_ALLOCATED[name] and device in ON_CUDNN:
            assert 0 <= found[release][0] / observed[release][0] - 1 < 0.006
            found[release], observed[release] = found[release][1:], observed[release][1:]
    assert found == observed
