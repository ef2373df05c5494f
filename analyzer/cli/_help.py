"""What `--help` looks like: options of a kind together, examples at the end."""

from __future__ import annotations

import click

# The kinds of options, by their parameters' names; what is none of them comes last.
_KINDS = {
    "The job": (
        "batch", "batches", "mode", "inputs", "values", "assume", "loss", "optimizer", "dtype", "amp",
        "channels_last", "grad_accumulation", "checkpoint", "parallel", "arrays", "module", "until",
        "nproc_per_node", "nnodes", "rank", "longest", "over", "samples_per_second", "change_numbers",
    ),
    "A config.json": (
        "task", "length", "new_tokens", "lora", "load_in_8bit", "load_in_4bit", "no_double_quant",
        "dequantize", "gradient_checkpointing", "attn", "cache", "prefill_chunk", "beams", "sample", "packed",
        "precompute_reference", "load", "write_script",
    ),
    "What it runs on": (
        "device", "all_devices", "budget", "limit", "runtime", "runtime_options", "strict", "trust", "force",
        "engine", "emulated", "python", "no_network", "no_graph", "workers", "ray",
    ),
    "What is shown": (
        "by", "depth", "form", "output", "plot", "top", "dump_graph", "verbose", "quiet", "largest",
        "tolerance", "journal", "keep_outputs",
    ),
}  # fmt: skip


class Command(click.Command):
    """A command whose help has its options by kind. examples: lines of shell that do something useful."""

    def __init__(self, *arguments: object, examples: tuple[str, ...] = (), **keywords: object) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        left = {param: record for param in options if (record := param.get_help_record(ctx))}
        for kind, names in _KINDS.items():
            records = [left.pop(param) for param in list(left) if param.name in names]
            if records:
                with formatter.section(kind):
                    formatter.write_dl(records)
        if left:
            with formatter.section("Other options"):
                formatter.write_dl(list(left.values()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
