"""Compiled steps: a kernel's bytes by hand, what a graph and a compiled call take of the host, and measured steps beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from analyzer.graph import Graph, Operator
from analyzer_emulation.step import graph_of, time_of
from analyzer_timing import compiled
from analyzer_timing.dispatch import works_of
from analyzer_timing.step import step_time
from analyzer_timing.traffic import vectors
from benchmarks.timing import compiled_host, compiled_score, score
from benchmarks.timing.cases import COMPILED, KINDS, SETS, WAYS, kind_of
from benchmarks.timing.page import PAGE
from tests.extensions.timing.graphs import H100, h100, storage, tensor
from tests.extensions.timing.ways import pairs_of, ways

PLACE = ["net.py:3", "layer", "forward"]


def described(at: int, *shape: int, dtype: str = "float32", nbytes: int = 4) -> dict[str, Any]:
    """A tensor as the emulated process writes it down."""
    strides = [int(np.prod(shape[place + 1 :])) for place in range(len(shape))]
    size = int(np.prod(shape)) * nbytes
    return {"at": at, "bytes": size, "type": dtype, "shape": list(shape), "stride": strides, "offset": 0}


def kernel(numel: int, *tensors: Any, kind: str = "pointwise", **sizes: int) -> dict[str, Any]:
    """A launch of a kernel of Inductor's: pairs of (reads, writes) and a tensor."""
    return {
        "kernel": "triton_poi_fused_add_0", "kind": kind, "hint": "", "sizes": sizes or {"xnumel": numel},
        "tensors": [[list(places), one] for places, one in tensors], "place": PLACE,
    }  # fmt: skip


def moved_bytes(launch: dict[str, Any]) -> float:
    """Of which the work's place is the logarithm."""
    graph = graph_of([launch])
    (work,) = works_of(graph.operators[0], graph.storages, h100())
    return float(2 ** work.place[0])


def test_a_kernel_moves_what_it_reads_and_writes() -> None:
    count = 1 << 20
    whole = kernel(
        count, ((1, 0), described(1, count)), ((1, 0), described(2, 1024)), ((0, 1), described(3, count))
    )
    assert moved_bytes(whole) == pytest.approx(4 * (2 * count + 1024))
    in_place = kernel(count, ((1, 1), described(1, count)))
    assert moved_bytes(in_place) == pytest.approx(8 * count)
    # Of a table as many rows as are looked up, of a window's places no more than there is.
    looked_up = kernel(1024, ((1, 0), described(1, 50000, 64)), ((0, 1), described(2, 1024)))
    assert moved_bytes(looked_up) == pytest.approx(4 * 2048)
    window = kernel(1024, ((9, 0), described(1, 4096)), ((0, 1), described(2, 1024)))
    assert moved_bytes(window) == pytest.approx(4 * (4096 + 1024))


def test_elements_take_instructions_besides() -> None:
    count, half = 1 << 22, {"dtype": "bfloat16", "nbytes": 2}
    launches = [
        kernel(count, ((1, 0), described(1, count, **half)), ((0, 1), described(2, count, **half)), kind=kind)
        for kind in ("pointwise", "reduction", "persistent_reduction")
    ]
    bases = []
    for launch in launches:
        graph = graph_of([launch])
        (work,) = works_of(graph.operators[0], graph.storages, h100())
        bases.append(work.base)
    plain = vectors("add", 4, 4 * count, 2 * count, h100()).base
    instruction = 2 * count / h100().vector
    assert bases[0] == pytest.approx((plain**2 + (42 * instruction) ** 2) ** 0.5)
    assert bases[1:] == pytest.approx([1.1 * plain + 28 * instruction, 1.1 * plain + 67 * instruction])


def operator(name: str, *numbers: int, **more: Any) -> Operator:
    return Operator(0, name, numbers, (), **more)


def test_what_compiled_code_takes_of_the_host() -> None:
    few, many = (compiled.seconds_of(operator(compiled.CALL, count)) or 0.0 for count in (10, 40))
    assert many - few == pytest.approx(compiled.seconds_of(operator(compiled.RETURN, 30)))
    one, many = (compiled.seconds_of(operator(compiled.REPLAY, count)) or 0.0 for count in (1, 1001))
    node = json.loads(compiled_host.FILE.read_text("utf-8"))["node"]
    assert many - one == pytest.approx(1000e-6 * node)
    assert compiled.seconds_of(operator("aten::mm.out", settings=frozenset({compiled.REPLAYED}))) == 0.0
    assert compiled.seconds_of(operator("aten::mm.out")) is None


def test_the_hosts_figures_are_those_of_the_record() -> None:
    """Worked out again from the loops, the graphs and the development cases."""
    assert json.loads(compiled_host.FILE.read_text("utf-8")) == compiled_host.figures()


@pytest.mark.parametrize("kind", ["weights", "modules"])
def test_a_chain_has_as_many_values_as_its_graphs(kind: str) -> None:
    """Arguments and results of AOTAutograd's graphs, counted."""
    counts: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        (results,) = next(node.args for node in graph.graph.nodes if node.op == "output")
        counts.append(len(inputs) + len(results))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=counting,
        bw_compiler=counting,
        inference_compiler=counting,
        partition_fn=min_cut_rematerialization_partition,
    )
    links = 3
    layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(links)))
    weights = [torch.randn(8, 8, requires_grad=True) for _ in range(links)]

    def chain(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = x @ weight
        return x

    torch._dynamo.reset()
    called = torch.compile(layers if kind == "modules" else chain, backend=backend, dynamic=False)
    given = [torch.randn(8, 8, requires_grad=True), *(weights if kind == "weights" else [])]
    called(*given).sum().backward()
    with torch.no_grad():
        called(*given)
    torch._dynamo.reset()
    values = compiled_host.VALUES[kind]
    assert counts == [
        values[which][0] * links + values[which][1]
        for which in (compiled_host.FORWARD, compiled_host.BACKWARD, compiled_host.INFERENCE)
    ]


def test_what_compiled_code_hands_over_takes_as_long_whatever_it_is() -> None:
    """A kernel that is named after the convolution before it is none."""
    fused = operator("inductor::triton_poi_fused_convolution_relu_0", domain=compiled.DOMAIN)
    called = frozenset({compiled.COMPILED})
    library = [operator(name, settings=called) for name in ("aten::convolution.default", "aten::mm.out")]
    assert len({compiled.seconds_of(one) for one in (fused, *library)}) == 1


def test_a_call_without_a_backward_pass_takes_less_of_the_host() -> None:
    forward = {"call": 100, "results": 1, "place": PLACE}
    backward = {"call": 2, "results": 2, "place": (*PLACE[:2], "backward")}
    plain = graph_of([forward]).operators
    trained = graph_of([forward, backward]).operators
    assert len(plain) == 2 and len(trained) == 4
    for without, kept in zip(plain, trained, strict=False):
        assert (compiled.seconds_of(without) or 0.0) < (compiled.seconds_of(kept) or 0.0)


def product(at: int, *settings: str) -> dict[str, Any]:
    return {
        "name": "aten::mm.out", "names": ["self", "mat2", "out"], "writes": [2], "settings": list(settings),
        "arguments": [described(at, 64, 64), described(2, 64, 64)], "keywords": {"out": described(at + 2, 64, 64)},
        "results": [described(at + 2, 64, 64)], "place": PLACE,
    }  # fmt: skip


def test_a_graph_is_one_launch_of_many_kernels() -> None:
    products = [product(2 * number + 4, "compiled") for number in range(1, 1500)]
    apart, together = (
        time_of([{"call": 2, "results": 1, "place": PLACE}, *products], H100),
        time_of(
            [
                {"call": 2, "results": 1, "place": PLACE},
                {"graph": products, "settings": ["compiled"], "place": PLACE},
            ],
            H100,
        ),
    )
    assert apart is not None and together is not None
    assert together.device_seconds == pytest.approx(apart.device_seconds)
    assert apart.bound == "host" and together.host_seconds < apart.host_seconds / 10
    # Its 1,499 kernels are no 1,499 launches that would fill the queue.
    assert together.seconds < together.device_seconds + together.host_seconds + 1e-3


def test_a_compiled_graph_hands_its_results_back_when_it_has_run() -> None:
    graph = graph_of(
        [
            {"call": 2, "results": 7, "place": PLACE},
            product(4, "compiled"),
            kernel(64, ((1, 1), described(9, 64))),
            product(20),
        ]
    )
    names = [one.name for one in graph.operators]
    assert names == [
        compiled.CALL,
        "aten::mm.out",
        "inductor::triton_poi_fused_add_0",
        compiled.RETURN,
        "aten::mm.out",
    ]
    assert graph.operators[3].arguments == (7,)
    assert graph.operators[1].writes == (graph.operators[1].outputs[0].storage,)  # type: ignore[union-attr]


def test_a_program_without_anything_compiled_has_no_time() -> None:
    assert time_of((), H100) is None


def test_a_kernel_that_moves_nothing_does_nothing() -> None:
    nothing = Operator(
        0, "inductor::triton_poi_fused_0", (tensor(0, 4),), (), {"kind": "pointwise", "numel": 4, "reads": (0,), "writes": (0,)},
        domain=compiled.DOMAIN, names=("0",),
    )  # fmt: skip
    assert works_of(nothing, (storage(0, 16),), h100()) == []
    assert step_time(Graph("pytorch", (storage(0, 16),), (nothing,), ()), H100) is None


def test_measured_compiled_steps_lie_where_the_page_says() -> None:
    """A case of each kind, and the whole of both sets."""
    found = compiled_score.rows()
    assert len(found) == 33
    held_out, development, *kinds, every = compiled_score.summary(found)
    assert (held_out[:2], development[:2]) == (["held out", 17], ["development", 16])
    assert every[1] == sum(line[1] for line in kinds) == 33  # type: ignore[misc]
    for group, device, step in (("development", 0.08, 0.13), ("held_out", 0.06, 0.13)):
        errors = np.abs(np.array([row.errors for row in found if row.group == group]))
        assert np.median(errors[:, 0]) < device and np.median(errors[:, 2]) < step
        assert np.mean([row.holds for row in found if row.group == group], axis=0)[2] > 0.85
    assert compiled_score.section(found) in PAGE.read_text(encoding="utf-8")
    assert "| gpt2 8 train adamw compile=default |" in score.table_of(found)
    launches = compiled_score.read(compiled_score.LAUNCHES)["cases"][
        "mnist_fc 8192 train sgd compile=default"
    ]
    slow, quick = (time_of(launches, replace(H100, host_factor=factor)) for factor in (2.0, 0.5))
    assert slow is not None and quick is not None
    assert (slow.bound, quick.bound) == ("host", "memory")
    assert slow.host_seconds == pytest.approx(4 * quick.host_seconds)


def test_of_compiled_ways_the_faster_is_named() -> None:
    found = ways()
    pairs = pairs_of(found)
    assert len(found) == 15 and len(pairs) > 20
    assert np.mean([quick.predicted_seconds < slow.predicted_seconds for quick, slow in pairs]) > 0.9


def test_every_case_is_of_one_kind() -> None:
    cases = [case for sets in (SETS, COMPILED) for some in sets.values() for case in some]
    assert {kind_of(case) for case in (*cases, *WAYS)} >= {
        "recurrent, training",
        "compiled transformer, inference",
    }
    models = [model for some in KINDS.values() for model in some]
    assert len(models) == len(set(models)) and set(models) == {case["model"] for case in (*cases, *WAYS)}
