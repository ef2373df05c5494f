"""The text of an error for want of memory: PyTorch's, ONNX Runtime's or vLLM's, anywhere in a log.

1. A figure counts with the precision it is printed with: PyTorch writes "2.00 GiB", which is that within
   0.005 GiB. Sums and differences of such figures carry the sum of their precisions.
2. PyTorch's text since 2.1 is read ("GPU 0 has a total capacity of ..."), and the one before ("(GPU 0;
   ...)"), with a fraction's limit ("... allowed"), private pools and other processes; ROCm's and XPU's are
   the same.
3. PyTorch names processes by the numbers NVML has. In a container these are not its own, so that "this
   process has" is missing: of the processes that hold at least PyTorch's own figure, the one that holds
   least is assumed, and the advice says so.
4. Errors outside PyTorch's allocator (a context, a library's handle, NCCL) have no sizes.
5. Of several errors in a log the last counts, taken by itself. A memory pattern's block that ONNX Runtime
   finds no room for is no error, since it goes on without (`execution_frame.cc`): it counts where there is
   nothing else. A size that is not printed is not guessed.
6. The user's own line is that of the traceback before PyTorch's error (`tracebacks.py`).

Source: `c10/cuda/CUDACachingAllocator.cpp` (1.0 to 2.13, `format_size`), `CUDAMallocAsyncAllocator.cpp`;
`onnxruntime/core/framework/bfc_arena.cc`, `core/providers/cuda/cuda_call.cc`; `vllm/v1/core/
kv_cache_utils.py`, `vllm/v1/worker/utils.py`, `vllm/worker/worker.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from analyzer.recordings.tracebacks import Place, place_before
from analyzer.results.recording import Figure, Message

_UNITS = {
    "bytes": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 1000,
    "MB": 10**6,
    "GB": 10**9,
}
_SIZE = r"(\d{1,12}(?:\.\d{1,4})?) (bytes|KiB|MiB|GiB|TiB|KB|MB|GB)"
_ASKED = re.compile(rf"(CUDA|HIP|XPU) out of memory\. Tried to allocate {_SIZE}")
_PYTORCH: tuple[tuple[str, str], ...] = (
    ("total", rf"total capaci?ty of {_SIZE}|; {_SIZE} total capacity"),
    ("free", rf"of which {_SIZE} is free|; {_SIZE} free"),
    ("in this process", rf"this process has {_SIZE} memory in use"),
    ("allocated by PyTorch", rf"memory {_SIZE} is allocated by PyTorch|; {_SIZE} already allocated"),
    ("in private pools", rf"with {_SIZE} allocated in private pools"),
    ("reserved but not in use", rf"{_SIZE} is reserved by PyTorch but unallocated"),
    ("reserved by PyTorch", rf"; {_SIZE} (?:reserved in total by PyTorch|cached)"),
    ("allowed", rf"{_SIZE} allowed"),
)
_OTHERS = re.compile(rf"Process (\d{{1,12}}) has {_SIZE} memory in use")
_SNAPSHOT = (
    "which lines hold it, what grows, which setting would have saved it: record a snapshot"
    " (torch.cuda.memory._record_memory_history(), then torch.cuda.memory._dump_snapshot('snapshot.pickle'))"
    " and"
    " give it to analyze explain"
)
_LONGEST = 4000
_SETTING = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (torch 2.9 ignores it under the new name"
    " PYTORCH_ALLOC_CONF: pytorch/pytorch#183387)"
)
# `cudaMalloc` takes pages of 2 MiB.
_PAGE_BYTES = 2 * 2**20


def understood(text: str) -> Message | None:
    """Return the last error for want of memory in a text; None if there is none that is known."""
    readers = (_pytorch, _malloc_async, _outside, _onnxruntime, _vllm)
    errors = [(at, message) for reader in readers for at, message in reader(text)]
    if not errors:
        return None
    at, message = max(errors, key=lambda entry: (not entry[1].harmless, entry[0]))
    return _placed(message, place_before(text, at)) if message.source.startswith("PyTorch") else message


def _placed(message: Message, place: Place | None) -> Message:
    """Return a message of PyTorch's with the user's own line, and how the script is followed."""
    script = (place.script if place is not None else "") or "SCRIPT"
    followed = (
        f"analyze run --device GPU {script}, with the arguments it had, says who holds the memory and which"
        " changes make it fit",
        f"analyze fit --vary=--batch-size --device GPU {script} finds its largest batch",
    )
    return replace(message, advice=(*message.advice, *followed), place="" if place is None else str(place))


def size(nbytes: int) -> str:
    """Return bytes in words, as PyTorch writes them."""
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= _UNITS[unit]:
            return f"{nbytes / _UNITS[unit]:,.2f} {unit}"
    return f"{nbytes} bytes"


def _figure(name: str, number: str, unit: str) -> Figure:
    """Return a figure with its precision: of the last digit printed."""
    whole = _UNITS[unit]
    digits = len(number.partition(".")[2])
    return Figure(name, round(float(number) * whole), 0 if unit == "bytes" else max(whole // 10**digits, 1))


def _pytorch(text: str) -> Iterator[tuple[int, Message]]:
    for match in _ASKED.finditer(text):
        rest = text[match.end() : match.end() + _LONGEST]
        if (following := _ASKED.search(rest)) is not None:
            rest = rest[: following.start()]
        figures = {"asked": _figure("asked", match[2], match[3])}
        for name, pattern in _PYTORCH:
            if figure := re.search(pattern, rest):
                number, unit = (part for part in figure.groups() if part is not None)
                figures[name] = _figure(name, number, unit)
        for process, number, unit in _OTHERS.findall(rest):
            figures[f"in process {process}"] = _figure(f"in process {process}", number, unit)
        if "reserved by PyTorch" in figures and "allocated by PyTorch" in figures:
            held, used = figures["reserved by PyTorch"], figures["allocated by PyTorch"]
            figures["reserved but not in use"] = Figure(
                "reserved but not in use",
                max(held.nbytes - used.nbytes, 0),
                held.precision_bytes + used.precision_bytes,
            )
        quoted = text[match.start() : match.end()] + rest.partition("\n")[0]
        yield match.start(), _of_pytorch(figures, quoted, match[1])


def _of_pytorch(figures: dict[str, Figure], quoted: str, backend: str) -> Message:
    def of(name: str) -> int:
        return figures[name].nbytes if name in figures else 0

    requested, unused, used = of("asked"), of("reserved but not in use"), of("allocated by PyTorch")
    own, advice = _own_process(figures, used + unused), []
    others = sum(
        figure.nbytes for name, figure in figures.items() if name.startswith("in process ") and name != own
    )
    advice += _limited(figures)
    if unused and 10 * unused > used + unused:
        enough = "more than the request, but in pieces" if unused >= requested else "in pieces"
        advice.append(f"{size(unused)} are held by PyTorch and not in use, {enough}: try {_SETTING}")
    if own:
        advice.append(
            f"{own.removeprefix('in ')} is most likely this one: a container's processes have other numbers"
            " outside"
        )
    if others:
        advice.append(f"other processes hold {size(others)} of the same GPU: end those that need not run")
    beside = (of(own) if own else of("in this process")) - used - unused
    if (own or "in this process" in figures) and beside > 2**30:
        advice.append(
            f"{size(beside)} of this process are not PyTorch's allocator's: context, libraries, NCCL, other"
            " frameworks"
        )
    if "total" in figures and used > of("total"):
        advice.append(
            f"{size(used)} in use are more than the GPU has: the driver lent the host's memory (Windows, WSL)"
        )
    missing = requested - of("free") - unused
    if "total" in figures and requested > of("total"):
        advice.append("this one request is more than the whole GPU: no setting of the allocator helps")
    elif missing > 0 and "free" in figures:
        advice.append(
            f"at least {size(missing)} have to go, even if nothing lay in pieces, only to pass this request;"
            " the rest of the step needs more"
        )
    if requested <= of("total") or "total" not in figures:
        advice.append(
            "a smaller batch or sequence, lower precision, checkpointing (analyze advise compares them)"
        )
    room = f", {size(of('free'))} free of {size(of('total'))}" if "total" in figures else ""
    verdict = f"out of memory: {size(requested)} requested with {size(used)} in use{room}"
    return Message(
        f"PyTorch ({backend})", verdict, tuple(figures.values()), tuple(advice), quoted, (_SNAPSHOT,)
    )


def _own_process(figures: dict[str, Figure], held: int) -> str:
    """Return the name of the figure of this process where it is not said to be, "" where it is, or none can
    be."""
    if "in this process" in figures:
        return ""
    enough = [
        (figure.nbytes, name)
        for name, figure in figures.items()
        if name.startswith("in process ") and figure.nbytes + 2 * figure.precision_bytes >= held > 0
    ]
    return min(enough)[1] if enough else ""


def _limited(figures: dict[str, Figure]) -> list[str]:
    """Return why a request failed although the device had enough."""
    requested, free = figures["asked"], figures.get("free")
    if free is None:
        return []
    if "allowed" in figures or free.nbytes > 1.5 * requested.nbytes:
        limit = f" ({size(figures['allowed'].nbytes)})" if "allowed" in figures else ""
        return [
            f"the device had {size(free.nbytes)} free: the process's own limit{limit} was in the way"
            " (torch.cuda.set_per_process_memory_fraction, per_process_memory_fraction): raise it"
        ]
    if free.nbytes - free.precision_bytes > requested.nbytes + requested.precision_bytes + _PAGE_BYTES:
        return [
            f"the device had {size(free.nbytes)} free, which is enough: a limit of the process"
            " (torch.cuda.set_per_process_memory_fraction), memory that another process gave back since, or,"
            " on Windows, a driver that gives one process less than is free"
        ]
    return []


_GAP = r"(?:\\n|[\s:])+"
_ASYNC = re.compile(
    rf"would exceed allowed memory\. \(out of memory\){_GAP}Currently allocated{_GAP}{_SIZE}{_GAP}"
    rf"Requested{_GAP}{_SIZE}{_GAP}Device limit{_GAP}{_SIZE}{_GAP}Free \(according to CUDA\){_GAP}{_SIZE}"
    rf"(?:{_GAP}PyTorch limit \(set by user-supplied memory fraction\){_GAP}{_SIZE})?"
)


def _malloc_async(text: str) -> Iterator[tuple[int, Message]]:
    """Errors of the backend cudaMallocAsync, which has no blocks of its own."""
    names = ("allocated by PyTorch", "asked", "total", "free", "allowed")
    for match in _ASYNC.finditer(text):
        parts = match.groups()
        figures = {
            name: _figure(name, parts[2 * at], parts[2 * at + 1])
            for at, name in enumerate(names)
            if parts[2 * at] is not None
        }
        if "allowed" in figures and figures["allowed"].nbytes >= figures["total"].nbytes:
            del figures["allowed"]  # no fraction was set
        yield match.start(), _of_pytorch(figures, match[0][:_LONGEST], "CUDA, cudaMallocAsync")


_OUTSIDE = (
    (re.compile(r"CUDA error: out of memory"), "the CUDA driver"),
    (re.compile(r"CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "cuBLAS"),
    (re.compile(r"cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "cuDNN"),
    (re.compile(r"Cuda failure (?:2 )?'out of memory'"), "NCCL"),
)


def _outside(text: str) -> Iterator[tuple[int, Message]]:
    """Errors of what asks the driver past PyTorch's allocator."""
    for pattern, who in _OUTSIDE:
        for match in pattern.finditer(text):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0][:_LONGEST]
            advice = (
                "the request was not one of PyTorch's allocator but of a context, a library or NCCL, which"
                " find room only where PyTorch and other processes leave some: see nvidia-smi",
                "leave them some: torch.cuda.empty_cache() before it, or"
                " torch.cuda.set_per_process_memory_fraction(0.9) at the start, with a smaller batch",
                "the row 'device' of analyze run is the process with what it takes beside the allocator",
            )
            verdict = f"out of memory: {who} found none beside PyTorch's allocator"
            yield (
                match.start(),
                Message("PyTorch (CUDA)", verdict, (), advice, line, ("how much was asked for", _SNAPSHOT)),
            )


_ORT_BUFFER = re.compile(r"Failed to allocate memory for requested buffer of size (\d{1,40})")
_ORT_LIMIT = re.compile(r"Available memory of (\d{1,40}) is smaller than requested bytes of (\d{1,40})")
_ORT_CUDA = re.compile(
    r"CUDA failure 2: out of memory|CUDA error cudaErrorMemoryAllocation:out of memory"
    r"|CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED|CUDNN failure \d{1,4}: CUDNN_STATUS_ALLOC_FAILED"
)
# More than any device has: a shape was worked out wrongly.
_NO_SIZE_BYTES = 2**46
# Beginnings of ONNX Runtime's messages: of a line of its log, and of an exception.
_ORT_BEGIN = re.compile(r"\[[VIWEF]:onnxruntime|\[ONNXRuntimeError\]")
_ORT_PATTERN = re.compile(r"Allocation of memory pattern buffer for [^\n]{0,400} failed")
_ORT_NODE = re.compile(r"running (\w{1,80}) node\. Name:'([^'\n]{0,400})'")


def _onnxruntime(text: str) -> Iterator[tuple[int, Message]]:
    patterns = (_ORT_BUFFER, _ORT_LIMIT, _ORT_CUDA)
    matches = sorted((one for each in patterns for one in each.finditer(text)), key=re.Match.start)
    ends = (0, *(match.end() for match in matches))
    for match, end in zip(matches, ends, strict=False):
        before = text[max(match.start() - 2000, end) : match.start()]
        before = before[max((one.start() for one in _ORT_BEGIN.finditer(before)), default=0) :]
        if _ORT_PATTERN.search(before):
            yield match.start(), _without_pattern(match)
            continue
        node = next(iter(reversed(list(_ORT_NODE.finditer(before)))), None)
        where = f" at the {node[1]} node {node[2]!r}" if node else ""
        line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0][:_LONGEST]
        advice = [
            "analyze MODEL.onnx --batch N says what the session takes, analyze fit MODEL.onnx the largest"
            " batch",
            "arena_extend_strategy=kSameAsRequested holds less where chunks of growing size do not fit",
        ]
        if match.re is _ORT_LIMIT:
            left, requested = int(match[1]), int(match[2])
            figures: tuple[Figure, ...] = (Figure("asked", requested), Figure("left of gpu_mem_limit", left))
            advice.insert(
                0, f"gpu_mem_limit leaves {size(left)}: raise it by {size(requested - left)}, or take it away"
            )
            verdict = (
                f"out of memory: {size(requested)} requested{where}, {size(left)} left of the arena's limit"
            )
        elif match.re is _ORT_BUFFER:
            figures = (Figure("asked", int(match[1])),)
            if int(match[1]) >= _NO_SIZE_BYTES:
                advice = [
                    "no device has so much: a shape is wrong (an input that is damaged, or changed while the"
                    " session ran), not the memory",
                ]
            verdict = f"out of memory: {size(int(match[1]))} requested{where}"
        else:
            who = "cuBLAS" if "CUBLAS" in match[0] else "cuDNN" if "CUDNN" in match[0] else "the CUDA driver"
            figures, verdict = (), f"out of memory: {who} had no memory{where}"
            advice.append(
                "the request was past the arena: gpu_mem_limit leaves more for it, other processes on the GPU"
                " less"
            )
        yield (
            match.start(),
            Message(
                "ONNX Runtime", verdict, figures, tuple(advice), line, ("what else held the GPU's memory",)
            ),
        )


def _without_pattern(match: re.Match[str]) -> Message:
    """Return the message of a memory pattern's block without room, behind which the run goes on."""
    figures = (Figure("asked", int(match[1])),) if match.re is _ORT_BUFFER else ()
    of_size = f" of {size(figures[0].nbytes)}" if figures else ""
    return Message(
        "ONNX Runtime",
        f"no error: no room for the memory pattern's block{of_size}; each tensor is"
        " allocated by itself instead",
        figures,
        (
            "harmless, and slower: the run goes on, and tries it again at the next run of these sizes",
            "SessionOptions.enable_mem_pattern = False asks for no such block (analyze: --runtime-option"
            " enable_mem_pattern=0)",
        ),
        match.string[match.string.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0][:_LONGEST],
        harmless=True,
    )


_VLLM_NOTHING = re.compile(r"No available memory for the cache blocks")
_VLLM_TOKENS = re.compile(
    r"max seq len \((\d{1,12})\) is larger than the maximum number of tokens that can be stored in KV cache"
    r" \((\d{1,12})\)"
)
_VLLM_NEEDS = re.compile(
    r"max seq len \((\d{1,12})\),\s\(?(\d{1,9}(?:\.\d{1,4})?) GiB KV cache is needed, which is larger"
    r" than the available KV cache memory \((-?\d{1,9}(?:\.\d{1,4})?) GiB\)"
    r"(?:\.\sBased on the available memory, the estimated maximum model length is (\d{1,12}))?"
)
# The share that an engine logs when it starts (`vllm/worker/worker.py`).
_VLLM_SHARE = re.compile(
    r"total_gpu_memory \((\d{1,9}(?:\.\d{1,4})?) ?GiB\) x gpu_memory_utilization \((0\.\d{1,6})\)"
)
_VLLM_SAMPLER = re.compile(
    r"CUDA out of memory occurred when warming up sampler with (\d{1,9}) dummy requests"
)
_VLLM_FREE = re.compile(
    r"Free memory on device (?:\S{1,20} )?\((\d{1,9}(?:\.\d{1,4})?)/(\d{1,9}(?:\.\d{1,4})?) GiB\) on startup"
    r" is less than desired GPU memory utilization \((\d(?:\.\d{1,6})?), (\d{1,9}(?:\.\d{1,4})?) GiB\)"
)


def _vllm(text: str) -> Iterator[tuple[int, Message]]:
    readers: tuple[
        tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[str, list[Figure], list[str]]]], ...
    ] = (
        (_VLLM_NOTHING, _no_blocks),
        (_VLLM_TOKENS, _too_few_tokens),
        (_VLLM_NEEDS, _too_little_cache),
        (_VLLM_FREE, _too_little_free),
        (_VLLM_SAMPLER, _too_many_requests),
    )
    for pattern, reader in readers:
        for match in pattern.finditer(text):
            verdict, figures, advice = reader(match)
            advice.append(
                "analyze serve CONFIG --device GPU says what the cache has room for, and what changes that"
            )
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0][:_LONGEST]
            yield match.start(), Message("vLLM", verdict, tuple(figures), tuple(advice), line)


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
        _figure("cache needed for one request", match[2], "GiB"),
        _figure("cache there", match[3].lstrip("-"), "GiB"),
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
    shares = list(_VLLM_SHARE.finditer(log))
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
    free, total = _figure("free at start", match[1], "GiB"), _figure("total", match[2], "GiB")
    wanted = _figure("wanted", match[4], "GiB")
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
