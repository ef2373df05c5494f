"""Inductor's padding of matrix products: the analyzer's figures replace the times that decide it.

1. `pad_mm` pads where the padded product, with the copies it takes, is the faster by a tenth. It runs both
   (`torch/_inductor/fx_passes/pad_mm.py`, `_should_pad`), and so it does here: the memory for that is the
   program's own.
2. An emulated device has no clock of its own. The device work of one run of each is recorded, and the
   analyzer estimates its time on the GPU (`analyzer_timing/`), with an empty cache, as in the benchmark. On a
   GPU without figures the answer is this machine's clock.

Not modelled: other things Inductor times (`max-autotune`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

MODULE = "torch._inductor.fx_passes.pad_mm"
_QUESTIONS = "ANALYZER_EMULATED_QUESTIONS"
_MILLI = 1e-6  # of a nanosecond, in milliseconds


def answer(module: Any, launches: Any) -> None:
    """Have `MODULE`'s benchmark say what the analyzer does. launches: what sees operators."""
    benchmark_of = getattr(module, "get_do_bench", None)
    if benchmark_of is None:
        return

    def get_do_bench() -> Callable[..., Any]:
        benchmark = benchmark_of()

        def timed(call: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
            runs: list[list[dict[str, Any]]] = []

            def once() -> Any:
                if runs:
                    return call()
                with launches.aside() as launched:
                    result = call()
                runs.append(launched)
                return result

            measured = benchmark(once, *args, **kwargs)
            predicted = nanoseconds(runs[0]) if runs else None
            return measured if predicted is None else predicted * _MILLI

        return timed

    module.get_do_bench = get_do_bench


def nanoseconds(launched: list[dict[str, Any]]) -> int | None:
    """Return what the analyzer says these launches take; None where it does not know."""
    path = os.environ.get(_QUESTIONS)
    if path is None or not launched:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps({"about": "benchmark", "launches": launched}).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline() or b'""')
    return int(answer[0]) if isinstance(answer, list) else None
