"""`analyze verify TARGET`: predict it, run it, show both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer import extensions
from analyzer.cli._help import Command
from analyzer.cli._options import analysis_keywords, analysis_options, format_option, output_option
from analyzer_verify.commands.verify_run import Progress, answer, emulated_options
from analyzer_verify.commands.verify_run import command as verify_run

if TYPE_CHECKING:
    from analyzer_verify.results import Verification


class _Verify(Command):
    """`verify run SCRIPT` is a command of its own (`analyzer_verify/commands/verify_run.py`)."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; `verify run` is a command of its own."""
        if args[:1] == ["run"]:
            return verify_run.make_context("verify run", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=_Verify,
    short_help="Run TARGET for real and compare with the prediction.",
    examples=("analyze verify models/cnn.onnx --batch 8", "analyze verify run train.py --epochs 1"),
)
@analysis_options
@click.option(
    "--inputs",
    "arrays",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Arrays to run an ONNX file with, by the names of its inputs (numpy.savez).",
)
@click.option("--force", is_flag=True, help="Run it even if the estimate says it does not fit.")
@emulated_options
@click.option("--no-graph", is_flag=True, help="Do not execute the captured graph as well.")
@format_option("verification")
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(target: str, **options: Any) -> int:
    """Run TARGET for real, in processes of its own, and compare with what was predicted, event by event.

    PyTorch targets need an NVIDIA GPU. ONNX files run under ONNX Runtime: on the GPU if there is one, else on
    the CPU provider; weights the file does not have are made at random. `analyze verify run SCRIPT` does the
    same with a whole program, as `analyze run` predicts it. With --emulated no GPU is needed: PyTorch's own
    CUDA build runs it as under `analyze emulate`, ONNX Runtime's a file as under --engine emulate.

    Exit code 0: it ran; 1: it does not fit (or ran out of memory); 2: bad usage or input, or nothing to run
    it on.
    """
    keywords = analysis_keywords(target, options)

    def run(tell: Progress) -> Verification:
        if options["emulated"]:
            from analyzer.options import Options

            beside = extensions.required("extensions", "verify_emulated", "--emulated")
            verification: Verification = beside(
                target, Options.of(keywords), options["python"], tell, options["arrays"]
            )
            return verification
        from analyzer_verify.verify import verify

        return verify(
            target,
            force=options["force"],
            graph=not options["no_graph"],
            progress=tell,
            arrays=options["arrays"],
            **keywords,
        )

    return answer(target, options, run)
