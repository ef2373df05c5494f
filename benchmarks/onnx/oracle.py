"""The simulated session beside ONNX Runtime's own CUDA provider, emulated: optimized graph, requests, peaks. No GPU is needed.

    python -m benchmarks onnx_oracle ask --python venv/bin/python -o answers.json.gz    # what the provider does, model by model
    python -m benchmarks onnx_oracle ask --python venv/bin/python --only resnet         # those whose name contains it
    python -m benchmarks onnx_oracle score [answers.json.gz]                            # the simulation beside it

Models: those of the onnx package's tests (b_), single operators (o_, `subjects/onnx_operators.py`), and random graphs (r_, by their seed).
arena_extend_strategy=kSameAsRequested, so that the order of initializers changes nothing.

An answer is, of one model: "in_use", "held" (bytes at most), "nodes" (operator and provider -> how many a run has), "requests" (bytes of the
first run's, largest first), "caveats" (values that kernels computed and the host read); "error" where ONNX Runtime refuses it.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import ROOT
from benchmarks.harness import files
from benchmarks.onnx.cuda import SAME

RECORDED = ROOT / "tests/data/onnx/oracle.json.gz"
SEEDS = 60
RELEASE = "1.30"  # of the provider that is asked
_CHUNK = 256  # bytes of the arena's smallest chunk
_KINDS = ("b", "o", "r")


def models(kinds: str, only: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The models of some kinds whose names contain a text, with their names."""
    if "b" in kinds:
        from benchmarks.onnx.backend import cases

        yield from ((f"b_{case.name}", case.model) for case in cases() if only in f"b_{case.name}")
    if "o" in kinds:
        from benchmarks.subjects.onnx_operators import operators

        yield from ((f"o_{name}", model) for name, model, _ in operators() if only in f"o_{name}")
    if "r" in kinds:
        yield from ((f"r_{seed}", random_graph(seed)) for seed in range(SEEDS) if only in f"r_{seed}")


def random_graph(seed: int) -> onnx.ModelProto:
    """A network of a few branches: convolutions and pooling, or products and normalization, of sizes by chance."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def constant(array: Any) -> str:
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    def weight(*shape: int) -> str:
        return constant(np.full(shape, 0.01, np.float32))

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], name=f"{op}{len(nodes)}", **attributes))
        return nodes[-1].output[0]

    images = bool(random.integers(2))
    width = int(random.choice([16, 48, 64, 130]))
    shape = [4, width, 28, 28] if images else [4, int(random.integers(3, 200)), width]
    alive = ["x"]
    for _ in range(int(random.integers(4, 24))):
        x = alive[int(random.integers(max(len(alive) - 3, 0), len(alive)))]
        choice = int(random.integers(8))
        if choice == 0:
            y = node(str(random.choice(["Relu", "Sigmoid", "Tanh", "Erf", "Neg", "Abs"])), x)
        elif choice == 1:
            y = node(str(random.choice(["Add", "Mul", "Sub"])), x, alive[int(random.integers(len(alive)))])
        elif choice == 2:
            y = node("Softmax", x, axis=-1)
        elif choice == 3:
            rows = node("Concat", x, alive[-1], axis=1)
            y = node("Slice", rows, *(constant(np.array(ends, np.int64)) for ends in ([0], [shape[1]], [1])))
        elif choice == 4:
            halves = helper.make_node(
                "Split", [x], [f"s{len(nodes)}a", f"s{len(nodes)}b"], axis=len(shape) - 1, num_outputs=2
            )
            nodes.append(halves)
            y = node("Concat", halves.output[1], halves.output[0], axis=len(shape) - 1)
        elif images and choice < 7:
            size = int(random.choice([1, 3, 5]))
            y = node("Conv", x, weight(width, width, size, size), weight(width), pads=[size // 2] * 4)
        elif images:
            y = node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        elif choice == 5:
            y = node("LayerNormalization", x, weight(width), weight(width))
        elif choice == 6:
            inner = node("Transpose", x, perm=[0, 2, 1])
            y = node("MatMul", node("MatMul", x, inner), x)
        else:
            hidden = node("Add", node("MatMul", x, weight(width, 4 * width)), weight(4 * width))
            y = node("MatMul", node("Relu", hidden), weight(4 * width, width))
        alive.append(y)
    ends = [helper.make_tensor_value_info(alive[-1], TensorProto.FLOAT, shape)]
    begin = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, f"random{seed}", begin, ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def simulated(path: Path) -> dict[str, Any]:
    """What the simulation says of a file."""
    from analyzer import pipeline

    return _answer(pipeline.analysis(path, _options()))


def provided(path: Path, python: str) -> dict[str, Any]:
    """What ONNX Runtime's own provider does with a file."""
    from analyzer.targets import parse
    from analyzer_emulation.inference import find_provider
    from analyzer_emulation.provider import analysis_of

    return _answer(analysis_of(parse(str(path)), _options(), find_provider(python)))


def _options() -> Any:
    from analyzer.options import Options

    return Options(device="h200", runtime_options=SAME, release={"onnxruntime": RELEASE})


def _answer(analysis: Any) -> dict[str, Any]:
    from analyzer.runtimes.events import Event, Malloc

    estimate, stages = analysis.estimate, [Counter[int]()]
    if estimate.refused:
        return {"error": estimate.refused[0]}
    for event in analysis.prediction.events:
        if isinstance(event, Event):
            stages.append(Counter())
        elif isinstance(event, Malloc) and event.nbytes:
            stages[-1][-(-event.nbytes // _CHUNK) * _CHUNK] += 1
    nodes = Counter(f"{node.op} {node.provider}" for node in analysis.prediction.graph.nodes.values())
    runs = len(stages) - 2 if estimate.engine == "emulate" else 1
    return {
        "in_use": estimate.peak_allocated,
        "held": estimate.peak_reserved,
        "nodes": {name: count // runs for name, count in sorted(nodes.items()) if count >= runs},
        "requests": sorted(stages[1].elements(), reverse=True),
        "caveats": list(estimate.caveats),
    }


@click.command()
@click.option("--python", required=True, help="A Python with onnxruntime-gpu.")
@click.option("--kinds", default="".join(_KINDS), help="Kinds of models: letters of b, o, r.")
@click.option("--only", default="", help="Those whose name contains it.")
@click.option("--every", default=1, help="Every so many of them.")
@click.option("--seconds", default=1e9, help="End after so long.")
@click.option("-o", "--output", type=Path, default=None)
def ask(python: str, kinds: str, only: str, every: int, seconds: float, output: Path | None) -> None:
    """Have ONNX Runtime's own provider run the models, emulated; print the simulation beside it."""
    begun, answers = time.monotonic(), dict[str, Any]()
    for name, model in list(models(kinds, only))[::every]:
        if time.monotonic() - begun > seconds:
            break
        answers[name] = _tried(model, lambda path: provided(path, python))
        if text := line(name, _tried(model, simulated), answers[name]):
            click.echo(text)
    refused = sum("error" in answer for answer in answers.values())
    click.echo(f"{len(answers)} models, of which ONNX Runtime refuses {refused}")
    if output is not None:
        files.write(output, answers)


@click.command()
@click.argument("recorded", type=Path, default=RECORDED)
@click.option("--only", default="", help="Those whose name contains it.")
def score(recorded: Path, only: str) -> None:
    """Print the simulation beside the provider's recorded answers."""
    answers = files.read(recorded)
    kinds = "".join({name[0] for name in answers})
    near = Counter[str]()
    for name, model in models(kinds, only):
        if name in answers:
            said = _tried(model, simulated)
            near.update(key for key, is_same in same(said, answers[name]).items() if is_same)
            near["all"] += 1
            if text := line(name, said, answers[name]):
                click.echo(text)
    click.echo(", ".join(f"{key} {count}" for key, count in near.items()))


def same(said: dict[str, Any], answer: dict[str, Any]) -> dict[str, bool]:
    """In which of the figures two answers agree."""
    if "error" in answer or "error" in said:
        return {"error": ("error" in answer) == ("error" in said)}
    return {key: said[key] == answer[key] for key in ("in_use", "held", "nodes", "requests")}


def line(name: str, said: dict[str, Any], answer: dict[str, Any]) -> str:
    """A model's line: "" where they agree."""
    if all((agreed := same(said, answer)).values()):
        return ""
    if "error" in agreed:
        return f"{name}: simulated {said.get('error', 'runs')[:120]}; provider {answer.get('error', 'runs')[:120]}"
    parts = [f"{key} {said[key]:,} / {answer[key]:,}" for key in ("in_use", "held") if not agreed[key]]
    for key in ("nodes", "requests"):
        if not agreed[key]:
            ours, theirs = (Counter(one[key]) for one in (said, answer))
            parts.append(f"{key} {dict(ours - theirs)} / {dict(theirs - ours)}"[:200])
    return f"{name}: {'; '.join(parts)}{' (values decide)' if answer['caveats'] else ''}"


def _tried(model: onnx.ModelProto, how: Any) -> dict[str, Any]:
    from analyzer.errors import AnalyzerError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            return dict(how(path))
        except AnalyzerError as error:
            return {"error": error.message.replace(str(path), "model.onnx")}
