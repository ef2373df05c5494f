"""A session of ONNX Runtime at many batches at once: each batch as a fresh analysis finds it, and recorded as seldom as can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from analyzer.options import Options
from analyzer.pipeline.workload import Workload
from analyzer.planning.intervals import Intervals, figures_of
from analyzer.runtimes.onnxruntime.batches import SessionBatches

CONVOLUTIONS = """
    g (float[N,3,32,32] x) => (float[N,10] y)
    <float[16,3,3,3] w, float[16,16,3,3] v, float[16,16,1,1] u, float[10,16] f, float[10] b> {
        a = Conv<pads = [1, 1, 1, 1]>(x, w)
        c = Relu(a)
        d = Conv<pads = [1, 1, 1, 1]>(c, v)
        e = Conv(c, u)
        h = Add(d, e)
        i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(h)
        j = ConvTranspose<strides = [2, 2]>(i, u)
        k = GlobalAveragePool(j)
        l = Flatten(k)
        y = Gemm<transB = 1>(l, f, b)
    }
"""
# Flash attention splits the keys at small batches only; half precision.
ATTENTION = """
    g (float16[N,200,512] x) => (float16[N,200,512] y) <float16[512,512] w> {
        q = MatMul(x, w)
        k = MatMul(q, w)
        a = Attention<q_num_heads = 8, kv_num_heads = 8>(q, k, x)
        r = Add(a, x)
        s = Softmax<axis = 1>(r)
        y = MatMul(s, w)
    }
"""
QUANTIZED = """
    g (float[N,8,24,24] x) => (float[N,16] y)
    <float s = {0.5}, uint8 z = {128}, int8 zero = {0}, float ws = {0.25}, int8[16,8,3,3] w> {
        a = QuantizeLinear(x, s, z)
        b = DequantizeLinear(a, s, z)
        f = DequantizeLinear(w, ws, zero)
        c = Conv<pads = [1, 1, 1, 1]>(b, f)
        d = QuantizeLinear(c, s, z)
        e = DequantizeLinear(d, s, z)
        p = GlobalAveragePool(e)
        y = Flatten(p)
    }
"""
# The loop runs once a sample; what an iteration makes is as large as the batch.
CONTROL = """
    g (float[N,300] x, bool flag) => (float[N,300] y, float[T,N,300] z) {
        shape = Shape(x)
        zero = Constant<value = int64[1] {0}>()
        trips = Gather(shape, zero)
        one = Constant<value = int64[0] {}>()
        count = Reshape(trips, one)
        yes = Constant<value = bool {1}>()
        carried, z = Loop(count, yes, x) <body = b (int64 i, bool on, float[N,300] was) => (bool go, float[N,300] next, float[N,300] made) {
            go = Identity(on)
            t = Exp(was)
            next = Mul(t, was)
            made = Neg(next)
        }>
        y = If(flag) <then_branch = t () => (float[N,300] p) { m = Abs(carried)  p = Exp(m) },
                      else_branch = e () => (float[N,300] p) { p = Neg(carried) }>
    }
"""
# Concat joins batches, sizes of intervals decide whether its tables are needed; normalization repeats its scale for each
# sample; the sum over samples goes by partial sums.
TABLES = """
    g (float[N,12,40] x) => (float[N,12,40] y, float[12,40] s) <float[5,12,40] c, float[12] scale> {
        j = Concat<axis = 0>(x, c)
        e = Exp(j)
        starts = Constant<value = int64[1] {5}>()
        ends = Constant<value = int64[1] {1000000}>()
        axes = Constant<value = int64[1] {0}>()
        p = Slice(e, starts, ends, axes)
        n = InstanceNormalization(p, scale, scale)
        a, k = TopK<axis = 0>(e, axes)
        y = Mul(n, x)
        s = ReduceMax<axes = [0], keepdims = 0>(n)
    }
"""
FILES = {
    "convolutions": (CONVOLUTIONS, 17),
    "attention": (ATTENTION, 23),
    "quantized": (QUANTIZED, 17),
    "control": (CONTROL, 17),
    "tables": (TABLES, 17),
}


def workload_of(name: str, folder: Path, **runtime_options: str) -> Workload:
    """The file with weights for what nobody makes."""
    graph, opset = FILES[name]
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')
    made = {name for node in model.graph.node for name in node.output}
    for value in [value for value in model.graph.value_info if value.name not in made]:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        weights = np.ones([size.dim_value for size in kind.shape.dim], dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
        model.graph.value_info.remove(value)
    onnx.save(model, folder / f"{name}.onnx")
    options = Options.of({"device": "h200", "runtime_options": runtime_options})
    return Workload(folder / f"{name}.onnx", options)


def recordings(intervals: Intervals) -> list[int]:
    """How many batches are recorded at once, each time."""
    figures = [
        interval.figures for interval in intervals.intervals if isinstance(interval.figures, SessionBatches)
    ]
    every = {id(runs): runs for one in figures for runs, _ in one.prepared.values()}
    return sorted(len(runs.beside) for runs in every.values() if runs is not None)


@pytest.mark.parametrize(
    ("name", "options", "recorded"),
    [
        ("convolutions", {}, [39]),
        ("convolutions", {"cudnn_conv_algo_search": "DEFAULT", "io_binding": "caller"}, [39]),
        ("convolutions", {"prefer_nhwc": "1", "arena_extend_strategy": "kSameAsRequested"}, [39]),
        ("attention", {}, [39]),
        ("attention", {"enable_mem_pattern": "0"}, [39]),
        ("quantized", {}, [39]),
        ("control", {"io_binding": "device"}, [38]),  # two iterations are not as three or more
        ("tables", {}, [39]),
    ],
)
def test_every_batch_is_a_fresh_analysis(
    name: str, options: dict[str, str], recorded: list[int], tmp_path: Path
) -> None:
    workload = workload_of(name, tmp_path, **options)
    intervals = Intervals(workload, 2, 40)
    intervals.prepare(range(2, 41))
    assert recordings(intervals) == recorded
    alone = Intervals(workload, 2, 40)
    for batch in range(2, 41, 3 if options else 1):
        found = intervals.at(batch)
        assert found == figures_of(workload.analysis(batch)), batch
        assert batch % 5 or found == alone.at(batch)  # nothing prepared
    assert len(intervals.captured) <= 4
