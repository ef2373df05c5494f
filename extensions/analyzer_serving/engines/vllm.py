"""vLLM as a serving engine (`serving.py`): which ranks its arguments ask for.

Engines beside one another (`--data-parallel-size`) share experts, where a model has some: their ranks are
then started together. Those of other models have nothing in common ("Non-MoE DP ranks are completely
independent, so treat like DP=1", `v1/engine/core.py`): one is started, and stands for all.

Source: vLLM 0.19, `v1/worker/gpu_worker.py`; beside public runs on H100s and the same release
(0.22.1) on one of ours: docs/evidence/SERVING.md. Not modelled: kernels that only a GPU builds or tunes
(FlashInfer's, DeepGEMM's), whose choice is what the engine takes without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from analyzer.errors import OptionError
from analyzer.ranks import Rank
from analyzer.recipes.config import opened
from analyzer_serving.engines.changes import VLLM as WORDS
from analyzer_serving.engines.serving import ServingEngine, Start, count_of, ranks

_PARALLEL = ("--tensor-parallel-size", "--pipeline-parallel-size")
_DATA = "--data-parallel-size"
_SHORT = {"-tp": _PARALLEL[0], "-pp": _PARALLEL[1], "-dp": _DATA}
# Settings of engines on several machines, or behind a load balancer of one's own.
_SPREAD = ("--data-parallel-", "-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe")
# Keys of the number of experts in vLLM (`transformers_utils/model_arch_config_convertor.py`), and Mistral's
# own files.
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts", "moe", "block_configs")


def start(model: str, arguments: Sequence[str]) -> Start:
    """Return what vLLM's own arguments ask for. Raises AnalyzerError."""
    engines, kept = _engines(arguments)
    if engines > 1 and not _has_experts(model):
        alone = f"{engines} engines that share nothing: these are the figures of each, and its requests"
        return Start(_job(kept), tuple(kept), (alone,))
    if engines > 1:
        together = f"{engines} engines that share their experts: tokens and requests are those of each"
        return Start(_job(kept, engines), (*kept, _DATA, str(engines)), (together,))
    return Start(_job(kept), tuple(kept))


def _named(word: str) -> str:
    """Return an option's long name."""
    return _SHORT.get(word, word.replace("_", "-"))


def _engines(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many engines are beside one another, and the arguments without that. Raises OptionError."""
    count, kept, words = 1, list[str](), iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        name = _named(option) if word.startswith("-") else ""
        if name == _DATA:
            count = count_of(name, value or next(words, ""))
        elif name.startswith(_SPREAD):
            raise OptionError(
                f"{name}: engines on several machines, or behind a balancer, are not started",
                f"give {_DATA} alone: every engine of it has the same figures",
            )
        else:
            kept.append(word)
    return count, kept


def _has_experts(model: str) -> bool:
    """Return whether the configuration says that the model has experts. Raises AnalyzerError."""
    text = opened(model).text
    return any(text.get(name) for name in _EXPERTS)


def _job(arguments: Sequence[str], engines: int = 1) -> Rank:
    """The ranks that vLLM's own arguments ask for, of so many engines together. Raises OptionError."""
    counts = dict.fromkeys(_PARALLEL, 1)
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("-") else [word])]
    for word, value in itertools.pairwise([*words, ""]):
        if (name := _named(word)) in counts:
            counts[name] = count_of(name, value)
    return ranks(counts[_PARALLEL[0]] * counts[_PARALLEL[1]] * engines)


VLLM = ServingEngine(
    "vLLM",
    "vllm",
    "0.19.0",  # the one of the public runs
    start,
    WORDS,
    # The engine in its worker's process.
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"},
    ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"),
)
