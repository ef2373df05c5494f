"""Contexts of older releases of torch hold what was published of them, and a GPU that was measured keeps its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer import devices
from analyzer.devices.contexts import of_release
from analyzer.devices.profile import DeviceProfile
from analyzer.releases import Release
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.ranges import beside_range

MIB = 1 << 20


def profile(name: str, torch: Release) -> DeviceProfile:
    found = devices.load(name)
    return of_release(replace(found, releases={**found.releases, "torch": torch}))


@pytest.mark.parametrize(
    ("name", "torch", "mib"),
    [
        ("v100", (1, 10), 1343),
        ("rtx3090", (1, 8), 1687),
        ("rtx3090", (1, 8), 1644),
        ("t4", (1, 10), 1140),
        ("t4", (1, 10), 1286),
        ("v100-32gb", (1, 10), 1228),
        ("v100-32gb", (1, 10), 1379),
        ("a100-40gb", (1, 12), 1655),
        ("a100-40gb", (1, 12), 2087),
        ("rtx2080ti", (1, 7), 877),
        ("rtx4090", (2, 0), 800),
    ],
)
def test_what_was_published_is_inside(name: str, torch: Release, mib: int) -> None:
    found = profile(name, torch)
    least, most = beside_range(found, device_used(0, ["cublas"], found))
    assert least <= mib * MIB <= most


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("t4", (115, 120, 123, 135, 132, 147)),
        ("l4", (251,)),
        ("rtx3080", (257,)),
        ("rtx3090", (307, 315, 353)),
        ("rtx4060", (115,)),
        ("a6000", (358,)),
        ("v100-32gb", (379, 383, 389, 399)),
        ("rtx-pro-5000", (421,)),
        ("rtx4090", (440, 449, 461, 473, 495)),
        ("l40", (495, 507, 514)),
        ("a100-40gb", (489, 498, 501, 504, 512, 522)),
        ("h100-pcie", (599, 601)),
        ("rtx5090", (619, 654)),
    ],
)
def test_processes_with_lazily_loaded_kernels_are_inside(name: str, published: tuple[int, ...]) -> None:
    """What processes held beside PyTorch's allocator (benchmarks/gpu_profiles.py, rule 2), which had used cuBLAS; messages round to 10."""
    found = devices.load(name)
    least, most = beside_range(found, device_used(0, ["cublas"], found))
    for mib in published:
        assert least - 5 * MIB <= mib * MIB <= most + 5 * MIB
    assert most - least < 0.36 * most


@pytest.mark.parametrize(
    ("name", "mib"), [("a100-40gb", 414), ("rtx6000-ada", 426), ("rtx3090", 259), ("rtx4090", 379)]
)
def test_a_program_that_only_copied_may_hold_a_bare_context(name: str, mib: int) -> None:
    found = devices.load(name)
    least, _ = beside_range(found, found.context_bytes)
    assert least <= (mib + 5) * MIB < found.context_bytes


def test_a_context_grows_with_the_threads() -> None:
    """16 MiB and 2,335 bytes for each of 108 x 2,048 and 40 x 1,024 threads; older releases' code besides."""
    base = 16 * MIB
    assert profile("a100-40gb", (1, 10)).context_bytes == base + 108 * 2048 * 2335 + 1290 * MIB
    assert profile("v100", (1, 10)).context_bytes == base + 80 * 2048 * 2335 + 960 * MIB
    assert profile("t4", (1, 7)).context_bytes == base + 40 * 1024 * 2335 + 720 * MIB
    assert profile("t4", (2, 6)).context_bytes == base + 40 * 1024 * 2335


def test_cudnn_8_loads_its_code_once() -> None:
    """RTX 4090, torch 2.0: 1,483 to 1,517 MiB beside what is reserved were published of trainings with convolutions."""
    old = profile("rtx4090", (2, 0))
    both = device_used(0, ["cublas", "cublas@autograd", "cudnn", "cudnn@autograd"], old)
    without = device_used(0, ["cublas", "cublas@autograd"], old)
    handles = 2 * old.modules_bytes["cudnn"]
    assert both - without == 600 * MIB + handles
    least, most = beside_range(old, both)
    assert least <= 1483 * MIB and most >= 1517 * MIB
    assert most - least < 400 * MIB


def test_later_releases_and_measured_gpus_keep_their_figures() -> None:
    assert profile("rtx4090", (2, 1)) == replace(
        devices.load("rtx4090"), releases={**devices.load("rtx4090").releases, "torch": (2, 1)}
    )
    assert profile("h200", (1, 10)).context_bytes == 610 * MIB
