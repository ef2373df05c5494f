"""`analyze devices`: the GPUs whose profile is known, and how well."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import click

from analyzer.cli._output import deliver

if TYPE_CHECKING:
    from analyzer.devices import DeviceProfile


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the list.",
)
def command(form: str) -> None:
    """List the known GPUs; "measured" profiles were measured on the GPU, others come from public specifications."""
    from analyzer.devices import load, names

    profiles = sorted((load(name) for name in names()), key=lambda profile: -profile.capacity_bytes)
    deliver(_json(profiles) if form == "json" else _text(profiles), None)


def _text(profiles: list[DeviceProfile]) -> str:
    from analyzer.report.words import mib

    lines = [f"{'device':<12} {'MiB':>11} {'compute':>8} {'SMs':>5} {'context MiB':>12}  figures"]
    for profile in profiles:
        major, minor = profile.compute_capability
        lines.append(
            f"{profile.name:<12} {mib(profile.capacity_bytes):>11} {f'{major}.{minor}':>8} {profile.sm_count:>5} "
            f"{mib(profile.context_bytes):>12}  {_standing(profile)}"
        )
    return "\n".join(lines) + "\n"


def _standing(profile: DeviceProfile) -> str:
    """`measured`, or how many of its figures are specified and assumed."""
    if profile.measured:
        return "measured"
    kinds = Counter(source.split()[0].strip(":,;") for source in profile.sources.values())
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _json(profiles: list[DeviceProfile]) -> str:
    entries = [
        {
            "name": profile.name,
            "capacity_bytes": profile.capacity_bytes,
            "compute_capability": list(profile.compute_capability),
            "sm_count": profile.sm_count,
            "context_bytes": profile.context_bytes,
            "measured": profile.measured,
            "sources": dict(profile.sources),
        }
        for profile in profiles
    ]
    return json.dumps({"schema": 1, "devices": entries}, indent=1) + "\n"
