"""Order, plan, memory pattern, arena tags and options, on graphs small enough to do by hand."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from analyzer.errors import OptionError
from analyzer.parametric.lanes import Lanes
from analyzer.runtimes.onnxruntime.advice import not_simulated
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.options import SessionOptions, parse
from analyzer.runtimes.onnxruntime.plan.order import execution, streams, topological
from analyzer.runtimes.onnxruntime.plan.pattern import LanesPlanner, PatternPlanner
from analyzer.runtimes.onnxruntime.plan.planner import Kind, plan, same_size
from analyzer.runtimes.onnxruntime.rewrite import optimise


def _graph(
    nodes: list[tuple[str, str, list[str], list[str]]], shape: list[Any] | None = None
) -> RuntimeGraph:
    """A graph over float32 tensors of one shape; the input is x, the last output the graph's."""
    shape = shape or ["n", 8]
    protos = [helper.make_node(op, ins, outs, name=name) for name, op, ins, outs in nodes]
    graph = helper.make_graph(
        protos,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1][3][0], TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    loaded = load(model, 4)
    for node in loaded.nodes.values():
        node.provider = "cuda"
    return loaded


def _names(nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes]


def test_order_follows_the_latest_producer_first() -> None:
    """At `sum` the producer with the highest index, c, comes before b; the leaf with the highest index is last first."""
    graph = _graph(
        [
            ("a", "Exp", ["x"], ["a"]),
            ("b", "Neg", ["a"], ["b"]),
            ("c", "Abs", ["a"], ["c"]),
            ("sum", "Add", ["b", "c"], ["y"]),
        ]
    )
    assert _names(topological(graph)) == ["a", "c", "b", "sum"]


def test_streams_wait_for_each_other() -> None:
    """A CPU node between two CUDA nodes runs as soon as its producer has; CUDA waits for it."""
    graph = _graph(
        [
            ("a", "Exp", ["x"], ["a"]),
            ("b", "Neg", ["a"], ["b"]),
            ("c", "Abs", ["a"], ["c"]),
            ("s", "Add", ["b", "c"], ["y"]),
        ]
    )
    graph.nodes[1].provider = "cpu"
    order = topological(graph)
    assert [len(lane) for lane in streams(order)] == [3, 1]
    names = _names(execution(graph, order))
    assert sorted(names) == ["a", "b", "c", "s"]
    assert names.index("a") < names.index("b") < names.index("s")


def _planned(graph: RuntimeGraph) -> dict[str, tuple[Kind, str]]:
    order = topological(graph)
    found = plan(graph, streams(order))
    return {name: (place.kind, place.buffer) for name, place in found.placements.items()}


def test_in_place_needs_the_last_use_and_the_same_size() -> None:
    """Relu takes its input's buffer when nobody else needs it; Exp (not registered for it) never does."""
    graph = _graph(
        [
            ("a", "Exp", ["x"], ["a"]),
            ("b", "Relu", ["a"], ["b"]),
            ("c", "Exp", ["b"], ["c"]),
            ("d", "Add", ["b", "c"], ["y"]),
        ]
    )
    placed = _planned(graph)
    assert placed["b"] == (Kind.REUSE, "a")
    assert placed["c"] == (Kind.ALLOCATE, "c")
    assert placed["y"] == (Kind.OUTPUT, "y")


def test_graph_inputs_are_never_overwritten() -> None:
    """The caller still owns x."""
    placed = _planned(_graph([("a", "Relu", ["x"], ["a"]), ("b", "Exp", ["a"], ["y"])]))
    assert placed["a"] == (Kind.ALLOCATE, "a")


def test_free_list_hands_out_the_latest_buffer_of_equal_shape() -> None:
    """a is dead after b; c takes its buffer."""
    graph = _graph(
        [
            ("a", "Exp", ["x"], ["a"]),
            ("b", "Neg", ["a"], ["b"]),
            ("c", "Exp", ["b"], ["c"]),
            ("d", "Exp", ["c"], ["y"]),
        ]
    )
    placed = _planned(graph)
    assert placed["c"] == (Kind.REUSE, "a")


def test_reshape_aliases_and_keeps_the_buffer_alive() -> None:
    """A buffer is released after the last reader of any tensor that shares it."""
    graph = _graph(
        [
            ("a", "Exp", ["x"], ["a"]),
            ("r", "Flatten", ["a"], ["r"]),
            ("b", "Exp", ["r"], ["b"]),
            ("c", "Exp", ["b"], ["y"]),
        ]
    )
    found = plan(graph, streams(topological(graph)))
    assert found.placements["r"].buffer == "a"
    assert found.release[2] == ("a",)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ((4, 8), (4, 8), True),
        ((4, 8), (8, 4), False),
        (("n", 8), ("n", 8), True),
        (("n", 8), ("m", 8), False),
        (("", 8), ("", 8), False),
        ((32,), (4, 8), False),
    ],
)
def test_same_size_compares_dimensions_not_bytes(left: Any, right: Any, same: bool) -> None:
    """Unknown dimensions match nothing, names match themselves."""
    a, b = Value("a", "float32", None, left), Value("b", "int32", None, right)
    assert same_size(a, b) is same


def test_pattern_fills_the_smallest_gap() -> None:
    """Sizes are rounded to 256; a freed gap that fits best is used again."""
    pattern = PatternPlanner()
    pattern.allocate("a", 1000)
    pattern.allocate("b", 300)
    pattern.allocate("c", 256)
    assert pattern.size_bytes == 1024 + 512 + 256
    pattern.free("b")
    pattern.allocate("d", 512)
    pattern.free("a")
    pattern.allocate("e", 512)
    pattern.allocate("f", 512)
    assert pattern.size_bytes == 1792


def test_many_living_tensors_cost_no_more_each() -> None:
    """A Split into 20,000 pieces took minutes when every request looked at all living blocks."""
    pattern = PatternPlanner()
    started = time.process_time()
    for number in range(20_000):
        pattern.allocate(str(number), 256)
    for number in range(0, 20_000, 2):
        pattern.free(str(number))
    for number in range(0, 20_000, 2):
        pattern.allocate(f"again {number}", 256)
    assert time.process_time() - started < 3
    assert pattern.size_bytes == 20_000 * 256
    assert len(pattern.pattern().fullest) == 20_000


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5000)), max_size=60))
def test_pattern_never_overlaps(steps: list[tuple[int, int]]) -> None:
    """Living tensors never share bytes, and the block covers them."""
    pattern = PatternPlanner()
    living: set[str] = set()
    for slot, nbytes in steps:
        name = str(slot)
        if name in living:
            pattern.free(name)
            living.discard(name)
        else:
            pattern.allocate(name, nbytes)
            living.add(name)
        end = 0
        for begin, last in sorted(pattern._living.values()):
            assert begin >= end
            end = last
        assert end <= pattern.size_bytes


@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.one_of(st.integers(0, 3000), st.lists(st.integers(0, 3000), min_size=4, max_size=4)),
        ),
        max_size=60,
    )
)
def test_patterns_of_many_batches_are_each_ones_own(steps: list[tuple[int, int | list[int]]]) -> None:
    """Sizes that are another one in each of four lanes, some of them zero."""
    together, alone = LanesPlanner(4), [PatternPlanner() for _ in range(4)]
    living: set[str] = set()
    for slot, sizes in steps:
        name = str(slot)
        every = [sizes] * 4 if isinstance(sizes, int) else sizes
        if name in living:
            living.discard(name)
            for planner in (together, *alone):
                planner.free(name)
        else:
            living.add(name)
            together.allocate(name, sizes if isinstance(sizes, int) else Lanes(np.array(sizes)))
            for planner, size in zip(alone, every, strict=True):
                planner.allocate(name, size)
    found: Any = together.pattern()
    assert found.size_bytes.values.tolist() == [planner.size_bytes for planner in alone]
    assert found.members == alone[0].pattern().members


def test_arena_joins_stream_memory_only_after_the_run() -> None:
    """A rest left by a weight does not join what the run freed beside it, until the run is over."""
    arena = SessionOptions().arena()
    arena.malloc(256 << 10, stream=None)
    arena.end_event("session")
    block = arena.malloc(256 << 10, stream=0)
    arena.free(block)
    assert len(arena.snapshot()[0].chunks) == 3
    arena.end_event("run 1")
    assert len(arena.snapshot()[0].chunks) == 2


def test_requests_outside_a_stream_leave_its_chunks_alone() -> None:
    """What the stream has freed serves the stream again, but no request made outside it before the run is over."""
    arena = SessionOptions().arena()
    arena.malloc(512 << 10, stream=None)
    block = arena.malloc(512 << 10, stream=0)
    arena.free(block)
    arena.malloc(512 << 10, stream=None)
    assert [region.size for region in arena.snapshot()] == [1 << 20, 2 << 20]
    again = arena.malloc(512 << 10, stream=0)
    assert arena.address_of(again) == arena.snapshot()[0].address + (512 << 10)


def test_shrinkage_gives_idle_regions_back_after_each_run() -> None:
    """The second region (4 MiB for 3) is idle after the run; the session's end does not shrink, nor does the default."""
    arena = SessionOptions(enable_memory_arena_shrinkage=True).arena()
    arena.malloc(1 << 10, stream=None)
    block = arena.malloc(3 << 20, stream=0)
    assert arena.reserved == 5 << 20
    arena.free(block)
    arena.end_event("session")
    assert arena.reserved == 5 << 20
    arena.end_event("run 1")
    assert arena.reserved == 1 << 20
    plain = SessionOptions().arena()
    plain.free(plain.malloc(3 << 20))
    plain.end_event("run 1")
    assert plain.reserved == 4 << 20


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 1 << 20), st.sampled_from([None, 0])),
        max_size=80,
    )
)
def test_arena_stays_whole(steps: list[tuple[bool, int, int, int | None]]) -> None:
    """Chunks tile their regions whatever the tags, and bytes in use are those of the living chunks."""
    arena = SessionOptions().arena()
    living: dict[int, int] = {}
    for end, slot, nbytes, stream in steps:
        if end and slot == 0:
            arena.end_event("run 1")
        elif slot in living:
            arena.free(living.pop(slot))
        else:
            living[slot] = arena.malloc(nbytes, stream)
        for region in arena.snapshot():
            place = region.address
            for chunk in region.chunks:
                assert chunk.address == place
                place += chunk.size
            assert place == region.address + region.size
        assert arena.allocated == sum(arena.size_of(handle) for handle in living.values())


def test_options_by_their_own_names() -> None:
    """Text as on the command line; prefixes of session options are accepted."""
    found = parse(
        {
            "arena_extend_strategy": "ksameasrequested",
            "gpu_mem_limit": "2GiB",
            "enable_mem_pattern": "0",
            "graph_optimization_level": "basic",
            "session.use_device_allocator_for_initializers": "1",
        }
    )
    assert found == SessionOptions(
        arena_extend_strategy="kSameAsRequested",
        gpu_mem_limit=2 << 30,
        enable_mem_pattern=False,
        graph_optimization_level=1,
        use_device_allocator_for_initializers=True,
    )


@pytest.mark.parametrize(
    "options", [{"arena_extend": "x"}, {"arena_extend_strategy": "double"}, {"enable_mem_pattern": "maybe"}]
)
def test_wrong_options_are_errors(options: dict[str, str]) -> None:
    """A misspelt option never passes for its default."""
    with pytest.raises(OptionError):
        parse(options)


def test_transposes_meet_and_cancel() -> None:
    """Transpose, Exp, inverse Transpose: only Exp is left."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], name="t0", perm=[0, 2, 1]),
        helper.make_node("Exp", ["a"], ["b"], name="e"),
        helper.make_node("Transpose", ["b"], ["c"], name="t1", perm=[0, 2, 1]),
        helper.make_node("Neg", ["c"], ["y"], name="n"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 5])],
    )
    loaded = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), 2)
    optimise(loaded, "cuda", 99)
    assert [node.op for node in topological(loaded)] == ["Exp", "Neg"]


def test_outputs_left_out_are_no_tensors() -> None:
    """A GRU asked only for its last state; no rewrite reads the output that has no name."""
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, [0.5] * (shape[0] * shape[1] * shape[2]))
        for name, shape in (("w", [1, 12, 3]), ("r", [1, 12, 4]))
    ]
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["", "y"], name="gru", hidden_size=4)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, "n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n", 4])],
        weights,
    )
    loaded = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), 2)
    optimise(loaded, "cuda", 99)
    assert [node.op for node in topological(loaded)] == ["GRU"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *(("graph_optimization_level", text, 0) for text in ("0", "disable_all", "ORT_DISABLE_ALL")),
        *(("opt_level", text, 1) for text in ("1", "basic", "ORT_ENABLE_BASIC")),
        *(("graph_optimization_level", text, 2) for text in ("2", "extended", "ORT_ENABLE_EXTENDED")),
        *(
            ("graph_optimization_level", text, 99)
            for text in ("3", "layout", "ORT_ENABLE_LAYOUT", "99", "all", "ORT_ENABLE_ALL")
        ),
        *(("prefer_nhwc", text, True) for text in ("1", "true", "On", "yes")),
        *(("enable_memory_pattern", text, False) for text in ("0", "False", "off", "no")),
        *(("gpu_mem_limit", text, None) for text in ("", "0", "18446744073709551615")),
        ("gpu_mem_limit", "1", 1),
        ("gpu_mem_limit", "1KiB", 1024),
        ("intra_op_num_threads", "1", 1),
        ("threads", 16, 16),
        ("memory.enable_memory_arena_shrinkage", "gpu:0", True),
        *(("enable_memory_arena_shrinkage", text, False) for text in ("", "0", "false")),
        ("provider", "CPU", "cpu"),
        ("cudnn_conv_algo_search", "heuristic", "HEURISTIC"),
    ],
)
def test_texts_of_options(name: str, text: Any, expected: Any) -> None:
    """Each spelling ONNX Runtime has; everything else keeps its default."""
    names = {"opt_level": "graph_optimization_level", "enable_memory_pattern": "enable_mem_pattern"}
    names |= {"intra_op_num_threads": "threads"}
    plain = name.removeprefix("memory.")
    assert parse({name: text}) == replace(SessionOptions(), **{names.get(plain, plain): expected})


def test_defaults_are_onnx_runtimes() -> None:
    assert parse({}) == SessionOptions(
        provider="cuda",
        arena_extend_strategy="kNextPowerOfTwo",
        gpu_mem_limit=None,
        cudnn_conv_algo_search="EXHAUSTIVE",
        prefer_nhwc=False,
        enable_mem_pattern=True,
        enable_mem_reuse=True,
        graph_optimization_level=99,
        use_device_allocator_for_initializers=False,
        enable_memory_arena_shrinkage=False,
        threads=1,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("graph_optimization_level", "4"),
        ("threads", "0"),
        ("threads", "many"),
        ("gpu_mem_limit", "-1"),
        ("provider", "tpu"),
    ],
)
def test_texts_that_are_none(name: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse({name: text})
    assert repr(text) in str(caught.value) or text in str(caught.value)


def test_a_dictionary_of_the_documentation_is_taken() -> None:
    """`CUDA-ExecutionProvider`, "Using the provider": what changes nothing, and what is not followed, is known."""
    pasted = {
        "device_id": 0,
        "arena_extend_strategy": "kNextPowerOfTwo",
        "gpu_mem_limit": 2 * 1024 * 1024 * 1024,
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "do_copy_in_default_stream": True,
        "cudnn_conv_use_max_workspace": "1",
        "use_tf32": 0,
        "sdpa_kernel": 16,
    }
    options = parse(pasted)
    assert options.not_simulated == (("sdpa_kernel", "16"), ("use_tf32", "0"))
    assert options.gpu_mem_limit == 2 << 30 and options.provider_options()["use_tf32"] == "0"
    (caveat,) = not_simulated(options)
    assert caveat.startswith("sdpa_kernel=16, use_tf32=0 is not simulated: ")
    with pytest.raises(OptionError, match="use_tf32 is 'maybe'"):
        parse({"use_tf32": "maybe"})


def test_a_misspelt_option_is_told_what_was_meant() -> None:
    with pytest.raises(OptionError) as caught:
        parse({"arena_extend_strateg": "x"})
    assert "did you mean 'arena_extend_strategy'?" in caught.value.hint
