"""llama.cpp's memory as text of 80 columns, as JSON and as a page, in the words of its users: layers,
context, KV cache."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from analyzer.report import page
from analyzer.report.words import clean, size
from analyzer_serving.llama_results import Buffer, LlamaMemory, Point, is_host

_MIB = 2**20
_FOUND = "Found by starting it again"
_KINDS = {"model": "model", "KV": "KV cache", "RS": "states", "compute": "compute", "output": "output"}
_PHASES = {
    "backend": "CUDA's own, before the model",
    "model": "with the model",
    "context": "with the context",
    "warmup": "warmed up",
    "prompt": "a batch read",
    "decode": "tokens decoded",
    "full": "context full",
}


def verdict(memory: LlamaMemory) -> str:
    """Return the verdict in one sentence."""
    on_gpu, layers = memory.layers
    if memory.error is not None:
        return f"does not fit: {' '.join(clean(memory.error).split())}"
    left = memory.capacity - max(memory.most)
    tokens = f"{memory.context:,} tokens"
    if memory.context_of_sequence != memory.context:
        tokens += f" ({memory.sequences} x {memory.context_of_sequence:,})"
    return f"fits: {on_gpu} of {layers} layers on the GPU, a context of {tokens}, {size(left)} left"


def _rows(memory: LlamaMemory) -> Iterator[tuple[str, str, float]]:
    """Yield buffers: where, of what, MiB; the GPU's first."""

    def place(one: Buffer) -> tuple[bool, str, int]:
        return is_host(one.place), one.place, list(_KINDS).index(one.kind)

    for one in sorted(memory.buffers, key=place):
        yield one.place, _KINDS[one.kind], one.mib


def _phase_rows(memory: LlamaMemory) -> list[tuple[str, list[int]]]:
    return [(_PHASES[one.name], list(one.used)) for one in memory.phases]


def _curve_row(point: Point, capacity: int) -> tuple[str, ...]:
    known = (f"{point.context:,}", f"{point.kv_mib:,.2f}", f"{point.compute_mib:,.2f}")
    if point.used is None:
        return (*known, "no room", "")
    return (*known, f"{point.used / _MIB:,.0f}", size(capacity - point.used))


def notes(memory: LlamaMemory) -> Iterator[str]:
    """Yield how the figures were obtained."""
    yield from memory.notes
    yield (
        f"buffers are {memory.engine}'s own log lines, in MiB; the device's use is what its CUDA runtime"
        " would say after each phase, without a display and other programs; of the weights nothing was read"
    )


def text(memory: LlamaMemory) -> str:
    """Return the result as text."""
    lines = [*textwrap.wrap(verdict(memory), 80)]
    if memory.device_note:
        lines += textwrap.wrap(f"device: {clean(memory.device)}, {memory.device_note}", 80)
    lines += ["", f"{clean(memory.name)} · {memory.engine}, started without a GPU"]
    if memory.buffers:
        lines += ["", f"{'buffers':<16}{'':<12}{'MiB':>14}"]
        lines += [f"{place:<16}{kind:<12}{mib:>14,.2f}" for place, kind, mib in _rows(memory)]
    if memory.phases:
        lines += ["", f"{'device memory in use':<40}{'MiB':>14}"]
        for name, every in _phase_rows(memory):
            lines.append(f"{name:<40}" + "".join(f"{used / _MIB:>14,.1f}" for used in every))
    if memory.curve:
        lines += ["", f"{'context':>10}{'KV cache':>14}{'compute':>12}{'in use':>12}{'left':>12}"]
        for point in memory.curve:
            context, kv, compute, used, left = _curve_row(point, memory.capacity)
            lines.append(f"{context:>10}{kv:>14}{compute:>12}{used:>12}{left:>12}".rstrip())
    if memory.changes:
        lines += ["", _FOUND, *(line for change in memory.changes for line in _wrapped(change))]
    lines += ["", "Notes", *(line for note in notes(memory) for line in _wrapped(note))]
    return "\n".join(lines) + "\n"


def _wrapped(note: str) -> list[str]:
    return textwrap.wrap(clean(note), 80, initial_indent="- ", subsequent_indent="  ")


def as_json(memory: LlamaMemory) -> str:
    """Return the same as JSON: buffers in MiB as logged, the device's use in bytes."""
    return json.dumps(asdict(memory) | {"fits": memory.fits}, indent=2) + "\n"


def html(memory: LlamaMemory) -> str:
    """Return the page."""
    body = [page.verdict(memory.fits, verdict(memory))]
    if memory.device_note:
        body.append(page.paragraph(f"device: {memory.device}, {memory.device_note}", "dim"))
    rows = [(page.text(place), page.text(kind), f"{mib:,.2f}") for place, kind, mib in _rows(memory)]
    body += [page.heading("Its buffers"), page.table(("", "", "MiB"), rows, (2,), "figures")] if rows else []
    used = [
        (page.text(name), *(f"{one / _MIB:,.1f}" for one in every)) for name, every in _phase_rows(memory)
    ]
    if used:
        heads = ("", *(f"GPU {number}, MiB" for number in range(len(used[0]) - 1)))
        body += [
            page.heading("Device memory in use"),
            page.table(heads, used, range(1, len(heads)), "figures"),
        ]
    if memory.curve:
        points = [_curve_row(point, memory.capacity) for point in memory.curve]
        heads = ("context", "KV cache", "compute", "in use", "left")
        body += [page.heading("By context"), page.table(heads, points, range(5), "figures")]
    if memory.changes:
        body += [page.heading(_FOUND), page.items(memory.changes)]
    body += [page.heading("Notes"), page.items(list(notes(memory)))]
    return page.render(f"{memory.name} · {memory.engine} on {memory.device}", "\n".join(body))
