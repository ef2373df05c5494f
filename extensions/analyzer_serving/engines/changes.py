"""Changes that give a serving engine more room, by arithmetic from its own terms.

1. The gain of its cache, in tokens: by a larger share of the GPU, fewer bytes a token, weights of fewer
   bits, more GPUs, the next larger GPU. Its other effects (fewer sequences) are not known until the engine
   is started with it: the gain is an upper bound. The words are the engine's own options.
2. Where it does not start: the missing bytes, and the changes that would suffice. The longest request that
   fits, and the model's maximum, are in the engine's own message.

Source: vLLM 0.19, `v1/worker/gpu_worker.py` (`determine_available_memory`): the cache is what the requested
memory leaves beside weights, peak activation and what is outside PyTorch; `v1/core/kv_cache_utils.py`
(`_check_enough_kv_cache_memory`) and `config/model.py` (`_get_and_verify_max_len`), the messages. SGLang
0.5.14, `srt/model_executor/model_runner_kv_cache_mixin.py` (`_profile_available_bytes`): of what was free,
the cache is the share beside the weights, and activations and CUDA graphs take the rest, of which 5 to 8 GiB
are enough (docs.sglang.ai/advanced_features/hyperparameter_tuning.html). Not modelled: how these change with
the number of GPUs, except that weights and a token's bytes are shared out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from analyzer.devices import DeviceProfile, load, names
from analyzer.report.words import size
from analyzer_serving.results import EngineMemory, RankMemory

GPUS = (2, 4, 8, 16)
_SPARE = 5 * 2**30  # of the GPU, where activations are not in the budget


@dataclass(frozen=True, slots=True)
class Words:
    """An engine's names for its options, and for the settings that show them. batches: those of a batch;
    no_graphs: the option for fewer CUDA graphs; in_budget: whether activations are in the share it may
    take."""

    share: str
    length: str
    fewer_bytes: str
    ranks: str
    no_graphs: str
    batches: tuple[str, ...]
    cache_type: str
    in_budget: bool = True

    @property
    def share_setting(self) -> str:
        """The setting of `share`."""
        return self.share.strip("-").replace("-", "_")

    @property
    def smaller_batches(self) -> str:
        """The options of a batch."""
        return " and ".join(self.batches)


VLLM = Words(
    share="--gpu-memory-utilization",
    length="--max-model-len",
    fewer_bytes="--kv-cache-dtype fp8",
    ranks="--tensor-parallel-size",
    no_graphs="--enforce-eager, or fewer --cudagraph-capture-sizes",
    batches=("--max-num-batched-tokens", "--max-num-seqs"),
    cache_type="cache_dtype",
)
SGLANG = Words(
    share="--mem-fraction-static",
    length="--context-length",
    fewer_bytes="--kv-cache-dtype fp8_e4m3",
    ranks="--tp-size",
    no_graphs="--disable-cuda-graph, or a smaller --cuda-graph-max-bs",
    batches=("--chunked-prefill-size", "--max-running-requests"),
    cache_type="kv_cache_dtype",
    in_budget=False,
)
_HOLDS = re.compile(r"estimated maximum model length is (\d+)")
_NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")
_MEMORY = re.compile("out ?of ?memory", re.IGNORECASE)
_POSITIONS = re.compile(r"greater than the derived max_model_len \(\w+=(\d+)")


def changes(memory: EngineMemory, gpu: DeviceProfile, words: Words = VLLM) -> tuple[str, ...]:
    """Sentences, the cheapest change first. gpu: the one it was started on; words: the engine's."""
    rank = memory.rank
    if rank is None:
        return tuple(_to_load(memory, gpu, words))
    if memory.tokens and rank.cache > 0 and memory.error is None:
        return tuple(_for_more(memory, rank, gpu, words))
    if rank.cache > 0 and (memory.tokens or rank.pools is not None):
        return tuple(_to_go_on(memory, rank, words))
    return tuple(_to_start(memory, rank, gpu, words))


def _to_load(memory: EngineMemory, gpu: DeviceProfile, words: Words) -> Iterator[str]:
    """The weights or the profile run did not fit, or it ended before."""
    if not memory.needed:
        if (positions := _number_in_message(memory, _POSITIONS)) is not None:
            yield f"{words.length} {positions}: all that the model has positions for"
        yield "it ended before its weights were loaded, so nothing of its memory is known"
        return
    share = _share(memory, words)
    room = share * gpu.capacity_bytes
    if memory.needed < room:
        yield (
            f"its weights take {size(memory.needed)} of a GPU that has {size(gpu.capacity_bytes)}; beside"
            " them there is no room for its profile run"
        )
        yield f"fewer {words.smaller_batches}: less activation"
    else:
        yield f"the weights alone take {size(memory.needed)} of a GPU that has {size(gpu.capacity_bytes)}"
    ranks = max(_gpus(memory), _ranks(memory))
    needed_bytes = memory.needed * ranks
    enough = next((count for count in GPUS if count > ranks and needed_bytes / count < 0.9 * room), None)
    if enough is not None:
        yield f"{words.ranks} {enough}: {size(needed_bytes // enough)} of weights on each"
    yield from (change for change, _ in _quantized(memory, memory.needed, room))
    if (other := _larger(gpu, memory.needed / 0.9 / share)) is not None:
        yield f"{other.name}: {size(other.capacity_bytes)}, the smallest GPU known here with room for them"


def _for_more(memory: EngineMemory, rank: RankMemory, gpu: DeviceProfile, words: Words) -> Iterator[str]:
    """Yield, for an engine that starts, changes that give more cache tokens."""
    a_token = rank.cache / memory.tokens
    most, gained, why = _largest_share(rank, words)
    more = int(gained / a_token)
    if more > 0:
        yield f"{words.share} {most:g}, {why}: {more:,} tokens more"
    if memory.settings.get(words.cache_type) == "auto" and _is_16_bit(memory):
        yield f"{words.fewer_bytes}: half as many bytes a token, some {2 * memory.tokens:,} tokens"
    if memory.length > 1:
        half = memory.length // 2
        yield f"requests of {half:,} tokens: some {memory.tokens / half:,.1f} at a time"
    if rank.activations:
        figures = " and ".join(
            f"--{name.replace('_', '-')} below {value:,}"
            for name in ("max_num_seqs", "max_num_batched_tokens")
            if isinstance(value := memory.settings.get(name), int)
        )
        if figures:
            yield f"{figures}: less activation, {int(rank.activations / a_token):,} tokens more at most"
    if _is_16_bit(memory) and _is_unquantized(memory):
        yield f"weights of 8 bits: some {int(rank.weights / 2 / a_token):,} tokens more"
    gpus = 2 * _gpus(memory)
    shared = int((rank.cache + rank.weights / 2) * 2 / a_token)
    yield f"{words.ranks} {gpus}, half the weights and half a token on each: up to {shared:,} tokens"
    if (other := _larger(gpu, rank.total + 1)) is not None:
        room = rank.cache + int((other.capacity_bytes - rank.total) * _share(memory, words))
        yield f"{other.name}, the next larger GPU: some {int(room / a_token):,} tokens"


def _to_go_on(memory: EngineMemory, rank: RankMemory, words: Words) -> Iterator[str]:
    """Yield changes for an engine that ended behind its cache, as CUDA graphs without room end it."""
    if memory.error is not None and not _MEMORY.search(": ".join(memory.error)):
        yield "its weights and its cache have room: it ended for another reason than memory"
        return
    yield (
        f"a lower {words.share} than {_share(memory, words):g}: CUDA graphs and what comes after the cache"
        " take more than is left beside it"
    )
    if rank.graphs is None:
        yield f"{words.no_graphs}: no CUDA graphs, or fewer"


def _to_start(memory: EngineMemory, rank: RankMemory, gpu: DeviceProfile, words: Words) -> Iterator[str]:
    """Yield changes for weights that fit and a cache that does not, each with whether it would do alone."""
    needed = _bytes_of_a_request(memory)
    missing = needed - rank.cache
    if rank.cache <= 0:
        yield f"{size(-rank.cache)} are missing before the first block of the cache"
    elif needed:
        yield (
            f"{size(missing)} are missing: one request takes {size(needed)}, the cache has {size(rank.cache)}"
        )
        if (length := _number_in_message(memory, _HOLDS)) is not None:
            yield f"{words.length} {length}: the longest request that it holds, by the engine's own estimate"
    else:
        yield f"the cache has {size(rank.cache)}: a shorter {words.length}, or {words.fewer_bytes}"
    if needed and memory.settings.get(words.cache_type) == "auto" and _is_16_bit(memory):
        yield f"{words.fewer_bytes}: {size(needed // 2)} a request{_does(needed // 2, missing)}"
    most, gained, why = _largest_share(rank, words)
    if gained > 0:
        yield f"{words.share} {most:g}, {why}: {size(gained)} more{_does(gained, missing)}"
    if rank.activations:
        yield (
            f"fewer {words.smaller_batches}: {size(rank.activations)} of activation at"
            f" most{_does(rank.activations, missing)}"
        )
    for change, bits in _quantized(memory, rank.weights, rank.requested):
        yield f"{change}{_does(rank.weights * (16 - bits) // 16, missing)}"
    gpus = _gpus(memory)
    counts = [count for count in (2 * gpus, 4 * gpus, 8 * gpus) if count <= GPUS[-1]]
    for count in counts:
        less = rank.weights - rank.weights * gpus // count
        gained = less + needed - needed * gpus // count
        if gained >= missing or count == counts[-1]:
            yield (f"{words.ranks} {count}: {size(less)} of weights less on each GPU{_does(gained, missing)}")
            break
    holds = rank.total + max(missing, 0) / _share(memory, words)
    if (other := _larger(gpu, max(holds, rank.total + 1))) is not None:
        more = int((other.capacity_bytes - rank.total) * _share(memory, words))
        yield f"{other.name}, the next GPU that holds it: {size(more)} more"


def _does(gained: int, missing: int) -> str:
    """Return whether so many bytes are as many as are missing; nothing where that is not known."""
    if missing <= 0:
        return ""
    return ", enough" if gained >= missing else ", not enough alone"


def _bytes_of_a_request(memory: EngineMemory) -> int:
    """Return what a request of the asked length takes of the cache, as the engine says; 0: it does not."""
    match = _NEEDED.search(memory.error[1]) if memory.error is not None else None
    return int(float(match[1]) * 2**30) if match else 0


def _quantized(memory: EngineMemory, weights: int, room: float) -> Iterator[tuple[str, int]]:
    """Yield weights of fewer bits, as many as it takes, and how many bits."""
    if not (_is_unquantized(memory) and _is_16_bit(memory)):
        return
    for bits in (8, 4):
        if weights * bits / 16 < 0.9 * room:
            yield f"weights of {bits} bits: some {size(weights * bits // 16)}", bits
            return


def _number_in_message(memory: EngineMemory, what: re.Pattern[str]) -> int | None:
    """Return the number that the engine's own message has there; None if it has none."""
    match = what.search(memory.error[1]) if memory.error is not None else None
    return int(match[1]) if match else None


def _largest_share(rank: RankMemory, words: Words) -> tuple[float, int, str]:
    """Return the largest share of the GPU for the engine, the bytes that it gains, and why that one."""
    if words.in_budget:
        most = math.floor(rank.free / rank.total * 100) / 100
        return most, math.ceil(rank.total * most) - rank.requested, "all that is free at its start"
    # Memory outside the budget does not grow with the cache.
    behind = (rank.pools or 0) + (rank.graphs or 0) + _SPARE
    most = math.floor((rank.free - behind) / rank.free * 100) / 100
    return most, int(rank.free * most) - rank.requested, f"with {size(_SPARE)} left for activations"


def _share(memory: EngineMemory, words: Words) -> float:
    """Return the share of the GPU's memory the engine may use."""
    rank = memory.rank
    setting = memory.settings.get(words.share_setting)
    if isinstance(setting, int | float) and setting:
        return float(setting)
    return rank.requested / rank.total if rank is not None else 0.9


def _gpus(memory: EngineMemory) -> int:
    """Return how many GPUs one of the engines has that were started beside one another."""
    engines = memory.settings.get("data_parallel_size", 1)
    return max(len(memory.ranks) // (engines if isinstance(engines, int) and engines > 0 else 1), 1)


def _ranks(memory: EngineMemory) -> int:
    names = ("tensor_parallel_size", "pipeline_parallel_size", "tp_size", "pp_size")
    sizes = (memory.settings.get(name, 1) for name in names)
    return math.prod(size for size in sizes if isinstance(size, int))


def _is_16_bit(memory: EngineMemory) -> bool:
    return "16" in str(memory.settings.get("dtype"))


def _is_unquantized(memory: EngineMemory) -> bool:
    return str(memory.settings.get("quantization")) == "None"


def _larger(gpu: DeviceProfile, nbytes: float) -> DeviceProfile | None:
    """The smallest GPU of data centres known here with that many bytes, of no older architecture."""
    profiles = [profile for profile in map(load, names()) if not profile.name.startswith("rtx")]
    able = [
        profile
        for profile in profiles
        if profile.capacity_bytes >= nbytes and profile.compute_capability >= gpu.compute_capability
    ]
    return min(able, key=lambda profile: (profile.capacity_bytes, profile.name), default=None)
