"""ONNX Runtime's errors for want of memory in a log.

1. Each message is taken by itself: the node is that of its own beginning.
2. A memory pattern's block that finds no room is no error, since the run goes on without
   (`execution_frame.cc`).

Source: `onnxruntime/core/framework/bfc_arena.cc`, `core/providers/cuda/cuda_call.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzer.recordings.cards import card_of
from analyzer.recordings.sizes import line_at, size
from analyzer.results.recording import Figure, Message

_BUFFER = re.compile(r"Failed to allocate memory for requested buffer of size (\d{1,40})")
_LIMIT = re.compile(r"Available memory of (\d{1,40}) is smaller than requested bytes of (\d{1,40})")
_CUDA = re.compile(
    r"CUDA failure 2: out of memory|CUDA error cudaErrorMemoryAllocation:out of memory"
    r"|CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED|CUDNN failure \d{1,4}: CUDNN_STATUS_ALLOC_FAILED"
)
# More than any device has: a shape was worked out wrongly.
_NO_SIZE_BYTES = 2**46
# Beginnings of ONNX Runtime's messages: of a line of its log, and of an exception.
_BEGIN = re.compile(r"\[[VIWEF]:onnxruntime|\[ONNXRuntimeError\]")
_PATTERN = re.compile(r"Allocation of memory pattern buffer for [^\n]{0,400} failed")
_NODE = re.compile(r"running (\w{1,80}) node\. Name:'([^'\n]{0,400})'")
_ADVICE = (
    f"a smaller batch: analyze fit model.onnx --device {card_of(None).device} finds the largest",
    "arena_extend_strategy=kSameAsRequested (provider option): the arena's regions do not double, so that"
    " less is held when this request comes",
    "SessionOptions.enable_mem_pattern = False: no single block for all tensors of a run, which needs as"
    " much in one piece",
    f"analyze model.onnx --batch N --device {card_of(None).device} says what the session takes, and under"
    " these settings (--runtime-option arena_extend_strategy=kSameAsRequested, enable_mem_pattern=0)",
    card_of(None).sentence,
)


def of_onnxruntime(text: str) -> Iterator[tuple[int, Message]]:
    patterns = (_BUFFER, _LIMIT, _CUDA)
    matches = sorted((one for each in patterns for one in each.finditer(text)), key=re.Match.start)
    ends = (0, *(match.end() for match in matches))
    for match, end in zip(matches, ends, strict=False):
        before = text[max(match.start() - 2000, end) : match.start()]
        before = before[max((one.start() for one in _BEGIN.finditer(before)), default=0) :]
        if _PATTERN.search(before):
            yield match.start(), _without_pattern(match)
            continue
        node = next(iter(reversed(list(_NODE.finditer(before)))), None)
        where = f" at the {node[1]} node {node[2]!r}" if node else ""
        line = line_at(text, match.start())
        advice = list(_ADVICE)
        if match.re is _LIMIT:
            left, requested = int(match[1]), int(match[2])
            figures: tuple[Figure, ...] = (Figure("asked", requested), Figure("left of gpu_mem_limit", left))
            advice.insert(
                0, f"gpu_mem_limit leaves {size(left)}: raise it by {size(requested - left)}, or take it away"
            )
            verdict = (
                f"out of memory: {size(requested)} requested{where}, {size(left)} left of the arena's limit"
            )
        elif match.re is _BUFFER:
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
                "ONNX Runtime",
                verdict,
                figures,
                tuple(advice),
                line,
                ("what else held the GPU's memory",),
                operator=node[2] if node else "",
            ),
        )


def _without_pattern(match: re.Match[str]) -> Message:
    """Return the message of a memory pattern's block without room, behind which the run goes on."""
    figures = (Figure("asked", int(match[1])),) if match.re is _BUFFER else ()
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
        line_at(match.string, match.start()),
        harmless=True,
    )
