"""Device profiles as a table for a terminal, and as JSON: how large each GPU is, and how well its figures are
known."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from analyzer.devices import DeviceProfile
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import mib, span


def render(profiles: Sequence[DeviceProfile], _: View = PLAIN) -> str:
    """Return a line a profile, in the order given, in at most 80 columns."""
    lines = [
        f"{'device':<14} {'MiB':>9} {'nvidia-smi':>10} {'compute':>8} {'SMs':>4} {'context':>8}  figures"
    ]
    for profile in profiles:
        major, minor = profile.compute_capability
        lines.append(
            f"{profile.name:<14} {mib(profile.capacity_bytes):>9} {mib(profile.listed_bytes):>10}"
            f" {f'{major}.{minor}':>8} {profile.sm_count:>4} {mib(profile.context_bytes):>8} "
            f" {_standing(profile)}"
        )
    lines += [
        "",
        "MiB: what CUDA has to give; nvidia-smi: what it lists; context: of a process.",
        "figures: measured, specified, published or recorded, but for those assumed;",
        "analyze devices NAME says where each is from.",
    ]
    return "\n".join(lines) + "\n"


def render_one(profiles: Sequence[DeviceProfile], _: View = PLAIN) -> str:
    """Return each figure of a profile with its source, in at most 80 columns."""
    lines = []
    for profile in profiles:
        lines += [", ".join((profile.name, *profile.nvml_names[:1])), ""]
        for figure, value in _figures(profile):
            lines.append(f"{figure}: {value}")
            source = profile.sources.get(figure, "measured there" if profile.measured else "")
            lines += textwrap.wrap(source, 80, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def _figures(profile: DeviceProfile) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the figures a profile gives sources for."""
    least, most = profile.context_range_bytes
    code = (f"{family} {mib(nbytes)}" for family, nbytes in profile.modules_bytes.items())
    yield "capacity_bytes", f"{mib(profile.capacity_bytes)} MiB"
    smallest, largest = profile.capacity_range_bytes
    if smallest < largest:
        yield "capacity_range_bytes", f"{span(mib(smallest), mib(largest))} MiB"
    if profile.listed_bytes:
        yield "listed_bytes", f"{mib(profile.listed_bytes)} MiB"
    yield "compute_capability", "{}.{}".format(*profile.compute_capability)
    yield "sm_count", f"{profile.sm_count}"
    yield "max_threads_per_sm", f"{profile.max_threads_per_sm:,}"
    yield "context_bytes", f"{mib(profile.context_bytes)} MiB"
    if least < most:
        yield "context_range_bytes", f"{span(mib(least), mib(most))} MiB"
    yield "modules_bytes", f"{', '.join(code)} MiB"
    yield "per_thread_modules", ", ".join(profile.per_thread_modules)
    yield "cublas_workspace_bytes", f"{mib(profile.cublas_workspace_bytes)} MiB"
    yield "cublaslt_workspace_bytes", f"{mib(profile.cublaslt_workspace_bytes)} MiB"
    yield "cudnn_device", f"{profile.cudnn_device.get('deviceName', 'none')}, as cuDNN describes it"


def render_json(profiles: Sequence[DeviceProfile], _: View = PLAIN) -> str:
    """Return the same as JSON, with the source of every figure."""
    entries = [
        {
            "name": profile.name,
            "capacity_bytes": profile.capacity_bytes,
            "capacity_range_bytes": list(profile.capacity_range_bytes),
            "listed_bytes": profile.listed_bytes,
            "compute_capability": list(profile.compute_capability),
            "sm_count": profile.sm_count,
            "context_bytes": profile.context_bytes,
            "context_range_bytes": list(profile.context_range_bytes),
            "measured": profile.measured,
            "sources": dict(profile.sources),
        }
        for profile in profiles
    ]
    return json.dumps({"schema": 1, "devices": entries}, indent=1) + "\n"


def _standing(profile: DeviceProfile) -> str:
    """Return `measured`, or how many of its figures are assumed."""
    if profile.measured:
        return "measured"
    assumed = sum(source.startswith("assumed") for source in profile.sources.values())
    return f"{assumed or 'none'} of {len(profile.sources)} assumed"
