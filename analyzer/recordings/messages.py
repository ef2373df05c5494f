"""The text of an error for want of memory, anywhere in a log: PyTorch's here, ONNX Runtime's
(`session_messages.py`) and vLLM's (`serving_messages.py`).

1. A figure counts with the precision it is printed with: PyTorch writes "2.00 GiB", which is that within
   0.005 GiB. Sums and differences of such figures carry the sum of their precisions.
2. PyTorch's text since 2.1 is read ("GPU 0 has a total capacity of ..."), and the one before ("(GPU 0;
   ...)"), with a fraction's limit ("... allowed"), private pools and other processes; ROCm's and XPU's are
   the same.
3. PyTorch names processes by the numbers NVML has. In a container these are not its own, so that "this
   process has" is missing: of the processes that hold at least PyTorch's own figure, the one that holds
   least is assumed, and the advice says so.
4. Errors outside PyTorch's allocator (a context, a library's handle, NCCL) have no sizes.
5. Of several errors in a log the last counts, taken by itself; one that ends no program counts where there
   is nothing else. A size that is not printed is not guessed.
6. The user's own line is that of the traceback before PyTorch's error (`tracebacks.py`).
7. The size PyTorch prints is that of the segment it asks the driver for (`alloc_size`): for a request of up
   to 1 MiB it is 2 MiB, up to 10 MiB it is 20 MiB.

Source: `c10/cuda/CUDACachingAllocator.cpp` (1.0 to 2.13, `format_size`, `get_allocation_size`),
`CUDAMallocAsyncAllocator.cpp`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from analyzer.recordings.cards import card_of
from analyzer.recordings.serving_messages import of_vllm
from analyzer.recordings.session_messages import of_onnxruntime
from analyzer.recordings.sizes import LONGEST, SIZE, WHICH_TENSOR, line_at, read_figure, size
from analyzer.recordings.tracebacks import Place, place_before
from analyzer.results.recording import Figure, Message

_ASKED = re.compile(rf"(CUDA|HIP|XPU) out of memory\. Tried to allocate {SIZE}")
_PYTORCH: tuple[tuple[str, str], ...] = (
    ("total", rf"total capaci?ty of {SIZE}|; {SIZE} total capacity"),
    ("free", rf"of which {SIZE} is free|; {SIZE} free"),
    ("in this process", rf"this process has {SIZE} memory in use"),
    ("allocated by PyTorch", rf"memory {SIZE} is allocated by PyTorch|; {SIZE} already allocated"),
    ("in private pools", rf"with {SIZE} allocated in private pools"),
    ("reserved but not in use", rf"{SIZE} is reserved by PyTorch but unallocated"),
    ("reserved by PyTorch", rf"; {SIZE} (?:reserved in total by PyTorch|cached)"),
    ("allowed", rf"{SIZE} allowed"),
)
_OTHERS = re.compile(rf"Process (\d{{1,12}}) has {SIZE} memory in use")
_SNAPSHOT = (
    "which lines hold it, what grows, which setting would have saved it: record a snapshot"
    " (torch.cuda.memory._record_memory_history(), then torch.cuda.memory._dump_snapshot('snapshot.pickle'))"
    " and"
    " give it to analyze explain"
)
_SETTING = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (torch 2.9 ignores it under the new name"
    " PYTORCH_ALLOC_CONF: pytorch/pytorch#183387)"
)
_MIB = 2**20
_LESS = (
    "a smaller batch or sequence, lower precision, checkpointing (analyze run tries them; of a model in a"
    " file, such as net.py:make_model, analyze advise)"
)
_LESS_GENERATED = (
    "a smaller batch, a shorter prompt, fewer max_new_tokens, weights in 16, 8 or 4 bits (analyze run tries"
    " what it can; of a config.json analyze what-if config.json --mode generate compares them)"
)
# A segment that requests of many sizes share -> those sizes; every larger one is of a tensor's own size.
SHARED_SEGMENTS = {2 * _MIB: "up to 1 MiB", 20 * _MIB: "1 to 10 MiB"}
_LARGE_BYTES = 10 * _MIB
# `cudaMalloc` takes pages of 2 MiB.
_PAGE_BYTES = 2 * _MIB


def understood(text: str, log: str = "log.txt") -> Message | None:
    """Return the last error for want of memory in a text; None if there is none that is known. log: the
    text's file, as advice names it."""
    readers = (_pytorch, _malloc_async, _outside, of_onnxruntime, of_vllm)
    errors = [(at, message) for reader in readers for at, message in reader(text)]
    if not errors:
        return None
    at, message = max(errors, key=lambda entry: (not entry[1].harmless, entry[0]))
    if message.source.startswith("PyTorch"):
        return _placed(message, place_before(text, at), log)
    if message.figures and not message.harmless and message.source == "ONNX Runtime":
        which = f"{WHICH_TENSOR} it is: analyze explain {shlex.quote(log)} model.onnx --batch N"
        return replace(message, unknown=(which, *message.unknown))
    return message


def _placed(message: Message, place: Place | None, log: str) -> Message:
    """Return a message of PyTorch's with the user's own line, and how the script is followed."""
    script = (place.script if place is not None else "") or "SCRIPT"
    by_name = {figure.name: figure for figure in message.figures}
    card = card_of(by_name.get("total"), is_nvidia="CUDA" in message.source)
    advice = (
        f"analyze run --device {card.device} {script}, with the arguments it had, says who holds the memory,"
        " and tries such changes on it",
        f"analyze fit --vary=--batch-size --device {card.device} {script} finds its largest batch, where"
        " --batch-size is the script's own option",
        *([card.sentence] if card.sentence else ()),
    )
    unknown = _unknown(by_name.get("asked"), script, log)
    where = "" if place is None else str(place)
    generates = place is not None and ".generate(" in place.code
    own = tuple(_LESS_GENERATED if generates and line == _LESS else line for line in message.advice)
    return replace(message, advice=(*own, *advice), place=where, unknown=(*unknown, *message.unknown))


def _unknown(requested: Figure | None, script: str, log: str) -> tuple[str, ...]:
    """Return which tensor a size is, as far as it says, and what names it."""
    if requested is None:
        return ()
    nbytes = requested.nbytes
    if nbytes in SHARED_SEGMENTS:
        return (
            f"{WHICH_TENSOR} it is: PyTorch asks for {size(nbytes)} for any tensor of"
            f" {SHARED_SEGMENTS[nbytes]}, so it is not the cause but the last straw",
        )
    if nbytes < _LARGE_BYTES:
        return ()
    return (
        f"{WHICH_TENSOR} the {size(nbytes)} are (some {nbytes / 4e6:,.0f} million numbers of float32, twice"
        f" as many of 16 bits), and its line: analyze explain {shlex.quote(log)} {script}, with the script's"
        " arguments behind --",
    )


def _pytorch(text: str) -> Iterator[tuple[int, Message]]:
    for match in _ASKED.finditer(text):
        rest = text[match.end() : match.end() + LONGEST]
        if (following := _ASKED.search(rest)) is not None:
            rest = rest[: following.start()]
        figures = {"asked": read_figure("asked", match[2], match[3])}
        for name, pattern in _PYTORCH:
            if figure := re.search(pattern, rest):
                number, unit = (part for part in figure.groups() if part is not None)
                figures[name] = read_figure(name, number, unit)
        for process, number, unit in _OTHERS.findall(rest):
            figures[f"in process {process}"] = read_figure(f"in process {process}", number, unit)
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
        advice.append(_LESS)
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
    rf"would exceed allowed memory\. \(out of memory\){_GAP}Currently allocated{_GAP}{SIZE}{_GAP}"
    rf"Requested{_GAP}{SIZE}{_GAP}Device limit{_GAP}{SIZE}{_GAP}Free \(according to CUDA\){_GAP}{SIZE}"
    rf"(?:{_GAP}PyTorch limit \(set by user-supplied memory fraction\){_GAP}{SIZE})?"
)


def _malloc_async(text: str) -> Iterator[tuple[int, Message]]:
    """Errors of the backend cudaMallocAsync, which has no blocks of its own."""
    names = ("allocated by PyTorch", "asked", "total", "free", "allowed")
    for match in _ASYNC.finditer(text):
        parts = match.groups()
        figures = {
            name: read_figure(name, parts[2 * at], parts[2 * at + 1])
            for at, name in enumerate(names)
            if parts[2 * at] is not None
        }
        if "allowed" in figures and figures["allowed"].nbytes >= figures["total"].nbytes:
            del figures["allowed"]  # no fraction was set
        yield match.start(), _of_pytorch(figures, match[0][:LONGEST], "CUDA, cudaMallocAsync")


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
            line = line_at(text, match.start())
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
