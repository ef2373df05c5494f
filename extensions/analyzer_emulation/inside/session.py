"""Runs an ONNX file in the user's own ONNX Runtime under the emulated CUDA runtime, and writes down what its
kernels asked for: `python session.py JOB OUT`.

Like its folder it runs with whatever Python the user has: numpy and onnxruntime are all it needs.

1. The CUDA provider takes its memory of two functions of the emulated runtime in place of its arena
   (`gpu_external_alloc`, `gpu_external_free`): the requests are those that the arena would get.
2. The log tells when the initializers were loaded: what is asked for between that and the end of the
   session's creation is weights laid out anew.
3. The profiler's clock and that of the requests are one (`native/inference.c`): a kernel's requests are known
   by their time.
"""

from __future__ import annotations

import calendar
import ctypes
import json
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

_INFO, _WARNING = 1, 2  # severities of ONNX Runtime's log
_LOADED = re.compile(r"(\d{4}-\d\d-\d\d [:\d]+)\.(\d{9}) .*Done saving initialized tensors")
_FAILED = re.compile(r"Failed to load library .* with error: (.*)|EP Error (?:/\S+:\d+ )?(.*)")
_CUDA = "CUDAExecutionProvider"
_HOOKS = {
    "gpu_external_alloc": "emulated_take",
    "gpu_external_free": "emulated_give",
    "gpu_external_empty_cache": "emulated_empty",
}


class _Request(ctypes.Structure):
    """As `native/inference.c` keeps it."""

    _fields_ = [("nanoseconds", ctypes.c_int64), ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


def _requests() -> list[tuple[int, int, int]]:
    """Return the requests: nanoseconds, address (0: the host read), bytes (0: the address is given back)."""
    read = ctypes.CDLL(None).emulated_requests
    read.restype, count = ctypes.POINTER(_Request), ctypes.c_size_t()
    first = read(ctypes.byref(count))
    return [(first[i].nanoseconds, first[i].address, first[i].bytes) for i in range(count.value)]


def _feed(described: dict[str, Any]) -> Any:
    """Return an input: an array, or an OrtValue for a type that NumPy lacks."""
    import onnxruntime as ort

    shape, dtype, fill = described["shape"], described["numpy"], described["fill"] or 0
    if dtype == "string":
        return np.full(shape, "a", dtype=object)
    array = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
    if not described["number"]:
        return array
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, described["number"])


def _binding(session: Any, feeds: dict[str, Any], results: dict[str, Any]) -> Any:
    """Return a session's binding: inputs lie on the device, and so do those of the outputs that `results`
    describes; it is the session that allocates others there."""
    import onnxruntime as ort

    binding = session.io_binding()
    for name, described in feeds.items():
        value = _feed(described)
        if not isinstance(value, ort.OrtValue):
            value = ort.OrtValue.ortvalue_from_numpy(value, "cuda", 0)
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        if output.name in results:
            value = ort.OrtValue.ortvalue_from_numpy(_feed(results[output.name]), "cuda", 0)
            binding.bind_ortvalue_output(output.name, value)
        else:
            binding.bind_output(output.name, "cuda")
    return binding


def _options(job: dict[str, Any], prefix: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, prefix
    options.log_severity_level = _INFO
    for name, value in job["session"].items():
        kind = type(getattr(options, name))
        setattr(options, name, kind(value))
    for key, value in job["entries"].items():
        options.add_session_config_entry(key, value)
    return options


def _session(job: dict[str, Any], prefix: str) -> Any:
    """Return the session, made by the CUDA provider with the caller's allocator."""
    import onnxruntime as ort

    runtime = ctypes.CDLL(None)
    hooks = {
        option: str(ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value)
        for option, name in _HOOKS.items()
    }
    providers = [(_CUDA, {**job["provider"], **hooks}), "CPUExecutionProvider"]
    return ort.InferenceSession(job["path"], _options(job, prefix), providers=providers, enable_fallback=0)


def _kernel(event: dict[str, Any], start: int) -> tuple[Any, ...]:
    """Return a kernel's begin and end in nanoseconds, its node, operator, provider and results."""
    begin = start + event["ts"] * 1000
    arguments = event["args"]
    return (
        begin,
        begin + event["dur"] * 1000,
        event["name"].removesuffix("_kernel_time"),
        arguments.get("op_name", ""),
        arguments.get("provider", ""),
        arguments.get("output_type_shape", []),
    )


def _refusal(log: str) -> str:
    """Return why the CUDA provider was not taken, in the log's words."""
    line = _FAILED.search(log)
    return line[1] or line[2] if line is not None else "its log does not say why"


def _loaded(log: str) -> int:
    """Return when the main graph's initializers were loaded, in nanoseconds; 0 where the log does not say."""
    line = _LOADED.search(log)
    if line is None:
        return 0
    seconds = calendar.timegm(time.strptime(line[1], "%Y-%m-%d %H:%M:%S"))
    return seconds * 10**9 + int(line[2])


@contextmanager
def _log() -> Iterator[Callable[[], str]]:
    """While open, the standard error goes into a file; yield what reads it."""
    own = os.dup(2)
    with tempfile.TemporaryFile() as file:

        def text() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(own, 2)
            os.close(own)


def _followed(job: dict[str, Any], prefix: str, log: Callable[[], str]) -> dict[str, Any]:
    """Return the record of a session and its runs; "error" where ONNX Runtime refuses one. log: what it has
    logged."""
    import onnxruntime as ort

    record: dict[str, Any] = {"version": ort.__version__, "marks": [], "kernels": []}
    try:
        with redirect_stdout(StringIO()) as printed:  # it says so there where it goes on without a provider
            session = _session(job, prefix)
        record["loaded"] = _loaded(log())
        if _CUDA not in session.get_providers():
            record["error"] = f"it did not take its CUDA provider: {_refusal(log() + printed.getvalue())}"
            return record
        record["marks"].append(time.time_ns())
        how = ort.RunOptions()
        how.log_severity_level = _WARNING
        for key, value in job["run"].items():
            how.add_run_config_entry(key, value)
        names = [item.name for item in session.get_inputs()]
        bindings: dict[str, Any] = {}  # a captured graph wants the addresses it was captured with
        callers: list[tuple[int, int]] = []  # when the caller asked for memory
        for feeds, results in zip(job["runs"], job["results"], strict=True):
            given = {name: feeds[name] for name in names if name in feeds}
            if job["binding"] == "none":
                session.run(None, {name: _feed(feed) for name, feed in given.items()}, how)
            else:
                sizes = json.dumps(given)
                if sizes not in bindings:
                    begun = time.time_ns()
                    bindings[sizes] = _binding(session, given, results if job["binding"] == "caller" else {})
                    callers.append((begun, time.time_ns()))
                session.run_with_iobinding(bindings[sizes], how)
            record["marks"].append(time.time_ns())
    except Exception as error:
        record["error"] = str(error)
        return record
    record["requests"] = [
        request
        for request in _requests()
        if not any(since <= request[0] <= until for since, until in callers)
    ]
    local = ctypes.CDLL(None).emulated_local_bytes
    local.restype = ctypes.c_uint64
    record["local_bytes"] = local(0)
    start = session.get_profiling_start_time_ns()
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    record["kernels"] = [
        _kernel(event, start)
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    return record


def main() -> None:
    """JOB: a JSON file with "path", "runs" (each: input -> "shape", "numpy" dtype, "fill", "number" of its
    ONNX type where NumPy has none), "session" (attributes), "entries" (its configuration), "provider", "run"
    (configuration), "binding" (where inputs and outputs lie: "none", "caller", "device"), "results" (each
    run's, as inputs are described); OUT: the file for the record."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive whoever started it
    warnings.simplefilter("ignore")
    job, out = json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2])
    with _log() as log:
        record = _followed(job, str(out.parent / "profile"), log)
    out.write_text(json.dumps(record), "utf-8")
    sys.stdout.flush()
    os._exit(0)  # a session's end is no part of what is asked


if __name__ == "__main__":
    main()
