"""SGLang as a serving engine (`serving.py`): which ranks its arguments ask for.

Engines beside one another (`--dp-size`) have nothing in common: one is started, and stands for all. Those
that share their layers' other parts (`--enable-dp-attention`) are not started.

Source: SGLang 0.5.14, `srt/server_args.py`, `srt/entrypoints/engine.py` (`_launch_scheduler_processes`).
Beside no GPU of ours; beside public logs of H100s: docs/evidence/SERVING.md. Not modelled:
kernels that only a GPU builds (`inside/sglang_answers.py`), of which each call is one launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.errors import OptionError
from analyzer_serving.engines.changes import SGLANG as WORDS
from analyzer_serving.engines.serving import ServingEngine, Start, count_of, ranks

_TENSOR, _PIPELINE, _DATA = "--tp-size", "--pp-size", "--dp-size"
_NAMES = {
    "--tp": _TENSOR,
    "--tensor-parallel-size": _TENSOR,
    "--pipeline-parallel-size": _PIPELINE,
    "--dp": _DATA,
    "--data-parallel-size": _DATA,
}
_SPREAD = ("--nnodes", "--enable-dp-attention")


def start(_: str, arguments: Sequence[str]) -> Start:
    """Return what SGLang's own arguments ask for. Raises OptionError."""
    counts, kept = dict.fromkeys((_TENSOR, _PIPELINE, _DATA), 1), list[str]()
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        name = _NAMES.get(option, option)
        if name in _SPREAD:
            raise OptionError(
                f"{name}: engines on several machines, or that share a part of a layer, are not started",
                f"give {_TENSOR} and {_PIPELINE} alone",
            )
        if name not in counts:
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        counts[name] = count_of(name, value)
        if name != _DATA:
            kept += [name, value]
    engines = counts[_DATA]
    alone = f"{engines} engines that share nothing: these are the figures of each, and its requests"
    return Start(ranks(counts[_TENSOR] * counts[_PIPELINE]), tuple(kept), (alone,) if engines > 1 else ())


SGLANG = ServingEngine(
    "SGLang",
    "sglang",
    "0.5.14",
    start,
    WORDS,
    {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"},  # which nvcc compiles
    ("SGLANG_CACHE_DIR", "TVM_FFI_CACHE_DIR"),
)
