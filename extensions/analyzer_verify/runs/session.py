"""A real ONNX Runtime session: what its arena held while the model ran, as the runtime itself reports it.

1. The model runs three times, or once for each set of inputs, with profiling on; every kernel's event carries
   the arena's bytes in use, the highest so far, and what is held (`mem_bytes_in_use`, `mem_in_use_peak`,
   `mem_arena_held`).
2. Weights that the file leaves to external data which is not there are generated at random: a copy of the
   model in the job's folder gets data files of its own, which go with it. Files that are there are used as
   they are.
3. Inputs are those of a file, or made up (`feeds`).
4. Options have ONNX Runtime's own names, and go where it takes them: session options, session configuration,
   provider.

Not modelled: inputs whose shape the analysis only bounds.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.errors import RunError
from analyzer.graph import nbytes_of
from analyzer.onnx import file as onnx_file
from analyzer.onnx.types import DTYPES, ELEMENT_TYPES
from analyzer.runtimes.onnxruntime import SessionOptions
from analyzer_verify.runs import feeds, machine

RUNS = 3
NO_KERNEL = "no kernel is left in this model when ONNX Runtime has optimised it"
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
_BLOCK = 1 << 20


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run `job["path"]` with `job["inputs"]` (for each run, what `feeds.plain` wrote), the arrays in
    `job["arrays"]` (a path, or None) and `job["settings"]`, which name the provider, in `job["folder"]`.

    Returns bytes after each run, the arena's kernels, NVML's figures, the providers that really took part.
    """
    started = time.monotonic()
    generator = np.random.default_rng(0)
    described = job["inputs"]
    arrays: dict[str, Any] = {}
    if job.get("arrays"):
        arrays = feeds.typed(
            feeds.saved(Path(job["arrays"])), {name: entry["dtype"] for name, entry in described[0].items()}
        )
    runs = [{**feeds.arrays(entry, generator), **arrays} for entry in described]
    with tempfile.TemporaryDirectory(prefix="analyzer-session-", dir=job.get("folder")) as folder:
        path, generated = with_weights(Path(job["path"]), Path(folder), generator)
        measured = measure(path, job["settings"], runs, Path(folder))
    return {**measured, "weights_generated_bytes": generated, "seconds": round(time.monotonic() - started, 1)}


def measure(
    path: Path,
    session_settings: Mapping[str, Any],
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    folder: Path,
) -> dict[str, Any]:
    """Run a model with all weights, three times or once per input; `folder` gets the profile.

    Returns bytes after each run, NVML's figures, the providers that really took part, and versions.
    """
    import onnxruntime as ort

    settings = SessionOptions(**session_settings)
    if settings.provider == "cuda" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    on_gpu = settings.provider == "cuda"
    before = (machine.process_bytes(), machine.device_bytes()) if on_gpu else (None, None)
    session = ort.InferenceSession(
        str(path), _session_options(settings, str(folder)), providers=_providers(settings.provider, settings)
    )
    how = _run_options(settings)
    sequence = [inputs] * RUNS if isinstance(inputs, Mapping) else inputs
    nvml = []
    for batch in sequence:
        session.run(None, {name: _as_feed(batch[name]) for name in _names(session) if name in batch}, how)
        nvml.append(machine.process_bytes() if on_gpu else None)
    device = machine.device_bytes() if on_gpu else None
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text())
    profile.unlink()
    providers = session.get_providers()
    if on_gpu and _PROVIDERS["cuda"] not in providers:
        raise RuntimeError("ONNX Runtime did not take its CUDA provider; is onnxruntime-gpu installed?")
    return {
        "runs": runs(events, len(sequence), "CUDA" if on_gpu else "CPU"),
        "nvml_process": {"before": before[0], "end": nvml[-1]},
        "nvml_device": {"before": before[1], "end": device},
        "providers": providers,
        "versions": {"onnxruntime": ort.__version__},
    }


def runs(events: list[dict[str, Any]], count: int, provider: str) -> list[dict[str, int]]:
    """Return bytes in use, highest in use and held after each run, from the profiler's events.

    `mem_in_use_peak` counts from the start of the session and is never reset, so a later run's own peak shows
    only where it is higher.
    """
    kernels = [
        event["args"]
        for event in events
        if event.get("cat") == "Node" and event.get("name", "").endswith("_kernel_time")
    ]
    if not kernels:
        raise RunError(
            NO_KERNEL, "its outputs are constants, or its inputs themselves: there is nothing to measure"
        )
    per_run, rest = divmod(len(kernels), count)
    if rest:
        raise RuntimeError(
            f"{len(kernels)} kernels in {count} runs: a subgraph ran a changing number of times"
        )
    sequences = []
    for number in range(count):
        own = [
            args
            for args in kernels[number * per_run : (number + 1) * per_run]
            if provider in args.get("provider", "")
        ]
        own = [args for args in own if "mem_arena_held" in args]
        if not own:
            raise RuntimeError("this ONNX Runtime's profile says nothing about memory; 1.30 or newer does")
        sequences.append(
            {
                "in_use": int(own[-1]["mem_bytes_in_use"]),
                "peak_in_use": max(int(args["mem_in_use_peak"]) for args in own),
                "held": max(int(args["mem_arena_held"]) for args in own),
            }
        )
    return sequences


def with_weights(path: Path, folder: Path, generator: np.random.Generator) -> tuple[Path, int]:
    """Return `path`, or a copy in `folder` with random external data where files are missing.

    Returns the path to load and the bytes generated.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    external = [t for t in onnx_file.tensors(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL]
    locations = {onnx_file.external_entries(tensor).get("location", "") for tensor in external}
    if all(onnx_file.inside(path.parent, location, path.name).exists() for location in locations):
        return path, 0
    total, end = 0, 0
    with (folder / "weights").open("wb") as stream:
        for tensor in external:
            count = int(np.prod(tensor.dims, dtype=np.int64))
            nbytes = nbytes_of(count, DTYPES[tensor.data_type])
            end = -(-end // 4096) * 4096
            stream.seek(end)
            _write(stream, DTYPES[tensor.data_type], count, nbytes, generator)
            del tensor.external_data[:]
            for key, value in (("location", "weights"), ("offset", end), ("length", nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            total, end = total + nbytes, end + nbytes
        stream.truncate(max(end, 1))
    copy = folder / "model.onnx"
    copy.write_bytes(model.SerializeToString())
    return copy, total


def _write(stream: Any, dtype: str, count: int, nbytes: int, generator: np.random.Generator) -> None:
    """Random values, a block of them repeated; types without a NumPy equal, and integers, are zero."""
    kinds = {"float32": np.float32, "float64": np.float64, "float16": np.float16}
    if dtype not in kinds:
        stream.write(bytes(nbytes))
        return
    block = (generator.standard_normal(min(count, _BLOCK)) * 0.02).astype(kinds[dtype])
    for start in range(0, count, _BLOCK):
        stream.write(block[: min(_BLOCK, count - start)].tobytes())


def _names(session: Any) -> list[str]:
    return [item.name for item in session.get_inputs()]


def _as_feed(value: Any) -> Any:
    """Return a value as ONNX Runtime takes it: an array, or an OrtValue for types NumPy lacks."""
    import onnxruntime as ort

    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "biufcSUO":
        return array
    number = ELEMENT_TYPES[str(array.dtype)]
    plain = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, number)


def _session_options(settings: SessionOptions, folder: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "profile")
    for name, value in settings.attributes().items():
        setattr(options, name, type(getattr(options, name))(value))
    for key, entry in settings.entries().items():
        options.add_session_config_entry(key, entry)
    return options


def _run_options(settings: SessionOptions) -> Any:
    import onnxruntime as ort

    options = ort.RunOptions()
    for key, entry in settings.run_entries().items():
        options.add_run_config_entry(key, entry)
    return options


def _providers(provider: str, settings: SessionOptions) -> list[Any]:
    if provider == "cpu":
        return [_PROVIDERS["cpu"]]
    return [(_PROVIDERS["cuda"], settings.provider_options()), _PROVIDERS["cpu"]]
