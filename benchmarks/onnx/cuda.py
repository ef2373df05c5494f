"""Half-precision and quantised variants, single operators and the onnx package's tests under the CUDA provider, kernel by kernel.

    python -m benchmarks onnx_cuda pack FOLDER                  # models and inputs, weights that compress to nothing
    python -m benchmarks onnx_cuda measure FOLDER -o FILE.json.gz    # on the machine with the GPU: needs onnxruntime-gpu only
    python -m benchmarks onnx_cuda score FILE.json.gz FOLDER  # what is predicted for each beside it

1. Variants are those of `variants.py` and further architectures, each once with the default arena and once with
   arena_extend_strategy=kSameAsRequested, where the order of a hash table does not matter.
2. Every case runs three times in a process of its own kind (many cases a process; one that ends its process costs itself
   only). Kept are, for each kernel of the first run, operator, provider, highest in use so far, in use and held, and the
   figures after the third run.
"""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.harness import files
from benchmarks.harness.processes import stream

RUNS = 3
_BLOCK = 512  # bytes, or elements, that are repeated
_HOW = ("number", "inputs", "types")  # what a case is run with, which the record leaves out
_SOURCE = (
    'models of `benchmarks/onnx/cuda.py pack`, batch 4 for variants ("v_"); first: per kernel of run 1 [operator, provider, '
    "mem_in_use_peak, mem_bytes_in_use, mem_arena_held]; peak, held: of the arena after run 3"
)
SAME = {"arena_extend_strategy": "kSameAsRequested"}


@click.command()
@click.argument("folder", type=Path)
@click.option("--batch", default=4)
def pack(folder: Path, batch: int) -> None:
    """Write every case: NAME.onnx, NAME.npz, and cases.json."""
    import onnx

    from benchmarks.onnx.backend import cases
    from benchmarks.onnx.variants import feeds, variants
    from benchmarks.subjects.onnx_operators import operators

    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []

    def keep(name: str, model: onnx.ModelProto, given: dict[str, Any], options: list[dict[str, str]]) -> None:
        if any(not isinstance(value, np.ndarray | np.generic) for value in given.values()):
            return  # sequences and the like
        (folder / f"{name}.onnx").write_bytes(_compressible(model).SerializeToString())
        plain = {f"{place}": np.asarray(value) for place, value in enumerate(given.values())}
        kinds = {key: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for key, value in given.items()}
        np.savez(folder / f"{name}.npz", **{key: _bits(value) for key, value in plain.items()})
        rows.extend(
            {"name": name, "inputs": list(given), "types": list(kinds.values()), "provider": item}
            for item in options
        )

    for name, model in variants():
        keep(f"v_{name}", model, feeds(model, batch), [{}, SAME])
    for name, model, given in operators():
        keep(f"o_{name}", model, given, [SAME])
    for case in cases():
        keep(f"b_{case.name}", case.model, case.feeds, [{}])
    (folder / "cases.json").write_text(json.dumps(rows))


def _bits(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A type NumPy lacks, as the bytes it has; strings as text; many values as one block repeated."""
    if value.dtype.kind == "O":
        return value.astype(str)
    if value.size > _BLOCK:
        value = np.resize(value.reshape(-1)[:_BLOCK], value.shape)
    if value.dtype.isbuiltin == 1:
        return value
    return value.view(np.dtype(f"u{value.dtype.itemsize}"))


def _compressible(model: Any) -> Any:
    """The model with one block of values repeated in its larger tensors."""
    import onnx

    for tensor in model.graph.initializer:
        nbytes = len(tensor.raw_data)
        if nbytes > _BLOCK and tensor.data_type != onnx.TensorProto.INT64:
            tensor.raw_data = (tensor.raw_data[:_BLOCK] * (nbytes // _BLOCK + 1))[:nbytes]
    return model


@click.command()
@click.argument("folder", type=Path)
@click.option("-o", "--output", type=Path, required=True)
@click.option("--processes", default=12)
@click.option("--seconds", default=600.0)
def measure(folder: Path, output: Path, processes: int, seconds: float) -> None:
    """Run every case for at most so many seconds; `output` gets one document of those that were done."""
    numbers = range(len(json.loads((folder / "cases.json").read_text())))
    rows = {
        number: row or {"number": number, "error": "the process ended"}
        for number, row in stream(
            "benchmarks.onnx.cuda:work", numbers, processes, str(folder.resolve()), seconds=seconds
        )
    }
    found = [{key: item for key, item in row.items() if key not in _HOW} for _, row in sorted(rows.items())]
    files.write(output, {"source": _SOURCE, "cases": found})
    print(f"{sum(row.get('peak') is not None for row in found)} of {len(numbers)} ran")


def work(numbers: list[int], place: str) -> Iterator[dict[str, Any]]:
    """Run these cases in this process."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    folder = Path(place)
    cases = json.loads((folder / "cases.json").read_text())
    for number in numbers:
        case = {"number": number, **cases[number]}
        try:
            case |= _run(onnxruntime, folder, case)
        except Exception as error:  # ONNX Runtime refuses it: kept as its answer
            case["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            if not isinstance(error, RuntimeError) and "onnxruntime" not in type(error).__module__:
                case["where"] = traceback.format_exc()[-300:]
        yield case


def _run(ort: Any, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as place:
        options.profile_file_prefix = f"{place}/p"
        gpu = "CUDAExecutionProvider" in ort.get_available_providers()
        providers: list[Any] = [("CUDAExecutionProvider", case["provider"])] if gpu else []
        session = ort.InferenceSession(
            str(folder / f"{case['name']}.onnx"), options, providers=[*providers, "CPUExecutionProvider"]
        )
        values = np.load(folder / f"{case['name']}.npz")
        known = {item.name for item in session.get_inputs()}
        given = {
            name: _value(ort, values[str(place)], kind)
            for place, (name, kind) in enumerate(zip(case["inputs"], case["types"], strict=True))
            if name in known
        }
        for _ in range(RUNS):
            if any(isinstance(value, ort.OrtValue) for value in given.values()):
                session.run_with_ort_values(
                    [item.name for item in session.get_outputs()],
                    {
                        name: value
                        if isinstance(value, ort.OrtValue)
                        else ort.OrtValue.ortvalue_from_numpy(value)
                        for name, value in given.items()
                    },
                )
            else:
                session.run(None, given)
        events = json.loads(Path(session.end_profiling()).read_text())
    rows = [
        [args["op_name"], args["provider"].removesuffix("ExecutionProvider"), *_memory(args)]
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        for args in (event["args"],)
    ]  # fmt: skip
    count = len(rows) // RUNS
    on = [row for row in rows if row[1] == ("CUDA" if gpu else "CPU") and row[4] is not None]
    if not on:
        return {"first": rows[:count], "peak": None, "held": None}
    return {"first": rows[:count], "peak": max(row[2] for row in on), "held": max(row[4] for row in on)}


def _memory(args: dict[str, Any]) -> list[int | None]:
    names = ("mem_in_use_peak", "mem_bytes_in_use", "mem_arena_held")
    return [int(args[name]) if name in args else None for name in names]


def _value(ort: Any, value: np.ndarray[Any, Any], kind: int) -> Any:
    plain = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
    if kind == 8:
        return value.astype(object)
    return value if kind in plain else ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, kind)


@click.command()
@click.argument("recorded", type=Path)
@click.argument("folder", type=Path)
def score(recorded: Path, folder: Path) -> None:
    """Print predictions beside what was recorded."""
    from analyzer.devices import load
    from analyzer.errors import AnalyzerError
    from analyzer.runtimes.onnxruntime import predict

    for row in files.read(recorded)["cases"]:
        if row.get("peak") is None:
            continue
        name = "/".join([row["name"], *row["provider"].values()])
        given = np.load(folder / f"{row['name']}.npz")
        batch = int(given["0"].shape[0]) if row["name"].startswith("v_") else None
        try:
            mine = predict(
                str(folder / f"{row['name']}.onnx"), batch=batch, options=row["provider"], device=load("h200")
            )
        except AnalyzerError as error:
            print(f"{name:60} {error.message}")
            continue
        off = [100 * (a / b - 1) for a, b in ((mine.peak_in_use, row["peak"]), (mine.held, row["held"]))]
        print(
            f"{name:60} peak {mine.peak_in_use:>12,} {row['peak']:>12,} {off[0]:+7.2f} %  held {off[1]:+7.2f} %"
        )
