"""GroupQueryAttention on CUDA: its cache's length, and its kernel's own requests beside ONNX Runtime's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import analyzer
from analyzer import devices
from analyzer.errors import InputError
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, scratch
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.plan.placement import assign
from analyzer.spec import TensorSpec
from tests.paths import DATA

# Kind of node: heads, heads of keys, size of a head, attributes.
KINDS: dict[str, tuple[int, int, int, dict[str, int]]] = {
    "plain": (32, 8, 128, {"do_rotary": 1}),
    "packed": (32, 8, 128, {"do_rotary": 1}),
    "unturned": (16, 16, 64, {}),
    "smooth": (24, 8, 96, {"do_rotary": 1, "smooth_softmax": 1}),
    "window": (32, 8, 128, {"do_rotary": 1, "local_window_size": 256}),
}
ROWS = json.loads((DATA / "ort" / "grouped_attention.json").read_text())["rows"]


def saved(folder: Path, kind: str, total: int | None = None) -> Path:
    """A file of one node. Dimensions: b, s, past; the total length is an input, or this number."""
    heads, shared, width, attributes = KINDS[kind]
    packed = kind == "packed"
    half, whole = TensorProto.FLOAT16, TensorProto.INT32
    shapes: dict[str, tuple[int, list[Any]]] = {
        "q": (half, ["b", "s", (heads + 2 * shared if packed else heads) * width]),
        "k": (half, ["b", "s", shared * width]),
        "v": (half, ["b", "s", shared * width]),
        "past_k": (half, ["b", shared, "past", width]),
        "past_v": (half, ["b", shared, "past", width]),
        "lengths": (whole, ["b"]),
        "total": (whole, []),
    }
    names = ["q", *(["", ""] if packed else ["k", "v"]), "past_k", "past_v", "lengths", "total"]
    tables = ["cos", "sin"] if "do_rotary" in attributes else []
    constants = {name: np.zeros((4096, width // 2), np.float16) for name in tables}
    if total is not None:
        constants["total"] = np.array(total, np.int32)
    node = helper.make_node(
        "GroupQueryAttention",
        [*names, *tables],
        ["o", "present_k", "present_v"],
        name="gqa",
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=shared,
        **attributes,
    )
    results = {"o": ["b", "s", heads * width], "present_k": ["b", shared, "t", width]}
    results["present_v"] = results["present_k"]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, *shapes[name])
            for name in names
            if name not in ("", *constants)
        ],
        [helper.make_tensor_value_info(name, half, shape) for name, shape in results.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_requests_are_onnx_runtimes(tmp_path: Path, kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind]
    assert len(rows) == 16
    for row in rows:
        sizes = {"b": row["batch"], "s": row["rows"], "past": row["past"]}
        described = {name: ((size,), "") for name, size in sizes.items()}
        graph = load(saved(tmp_path, kind, row["total"]), None, described)
        assign(graph, "cuda")
        settings = KernelSettings("cuda", "EXHAUSTIVE", devices.load(row["device"]))
        (node,) = graph.nodes.values()
        assert [nbytes for nbytes, _ in scratch(node, graph, settings)] == row["requests"], row


@pytest.mark.parametrize(
    ("rows", "past", "values", "length"),
    [(50, 1, {"total": 51}, 51), (1, 60, {"total": 10}, 60), (1, 60, {"total": 61}, 61), (3, 7, {}, 10)],
)
def test_the_cache_is_as_long_as_the_total_or_as_past(
    tmp_path: Path, rows: int, past: int, values: dict[str, int], length: int
) -> None:
    inputs = {"b": TensorSpec((1,), ""), "s": TensorSpec((rows,), ""), "past": TensorSpec((past,), "")}
    estimate = analyzer.analyze(saved(tmp_path, "plain"), inputs=inputs, values=values, device="h200")
    assert [row.shape for row in estimate.tensors if row.name == "present_k"] == [(1, 8, length, 128)]


def test_several_tokens_of_several_sequences_with_a_past_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "plain")
    inputs = {"b": TensorSpec((2,), ""), "s": TensorSpec((3,), ""), "past": TensorSpec((5,), "")}
    with pytest.raises(InputError, match="batch_size must be 1 when sequence_length > 1 and past context"):
        analyzer.analyze(path, inputs=inputs, values={"total": 8}, device="h200")
