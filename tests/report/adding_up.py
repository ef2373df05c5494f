"""What must hold of every estimate: each view of it adds up to the same bytes."""

from __future__ import annotations

from collections import Counter

from analyzer.report import attribution, folded
from analyzer.results.estimate import Estimate


def adds_up(estimate: Estimate) -> None:
    """Breakdowns sum to the peak to the byte; after every event blocks sum to allocated and segments to reserved, and
    each block lies in a segment. Raises AssertionError."""
    peak = estimate.peak_allocated
    for kind in attribution.KINDS:
        for depth in (None, 1, 2):
            assert sum(nbytes for _, nbytes in attribution.rows(estimate, kind, depth)) == peak, kind
    assert sum(int(line.rpartition(" ")[2]) for line in folded.render(estimate).splitlines()) == peak
    assert dict(attribution.rows(estimate, "category")) == {k: v for k, v in estimate.breakdown.items() if v}
    blocks, line = estimate.allocations, estimate.timeline
    assert sum(blocks.nbytes[place] for place in blocks.alive(estimate.peak_event)) == peak
    at_peak = Counter(
        (blocks.origins[blocks.origin[p]].name, blocks.nbytes[p]) for p in blocks.alive(estimate.peak_event)
    )
    # ONNX Runtime takes one block for all that lies in its memory pattern; its rows are those tensors and the rest.
    pattern = sum(row.nbytes for row in estimate.tensors if row.rule == "ort-memory-pattern")
    rows = Counter((row.name, row.nbytes) for row in estimate.tensors if row.rule != "ort-memory-pattern")
    assert at_peak == rows + Counter([("memory pattern", pattern)] if pattern else [])
    deltas, pieces = Counter[int](), Counter[int]()
    for born, died, nbytes in zip(blocks.born, blocks.died, blocks.nbytes, strict=True):
        deltas[born] += nbytes
        deltas[died if died >= 0 else len(line.delta)] -= nbytes
    for segment in estimate.segments:
        pieces[segment.born] += segment.nbytes
        pieces[segment.died if segment.died >= 0 else len(line.delta)] -= segment.nbytes
    in_use = held = 0
    for event, (allocated, reserved) in enumerate(zip(line.allocated, line.reserved, strict=True)):
        in_use, held = in_use + deltas[event], held + pieces[event]
        assert (in_use, held) == (allocated, reserved), event
    there = sorted((s.address, s.nbytes, s.born, s.died) for s in estimate.segments)
    for place in blocks.alive(estimate.peak_event):
        address, end = blocks.address[place], blocks.address[place] + blocks.nbytes[place]
        assert any(
            start <= address
            and end <= start + nbytes
            and born <= estimate.peak_event
            and (died < 0 or died > estimate.peak_event)
            for start, nbytes, born, died in there
        )
