"""A real run is a job in a process of its own, so that its memory is its own and its failure is not ours.

1. A job is plain JSON: what to run (`kind`), on what, with which options. The worker (`python -m
   analyzer_verify.runs.worker FILE`) writes its result next to it; what the program prints goes to stderr.
2. The worker's environment says what the options say: `CUBLAS_WORKSPACE_CONFIG`, `PYTORCH_ALLOC_CONF`.
3. A result is `{"ok": ...}`, `{"out_of_memory": ...}` or `{"error": message, "hint": ..., "trace": ...}`. A
   worker that dies without one has its exit code and last words reported.
4. Everything a job writes lies in a folder of its own, which goes when the run is over, and also when this
   process is interrupted or asked to end (SIGTERM): the worker is ended first.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from analyzer import child
from analyzer.errors import OptionError, RunError, TargetError
from analyzer.options import Options
from analyzer.signals import ends_on_request
from analyzer.spec import TensorSpec

TIMEOUT_SECONDS = 900


def describe(target: object, options: Options) -> dict[str, Any]:
    """Return target and options as JSON values. Raises TargetError or OptionError for others."""
    if not isinstance(target, (str, os.PathLike)):
        raise TargetError(
            f"a {type(target).__name__} in this process cannot be run in another",
            "give a file or package.module:attr that makes the model",
        )
    plain: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value is None:
            continue
        if callable(value):
            raise OptionError(
                f"{field.name} is a function, which cannot go to another process",
                "name it: a name of torch.optim, or file.py:function",
            )
        plain[field.name] = _json_value(value)
    return {"target": os.fspath(target), "options": plain}


def options_of(job: Mapping[str, Any]) -> Options:
    """Return the options `describe` wrote."""
    values = dict(job["options"])
    for name in ("inputs", "targets"):
        if isinstance(values.get(name), dict):
            values[name] = {key: _spec(entry) for key, entry in values[name].items()}
        elif values.get(name) is not None:
            values[name] = tuple(map(_spec, values[name]))
    return Options(**values)


def environment_of(options: Options) -> dict[str, str]:
    """Return the variables a worker needs for the options on cuBLAS and the allocator."""
    variables: dict[str, str] = {}
    workspace = options.runtime_options.get("cublas_workspace")
    if workspace is not None:
        variables["CUBLAS_WORKSPACE_CONFIG"] = (
            f":{workspace // 1024}:1" if isinstance(workspace, int) else str(workspace)
        )
    if options.runtime_options.get("alloc_conf"):
        variables["PYTORCH_ALLOC_CONF"] = str(options.runtime_options["alloc_conf"])
    return variables


def run(job: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run the job in a process of its own and return its result, also when it dies without one."""
    with ends_on_request(), tempfile.TemporaryDirectory(prefix="analyzer-verify-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps({**job, "folder": folder}))
        try:
            done = subprocess.run(
                child.command("analyzer_verify.runs.worker", str(path)),
                env={**os.environ, **(environment or {})},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=job.get("timeout_seconds", TIMEOUT_SECONDS),
            )
        except subprocess.TimeoutExpired as error:
            return {
                "error": f"the run did not end within {error.timeout:.0f} seconds",
                "hint": "use a smaller batch",
            }
        result = path.with_name("result.json")
        if result.exists():
            return dict(json.loads(result.read_text()))
    last = next(reversed(done.stderr.strip().splitlines()), "it said nothing")
    return {"error": f"the run ended with code {done.returncode}: {last}", "trace": done.stderr[-3000:]}


def result_of(result: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return a successful job's result. Raises RunError with the worker's message."""
    if "ok" in result:
        return dict(result["ok"])
    raise RunError(
        f"{what} could not be run: {result['error']}", result.get("hint", "see the program's own message")
    )


def _json_value(value: Any) -> Any:
    """Return an option as a JSON value; of a tensor its shape, type and strides."""
    if isinstance(value, Mapping):
        return {str(name): _json_value(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(entry) for entry in value]
    if isinstance(value, TensorSpec):
        return {
            "shape": list(value.shape),
            "dtype": value.dtype,
            "stride": value.stride and list(value.stride),
        }
    if hasattr(value, "stride") and hasattr(value, "dtype"):  # a tensor: only what it looks like goes along
        return {"shape": list(value.shape), "dtype": str(value.dtype)[6:], "stride": list(value.stride())}
    return value


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    stride = entry.get("stride")
    return TensorSpec(tuple(entry["shape"]), entry["dtype"], None if stride is None else tuple(stride))
