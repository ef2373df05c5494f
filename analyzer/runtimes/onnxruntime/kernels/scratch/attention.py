"""Attention on CUDA, by the kernel that is chosen.

Not modelled: a cache that past and present share (`io_binding` to one buffer); caches in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzer.libraries.cudnn.attention import forward_bytes
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
_ALIGNED = 256  # scores of each kind (attention_impl.cu, GetAttentionScratchSize)


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
    parts of the result where keys are split; unfused the scores twice in float32, in one block. A boolean
    mask becomes numbers, and lengths of keys are counted for a cache.
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
        scores = 4 * sizes.batch * sizes.heads * sizes.rows * sizes.length
        takes.append(2 * (-(-scores // _ALIGNED) * _ALIGNED))
        if sizes.rank == 3:
            takes += [sizes.query, sizes.result]
        if (sizes.rank == 3) != past:
            takes += [sizes.key, sizes.value]
    requests: Takes = [(size, "measured") for size in takes if size]
    if flash:
        parts = _parts(
            sizes.width, sizes.length, sizes.batch, sizes.heads, sizes.rows, settings.device.sm_count
        )
        requests += [(size, "measured") for size in parts]
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


def _parts(width: int, length: int, batch: int, heads: int, rows: int, processors: int) -> list[int]:
    """Return the bytes of sums and results of the parts into which flash attention splits `length` keys where
    heads and rows alone leave processors idle: the fewest parts that keep them at least 85 % as busy as the
    best number does.

    Source: flash_attention/flash_api.cc (`get_num_splits_and_buffer_sizes`, `num_splits_heuristic`).
    """
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks = -(-length // block)
    work = batch * heads * -(-rows // 64)
    if not work or work >= 0.8 * processors:
        return []
    most = min(128, processors, blocks)
    # A number of parts that gives no part fewer blocks than one less would is passed over.
    numbers = [n for n in range(1, most + 1) if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))]
    busy = {n: (work * n / processors) / math.ceil(work * n / processors) for n in numbers}
    parts = next((n for n in numbers if busy[n] >= 0.85 * max(busy.values())), 1)
    if parts == 1:
        return []
    results = parts * batch * heads * rows
    return [4 * results, 4 * results * -(-width // 32) * 32]


# Places of GroupQueryAttention: inputs, and the cache among the results.
_KEY, _PAST_KEY, _PRESENT_KEY = 1, 3, 1


@rule("cuda", "com.microsoft.GroupQueryAttention")
def _grouped_attention(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """group_query_attention.cc: lengths of all sequences, queries turned by their positions or parted from
    packed ones, and what the kernel takes. cuDNN's attention, from compute capability 9.0 on unless the
    softmax is smoothed or sees a window alone: lengths again where there is a past, a workspace where there
    is more than one query. Flash attention, from 8.0 on: a number a row, parts of the result where keys are
    split. Memory-efficient attention: keys and values of every head where heads share them, keys turned,
    and sums in float32 of wide heads.

    Requests of the provider of ONNX Runtime 1.30 on the emulated runtime, as h200, rtx5090, a100 and t4
    (`tests/runtimes/onnxruntime/test_grouped_attention.py`).
    """
    shape = shape_of(graph, node.inputs[0])
    present = shape_of(graph, node.outputs[_PRESENT_KEY]) if len(node.outputs) > _PRESENT_KEY else ()
    if len(shape) != 3 or len(present) != 4:
        return [(3 * graph.values[node.inputs[0]].nbytes, "bounded")]
    batch, rows, _ = shape
    _, shared, length, width = present
    heads = int(node.attributes.get("num_heads", 1))
    element = element_bytes(graph, node.inputs[0])
    queries = element * batch * rows * heads * width
    keys = element * batch * rows * shared * width
    packed, turned = not node.input(_KEY), bool(node.attributes.get("do_rotary", 0))
    own = queries if packed or turned else 0
    lengths = 3 * 4 * batch
    past = shape_of(graph, node.input(_PAST_KEY))
    continued = len(past) == 4 and past[2] > 0 and rows != length
    windowed = int(node.attributes.get("local_window_size", -1)) != -1
    fused = not windowed and not node.attributes.get("smooth_softmax", 0)
    capability = settings.device.compute_capability
    if capability >= (9, 0) and fused:
        workspace = forward_bytes(
            (batch, heads, rows, width), shared, length, settings.device.sm_count, causal=True
        )
        takes = [lengths, own, 4 * batch if continued else 0, workspace]
    elif capability >= (8, 0):
        parts = _parts(width, length, batch, heads, rows, settings.device.sm_count)
        takes = [4 * batch * heads * rows, *parts, lengths, own]
    else:
        every = element * batch * heads * length * width if heads != shared else 0
        wide = 4 * batch * rows * heads * width if width > _ACCUMULATED else 0
        own += keys if turned or packed else 0
        takes = [lengths, every, every, wide, own + (keys if packed else 0)]
    return [(size, "measured") for size in takes if size]
