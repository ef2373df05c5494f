"""Attention on CUDA, by the kernel that is chosen.

Not modelled: kernels that load cuDNN or cutlass plans (bounded by their unfused intermediates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)

_EFFICIENT_LENGTH = 256
# Places of ONNX's Attention: inputs, and the scores among the results.
_MASK, _PAST, _LENGTHS, _SCORES = 3, 4, 6, 3
# Heads of half precision wider than this are summed in float32 (memory-efficient attention).
_ACCUMULATED = 128


@rule("cuda", "com.microsoft.MultiHeadAttention")
def _multi_head(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """attention_impl.cu: half precision runs flash attention (a table of splits); float32 runs
    memory-efficient attention from 256 tokens on, below it transposed operands and scores twice."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    if len(shape) < 3:
        return [(3 * x.nbytes, "bounded")]
    if x.dtype != "float32":
        return [(256, "measured")]
    if shape[1] >= _EFFICIENT_LENGTH:
        return []
    heads = int(node.attributes.get("num_heads", 1))
    return [(3 * x.nbytes + 2 * 4 * shape[0] * heads * shape[1] ** 2, "measured")]


@rule("cuda", "com.microsoft.Attention")
def _attention(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """attention.cc: the joint projection, then as MultiHeadAttention on operands that must be transposed."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    joint = shape_of(graph, node.inputs[1])
    width = joint[-1] if joint else 0
    projected = math.prod(shape[:-1]) * width * element_bytes(graph, node.inputs[0])
    inner = _multi_head(node, graph, settings)
    if x.dtype == "float32" and inner:
        return [(projected, "measured"), *inner]
    return [(projected, "measured"), (projected, "measured"), *inner]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """ONNX's Attention in numbers: element bytes, rank, batch, heads, rows (of queries), keys there and keys
    in all; bytes of query, key, value and result as they are."""

    element: int
    rank: int
    batch: int
    heads: int
    shared: int
    rows: int
    length: int
    width: int
    value_width: int
    query: int
    key: int
    value: int
    result: int


@rule("cuda", "Attention")
def _onnx_attention(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """llm/attention.cc: scratch by the kernel it chooses. Flash attention: half precision, no mask, no scores
    returned. Memory-efficient attention: heads a multiple of 8 wide, a mask only where its rows are aligned
    to 16 bytes, in float32 as many key as query heads. Else unfused.

    Each takes its operands transposed where they are not laid out as it wants (fused: batch, rows, heads;
    unfused: batch, heads, rows), new keys and values too where there is a cache; flash a number a row, and
    parts of the result where keys are split; unfused the scores twice in float32. A boolean mask becomes
    numbers, and lengths of keys are counted for a cache.
    """
    sizes = _sizes(node, graph)
    if sizes is None:
        return [(graph.values[name].nbytes, "bounded") for name in node.inputs[:3] if name]
    mask = graph.values[node.inputs[_MASK]] if node.input(_MASK) else None
    past, padded = bool(node.input(_PAST)), bool(node.input(_LENGTHS))
    causal = bool(node.attributes.get("is_causal", 0))
    returned = any(node.outputs[_SCORES:])
    takes: list[int] = []
    if mask is not None and mask.dtype == "bool":
        takes.append(math.prod(mask.shape or ()) * sizes.element)
    if padded:
        takes.append(4 * sizes.batch)
    flash = sizes.element < 4 and mask is None and not returned and sizes.width == sizes.value_width
    flash = flash and sizes.width % 8 == 0 and sizes.width <= 256
    if causal and not past and not padded and sizes.rows != sizes.length:
        flash = False  # its causal mask ends at the last key
    aligned = mask is None or sizes.length % (16 // sizes.element) == 0
    efficient = sizes.width % 8 == 0 and sizes.value_width % 8 == 0 and aligned and not returned
    efficient = efficient and (sizes.element < 4 or sizes.shared == sizes.heads)
    if flash or efficient:
        if sizes.rank == 4:
            takes += [sizes.query, sizes.result]
        if past:
            takes += [sizes.key, sizes.value] if sizes.rank == 4 else []
            takes += [4 * sizes.batch] * (2 if flash else 1)
        if flash:
            takes.append(4 * sizes.batch * sizes.heads * sizes.rows)
    else:
        takes += [4 * sizes.batch * sizes.heads * sizes.rows * sizes.length] * 2
        if sizes.rank == 3:
            takes += [sizes.query, sizes.result]
        if (sizes.rank == 3) != past:
            takes += [sizes.key, sizes.value]
    requests: Takes = [(size, "measured") for size in takes if size]
    if flash:
        requests += [(size, "measured") for size in _split(sizes, settings.device.sm_count)]
    elif efficient and sizes.element < 4 and sizes.value_width > _ACCUMULATED:
        requests.append((4 * sizes.batch * sizes.heads * sizes.rows * sizes.value_width, "measured"))
    return requests


def _sizes(node: Node, graph: RuntimeGraph) -> _Sizes | None:
    """Return the dimensions of the attention call, None if shapes are unknown."""
    query, key, value = (shape_of(graph, name) for name in node.inputs[:3])
    rank = len(query)
    if rank not in (3, 4) or len(key) != rank or len(value) != rank:
        return None
    heads = query[1] if rank == 4 else int(node.attributes.get("q_num_heads", 1))
    shared = key[1] if rank == 4 else int(node.attributes.get("kv_num_heads", heads))
    past = shape_of(graph, node.input(_PAST))
    return _Sizes(
        element=element_bytes(graph, node.inputs[0]),
        rank=rank,
        batch=query[0],
        heads=heads,
        shared=shared,
        rows=query[-2],
        length=key[-2] + (past[-2] if len(past) > 1 else 0),
        width=query[-1] if rank == 4 else query[-1] // max(heads, 1),
        value_width=value[-1] if rank == 4 else value[-1] // max(shared, 1),
        query=graph.values[node.inputs[0]].nbytes,
        key=graph.values[node.inputs[1]].nbytes,
        value=graph.values[node.inputs[2]].nbytes,
        result=graph.values[node.outputs[0]].nbytes,
    )


def _split(sizes: _Sizes, processors: int) -> list[int]:
    """Sums and results of the parts into which flash attention splits the keys where heads and rows alone
    leave processors idle: the fewest parts that keep them at least 85 % as busy as the best number does.

    Source: flash_attention/flash_api.cc (`get_num_splits_and_buffer_sizes`, `num_splits_heuristic`).
    """
    block = 256 if sizes.width <= 64 else 128 if sizes.width <= 128 else 64
    blocks = -(-sizes.length // block)
    work = sizes.batch * sizes.heads * -(-sizes.rows // 64)
    if not work or work >= 0.8 * processors:
        return []
    most = min(128, processors, blocks)
    # A number of parts that gives no part fewer blocks than one less would is passed over.
    numbers = [n for n in range(1, most + 1) if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))]
    busy = {n: (work * n / processors) / math.ceil(work * n / processors) for n in numbers}
    parts = next((n for n in numbers if busy[n] >= 0.85 * max(busy.values())), 1)
    if parts == 1:
        return []
    rows = parts * sizes.batch * sizes.heads * sizes.rows
    return [4 * rows, 4 * rows * -(-sizes.width // 32) * 32]


@rule("cuda", "com.microsoft.GroupQueryAttention")
def _grouped_attention(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """group_query_attention.cc: bounded by transposed operands and unfused scores."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    heads = int(node.attributes.get("num_heads", 1))
    scores = 2 * shape[0] * heads * shape[1] ** 2 * element_bytes(graph, x.name) if len(shape) == 3 else 0
    return [(3 * x.nbytes, "bounded"), (scores, "bounded")]
