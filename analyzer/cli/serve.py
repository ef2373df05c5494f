"""`analyze serve CONFIG`: how many tokens, and requests at a time, vLLM would have room for."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import options_named, output_option
from analyzer.cli._output import check_writable, deliver, working
from analyzer.recipes.serving import BATCHED_TOKENS, BLOCK_TOKENS, KV_DTYPES, UTILIZATION

_SIZES = {
    "available": "For the cache, as it logs it, instead of the terms below.",
    "weights": "Bytes of the weights on this GPU, as vLLM logs them.",
    "activations": "Most in use beyond them in its profile run, as it logs it.",
    "outside": "What it took outside PyTorch, as it logs it.",
    "graphs": "What it estimates its CUDA graphs at (default: nothing).",
}


def _sizes(function: Any) -> Any:
    for name, words in reversed(_SIZES.items()):
        function = click.option(f"--{name}", metavar="SIZE", help=words)(function)
    return function


@click.command(
    cls=Command,
    short_help="How many requests a serving engine has room for.",
    examples=(
        "analyze serve config.json --device h100 --length 8192",
        "analyze serve hf:ORG/NAME --gpu-memory-utilization 0.9 --graphs 1GiB",
    ),
)
@click.argument("config")
@options_named("device")
@click.option(
    "--length",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens of a request (default: as many as it has positions for).",
)
@click.option(
    "--gpu-memory-utilization",
    "utilization",
    type=click.FloatRange(0, 1, min_open=True),
    default=UTILIZATION,
    show_default=True,
    metavar="FRACTION",
    help="Of the device's memory that the engine may take.",
)
@click.option(
    "--max-num-batched-tokens",
    "batched_tokens",
    type=click.IntRange(min=1),
    default=BATCHED_TOKENS,
    show_default=True,
    metavar="N",
    help="Tokens of the profile run.",
)
@click.option(
    "--block-size",
    "block_tokens",
    type=click.IntRange(min=1),
    default=BLOCK_TOKENS,
    show_default=True,
    metavar="N",
    help="Tokens of a block.",
)
@click.option(
    "--kv-cache-dtype", "kv_dtype", type=click.Choice(KV_DTYPES), default="auto", help="Of the cache."
)
@click.option(
    "--tensor-parallel-size",
    "ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="GPUs that share each layer.",
)
@click.option(
    "--no-enable-prefix-caching",
    "prefixes",
    flag_value=False,
    default=True,
    help="Prefixes are not cached: a state takes one block.",
)
@_sizes
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(config: str, **options: Any) -> int:
    """Do vLLM's arithmetic for CONFIG (config.json, its folder, hf:ORG/NAME): its budget, blocks, requests at
    a time.

    The length of a request is --length, or the most the model has positions for. What vLLM logs can be said;
    weights, activations and what lies outside PyTorch are otherwise those of transformers' own forward pass.

    Exit code 0: a request of that length has room; 1: none has; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    with working(config, options["quiet"]) as tell:
        from analyzer.devices import parse_size
        from analyzer.pipeline.serving import serving
        from analyzer.report.serving import text

        sizes: dict[str, Any] = {
            name: parse_size(options[name]) for name in _SIZES if options[name] is not None
        }
        said = {
            name: options[name]
            for name in (
                "device",
                "length",
                "utilization",
                "batched_tokens",
                "block_tokens",
                "ranks",
                "prefixes",
            )
        }
        found = serving(config, **said, kv_dtype=options["kv_dtype"], **sizes, progress=tell)
    deliver(text(found), options["output"])
    return 0 if found.requests >= 1 else 1
