"""What eager PyTorch asks of its allocator: a program of a few operators followed by hand, and values of the room."""

from __future__ import annotations

import pytest

from analyzer.devices import load
from analyzer.graph import (
    Birth,
    Category,
    Death,
    Graph,
    Mark,
    Operator,
    Phase,
    Run,
    Storage,
    TensorMeta,
    contiguous_strides,
)
from analyzer.options import Options
from analyzer.runtimes.base import Source
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.pytorch.eager import requests
from analyzer.runtimes.pytorch.runtime import PyTorch
from analyzer.runtimes.timeline import simulate
from tests.schemas import called
from tests.values import not_values

H200 = load("h200")
CUBLAS = H200.cublas_workspace_bytes


def meta(storage: int, *shape: int, stride: tuple[int, ...] = ()) -> TensorMeta:
    return TensorMeta(storage, shape, stride or contiguous_strides(shape), "float32")


def mm(index: int, left: TensorMeta, right: TensorMeta, out: TensorMeta, phase: Phase) -> Operator:
    return called(index, "aten::mm", (left, right), (out,), phase=phase)


X, W, Y = meta(0, 50, 64, stride=(128, 2)), meta(1, 64, 30), meta(2, 50, 30)
STORAGES = (
    Storage(0, 50 * 128 * 4, Category.INPUT, "x"),
    Storage(1, 64 * 30 * 4, Category.PARAMETER, "w"),
    Storage(2, 6000, Category.ACTIVATION, "mm"),
    Storage(3, 8, Category.INPUT, "step", on_device=False),
    Storage(4, 6000, Category.GRADIENT, "mm"),
    Storage(5, 7680, Category.GRADIENT, "grad"),
)


def program() -> Graph:
    """A product whose left operand BLAS cannot read, once forward, once more, and one on autograd's thread."""
    operators = (
        mm(0, X, W, Y, Phase.FORWARD),
        mm(1, X, W, meta(4, 50, 30), Phase.FORWARD),
        mm(2, meta(1, 64, 30), meta(1, 30, 64), meta(5, 64, 30), Phase.BACKWARD),
        called(3, "mylib::thing", (W,), (Y,), phase=Phase.BACKWARD),
        called(4, "mylib::thing", (X,), (Y,), phase=Phase.BACKWARD),
        called(5, "mylib::thing", (W,), (Y,), phase=Phase.BACKWARD),
    )
    moments = (
        *(
            Birth(0),
            Birth(1),
            Birth(3),
            Mark("0.input"),
            Run(0),
            Death(3),
            Run(1),
            Death(0),
            Mark("0.forward"),
        ),
        *(Run(2), Run(3), Run(4), Run(5), Death(2), Mark("0.backward")),
    )
    return Graph("pytorch", STORAGES, operators, moments)


COPY = 50 * 64 * 4


def test_every_request_of_a_program_in_order() -> None:
    """Storages by their index, what else is taken by negative numbers; a workspace once a thread, kept for good."""
    matrix, cublas = "matrix-product", "cublas-workspace"
    expected: tuple[AllocationEvent, ...] = (
        Malloc(0, 25600, Category.INPUT, -1, 0, label="x", rule="tensor"),
        Malloc(1, 7680, Category.PARAMETER, -1, 1, label="w", rule="tensor"),
        Event("0.input"),
        Malloc(2, 6000, Category.ACTIVATION, 0, 2, label="aten::mm", rule="tensor"),
        Malloc(-1, COPY, Category.SCRATCH, 0, label="aten::mm", rule=matrix),
        Malloc(-2, CUBLAS, Category.WORKSPACE, 0, label="cublas", rule=cublas),
        Free(-1),
        Malloc(4, 6000, Category.GRADIENT, 1, 4, label="aten::mm", rule="tensor"),
        Malloc(-3, COPY, Category.SCRATCH, 1, label="aten::mm", rule=matrix),
        Free(-3),
        Free(0),
        Event("0.forward"),
        Malloc(5, 7680, Category.GRADIENT, 2, 5, label="aten::mm", rule="tensor"),
        Malloc(-4, CUBLAS, Category.WORKSPACE, 2, label="cublas", rule=cublas),
        Free(2),
        Event("0.backward"),
    )
    asked = requests(program(), H200)
    assert asked.events == expected
    assert asked.libraries == {"cublas", "cublas@autograd"}


def test_calls_of_unknown_operators_are_counted() -> None:
    assert requests(program(), H200).unknown == {"mylib::thing": 3}


def test_a_rule_may_know_a_results_size_better_than_its_shape() -> None:
    """mse_loss reduces in place: the scalar's storage is as large as the losses."""
    loss = called(
        0, "aten::mse_loss", (meta(0, 300, 1000), meta(0, 300, 1000)), (TensorMeta(1, (), (), "float32"),)
    )
    storages = (Storage(0, 1_200_000, Category.INPUT), Storage(1, 4, Category.ACTIVATION))
    events = requests(Graph("pytorch", storages, (loss,), (Birth(0), Run(0))), H200).events
    assert events[1] == Malloc(
        1, 1_200_000, Category.ACTIVATION, 0, 1, label="aten::mse_loss", rule="pointwise-loss"
    )


def test_absent_results_and_views_ask_for_nothing() -> None:
    view = called(0, "aten::view", (meta(0, 4),), (meta(0, 2, 2), None))
    graph = Graph("pytorch", (Storage(0, 16, Category.INPUT),), (view,), (Birth(0), Run(0)))
    assert requests(graph, H200).events == (Malloc(0, 16, Category.INPUT, -1, 0, rule="tensor"),)


def test_what_a_library_chose_is_said_to_be_measured() -> None:
    shape = (32, 64, 56, 56)
    image = TensorMeta(0, shape, (64 * 56 * 56, 56 * 56, 56, 1), "float32")
    kernel = TensorMeta(1, (64, 64, 3, 3), (576, 9, 3, 1), "float32")
    options = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    operator = called(
        0,
        "aten::convolution",
        (image, kernel, None, *options),
        (TensorMeta(2, shape, image.stride, "float32"),),
    )
    storages = tuple(Storage(index, 8, Category.ACTIVATION) for index in range(3))
    events = requests(Graph("pytorch", storages, (operator,), (Birth(0), Birth(1), Run(0))), H200).events
    assert [event.basis for event in events if isinstance(event, Malloc)] == ["exact"] * 3 + ["measured"]


def test_the_runtime_plays_them_on_pytorchs_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    predicted = PyTorch().predict(Source(program()), Options(), H200)
    assert predicted.events == requests(program(), H200).events
    assert predicted.libraries == {"cublas", "cublas@autograd"}
    assert predicted.unknown == {"mylib::thing": 3}
    simulation = simulate(predicted.events, predicted.allocator())
    assert simulation.peak_reserved == 2 * CUBLAS + 2 * 2**20
    threads = 2 * H200.modules_bytes["cublas"] if "cublas" in H200.per_thread_modules else None
    assert threads is not None
    assert predicted.device_used(simulation) == (
        H200.context_bytes + simulation.peak_reserved + threads + H200.modules_bytes["kernels"]
    )
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "large_segment_size_mb:64,max_split_size_mb:128")
    other = PyTorch().predict(Source(program()), Options(), H200)
    assert other.allocator().settings.large_segment_bytes == 64 * 2**20  # type: ignore[attr-defined]


def test_values_cannot_be_changed() -> None:
    # A rule while it is asked, and a checkpoint while it is read.
    assert not_values("analyzer.runtimes.pytorch") == {"Script", "Reading"}
