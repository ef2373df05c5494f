"""The requests of an estimate that a message's size may be.

1. PyTorch prints the segment it asks the driver for (`outcome.segment_bytes`), ONNX Runtime the request in
   whole chunks of 256 bytes (`bfc_arena.h`, `kMinAllocationSize`); both are compared within the precision
   printed.
2. Requests for the same purpose and of the same size are one, with their number, also of several layers
   ("layers.*.mlp"). Those at the message's own line, or node, come first.
3. The estimate's whole need stands beside the smallest known GPU that has so much.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import PurePosixPath

from analyzer import devices
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.recordings.messages import SHARED_SEGMENTS
from analyzer.recordings.outcome import segment_bytes
from analyzer.recordings.sizes import WHICH_TENSOR, size
from analyzer.results.estimate import Estimate, Origin
from analyzer.results.recording import Message, Request

_CHUNK_BYTES = 256
_MOST = 8
_LAYER = re.compile(r"\.\d+(?=\.|$)")  # a layer's number in a module's path


def answered(message: Message, estimate: Estimate) -> Message:
    """Return a message with what an estimate takes, and those of its requests that are of the message's
    size."""
    message = replace(message, need=_need(message, estimate))
    requests = _requests(message, estimate)
    unknown = [line for line in message.unknown if not line.startswith(WHICH_TENSOR)]
    if requests or not (figures := [each for each in message.figures if each.name == "asked"]):
        return replace(message, requests=requests, unknown=tuple(unknown))
    if figures[0].nbytes in SHARED_SEGMENTS:
        return message
    unknown.insert(
        0,
        f"{WHICH_TENSOR}: no request of {estimate.target} is of {size(figures[0].nbytes)}: its batch,"
        " sequence length or options were others than those given here",
    )
    return replace(message, unknown=tuple(unknown))


def _need(message: Message, estimate: Estimate) -> str:
    """Return a sentence on what the estimate takes of a GPU, and which one has so much."""
    nbytes = estimate.needed.device_used
    least = "at least " if estimate.at_least or estimate.incomplete is not None else ""
    total = next((figure.nbytes for figure in message.figures if figure.name == "total"), 0)
    given = f", and the message's GPU has {size(total)}" if total else ""
    larger = [name for name in devices.by_memory() if devices.load(name).usable_bytes >= nbytes]
    which = f"the smallest known GPU with so much is {larger[0]}" if larger else "no known GPU has so much"
    return f"{estimate.target} needs {least}{size(nbytes)} of a GPU{given}; {which}"


def _requests(message: Message, estimate: Estimate) -> tuple[Request, ...]:
    requested = next((figure for figure in message.figures if figure.name == "asked"), None)
    if requested is None or requested.nbytes in SHARED_SEGMENTS:
        return ()
    blocks = estimate.allocations
    counts = Counter(zip(blocks.requested, blocks.origin, strict=True))
    groups: dict[tuple[int, Origin], list[tuple[int, Origin]]] = {}
    for (nbytes, place), count in counts.items():
        if abs(_printed(nbytes, message) - requested.nbytes) <= requested.precision_bytes:
            origin = blocks.origins[place]
            of_layers = replace(origin, module=_LAYER.sub(".*", origin.module), scope="")
            groups.setdefault((nbytes, of_layers), []).append((count, origin))
    alike = [
        Request(
            nbytes,
            sum(count for count, _ in members),
            members[0][1] if len({origin.module for _, origin in members}) == 1 else of_layers,
            any(_is_place(message, origin) for _, origin in members),
        )
        for (nbytes, of_layers), members in groups.items()
    ]
    return tuple(sorted(alike, key=lambda request: (not request.likely, -request.count))[:_MOST])


def _printed(nbytes: int, message: Message) -> int:
    """Return the size that the runtime's message has for a request."""
    if message.source.startswith("PyTorch"):
        return segment_bytes(nbytes, PyTorchSettings())
    return -(-nbytes // _CHUNK_BYTES) * _CHUNK_BYTES


def _is_place(message: Message, origin: Origin) -> bool:
    """Return whether a purpose is at the message's line, or node."""
    line = PurePosixPath(origin.source).name
    if line and message.place.startswith((f"{line},", f"{line}:")):
        return True
    return bool(message.operator) and message.operator == origin.module
