"""cuDNN's attention against what PyTorch allocated for it on an H200, and on an H100 over a grid of calls."""

from __future__ import annotations

import gzip
import json

from analyzer.libraries.cudnn.attention import backward_bytes, forward_bytes, frontend_bytes, is_measured
from tests.paths import DATA

ROWS = json.loads(gzip.decompress((DATA / "h200" / "attention_single_query.json.gz").read_bytes()))["rows"]


def test_a_single_query_takes_what_was_allocated_for_it() -> None:
    assert len(ROWS) == 3094
    split = 0
    for batch, heads, key_heads, keys, size, _masked, allocated, error in ROWS:
        assert not error
        seed, offset, result, *workspace = allocated
        assert (seed, offset, result) == (8, 8, 2 * batch * heads * size)
        told = forward_bytes((batch, heads, 1, size), key_heads, keys, 132)
        assert [told] * (told > 0) == workspace
        assert is_measured(1, keys)
        split += told > 0
    assert split == 1008


def test_a_causal_mask_leaves_the_keys_whole() -> None:
    # Recorded on the H200 beside the others: no workspace where without the mask there are 532,608 bytes.
    assert forward_bytes((1, 32, 1, 128), 8, 4096, 132) == 532608
    assert forward_bytes((1, 32, 1, 128), 8, 4096, 132, causal=True) == 0


def test_more_queries_take_256_bytes() -> None:
    for query, keys in (((1, 8, 16, 64), 2048), ((4, 8, 2048, 64), 2048), ((1, 4, 64, 128), 16384)):
        assert forward_bytes(query, query[1], keys, 132) == 256
        assert is_measured(query[2], keys)


def test_backward_is_what_was_allocated() -> None:
    # Recorded on the H200: (batch, heads, heads of keys, queries, keys, size) and the workspace of the backward pass.
    for (batch, heads, key_heads, queries, keys, size), recorded in (
        ((2, 8, 8, 128, 128, 64), 532736),
        ((2, 8, 8, 1, 128, 64), 4416),
        ((2, 8, 2, 128, 128, 64), 1057024),
        ((1, 32, 8, 1, 4096, 128), 67125632),
        ((2, 16, 16, 197, 197, 72), 1841024),
    ):
        full_heads = 2 * batch * heads * keys * size * 2 if heads != key_heads else 0
        beside = backward_bytes(full_heads) if full_heads else backward_bytes()
        assert frontend_bytes(batch, heads, queries, size) + beside == recorded


def test_what_lies_between_the_measured_numbers_of_keys_says_so() -> None:
    assert not is_measured(1, 513)
    assert not is_measured(1, 999)
    assert is_measured(1, 1000)


def test_every_call_of_the_grid_takes_what_was_allocated_for_it() -> None:
    """`python -m benchmarks libraries measure OUT --part attention` of commit cf817472 on an H100: types, heads, masks, dropout, layouts, odd sizes."""
    lines = gzip.decompress((DATA / "h100" / "attention.jsonl.gz").read_bytes()).decode().splitlines()
    ran = [row for row in map(json.loads, lines) if len(row) == 14]
    assert len(ran) == 680
    for _, batch, heads, key_heads, queries, keys, size, values, causal, *_, forward, backward in ran:
        nbytes = forward_bytes((batch, heads, queries, size), key_heads, keys, 132, causal=bool(causal))
        results = [2 * batch * heads * queries * values, 4 * batch * heads * queries]
        assert forward == [8, 8, *results, *([nbytes, -nbytes] if nbytes else ())]
        full_heads = 2 * batch * heads * keys * (size + values) if key_heads != heads else 0
        workspace = frontend_bytes(batch, heads, queries, size) + backward_bytes(full_heads)
        gradients = (heads * queries * size, key_heads * keys * size, key_heads * keys * values)
        assert backward[:4] == [*(2 * batch * each for each in gradients), workspace]
