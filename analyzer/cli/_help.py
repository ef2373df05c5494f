"""`--help`: the options most people need, by kind, then examples; `--help-all` has every option."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

_EVERY = "analyzer.cli.every option"
# Options that `--help` shows of a command with more; it also shows those of no kind below.
_COMMON = (
    "batch mode inputs optimizer amp until nproc_per_node over device budget engine emulated runtime_options"
    " keep_outputs form output all_devices"
)
_WIDEST = 26  # columns of an option that has its help beside it
# The kinds of options, by their parameters' names; an option of none of them comes last.
_KINDS = {
    "The job": (
        "batch batches mode inputs values assume loss optimizer dtype amp channels_last grad_accumulation"
        " checkpoint parallel arrays module until nproc_per_node nnodes rank longest over samples_per_second"
        " change_numbers"
    ),
    "A config.json": (
        "task length new_tokens lora load_in_8bit load_in_4bit no_double_quant dequantize"
        " gradient_checkpointing attn cache prefill_chunk beams sample packed precompute_reference load"
        " revision write_script"
    ),
    "Device and engine": (
        "device all_devices budget limit runtime runtime_options strict trust force engine emulated python"
        " no_network unprotected no_graph workers ray release strict_fit"
    ),
    "Output": (
        "by depth form output plot top dump_graph verbose quiet largest tolerance journal keep_outputs"
    ),
}


def _show_every_option(context: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        context.meta[_EVERY] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def every_option() -> click.Option:
    """Return `--help-all`."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_every_option,
        help="Show every option and exit.",
    )


class Command(click.Command):
    """A command whose help has its options by kind. examples: lines of shell that do something useful."""

    def __init__(self, *arguments: object, examples: tuple[str, ...] = (), **keywords: object) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self.examples = examples

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add `--help-all` where `--help` leaves options out."""
        params = super().get_params(ctx)
        return [*params, every_option()] if any(map(_is_rare, params)) else params

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
        names: Collection[str] = (),
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write the options by kind; names: of these alone in one list, where not every one is wanted. more:
        further ones, and what they do, at the end."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        if names and not ctx.meta.get(_EVERY):
            options = [param for param in options if param.name in names]
        elif not ctx.meta.get(_EVERY):
            options = [param for param in options if not _is_rare(param)]
        left = {param: _brief(record) for param in options if (record := param.get_help_record(ctx))}
        if names and not ctx.meta.get(_EVERY):
            with formatter.section("Options"):
                formatter.write_dl([*left.values(), *more], _WIDEST)
            return
        for kind, members in _KINDS.items():
            records = [left.pop(param) for param in list(left) if param.name in members.split()]
            if records:
                with formatter.section(kind):
                    formatter.write_dl(records, _WIDEST)
        if more or left:
            with formatter.section("Other options"):
                formatter.write_dl([*left.values(), *more], _WIDEST)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _brief(record: tuple[str, str]) -> tuple[str, str]:
    """Return an option's record without its plural where it has both names."""
    names, words = record
    for name in names.replace(",", "").split():
        names = names.replace(f"{name}s, {name}", name)
    return names, words


def _is_rare(param: click.Parameter) -> bool:
    """Return whether only `--help-all` shows an option."""
    return param.name not in _COMMON.split() and param.name in " ".join(_KINDS.values()).split()
