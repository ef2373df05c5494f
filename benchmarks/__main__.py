"""`python -m benchmarks`: every benchmark by name; `python -m benchmarks NAME`: what it can do. README.md says how to add one.

The same words mean the same everywhere: *measure* runs something and records it, mostly on a GPU; *score* puts predictions beside
what was recorded, on the terminal; *table* writes the page or the file.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True)
class Benchmark:
    """answers: the question. writes: the page, or what is recorded. verbs: each one's "module:function" below this package, which is
    imported when it is asked for: on a GPU's machine there may be nothing but torch."""

    answers: str
    writes: str
    verbs: dict[str, str]


EVIDENCE, RECORDED = "docs/evidence/", "tests/data/h200/"
BENCHMARKS = {
    "accuracy": Benchmark(
        "295 measured training steps and inferences beside their predictions", EVIDENCE + "ACCURACY.md",
        {"measure": "accuracy.measure:main", "score": "accuracy.report:main --case", "table": "accuracy.report:main", "calibrated": "accuracy.report:main --device"},
    ),
    "allocators": Benchmark(
        "one model under every allocator, strategies and flags on it", EVIDENCE + "ALLOCATORS.md", {"table": "allocators:main"}
    ),
    "cuda_functions": Benchmark(
        "which functions of torch.cuda a followed program gets an answer from", EVIDENCE + "CUDA_FUNCTIONS.md",
        {"table": "cuda_functions:main -o docs/evidence/CUDA_FUNCTIONS.md"},
    ),
    "cudnn": Benchmark(
        "what cuDNN's plans take: calls are listed, asked on a GPU and merged", "analyzer/devices/profiles/*.npz",
        {
            "shapes": "cudnn.shapes:main", "calls": "cudnn.calls:main", "every": "cudnn.every:main", "grids": "cudnn.grids:main",
            "programs": "cudnn.programs:main", "targets": "cudnn.targets:main", "cases": "cudnn.cases:main", "ask": "cudnn.ask:main",
            "plans": "cudnn.plans:main", "winners": "cudnn.winners:main", "ladders": "cudnn.ladders:main",
            "executed": "cudnn.executed:main", "attention": "cudnn.attention:main", "ctc": "cudnn.ctc:main",
            "merge": "cudnn.merge:main", "votes": "cudnn.votes:main",
        },
    ),
    "damaged": Benchmark(
        "whether a damaged ONNX file ends in an estimate or one clear error", EVIDENCE + "ONNX.md", {"score": "damaged.campaign:main"}
    ),
    "driver_holes": Benchmark(
        "how the driver lays out a process's memory", RECORDED + "driver_holes.json.gz", {"measure": "driver_holes:main"}
    ),
    "emulation": Benchmark(
        "PyTorch's own binary on an emulated GPU beside the real one; what it costs", "docs/EMULATION.md",
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
            "measure": "language_models.measured_cases:main", "score": "language_models.measured_cases:main --score",
            "peers": "language_models.peers:main", "table": "language_models.table:main",
        },
    ),
    "litgpt": Benchmark("LitGPT's own table beside predictions", EVIDENCE + "PUBLISHED_LITGPT.md", {"table": "published.litgpt:main"}),
    "mutation": Benchmark(
        "whether the tests notice small changes of the code", EVIDENCE + "MUTATION.md",
        {"score": "mutation.campaign:main", "table": "mutation.campaign:main --page"},
    ),
    "onnx_backend": Benchmark(
        "the onnx package's own tests beside ONNX Runtime on this CPU", EVIDENCE + "ONNX.md",
        {"score": "onnx.backend:main", "summary": "onnx.backend:main --summary", "table": "onnx.backend:main --page"},
    ),
    "onnx_cuda": Benchmark(
        "ONNX Runtime's CUDA provider, run by run", RECORDED + "onnx_cuda.json.gz",
        {"pack": "onnx.cuda:main pack", "measure": "onnx.cuda:main measure", "score": "onnx.cuda:main compare"},
    ),
    "onnx_exports": Benchmark(
        "both of PyTorch's exporters beside ONNX Runtime on this CPU", EVIDENCE + "ONNX.md",
        {"score": "onnx.exports:main", "table": "onnx.exports:main --table"},
    ),
    "onnx_kernels": Benchmark(
        "which kernels ONNX Runtime's providers have", "analyzer/runtimes/onnxruntime/kernels/", {"table": "onnx.kernels:main"}
    ),
    "onnx_operators": Benchmark(
        "what is known of each ONNX operator, and where", EVIDENCE + "OPERATORS.md",
        {"table": "onnx.operators:main", "show": "onnx.operators:main"},
    ),
    "onnx_plans": Benchmark(
        "what cuDNN's frontend plans take, as ONNX Runtime asks for them", "analyzer/devices/profiles/h200.onnxruntime.npz",
        {"list": "onnx.plans:main calls", "measure": "onnx.plans:main ask", "merge": "onnx.plans:main merge"},
    ),
    "onnx_recorded": Benchmark("every recorded run of ONNX Runtime beside its prediction", "the terminal", {"score": "onnx.recorded:main"}),
    "onnx_variants": Benchmark(
        "half-precision and quantised networks beside ONNX Runtime on this CPU", "the terminal", {"score": "onnx.variants:main"}
    ),
    "operators": Benchmark(
        "what single ATen operators allocate", RECORDED + "operators_*.json.gz", {"measure": "operators:main"}
    ),
    "paddlepaddle": Benchmark(
        "what PaddlePaddle's executor does on a CPU", "tests/data/paddle_cpu.json", {"measure": "paddlepaddle.observe:main"}
    ),
    "peers": Benchmark("other tools on everything that was measured", EVIDENCE + "PEERS.md", {"table": "peers.table:main -o docs/evidence/PEERS.md"}),
    "programs": Benchmark(
        "whole programs of tests/programs beside their runs", EVIDENCE + "PROGRAMS.md",
        {"measure": "programs.measure:main", "score": "programs.score:main", "table": "programs.score:main -o docs/evidence/PROGRAMS.md"},
    ),
    "public": Benchmark(
        "programs nobody here wrote, unmodified, beside their runs", EVIDENCE + "PROGRAMS.md",
        {
            "sources": "public.sources:main", "prepare": "public.prepared:main", "follow": "public.score:main --try",
            "measure": "public.measure:main", "score": "public.score:main", "table": "public.score:main -o docs/evidence/PROGRAMS.md",
        },
    ),
    "published": Benchmark("figures other people published, beside predictions", EVIDENCE + "PUBLISHED.md", {"table": "published.compare:main"}),
    "ranks": Benchmark(
        "distributed programs and --parallel, rank by rank, beside two H200", EVIDENCE + "RANKS.md",
        {
            "measure": "ranks.measure:main", "score": "ranks.score:main", "table": "ranks.score:main -o docs/evidence/RANKS.md", "targets": "ranks.score_targets:main -o docs/PARALLEL.md",
            "worlds": "ranks.worlds:main -o docs/evidence/WORLDS.md", "nccl": "ranks.nccl_log:main",
        },
    ),
    "releases": Benchmark(
        "what a release of torch or ONNX Runtime changed of what is relied on", EVIDENCE + "RELEASES.md",
        {verb: f"releases.changes:main {verb}" for verb in ("torch", "onnxruntime", "matrix", "differential", "table")},
    ),
    "speed": Benchmark(
        "what the analyzer itself costs, beside the least any tool must do", "the terminal",
        {
            "allocators": "speed.allocators:main", "grid": "speed.grid:main", "llama": "speed.llama:main", "onnx": "speed.onnx_process:main",
            "process": "speed.pytorch_process:main", "programs": "speed.programs:main", "step": "speed.step:main",
        },
    ),
    "sweep": Benchmark("a curve over batches beside fresh analyses, and its cost", "the terminal", {"score": "sweep:main"}),
    "what_if": Benchmark(
        "what each strategy saves, predicted and measured", RECORDED + "what_if.json",
        {"measure": "what_if:main", "score": "what_if:main --check"},
    ),
}  # fmt: skip


def run(name: str, verb: str, arguments: list[str]) -> Any:
    """The exit code of one verb."""
    place, _, given = BENCHMARKS[name].verbs[verb].partition(" ")
    module, function = place.split(":")
    main = getattr(import_module(f"benchmarks.{module}"), function)
    arguments = [*given.split(), *arguments]
    sys.argv = [f"python -m benchmarks {name} {verb}", *arguments]
    return main(arguments) if inspect.signature(main).parameters else main()


def told(arguments: list[str]) -> Any:
    """The list, a benchmark's verbs, or what a verb comes to."""
    if not arguments or arguments[0] not in BENCHMARKS:
        for name, benchmark in BENCHMARKS.items():
            click.echo(
                f"{name:<16} {benchmark.answers} -> {benchmark.writes}\n{'':<16} {' '.join(benchmark.verbs)}"
            )
        return 2 if arguments and arguments[0] not in ("-h", "--help") else 0
    benchmark = BENCHMARKS[arguments[0]]
    if len(arguments) < 2 or arguments[1] not in benchmark.verbs:
        click.echo(f"{benchmark.answers} -> {benchmark.writes}\n{' '.join(benchmark.verbs)}")
        return 2 if arguments[1:] else 0
    return run(arguments[0], arguments[1], arguments[2:])


if __name__ == "__main__":
    sys.exit(told(sys.argv[1:]))
