"""`analyze devices`: the GPUs whose profile is known, and how well."""

from __future__ import annotations

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option
from analyzer.cli._output import complain, deliver


@click.command(
    cls=Command, short_help="The known GPUs.", examples=("analyze devices", "analyze devices rtx4090")
)
@click.argument("device", required=False)
@format_option("devices", help_text="Form of the list.")
def command(device: str | None, form: str) -> None:
    """List the known GPUs, or say what each figure of DEVICE rests on; "measured" profiles were measured on
    the GPU, others come from public specifications."""
    from analyzer.devices import load, named, names
    from analyzer.report import formats

    if device is not None:
        profile, chosen = named(device)
        if chosen:
            complain("note", chosen)
        deliver(formats.render("device", form, [profile]), None)
        return
    profiles = sorted((load(name) for name in names()), key=lambda profile: -profile.capacity_bytes)
    deliver(formats.render("devices", form, profiles), None)
