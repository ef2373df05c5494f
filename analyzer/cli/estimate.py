"""`analyze TARGET`: what the target needs of a GPU, in the format asked for."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli._estimates import show
from analyzer.cli._help import Command
from analyzer.cli._options import (
    analysis_keywords,
    analysis_options,
    engine_options,
    unprotected_option,
    view_options,
    warn_of_training_options,
)
from analyzer.cli._output import (
    STDOUT,
    check_writable,
    columns,
    deliver,
    keep_apart,
    working,
    write_file,
)
from analyzer.errors import OptionError
from analyzer.options import Options

if TYPE_CHECKING:
    from analyzer.analysis import Analysis

# Names of runtimes' memory limits: ONNX Runtime, PaddlePaddle, TensorFlow.
_ARENA_LIMITS = ("gpu_mem_limit", "gpu_memory_limit_mb", "memory_limit", "per_process_gpu_memory_fraction")
# Options that write another file beside the result, with click's names.
_SIDE_FILES = {"--dump-graph": "dump_graph", "--write-script": "write_script"}


@click.command(
    cls=Command,
    short_help="The memory TARGET needs: the same as `analyze TARGET`.",
    examples=(
        "analyze models/resnet50.onnx --batch 64 --device rtx4090",
        "analyze models/cnn.py --mode train --batch 128 --amp bf16 --device 24GiB",
    ),
)
@analysis_options
@engine_options
@unprotected_option
@view_options
@click.option(
    "--dump-graph",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the captured graph there, as text (-: stdout; the result then goes to stderr).",
)
@click.option(
    "--write-script",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the script there that is followed, which runs on a GPU as it is (-: stdout, as above).",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(target: str, **options: Any) -> int:
    """Predict the GPU memory TARGET needs: textbook, graph and runtime.

    TARGET is model.onnx, file.py[:attr], package.module:attr, program.pt2, or a model's config.json (its
    folder, or hf:ORG/NAME, of which that file alone is fetched). A Python file may define make_model(),
    make_batch(batch) -> (inputs, targets) and loss(output, *targets).

    Exit code 0: it fits the device and budget given, or none was given; 1: it does not, or is not known to;
    2: bad usage or input, or a file that its runtime refuses.
    """
    check_writable("-o", options["output"])
    files = {flag: options[name] for flag, name in _SIDE_FILES.items() if options[name] is not None}
    piped = [flag for flag, path in files.items() if path == STDOUT]
    for flag in files.keys() - piped:
        check_writable(flag, files[flag])
    if len(piped) > 1:
        raise OptionError(f"{' and '.join(piped)} would both be stdout", "name a file for one of them")
    keywords = analysis_keywords(target, options)
    warn_of_training_options(options)
    parsed = Options.of(keywords)
    if "--write-script" in files:
        from analyzer.pipeline.config import script_of

        write_file("--write-script", files["--write-script"], script_of(target, parsed))
    keep_apart(target, options)
    with working(target, options["quiet"]) as progress:
        from analyzer.engines.choice import EngineChoice

        engine = "trace" if "--dump-graph" in files and options["engine"] == "auto" else options["engine"]
        choice = EngineChoice(
            engine, options["python"], progress=progress, unprotected=options["unprotected"]
        )
        answer = choice.analyze_target(target, parsed)
    estimate, analysis = answer.estimate, answer.analysis
    if "--dump-graph" in files:
        if analysis is None:
            raise OptionError(
                "what is emulated has no graph to dump", "leave --engine emulate or --dump-graph out"
            )
        from analyzer.pipeline.dump import dump
        from analyzer.report.words import clean

        lines = dump(analysis.graph).splitlines()
        write_file("--dump-graph", files["--dump-graph"], "".join(f"{clean(line)}\n" for line in lines))
    # A limit on the arena is a limit given, as a device is.
    has_limit = options["device"] is not None or any(
        limit in name for name in estimate.options for limit in _ARENA_LIMITS
    )
    with redirect_stdout(sys.stderr) if piped else nullcontext():
        code = show(estimate, options, has_limit)
        if code == 1 and analysis is not None and options["form"] == "text" and options["output"] is None:
            _advise(target, parsed, analysis, options["quiet"])
    return code


def _advise(target: str, options: Options, analysis: Analysis, quiet: bool) -> None:
    """Return the report's last line, if a job does not fit: the cheapest change that makes it fit."""
    from analyzer.errors import AnalyzerError
    from analyzer.planning.what_if import first_that_fits
    from analyzer.report.strategies import advice

    try:
        with working(target, quiet) as progress:
            chosen = first_that_fits(target, options, analysis, progress)
    except AnalyzerError:  # the report stands without advice
        return
    deliver(f"\n{advice(chosen, analysis.estimate, columns())}\n", None)
