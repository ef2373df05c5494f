"""`python -m benchmarks`: every benchmark by name; `python -m benchmarks NAME`: what it can do. README.md says how to add one.

The same words mean the same everywhere: *measure* runs something and records it, mostly on a GPU; *score* puts predictions beside
what was recorded, on the terminal; *table* writes the page or the file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import click

from benchmarks import ROOT


@dataclass(frozen=True)
class Benchmark:
    """answers: the question. writes: the page, or what is recorded. verbs: each one's "module:function" below this package, a
    click command, which is imported when it is asked for: on a GPU's machine there may be little besides torch."""

    answers: str
    writes: str
    verbs: dict[str, str]


EVIDENCE, RECORDED = "docs/evidence/", "tests/data/h200/"
BENCHMARKS = {
    "accuracy": Benchmark(
        "295 measured training steps and inferences beside their predictions", EVIDENCE + "ACCURACY.md",
        {"measure": "accuracy.measure:main", "score": "accuracy.report:score", "table": "accuracy.report:write_page",
            "calibrated": "accuracy.report:calibrated",
       },
    ),
    "allocators": Benchmark(
        "one model under every allocator, strategies and flags on it", EVIDENCE + "ALLOCATORS.md", {"table": "allocators:main"}
    ),
    "cuda_functions": Benchmark(
        "which functions of torch.cuda a followed program gets an answer from", EVIDENCE + "CUDA_FUNCTIONS.md",
        {"measure": "cuda_functions:measure", "table": "cuda_functions:main"},
    ),
    "cudnn": Benchmark(
        "what cuDNN takes: recorded for machines without it, asked by a handle and by a description on a GPU", "analyzer/libraries/cudnn/recorded/*.npz",
        {
            "record": "cudnn.record:main", "both_ways": "cudnn.both_ways:main", "bounds": "cudnn.both_ways:bounds",
            "executed": "cudnn.executed:main", "tried": "cudnn.tried:main", "listed": "cudnn.tried:listed", "unlisted": "cudnn.unlisted:main", "grow": "cudnn.grow:main", "attention": "cudnn.attention:main", "ctc": "cudnn.ctc:main",
        },
    ),
    "damaged": Benchmark(
        "whether a damaged ONNX file ends in an estimate or one clear error", EVIDENCE + "ONNX.md", {"score": "damaged.campaign:main"}
    ),
    "driver_holes": Benchmark(
        "how the driver lays out a process's memory", RECORDED + "driver_holes.json.gz", {"measure": "driver_holes:main"}
    ),
    "emulation": Benchmark(
        "PyTorch's own binary on an emulated GPU beside the real one; what it costs", EVIDENCE + "EMULATION.md",
        {
            "truth": "emulation.truth:main", "programs": "emulation.programs:main", "costs": "emulation.costs:main",
            "peers": "emulation.peers:main", "interface": "emulation.interface:main",
        },
    ),
    "experiments": Benchmark(
        "the documents' experiments, measured beside predicted", EVIDENCE + "EXPERIMENTS.md",
        {"measure": "experiments.run:main", "xla": "experiments.xla:main", "table": "experiments.report:main"},
    ),
    "fit": Benchmark(
        "the largest batch beside what a trial finder found", RECORDED + "fit.json",
        {"measure": "fit.measure:main", "score": "fit.score:main"},
    ),
    "fourier": Benchmark(
        "what PyTorch's Fourier transforms allocate", RECORDED + "fft.jsonl.gz", {"measure": "fourier:main"}
    ),
    "gpu_profiles": Benchmark(
        "profiles of GPUs from public figures", "analyzer/devices/profiles/*.json", {"table": "gpu_profiles:main"}
    ),
    "histories": Benchmark(
        "recorded allocator histories as one small file", RECORDED + "histories_*.xz", {"pack": "harness.histories:main"}
    ),
    "language_models": Benchmark(
        "configurations of language models: measured, by closed formulas, and a table", "docs/LANGUAGE_MODELS.md",
        {
            "measure": "language_models.measured_cases:measure", "joined": "language_models.measured_cases:joined",
            "score": "language_models.measured_cases:score", "peers": "language_models.peers:main", "table": "language_models.table:main",
        },
    ),
    "libraries": Benchmark(
        "what cuDNN's recurrent layers and attention take, and cuSOLVER's work areas", "tests/data/h100/*.json.gz",
        {"measure": "libraries.measure:main"},
    ),
    "litgpt": Benchmark("LitGPT's own table beside predictions", EVIDENCE + "PUBLISHED_LITGPT.md", {"table": "published.litgpt:main"}),
    "mutation": Benchmark(
        "whether the tests notice small changes of the code", EVIDENCE + "MUTATION.md",
        {"score": "mutation.campaign:score", "table": "mutation.findings:table"},
    ),
    "onnx_backend": Benchmark(
        "the onnx package's own tests beside ONNX Runtime on this CPU", EVIDENCE + "ONNX.md",
        {"score": "onnx.backend:score", "summary": "onnx.backend:shown", "table": "onnx.backend:table"},
    ),
    "onnx_cuda": Benchmark(
        "ONNX Runtime's CUDA provider, run by run", RECORDED + "onnx_cuda.json.gz",
        {"pack": "onnx.cuda:pack", "measure": "onnx.cuda:measure", "score": "onnx.cuda:score"},
    ),
    "onnx_exports": Benchmark(
        "both of PyTorch's exporters beside ONNX Runtime on this CPU", EVIDENCE + "ONNX.md",
        {"score": "onnx.exports:score", "table": "onnx.exports:table"},
    ),
    "onnx_kernels": Benchmark(
        "which kernels ONNX Runtime's providers have", "analyzer/runtimes/onnxruntime/kernels/", {"table": "onnx.kernels:main"}
    ),
    "onnx_operators": Benchmark(
        "what is known of each ONNX operator, and where", EVIDENCE + "OPERATORS.md",
        {"table": "onnx.operators:table", "show": "onnx.operators:show"},
    ),
    "onnx_recorded": Benchmark("every recorded run of ONNX Runtime beside its prediction", "the terminal", {"score": "onnx.recorded:score"}),
    "onnx_variants": Benchmark(
        "half-precision and quantised networks beside ONNX Runtime on this CPU", "the terminal", {"score": "onnx.variants:score"}
    ),
    "operators": Benchmark(
        "what single ATen operators allocate", RECORDED + "operators_*.json.gz",
        {"measure": "operators.measure:main", "emulate": "operators.compare:emulate", "compare": "operators.compare:compare",
            "rules": "operators.sequences:main", "sample": "operators.compare:sample", "beside": "operators.compare:beside",
            "campaign": "operators.campaign:main", "keep": "operators.recorded:main", "table": "operators.table:main",
            "without_cudnn": "operators.without_cudnn:main"},
    ),
    "paddlepaddle": Benchmark(
        "what PaddlePaddle's executor does on a CPU", "tests/data/paddle_cpu.json", {"measure": "paddlepaddle.observe:main"}
    ),
    "peers": Benchmark("other tools on everything that was measured", EVIDENCE + "PEERS.md", {"table": "peers.table:main"}),
    "programs": Benchmark(
        "whole programs of tests/programs beside their runs", EVIDENCE + "PROGRAMS.md",
        {"measure": "programs.measure:measure", "score": "programs.score:score", "table": "programs.score:table"},
    ),
    "public": Benchmark(
        "programs nobody here wrote, unmodified, beside their runs", EVIDENCE + "PROGRAMS.md",
        {
            "sources": "public.sources:main", "prepare": "public.prepared:main", "follow": "public.score:only",
            "measure": "public.measure:measure", "score": "public.score:score", "keep": "public.record:keep", "table": "public.score:table",
        },
    ),
    "published": Benchmark("figures other people published, beside predictions", EVIDENCE + "PUBLISHED.md", {"table": "published.compare:main"}),
    "random": Benchmark(
        "programs drawn by hypothesis, traced beside emulated", EVIDENCE + "RANDOM.md",
        {"score": "random.campaign:score", "table": "random.campaign:table", "shrink": "random.campaign:shrink", "record": "random.campaign:record"},
    ),
    "ranks": Benchmark(
        "distributed programs and --parallel, rank by rank, beside two H200", EVIDENCE + "RANKS.md",
        {
            "measure": "ranks.measure:measure", "score": "ranks.score:score", "table": "ranks.score:table", "targets": "ranks.score_targets:targets",
            "worlds": "ranks.worlds:worlds", "nccl": "ranks.nccl_log:nccl",
        },
    ),
    "releases": Benchmark(
        "what a release of torch or ONNX Runtime changed of what is relied on", EVIDENCE + "RELEASES.md",
        {
            "torch": "releases.changes:torch", "onnxruntime": "releases.changes:onnxruntime", "matrix": "releases.matrix:main",
            "differential": "releases.differential:main", "table": "releases.changes:table",
            "schemas": "releases.schemas:main", "kernels": "releases.dispatched:main",
        },
    ),
    "serving": Benchmark(
        "a serving engine started without a GPU beside what its log said on H100s; what a process takes outside the allocator",
        EVIDENCE + "SERVING.md", {"measure": "serving.outside:main", "graphs": "serving.graphs:main", "score": "serving.score:score", "table": "serving.score:table"},
    ),
    "speed": Benchmark(
        "what the analyzer itself costs, beside the least any tool must do", "the terminal",
        {"grid": "speed.grid:main", "onnx": "speed.process:onnx", "process": "speed.process:pytorch"},
    ),
    "sweep": Benchmark("a curve over batches beside fresh analyses, and its cost", "the terminal", {"score": "sweep:main"}),
    "timing": Benchmark(
        "what operators and whole steps take of time, measured on a GPU beside predictions", EVIDENCE + "TIMING.md",
        {
            "measure": "timing.measure:main", "pack": "timing.pack:main", "programs": "timing.programs:main", "score": "timing.score:score",
            "table": "timing.score:table", "plan": "timing.advise:plan", "advise": "timing.advise:main",
            "advice_table": "timing.advise:table", "checkpoint": "timing.checkpoint:main", "strategies": "timing.strategies:measure",
            "strategies_table": "timing.strategies:table", "compiled": "timing.compiled:main", "compiled_score": "timing.compiled_score:score",
            "compiled_emulate": "timing.compiled_score:emulate", "compiled_table": "timing.compiled_score:table",
        },
    ),
    "torchtune": Benchmark("torchtune's own tables beside predictions", EVIDENCE + "PUBLISHED_TORCHTUNE.md", {"table": "published.torchtune:main"}),
    "vllm_logs": Benchmark("vLLM's logs beside predictions", EVIDENCE + "SERVING_LOGS.md", {"table": "published.vllm_logs:main"}),
    "what_if": Benchmark(
        "what each strategy saves, predicted and measured", RECORDED + "what_if.json",
        {"measure": "what_if:record", "score": "what_if:score"},
    ),
}  # fmt: skip


def said(place: str) -> str:
    """The first line of a verb's docstring, read without importing it."""
    module, function = place.split(":")
    path = ROOT / "benchmarks" / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


class Verbs(click.Group):
    """What one benchmark can do."""

    def __init__(self, name: str, benchmark: Benchmark) -> None:
        super().__init__(name, help=f"{benchmark.answers}. Writes {benchmark.writes}.")
        self.benchmark = benchmark

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.benchmark.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.benchmark.verbs:
            return None
        where, function = self.benchmark.verbs[cmd_name].split(":")
        module = import_module(f"benchmarks.{where}")
        command: click.Command = getattr(module, function)
        command.help = f"{command.help}\n\n\b\n" + (module.__doc__ or "").strip().replace("\n\n", "\n\n\b\n")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, said(place)) for verb, place in self.benchmark.verbs.items()])


class Benchmarks(click.Group):
    """Every benchmark of the list."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(BENCHMARKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return Verbs(cmd_name, BENCHMARKS[cmd_name]) if cmd_name in BENCHMARKS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, f"{one.answers} ({one.writes})") for name, one in BENCHMARKS.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is what the verb returns."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words += ["--help"] if len(words) < 2 else []  # a name alone: what it can do
    try:
        return (
            Benchmarks("benchmarks", help=__doc__).main(words, "python -m benchmarks", standalone_mode=False)
            or 0
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
