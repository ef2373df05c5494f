"""`analyze serve CONFIG`: how many tokens, and requests at a time, vLLM would have room for, by its
arithmetic, or as a serving engine itself says (`--engine vllm`, `--engine sglang`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option, options_named, output_option, unprotected_option
from analyzer.cli._output import check_writable, complain, deliver, keep_apart, working
from analyzer.errors import MissingDependencyError, OptionError
from analyzer.recordings.serving_messages import UTILIZATION
from analyzer.report import formats
from analyzer_serving.arithmetic import BATCHED_TOKENS, BLOCK_TOKENS, KV_DTYPES

_SIZES = {
    "available": "Memory for the cache, as vLLM logs it, instead of the terms below.",
    "weights": "Weights on this GPU, as vLLM logs them.",
    "activations": "Peak of activations in its profile run, as vLLM logs it.",
    "outside": "Memory outside PyTorch, as vLLM logs it.",
    "graphs": "Its own estimate of its CUDA graphs (default: nothing).",
}
# An engine's names for this command's options.
_OPTIONS = {
    "vllm": {
        "length": "--max-model-len",
        "utilization": "--gpu-memory-utilization",
        "batched_tokens": "--max-num-batched-tokens",
        "block_tokens": "--block-size",
        "kv_dtype": "--kv-cache-dtype",
        "ranks": "--tensor-parallel-size",
        "prefixes": "--no-enable-prefix-caching",
    },
    "sglang": {
        "length": "--context-length",
        "utilization": "--mem-fraction-static",
        "batched_tokens": "--chunked-prefill-size",
        "block_tokens": "--page-size",
        "kv_dtype": "--kv-cache-dtype",
        "ranks": "--tp-size",
        "prefixes": "--disable-radix-cache",
    },
    "llama.cpp": {"length": "--ctx-size"},
}
_FLAG = "prefixes"


def _sizes(function: Any) -> Any:
    for name, words in reversed(_SIZES.items()):
        function = click.option(f"--{name}", metavar="SIZE", help=words)(function)
    return function


@click.command(
    cls=Command,
    short_help="How many requests a serving engine has room for.",
    examples=(
        "analyze serve config.json --device h100 --length 8192",
        "analyze serve config.json --device h100 --engine vllm -- --max-num-seqs 256",
    ),
)
@click.argument("config")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@click.option(
    "--engine",
    type=click.Choice(["arithmetic", *_OPTIONS]),
    default="arithmetic",
    show_default=True,
    help="vllm, sglang, llama.cpp: itself, on an emulated CUDA runtime.",
)
@click.option(
    "--context", "contexts", metavar="N,N,...", help="llama.cpp: a curve over contexts, such as 4k,32k."
)
@click.option(
    "--binary",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="llama.cpp: a folder of its libraries.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Python, or its environment, with the engine (default: an available one).",
)
@format_option("engine", "serving")
@options_named("device")
@click.option(
    "--length",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens of a request (default: the model's maximum).",
)
@click.option(
    "--gpu-memory-utilization",
    "utilization",
    type=click.FloatRange(0, 1, min_open=True),
    default=UTILIZATION,
    show_default=True,
    metavar="FRACTION",
    help="Share of the device's memory that the engine may take.",
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
    "--kv-cache-dtype",
    "kv_dtype",
    type=click.Choice(KV_DTYPES),
    default="auto",
    help="Data type of the cache.",
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
    help="Do not cache prefixes: a state takes one block.",
)
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of hf:ORG/NAME.")
@_sizes
@unprotected_option
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(config: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Do vLLM's arithmetic for CONFIG (config.json, its folder, hf:ORG/NAME): its budget, blocks, requests at
    a time.

    The length of a request is --length, or the model's maximum. You can pass the figures vLLM logs;
    otherwise weights, activations and memory outside PyTorch are those of transformers' own forward pass, or
    without transformers, by a formula of config.json.

    With --engine vllm the engine itself is started, as by `vllm serve`, with random weights on an emulated
    GPU, and every figure is its own. Its own arguments follow --. Without an available vLLM the arithmetic is
    used, and a note says so. --engine sglang starts SGLang; llama.cpp takes a GGUF file, of which no weights
    are read.

    Exit code 0: a request of that length has room; 1: none has; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    if "," in str(options["device"] or ""):
        first = str(options["device"]).partition(",")[0]
        raise OptionError(
            f"--device {options['device']}: an engine runs on GPUs of one kind",
            f"once for each: analyze serve {config} --device {first}; one engine on several of a kind:"
            " --tensor-parallel-size N",
        )
    if options["revision"] is not None:
        if not config.startswith("hf:"):
            raise OptionError("--revision is of hf:ORG/NAME", "leave it out for a file")
        config = f"{config}@{options['revision']}"
    context = click.get_current_context()
    if options["engine"] == "llama.cpp":
        return _llama(config, [*_own_arguments(context, options), *arguments], options)
    if options["contexts"] or options["binary"]:
        raise OptionError("--context and --binary are of llama.cpp", "add --engine llama.cpp")
    if options["engine"] in _OPTIONS:
        memory = _engine(config, [*_own_arguments(context, options), *arguments], options)
        if memory is not None:
            return memory
    elif arguments:
        raise OptionError(f"{arguments[0]} is an argument of an engine", "add --engine vllm")
    return _arithmetic(config, options)


def _own_arguments(context: click.Context, options: dict[str, Any]) -> Iterator[str]:
    """Yield the options given as the engine's arguments. Raises OptionError for the arithmetic's."""
    own = _OPTIONS[options["engine"]]
    for name in context.params:
        if context.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE:
            continue
        if name in _SIZES:
            raise OptionError(f"--{name} is of the arithmetic", "the engine finds its own: leave it out")
        if name in own:
            yield own[name]
            if name != _FLAG:
                yield str(options[name])
        elif own is _OPTIONS["llama.cpp"] and name in _OPTIONS["vllm"] and name != "ranks":
            raise OptionError(f"{_OPTIONS['vllm'][name]} is not of llama.cpp", "its own arguments follow --")


def _llama(name: str, arguments: list[str], options: dict[str, Any]) -> int:
    """Deliver llama.cpp's own account. Raises AnalyzerError."""
    from analyzer_serving.engines.llama_cpp import folder_with, llama_memory, sizes_of

    folder = folder_with(options["binary"])
    with working(name, options["quiet"]):
        memory = llama_memory(
            name,
            arguments,
            options["device"],
            folder,
            count=options["ranks"],
            contexts=sizes_of(options["contexts"] or ""),
        )
    deliver(formats.render("engine", options["form"], memory), options["output"])
    return 0 if memory.fits else 1


def _engine(config: str, arguments: list[str], options: dict[str, Any]) -> int | None:
    """Deliver the engine's own figures; None if no vLLM is found. Raises MissingDependencyError."""
    from analyzer_serving.engines.serving import engine_memory, python_with
    from analyzer_serving.engines.sglang import SGLANG
    from analyzer_serving.engines.vllm import VLLM

    engine = VLLM if options["engine"] == "vllm" else SGLANG
    python = python_with(engine, options["python"])
    if python is None:
        hint = f"analyze engine install {engine.requirement} makes an environment with it"
        if engine is SGLANG:
            raise MissingDependencyError("no SGLang is available", hint)
        complain(
            "note",
            "no vLLM is available: this is its arithmetic, with transformers' forward pass for its own",
            hint,
        )
        return None
    keep_apart(engine.package, {**options, "no_network": True})
    with working(config, options["quiet"]):
        memory = engine_memory(engine, config, arguments, options["device"], python)
    deliver(formats.render("engine", options["form"], memory), options["output"])
    return 0 if memory.fits else 1


def _arithmetic(config: str, options: dict[str, Any]) -> int:
    """Estimate the serving from the configuration alone; return 0 if at least one request fits, else 1."""
    with working(config, options["quiet"]) as tell:
        from analyzer.devices import parse_size
        from analyzer_serving.serving import serving

        sizes: dict[str, Any] = {
            name: parse_size(options[name]) for name in _SIZES if options[name] is not None
        }
        shape = {
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
        memory = serving(config, **shape, kv_dtype=options["kv_dtype"], **sizes, progress=tell)
    deliver(formats.render("serving", options["form"], memory), options["output"])
    return 0 if memory.requests >= 1 else 1
