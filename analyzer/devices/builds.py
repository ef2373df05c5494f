"""Builds: the compute capabilities that PyPI's packages have machine code for.

1. Code for 8.0 runs on 8.0 to 8.9, not on 9.0: the same major number, a minor one not below its own. PTX is
   compiled by the driver for any newer GPU (CUDA C++ Programming Guide, "Binary Compatibility", "PTX
   Compatibility").
2. The table was read from the packages: the headers of the fat binaries in
   `libonnxruntime_providers_cuda.so` of onnxruntime-gpu 1.20.2, 1.22.0, 1.23.2, 1.24.4, 1.25.1, 1.26.0,
   1.27.0, 1.28.0, 1.29.0, 1.30.0 and 1.31.1 (the last of CUDA 12 is 1.26), and
   `torch._C._cuda_getArchFlags()` of torch 2.11.0+cu130. Newer torch is of CUDA 13 as well, which compiles
   for no GPU below 7.5 (its release notes, 13.0). Of other releases nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.devices.profile import DeviceProfile
from analyzer.releases import DISPLAY_NAMES, Span, parse, written

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Build:
    """PyPI's packages of these releases. code: those with machine code; ptx: the one with PTX."""

    releases: Span
    code: tuple[Capability, ...]
    ptx: Capability | None = None

    def runs_on(self, capability: Capability) -> bool:
        same = any(major == capability[0] and minor <= capability[1] for major, minor in self.code)
        return same or (self.ptx is not None and self.ptx <= capability)


_TURING: tuple[Capability, ...] = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (12, 0))
BUILDS: Mapping[str, tuple[Build, ...]] = {
    "onnxruntime": (
        Build(Span((1, 20), (1, 20)), ((5, 2), (6, 0), (7, 0), (7, 5), (8, 0)), (8, 0)),
        Build(Span((1, 22), (1, 26)), ((6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)), (9, 0)),
        Build(Span((1, 27), (1, 28)), (*_TURING, (10, 0)), (12, 0)),
        Build(Span((1, 29), (1, 31)), _TURING),
    ),
    "torch": (Build(Span((2, 11)), ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))),),
}
_OF_CUDA_12 = "a build of CUDA 12 (--index-url https://download.pytorch.org/whl/cu126)"


def missing_code(modelled: Mapping[str, str], profile: DeviceProfile) -> str | None:
    """Return a sentence on the package without code for the GPU; None: it has, or nothing is known.

    modelled: package -> release of the figures."""
    capability = profile.compute_capability
    for name, builds in BUILDS.items():
        release = parse(modelled[name]) if name in modelled else None
        if not any(
            release and release in build.releases and not build.runs_on(capability) for build in builds
        ):
            continue
        others = [build.releases.until for build in builds if build.runs_on(capability)]
        instead = f"onnxruntime-gpu=={written(others[-1])}" if others and others[-1] else _OF_CUDA_12
        package = f"PyPI's {DISPLAY_NAMES[name]} {modelled[name]}"
        gpu = f"{profile.name} (compute capability {capability[0]}.{capability[1]})"
        return f"{package} has no code for {gpu} and does not run there: take {instead}"
    return None
