"""vLLM's errors for want of memory in a log.

Source: `vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/utils.py`, `vllm/worker/worker.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from analyzer.recordings.cards import card_of
from analyzer.recordings.sizes import line_at, read_figure, size
from analyzer.results.recording import Figure, Message

UTILIZATION = 0.92  # of the GPU's memory, vLLM 0.33's own (`config/cache.py`)
_NOTHING = re.compile(r"No available memory for the cache blocks")
_TOKENS = re.compile(
    r"max seq len \((\d{1,12})\) is larger than the maximum number of tokens that can be stored in KV cache"
    r" \((\d{1,12})\)"
)
_NEEDS = re.compile(
    r"max seq len \((\d{1,12})\),\s\(?(\d{1,9}(?:\.\d{1,4})?) GiB KV cache is needed, which is larger"
    r" than the available KV cache memory \((-?\d{1,9}(?:\.\d{1,4})?) GiB\)"
    r"(?:\.\sBased on the available memory, the estimated maximum model length is (\d{1,12}))?"
)
# The share that an engine logs when it starts (`vllm/worker/worker.py`).
_SHARE = re.compile(
    r"total_gpu_memory \((\d{1,9}(?:\.\d{1,4})?) ?GiB\) x gpu_memory_utilization \((0\.\d{1,6})\)"
)
# The model's name on the Hugging Face hub, as the engine logs its configuration (`vllm/config`).
_MODEL = re.compile(r"\bmodel='([\w.-]{1,96}/[\w.-]{1,96})'")
_SAMPLER = re.compile(r"CUDA out of memory occurred when warming up sampler with (\d{1,9}) dummy requests")
_FREE = re.compile(
    r"Free memory on device (?:\S{1,20} )?\((\d{1,9}(?:\.\d{1,4})?)/(\d{1,9}(?:\.\d{1,4})?) GiB\) on startup"
    r" is less than desired GPU memory utilization \((\d(?:\.\d{1,6})?), (\d{1,9}(?:\.\d{1,4})?) GiB\)"
)


def of_vllm(text: str) -> Iterator[tuple[int, Message]]:
    readers: tuple[
        tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[str, list[Figure], list[str]]]], ...
    ] = (
        (_NOTHING, _no_blocks),
        (_TOKENS, _too_few_tokens),
        (_NEEDS, _too_little_cache),
        (_FREE, _too_little_free),
        (_SAMPLER, _too_many_requests),
    )
    for pattern, reader in readers:
        for match in pattern.finditer(text):
            verdict, figures, advice = reader(match)
            advice += _followed(text, figures)
            line = line_at(text, match.start())
            yield match.start(), Message("vLLM", verdict, tuple(figures), tuple(advice), line)


def _followed(log: str, figures: list[Figure]) -> Iterator[str]:
    """Yield the command that says what the cache has room for, with the log's own model and GPU."""
    models, shares = list(_MODEL.finditer(log)), list(_SHARE.finditer(log))
    total = next((figure for figure in figures if figure.name == "total"), None)
    if total is None and shares:
        total = read_figure("total", shares[-1][1], "GiB")
    model, card = f"hf:{models[-1][1]}" if models else "config.json", card_of(total)
    command = f"analyze serve {model} --device {card.device}"
    there = next((figure for figure in figures if figure.name == "cache there"), None)
    if there is not None and there.nbytes > 0:
        yield (
            f"{command} --available {there.nbytes / 2**30:.2f}GiB says what this cache has room for; without"
            f" --available it works out the cache itself, with the share {UTILIZATION} and no CUDA graphs,"
            " which may be more than the log's"
        )
    else:
        yield f"{command} says what the cache has room for, and what changes that"
    if card.sentence:
        yield card.sentence


def _no_blocks(_: re.Match[str]) -> tuple[str, list[Figure], list[str]]:
    return (
        "no room for the cache: weights, activations and CUDA graphs take all that gpu_memory_utilization"
        " allows",
        [],
        [
            "raise --gpu-memory-utilization, or take less: quantized weights, --tensor-parallel-size, fewer"
            " --max-num-batched-tokens, --enforce-eager"
        ],
    )


def _too_few_tokens(match: re.Match[str]) -> tuple[str, list[Figure], list[str]]:
    length, tokens = int(match[1]), int(match[2])
    return (
        f"one request of {length:,} tokens does not fit the cache, which has room for {tokens:,}",
        [],
        [
            f"--max-model-len {tokens} at most, or {length / max(tokens, 1):.2f} times the cache memory:"
            " --gpu-memory-utilization where the GPU has so much; --kv-cache-dtype fp8 halves a token,"
            f" which is {'enough' if length <= 2 * tokens else 'not enough alone'}"
        ],
    )


def _too_little_cache(match: re.Match[str]) -> tuple[str, list[Figure], list[str]]:
    length = int(match[1])
    needed, there = (
        read_figure("cache needed for one request", match[2], "GiB"),
        read_figure("cache there", match[3].lstrip("-"), "GiB"),
    )
    if match[3].startswith("-"):
        there = Figure(there.name, -there.nbytes, there.precision_bytes)
    fits = max(
        (there.nbytes - there.precision_bytes) * length // max(needed.nbytes + needed.precision_bytes, 1), 0
    )
    missing = needed.nbytes - there.nbytes
    advice = [*_more_cache(missing, needed.nbytes, there.nbytes, match.string)]
    if match[4]:
        advice.insert(0, f"--max-model-len {match[4]} fits, as vLLM estimates itself")
    elif fits:
        advice.insert(0, f"--max-model-len {fits} surely fits, if every token costs the same")
    return (
        f"one request of {length:,} tokens needs {size(needed.nbytes)} of cache,"
        f" {size(max(there.nbytes, 0))} are there",
        [needed, there],
        advice,
    )


def _more_cache(missing: int, needed: int, there: int, log: str) -> Iterator[str]:
    """Yield what gives more cache, or takes less of it, and whether it is enough alone."""
    shares = list(_SHARE.finditer(log))
    share, total = (float(shares[-1][2]), float(shares[-1][1]) * 2**30) if shares else (0.9, 0.0)
    least = missing / max(1 - share, 1e-9)
    if not total:
        yield (
            f"{size(missing)} are missing: a higher --gpu-memory-utilization than {share:g} is enough only on"
            f" a GPU of more than {size(math.ceil(least))}"
        )
    elif least <= total:
        yield f"--gpu-memory-utilization {share + missing / total:.3f}: {size(missing)} more"
    else:
        gained = int((1 - share) * total)
        yield (
            f"--gpu-memory-utilization is not enough alone: 1 instead of {share:g} gives {size(gained)} of"
            f" {size(missing)} missing"
        )
    saved = needed - needed // 2
    if needed // 2 <= there:
        yield f"--kv-cache-dtype fp8: a request then takes {size(needed // 2)}, which fits"
    else:
        yield f"--kv-cache-dtype fp8 is not enough alone: saves {size(saved)} of {size(missing)} missing"


def _too_many_requests(match: re.Match[str]) -> tuple[str, list[Figure], list[str]]:
    count = int(match[1])
    return (
        f"the sampler finds no room for {count:,} requests at once, whose logits are as many rows of the"
        " vocabulary in float32",
        [],
        [f"--max-num-seqs below {count}, or --gpu-memory-utilization lower, which leaves the sampler more"],
    )


def _too_little_free(match: re.Match[str]) -> tuple[str, list[Figure], list[str]]:
    free, total = read_figure("free at start", match[1], "GiB"), read_figure("total", match[2], "GiB")
    wanted = read_figure("wanted", match[4], "GiB")
    share = max(free.nbytes - free.precision_bytes, 0) * 100 // max(total.nbytes, 1) / 100
    return (
        f"{size(wanted.nbytes)} are wanted of the GPU at the start ({match[3]} of it), {size(free.nbytes)}"
        " are free",
        [wanted, free, total],
        [
            f"other processes hold {size(total.nbytes - free.nbytes)}: end them",
            f"or --gpu-memory-utilization {share:.2f}",
        ],
    )
