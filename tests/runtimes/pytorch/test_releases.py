"""Figures of every release of torch beside what its own binary asks for, on the torch that is installed.

The observations are PyTorch's CUDA builds themselves (`benchmarks/releases/observe.py`), on a CUDA runtime that computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from release_programs import OPTIMIZERS, PROGRAMS  # noqa: E402

from analyzer.capture.pytorch.cuda.decisions import HAS_KERNELS  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.pipeline.assemble import Captured, assemble  # noqa: E402
from analyzer.pipeline.pytorch import captured_pytorch  # noqa: E402
from analyzer.releases import parse  # noqa: E402
from analyzer.runtimes.base import named  # noqa: E402
from tests.paths import ROOT  # noqa: E402

OBSERVED = {
    path.stem.removeprefix("torch_"): json.loads(path.read_text())
    for path in sorted((ROOT / "tests" / "data" / "releases").glob("torch_*.json"))
}
CASES = sorted(
    {(device, name) for seen in OBSERVED.values() for device, of in seen["devices"].items() for name in of}
)


# Where requests are not those of PyTorch, and peaks are: CUB of CUDA 12 takes some 15 KiB more to sort an embedding's indices.
PEAKS_ALONE = {("2.6", "indices"), ("2.8", "indices")}
# Flash attention with dropout, off Hopper: PyTorch copies 1 MiB a layer that nobody here knows of, in every release alike.
OFF = {("rtx4090", "encoder, bf16")}


def predicted(device: str, name: str, releases: list[str]) -> Iterator[list[int]]:
    """What is predicted of a program under each release, in the order of the observed figures. It is captured once for those
    releases that run the same operators (`cuda/decisions.py`)."""
    program = PROGRAMS[name]
    with torch.device("meta"):
        model = program.make_model()
        inputs, target = program.make_batch()
    train = program.optimizer is not None
    runtime = named("pytorch")
    captures: dict[bool, Captured] = {}
    for release in releases:
        options = Options(
            inputs=inputs,
            targets=(target,),
            loss=program.loss,
            mode="train" if train else "infer",
            optimizer=OPTIMIZERS[program.optimizer] if program.optimizer else None,
            amp=program.amp,
            device=device,
            release={"torch": release},
        )
        fused = parse(release) in HAS_KERNELS
        if fused not in captures:
            captures[fused] = captured_pytorch(model.train(train), options, runtime)
        profile = runtime.profile(load(device), options)
        estimate = assemble(replace(captures[fused], profile=profile), options, runtime).estimate
        assert estimate.modelled["torch"] == release
        blocks = estimate.allocations
        peaks = [estimate.peak_allocated, estimate.peak_reserved, estimate.peak_requested]
        yield [*peaks, len(blocks.nbytes), sum(blocks.requested)]


@pytest.mark.parametrize(
    ("device", "name"),
    [pytest.param(*case, marks=[pytest.mark.xfail(strict=True)] if case in OFF else []) for case in CASES],
)
def test_every_release_to_the_byte(device: str, name: str) -> None:
    observed = {
        release: seen["devices"][device][name]
        for release, seen in OBSERVED.items()
        if name in seen["devices"].get(device, {})
    }
    found = dict(zip(observed, predicted(device, name, list(observed)), strict=True))
    for release in observed:
        if (release, name) in PEAKS_ALONE:
            found[release], observed[release] = found[release][:3], observed[release][:3]
    assert found == observed
