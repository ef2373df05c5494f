"""What would change a serving engine's answer, by arithmetic from its own terms.

1. What its cache gains, in tokens: by more of the GPU (`--gpu-memory-utilization`), fewer bytes a token,
   weights of fewer bits, more GPUs, the next larger GPU. What a change costs besides (fewer sequences) is not
   known until the engine is started with it: what it can give at most is said.
2. Where it does not start: how much is missing, and which of these would do. The longest requests that fit,
   and those the model has positions for, are what the engine's own message says.

Source: vLLM 0.19, `v1/worker/gpu_worker.py` (`determine_available_memory`): the cache is what the requested
memory leaves beside weights, peak activation and what is outside PyTorch; `v1/core/kv_cache_utils.py`
(`_check_enough_kv_cache_memory`) and `config/model.py` (`_get_and_verify_max_len`), the messages. Not
modelled: how these three change with the number of GPUs, except that weights and a token's bytes are shared
out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from analyzer.devices import DeviceProfile, load, names
from analyzer.report.words import size
from analyzer.results.serving import EngineMemory, RankMemory

GPUS = (2, 4, 8, 16)
_HOLDS = re.compile(r"estimated maximum model length is (\d+)")
_NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")
_POSITIONS = re.compile(r"greater than the derived max_model_len \(\w+=(\d+)")


def changes(found: EngineMemory, gpu: DeviceProfile) -> tuple[str, ...]:
    """Sentences, the cheapest change first. gpu: the one it was started on."""
    rank = found.rank
    if rank is None:
        return tuple(_to_load(found, gpu))
    if found.tokens and rank.cache > 0:
        return tuple(_for_more(found, rank, gpu) if found.error is None else _to_go_on(found, rank))
    return tuple(_to_start(found, rank, gpu))


def _to_load(found: EngineMemory, gpu: DeviceProfile) -> Iterator[str]:
    """The weights or the profile run did not fit, or it ended before."""
    if not found.needed:
        if (positions := _said(found, _POSITIONS)) is not None:
            yield f"--max-model-len {positions}: all that the model has positions for"
        yield "it ended before its weights were loaded, so nothing of its memory is known"
        return
    share = _share(found)
    room = share * gpu.capacity_bytes
    if found.needed < room:
        yield (
            f"its weights take {size(found.needed)} of a GPU that has {size(gpu.capacity_bytes)}; beside them"
            " there is no room for its profile run"
        )
        yield "fewer --max-num-batched-tokens and --max-num-seqs: less activation"
    else:
        yield f"the weights alone take {size(found.needed)} of a GPU that has {size(gpu.capacity_bytes)}"
    ranks = max(_gpus(found), _ranks(found))
    whole = found.needed * ranks
    enough = next((count for count in GPUS if count > ranks and whole / count < 0.9 * room), None)
    if enough is not None:
        yield f"--tensor-parallel-size {enough}: {size(whole // enough)} of weights on each"
    yield from (change for change, _ in _quantized(found, found.needed, room))
    if (other := _larger(gpu, found.needed / 0.9 / share)) is not None:
        yield f"{other.name}: {size(other.capacity_bytes)}, the smallest GPU known here with room for them"


def _for_more(found: EngineMemory, rank: RankMemory, gpu: DeviceProfile) -> Iterator[str]:
    """Yield, for an engine that starts, changes that give more cache tokens."""
    a_token = rank.cache / found.tokens
    most = _most(rank)
    more = int((math.ceil(rank.total * most) - rank.requested) / a_token)
    if more > 0:
        yield f"--gpu-memory-utilization {most:g}, all that is free at its start: {more:,} tokens more"
    if found.settings.get("cache_dtype") == "auto" and _is_16_bit(found):
        yield f"--kv-cache-dtype fp8: half as many bytes a token, some {2 * found.tokens:,} tokens"
    if found.length > 1:
        half = found.length // 2
        yield f"requests of {half:,} tokens: some {found.tokens / half:,.1f} at a time"
    if rank.activations:
        said = " and ".join(
            f"--{name.replace('_', '-')} below {value:,}"
            for name in ("max_num_seqs", "max_num_batched_tokens")
            if isinstance(value := found.settings.get(name), int)
        )
        if said:
            yield f"{said}: less activation, {int(rank.activations / a_token):,} tokens more at most"
    if _is_16_bit(found) and _is_unquantized(found):
        yield f"weights of 8 bits: some {int(rank.weights / 2 / a_token):,} tokens more"
    gpus = 2 * _gpus(found)
    shared = int((rank.cache + rank.weights / 2) * 2 / a_token)
    yield f"--tensor-parallel-size {gpus}, half the weights and half a token on each: up to {shared:,} tokens"
    if (other := _larger(gpu, rank.total + 1)) is not None:
        room = rank.cache + int((other.capacity_bytes - rank.total) * _share(found))
        yield f"{other.name}, the next larger GPU: some {int(room / a_token):,} tokens"


def _to_go_on(found: EngineMemory, rank: RankMemory) -> Iterator[str]:
    """Yield changes for an engine that ended behind its cache, as CUDA graphs without room end it."""
    yield (
        f"a lower --gpu-memory-utilization than {_share(found):g}: CUDA graphs and what comes after the cache"
        " take more than is left beside it"
    )
    if rank.graphs is None:
        yield "--enforce-eager, or fewer --cudagraph-capture-sizes: no CUDA graphs, or fewer"


def _to_start(found: EngineMemory, rank: RankMemory, gpu: DeviceProfile) -> Iterator[str]:
    """Yield changes for weights that fit and a cache that does not, each with whether it would do alone."""
    needed = _bytes_of_a_request(found)
    missing = needed - rank.cache
    if rank.cache <= 0:
        yield f"{size(-rank.cache)} are missing before the first block of the cache"
    elif needed:
        yield (
            f"{size(missing)} are missing: one request takes {size(needed)}, the cache has {size(rank.cache)}"
        )
        if (length := _said(found, _HOLDS)) is not None:
            yield f"--max-model-len {length}: the longest request that it holds, by the engine's own estimate"
    else:
        yield f"the cache has {size(rank.cache)}: a shorter --max-model-len, or --kv-cache-dtype fp8"
    if needed and found.settings.get("cache_dtype") == "auto" and _is_16_bit(found):
        yield f"--kv-cache-dtype fp8: {size(needed // 2)} a request{_does(needed // 2, missing)}"
    most = _most(rank)
    gained = math.ceil(rank.total * most) - rank.requested
    if gained > 0:
        yield (
            f"--gpu-memory-utilization {most:g}, all that is free at its start: {size(gained)} more"
            f"{_does(gained, missing)}"
        )
    if rank.activations:
        yield (
            f"fewer --max-num-batched-tokens and --max-num-seqs: {size(rank.activations)} of activation at"
            f" most{_does(rank.activations, missing)}"
        )
    for change, bits in _quantized(found, rank.weights, rank.requested):
        yield f"{change}{_does(rank.weights * (16 - bits) // 16, missing)}"
    gpus = _gpus(found)
    counts = [count for count in (2 * gpus, 4 * gpus, 8 * gpus) if count <= GPUS[-1]]
    for count in counts:
        less = rank.weights - rank.weights * gpus // count
        gained = less + needed - needed * gpus // count
        if gained >= missing or count == counts[-1]:
            yield (
                f"--tensor-parallel-size {count}: {size(less)} of weights less on each GPU"
                f"{_does(gained, missing)}"
            )
            break
    holds = rank.total + max(missing, 0) / _share(found)
    if (other := _larger(gpu, max(holds, rank.total + 1))) is not None:
        more = int((other.capacity_bytes - rank.total) * _share(found))
        yield f"{other.name}, the next GPU that holds it: {size(more)} more"


def _does(gained: int, missing: int) -> str:
    """Return whether so many bytes are as many as are missing; nothing where that is not known."""
    if missing <= 0:
        return ""
    return ", enough" if gained >= missing else ", not enough alone"


def _bytes_of_a_request(found: EngineMemory) -> int:
    """Return what a request of the asked length takes of the cache, as the engine says; 0: it does not."""
    match = _NEEDED.search(found.error[1]) if found.error is not None else None
    return int(float(match[1]) * 2**30) if match else 0


def _quantized(found: EngineMemory, weights: int, room: float) -> Iterator[tuple[str, int]]:
    """Yield weights of fewer bits, as many as it takes, and how many bits."""
    if not (_is_unquantized(found) and _is_16_bit(found)):
        return
    for bits in (8, 4):
        if weights * bits / 16 < 0.9 * room:
            yield f"weights of {bits} bits: some {size(weights * bits // 16)}", bits
            return


def _said(found: EngineMemory, what: re.Pattern[str]) -> int | None:
    """Return the number that the engine's own message has there; None if it has none."""
    match = what.search(found.error[1]) if found.error is not None else None
    return int(match[1]) if match else None


def _most(rank: RankMemory) -> float:
    return math.floor(rank.free / rank.total * 100) / 100


def _share(found: EngineMemory) -> float:
    """Return the share of the GPU's memory the engine may use."""
    rank = found.rank
    said = found.settings.get("gpu_memory_utilization")
    if isinstance(said, int | float) and said:
        return float(said)
    return rank.requested / rank.total if rank is not None else 0.9


def _gpus(found: EngineMemory) -> int:
    """Return how many GPUs one of the engines has that were started beside one another."""
    engines = found.settings.get("data_parallel_size", 1)
    return max(len(found.ranks) // (engines if isinstance(engines, int) and engines > 0 else 1), 1)


def _ranks(found: EngineMemory) -> int:
    sizes = (found.settings.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline"))
    return math.prod(size for size in sizes if isinstance(size, int))


def _is_16_bit(found: EngineMemory) -> bool:
    return "16" in str(found.settings.get("dtype"))


def _is_unquantized(found: EngineMemory) -> bool:
    return str(found.settings.get("quantization")) == "None"


def _larger(gpu: DeviceProfile, nbytes: float) -> DeviceProfile | None:
    """The smallest GPU of data centres known here with that many bytes, of no older architecture."""
    known = [profile for profile in map(load, names()) if not profile.name.startswith("rtx")]
    able = [
        profile
        for profile in known
        if profile.capacity_bytes >= nbytes and profile.compute_capability >= gpu.compute_capability
    ]
    return min(able, key=lambda profile: (profile.capacity_bytes, profile.name), default=None)
