"""The onnx package's own backend tests: what is predicted for each beside what a real ONNX Runtime takes on the CPU.

    python -m benchmarks onnx_backend score -o results.json           # all of them, two processes (about ten minutes)
    python -m benchmarks onnx_backend score --only lstm               # those whose name contains it, on the terminal
    python -m benchmarks onnx_backend summary results.json    # the figures of an earlier campaign, by operator
    python -m benchmarks onnx_backend table results.json       # write them into docs/evidence/ONNX.md

1. The tests are those the installed onnx package generates or carries; nothing is downloaded. Each brings its inputs.
2. Every model is analysed for the default device, and predicted for the CPU provider; then a real session runs it three
   times with the arena's figures in its profile (`extensions/analyzer_verify/runs/session.py`), as `analyze verify` does.
3. Models run in processes of their own, so that one that aborts ONNX Runtime costs itself only.

A model that ONNX Runtime does not run (no kernel, no memory figures, strings it has no kernel for) has no figures to be
compared with; its reason is kept.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import onnx

from benchmarks import ROOT
from benchmarks.harness.pages import write_part
from benchmarks.harness.processes import stream

PAGE = ROOT / "docs" / "evidence" / "ONNX.md"
SECONDS = 60
CLOSE, CLOSE_BYTES = 0.05, 4096


@dataclass(frozen=True, slots=True)
class Case:
    """One test: its name, its model, and a value for each input it feeds."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]


@contextmanager
def _without_expected_values() -> Iterator[None]:
    """The package computes what each test expects, pooling element by element in Python, and keeps its source: neither is used."""
    import onnx.reference  # noqa: F401 (its own operators keep the real pooling)
    from onnx.backend.test.case import base
    from onnx.reference.ops import op_pool_common

    def shaped(
        padded: Any, x_shape: Any, _kernel: Any, _strides: Any, out_shape: Any, *_: Any, **__: Any
    ) -> Any:
        return np.zeros([*x_shape[:2], *out_shape], padded.dtype)

    with (
        patch.object(op_pool_common, "pool", shaped),
        patch.object(base, "process_snippet", lambda *_: ("", "")),
    ):
        yield


@cache
def cases() -> list[Case]:
    """Every test of the installed onnx package that needs no download, in a fixed order."""
    from onnx.backend.test import loader
    from onnx.backend.test.case.model import collect_testcases as collect_models

    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"), _without_expected_values():
        warnings.simplefilter("ignore")
        for test in (*loader.load_model_tests(kind="node"), *collect_models()):
            if test.model is not None:
                names = [item.name for item in test.model.graph.input]
                values = test.data_sets[0][0] if test.data_sets else []
                found.append(Case(test.name, test.model, dict(zip(names, values, strict=False))))
        for kind in ("simple", "pytorch-converted", "pytorch-operator"):
            for test in loader.load_model_tests(kind=kind):
                folder = Path(test.model_dir)
                found.append(_saved(test.name, folder / "model.onnx", folder / "test_data_set_0"))
        light = Path(loader.__file__).parent.parent / "data" / "light"
        found += [_saved(path.stem, path, None) for path in sorted(light.glob("*.onnx"))]
    seen: dict[str, Case] = {}
    for case in found:
        seen.setdefault(case.name, case)
    return [Case(name, case.model, {key: _array(value) for key, value in case.feeds.items()})
            for name, case in sorted(seen.items())]  # fmt: skip


def _array(value: Any) -> Any:
    """Tensors as arrays."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _saved(name: str, path: Path, data: Path | None) -> Case:
    """A test the package carries as files."""
    model = onnx.load(path)
    given = [item for item in model.graph.input if item.name not in {t.name for t in model.graph.initializer}]
    feeds: dict[str, Any] = {}
    for place, item in enumerate(given):
        file = data / f"input_{place}.pb" if data is not None else None
        kind = item.type.WhichOneof("value")
        if file is not None and file.exists():
            feeds[item.name] = _read(file.read_bytes(), kind)
        elif kind == "tensor_type":
            sizes = [dim.dim_value or 1 for dim in item.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            feeds[item.name] = np.ones(sizes, dtype)
    return Case(name, model, feeds)


def _read(data: bytes, kind: str) -> Any:
    if kind == "sequence_type":
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))


class _Late(BaseException):
    """A model took too long."""


def _late(*_: Any) -> None:
    raise _Late


def examine(case: Case, folder: Path) -> dict[str, Any]:
    """Analyse, predict and run one test. status: "ran", or what ended it: "refused" (a clear error), "not run" (by
    ONNX Runtime), "late", "failed" (an exception: a defect)."""
    import analyzer
    from analyzer.devices import resolve
    from analyzer.errors import AnalyzerError
    from analyzer.runtimes.onnxruntime import predict
    from analyzer_verify.runs import session

    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    row: dict[str, Any] = {"name": case.name, "operators": sorted({n.op_type for n in case.model.graph.node})}
    started = time.monotonic()
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    stage = "analyze"
    try:
        analyzer.analyze(str(path), device="h200")
        stage = "predict"
        options = {"provider": "cpu", "graph_optimization_level": 2}  # as sessions are measured
        predicted = predict(str(path), options=options, device=resolve("h200")[0])
        row |= {
            "peak": predicted.peak_in_use, "held": predicted.held, "warns": warns(predicted),
            "kernels": sorted({node.operator for node in predicted.graph.walk()}),
        }  # fmt: skip
        stage = "run"
        measured = session.measure(path, asdict(predicted.settings), case.feeds, folder)
        last = measured["runs"][-1]
        row |= {"status": "ran", "real_peak": last["peak_in_use"], "real_held": last["held"]}
    except AnalyzerError as error:
        row |= {"status": "refused" if stage != "run" else "not run", "message": error.message}
    except _Late:
        row |= {"status": "late", "message": stage}
    except Exception as error:  # a defect of the analyzer, or ONNX Runtime's own refusal
        row |= {"status": "not run" if stage == "run" else "failed"}
        row["message"] = f"{stage}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    finally:
        signal.alarm(0)
    row["seconds"] = round(time.monotonic() - started, 2)
    return row


def warns(prediction: Any) -> bool:
    """Whether the prediction itself says that it may be too low."""
    return bool(prediction.unknown) or any("may be more" in note for note in prediction.notes)


def too_low(row: dict[str, Any]) -> bool:
    """Whether a figure is under by more than 5 % or 4 KiB, and nothing says that it may be."""
    if row["status"] != "ran" or row["warns"]:
        return False
    pairs = ((row["peak"], row["real_peak"]), (row["held"], row["real_held"]))
    return any(real - ours > max(CLOSE * real, CLOSE_BYTES) for ours, real in pairs)


def work(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Examine these tests in this process."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    known = {case.name: case for case in cases()}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            yield examine(known[name], Path(folder))


def campaign(names: list[str], processes: int) -> list[dict[str, Any]]:
    """Examine tests in processes of their own; one that ends its process is kept as "aborted"."""
    rows = [
        row or {"name": name, "status": "aborted", "operators": []}
        for name, row in stream("benchmarks.onnx.backend:work", names, processes)
    ]
    return sorted(rows, key=lambda row: row["name"])


def summary(rows: list[dict[str, Any]]) -> str:
    """The figures of a campaign, and the operators of what was missed."""
    ran = [row for row in rows if row["status"] == "ran"]
    lines = [
        f"{len(rows)} models: " + ", ".join(f"{n} {s}" for s, n in Counter(r["status"] for r in rows).items())
    ]
    for figure in ("peak", "held"):
        exact = sum(row[figure] == row[f"real_{figure}"] for row in ran)
        lines.append(f"{figure} exact: {exact} of {len(ran)} ({100 * exact / max(len(ran), 1):.1f} %)")
    lines.append(f"under by more than 5 % or 4 KiB without a note: {sum(map(too_low, ran))}")
    missed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in ran:
        if row["peak"] != row["real_peak"] or row["held"] != row["real_held"]:
            missed[_operator(row)].append(row)
    for operator, some in sorted(missed.items(), key=lambda item: -len(item[1])):
        worst = max(some, key=lambda row: abs(row["peak"] - row["real_peak"]))
        lines.append(
            f"  {operator}: {len(some)}, such as {worst['name']} ({worst['peak']:,} for {worst['real_peak']:,}; "
            f"held {worst['held']:,} for {worst['real_held']:,})"
        )
    return "\n".join(lines)


def part(rows: list[dict[str, Any]]) -> str:
    """What the page says of these results."""
    import onnxruntime

    versions = f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}:"
    return f"{versions}\n\n```text\n{summary(rows)}\n```\n"


def _operator(row: dict[str, Any]) -> str:
    """What a test is about: its only operator, or its name's first words."""
    return row["operators"][0] if len(row["operators"]) == 1 else "_".join(row["name"].split("_")[1:3])


@click.command()
@click.option("--only", default="", help="tests whose name contains this")
@click.option("--processes", default=2)
@click.option("-o", "--output", type=Path)
def score(only: str, processes: int, output: Path | None) -> None:
    """Examine every test, and print or write a row of each, and the figures."""
    rows = campaign([case.name for case in cases() if only in case.name], processes)
    if output:
        output.write_text(json.dumps(rows, indent=1) + "\n")
    else:
        for row in rows:
            print(json.dumps(row))
    print(summary(rows))


@click.command("summary")
@click.argument("results", type=Path)
def shown(results: Path) -> None:
    """The figures of an earlier campaign, by operator."""
    print(summary(json.loads(results.read_text())))


@click.command()
@click.argument("results", type=Path)
def table(results: Path) -> None:
    """Write an earlier campaign into its part of the page."""
    write_part(PAGE, "backend tests", part(json.loads(results.read_text())))
