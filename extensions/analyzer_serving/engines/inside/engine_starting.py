"""Common parts of the serving engines' starters: the report, which `analyzer_serving/engines/serving.py`
reads, and its errors.

The report of a process is a JSON file with "version", "torch", "settings", "notes", "ranks" (of this process:
bytes by the name of the term, `analyzer_serving/results.py`), "blocks", "block_tokens", "tokens",
"concurrency", "length", "needed" (bytes of weights that did not fit), and "error" where the engine ended in
one. Fields that a release does not have are left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn


class ArgumentError(Exception):
    """An argument is not the engine's."""


def refuse(message: str) -> NoReturn:
    """Raise what a parser of arguments finds wrong, without its usage of some hundred lines."""
    raise ArgumentError(message)


def message_of(error: BaseException) -> str:
    """Return what an error says; of a configuration's validation (pydantic) without its input and links."""
    parts = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(parts):
        return str(error)
    return "; ".join(str(part["msg"]).removeprefix("Value error, ") for part in parts())


def settings_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON has them: what is no number or truth value as text."""
    return {
        name: value if isinstance(value, (bool, int, float, str)) else str(value)
        for name, value in parts.items()
    }


def graph_nodes() -> int | None:
    """Return how many nodes the CUDA graphs of this rank's device have; None: nobody counts them."""
    import torch

    runtime = ctypes.CDLL(None)
    if not hasattr(runtime, "emulated_graph_nodes"):
        return None
    runtime.emulated_graph_nodes.restype = ctypes.c_int64
    return int(runtime.emulated_graph_nodes(torch.cuda.current_device()))


def weights_of(make: Callable[[], Any]) -> int:
    """Return the bytes of a model's weights that did not fit, by the model as `make` makes it without memory;
    0, and why on stderr, where it cannot."""
    try:
        model = make()
    except Exception as error:
        print(f"analyze serve: how much its weights take is not known: {error}", file=sys.stderr)
        return 0
    return sum(tensor.nbytes for tensor in {*model.parameters(), *model.buffers()})


def wait_for_others(world: Callable[[], Any]) -> None:
    """Wait until every rank has written its report, since all end with the first. world: the engine's group
    of all ranks."""
    with contextlib.suppress(Exception):
        import torch.distributed as dist

        dist.barrier(group=world().cpu_group)


def report(start: Callable[[str, list[str], dict[str, Any]], None], world: Callable[[], Any]) -> None:
    """Start an engine by the command line `OUT MODEL [ARGUMENT ...]`, and write its report to OUT. Exit code
    0: it could serve; 1: it ended in an error, which OUT has."""
    out, model, *arguments = sys.argv[1:]
    is_rank = "RANK" in os.environ
    if is_rank:
        out = f"{out}.{os.environ['RANK']}"
    result: dict[str, Any] = {"ranks": []}
    try:
        start(model, arguments, result)
    except Exception as error:
        result["error"] = {"kind": type(error).__name__, "message": message_of(error), "at": time.time()}
        raise
    finally:
        Path(out).write_text(json.dumps(result), "utf-8")
    if is_rank:
        wait_for_others(world)
