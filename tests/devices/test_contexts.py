"""Contexts of older releases of torch hold what was published of them, and a GPU that was measured keeps its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer import devices
from analyzer.devices.contexts import of_release
from analyzer.devices.profile import DeviceProfile
from analyzer.releases import Release
from analyzer.runtimes.pytorch.outside import device_used

MIB = 1 << 20


def profile(name: str, torch: Release) -> DeviceProfile:
    found = devices.load(name)
    return of_release(replace(found, releases={**found.releases, "torch": torch}))


@pytest.mark.parametrize(
    ("name", "torch", "mib"),
    [
        ("v100", (1, 10), 1343),
        ("rtx3090", (1, 8), 1687),
        ("rtx2080ti", (1, 3), 877),
        ("rtx4090", (2, 0), 800),
    ],
)
def test_what_was_published_is_inside(name: str, torch: Release, mib: int) -> None:
    least, most = profile(name, torch).context_range_bytes
    assert least <= mib * MIB <= most


def test_stacks_are_the_gpus_own() -> None:
    """108 and 40 multiprocessors of 2,048 and 1,024 threads, a KiB each."""
    assert profile("a100-40gb", (1, 10)).context_bytes == (216 + 1370) * MIB
    assert profile("t4", (1, 7)).context_bytes == (40 + 720) * MIB


def test_cudnn_8_loads_its_code_once() -> None:
    """RTX 4090, torch 2.0: 1,483 to 1,517 MiB beside what is reserved were published of trainings with convolutions."""
    old = profile("rtx4090", (2, 0))
    both = device_used(0, ["cublas", "cublas@autograd", "cudnn", "cudnn@autograd"], old)
    without = device_used(0, ["cublas", "cublas@autograd"], old)
    handles = 2 * old.modules_bytes["cudnn"]
    assert both - without == 600 * MIB + handles
    taken, (least, most) = old.context_bytes, old.context_range_bytes
    assert both - taken + least <= 1483 * MIB and both - taken + most >= 1517 * MIB


def test_later_releases_and_measured_gpus_keep_their_figures() -> None:
    assert profile("rtx4090", (2, 1)) == replace(
        devices.load("rtx4090"), releases={**devices.load("rtx4090").releases, "torch": (2, 1)}
    )
    assert profile("h200", (1, 10)).context_bytes == 610 * MIB
