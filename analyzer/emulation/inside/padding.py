"""Whether Inductor pads a matrix product: what it times to decide is answered by the analyzer's figures.

1. `pad_mm` pads where the padded product, with the copies it takes, is the faster by a tenth. It runs both
   (`torch/_inductor/fx_passes/pad_mm.py`, `_should_pad`), and so it does here: what that takes of the
   allocator is the program's.
2. An emulated device has no clock of its own. What one run of each gives the device is written down, and the
   analyzer says what that takes of the GPU (`timing/`), the cache empty, as the benchmark has it. Of a GPU
   whose figures nobody knows the answer stays this machine's clock.

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
            seen: list[list[dict[str, Any]]] = []

            def once() -> Any:
                if seen:
                    return call()
                with launches.aside() as launched:
                    result = call()
                seen.append(launched)
                return result

            measured = benchmark(once, *args, **kwargs)
            predicted = nanoseconds(seen[0]) if seen else None
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
