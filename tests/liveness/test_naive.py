"""The naive sum against the figures document 000 publishes, and its moments against what torch.optim keeps."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analyzer
from analyzer.graph import Birth, Category, Death, Graph, Operator, Run, Storage, TensorMeta
from analyzer.liveness.naive import (
    LeafOutput,
    formula,
    from_leaves,
    from_onnx,
    moments_in,
    onnx_leaves,
)
from tests.values import not_values

MIB = 2**20

# Document 000's CNN at batch 128: convolution to 8x222x222, average pool to 8x111x111, linear to 10, in float32.
BATCH = 128
CNN = [
    LeafOutput("conv", BATCH * 8 * 222 * 222 * 4, BATCH * 8 * 222 * 222, has_parameters=True),
    LeafOutput("pool", BATCH * 8 * 111 * 111 * 4, BATCH * 8 * 111 * 111, has_parameters=False),
    LeafOutput("fc", BATCH * 10 * 4, BATCH * 10, has_parameters=True),
]
DATA = BATCH * 3 * 224 * 224 * 4 + BATCH * 10 * 4
WEIGHTS = 985_914 * 4


def mib(nbytes: int) -> float:
    return round(nbytes / MIB, 1)


def test_published_terms() -> None:
    naive = from_leaves(CNN, data_bytes=DATA, weight_bytes=WEIGHTS)
    assert mib(naive.data) == 73.5
    assert mib(naive.weights) == 3.8
    assert mib(naive.forward_output) == 240.6
    assert mib(naive.weight_gradient) == 3.8
    assert mib(naive.output_gradient) == 314.1
    assert mib(naive.training) == 635.8
    assert mib(naive.inference) == 317.9
    assert naive.total == naive.training
    assert from_leaves(CNN, data_bytes=DATA, weight_bytes=WEIGHTS, mode="infer").total == naive.inference


def test_every_option_by_hand() -> None:
    naive = formula(
        data_bytes=10, weight_bytes=100, output_bytes=1000, moments=2, precision_factor=0.5, ddp_factor=2
    )
    assert naive.forward_output == 500
    assert naive.weight_gradient == 100 * (2 + 2)
    assert naive.output_gradient == 500 + 10
    assert naive.inference == 10 + 100 + 500
    assert naive.training == 610 + 400 + 510


def test_gradients_and_optimizer_state_have_names_of_their_own() -> None:
    """Of 100 bytes of weights 40 are trained, by an optimizer that keeps two moments, under DDP."""
    naive = formula(
        data_bytes=0, weight_bytes=100, output_bytes=0, trainable_bytes=40, moments=2, ddp_factor=2
    )
    assert (naive.weights, naive.gradients, naive.sent_gradients, naive.optimizer_state) == (100, 40, 40, 80)
    assert naive.weight_gradient == 40 + 40 + 80 == naive.training - naive.weights


def test_frozen_weights_have_no_gradients() -> None:
    torch = pytest.importorskip("torch")
    from analyzer.report.sentences import naive_terms

    model = torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False), torch.nn.Linear(512, 128, bias=False))
    model[0].requires_grad_(False)
    estimate = analyzer.analyze(
        model, (torch.zeros(1, 512),), mode="train", loss="sum", optimizer="adamw", device="h200"
    )
    assert (estimate.naive.weights, estimate.naive.gradients) == (4 * 512 * 640, 4 * 512 * 128)
    assert estimate.naive.optimizer_state == 2 * 4 * 512 * 128
    assert "+ weight grads 262,144 + optimizer state 524,288 +" in naive_terms(estimate)


PROGRAMS = {
    "two models": (
        """
        import torch
        from torch import nn
        a = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        b = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)).cuda()
        for _ in range(2):
            b(a(torch.zeros(32, 8, device="cuda"))).sum().backward()
        """,
        4 * 32 * (16 + 16 + 4 + 16 + 16),
    ),
    "a part first": (
        """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        net[0](torch.zeros(32, 8, device="cuda"))
        net(torch.zeros(32, 8, device="cuda"))
        """,
        4 * 32 * (16 + 16),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_model_of_a_program_counts_once(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program, outputs = PROGRAMS[name]
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    naive = analyzer.run(tmp_path / "program.py", device="h200").naive
    parameters = 4 * (8 * 16 + 16 + 16 * 4 + 4) + (4 * (4 * 16 + 16 + 16 * 8 + 8) if "two" in name else 0)
    assert (naive.forward_output, naive.weights) == (outputs, parameters)


def test_nothing_is_said_of_a_program_without_modules(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text("import torch\ntorch.zeros(512, 512, device='cuda').sum()")
    estimate = analyzer.run(tmp_path / "program.py", device="h200")
    assert estimate.naive.total == 0 and "naive" not in str(estimate)


def test_mixed_precision_halves_the_outputs_once() -> None:
    """Leaves captured under autocast are half already: O is taken in float32 before b halves it."""
    half = [
        LeafOutput(leaf.module, leaf.nbytes // 2, leaf.element_count, leaf.has_parameters) for leaf in CNN
    ]
    captured = from_leaves(half, data_bytes=DATA, weight_bytes=WEIGHTS, precision_factor=0.5)
    assert captured == from_leaves(CNN, data_bytes=DATA, weight_bytes=WEIGHTS, precision_factor=0.5)
    assert 2 * captured.forward_output == sum(leaf.nbytes for leaf in CNN[:-1])


@given(st.integers(0, 10**30), st.integers(0, 10**30), st.integers(0, 10**30), st.integers(0, 3))
def test_sizes_stay_exact(data: int, weights: int, outputs: int, moments: int) -> None:
    naive = formula(data_bytes=data, weight_bytes=weights, output_bytes=outputs, moments=moments)
    assert naive.training == 2 * data + weights * (2 + moments) + 2 * outputs
    half = formula(data_bytes=data, weight_bytes=weights, output_bytes=2 * outputs, precision_factor=0.5)
    assert half.forward_output == outputs


def meta(storage: int, *shape: int) -> TensorMeta:
    return TensorMeta(storage, shape, shape, "float32")


def test_onnx_nodes() -> None:
    """input 0 -> Conv(weight 1) -> 2 -> Reshape -> 3 (own storage) -> Relu -> 4 -> Gemm(weight 5) -> 6; Shape -> 7 on the host."""
    sizes = (40, 80, 400, 400, 400, 200, 24, 16)
    categories = {0: Category.INPUT, 1: Category.PARAMETER, 5: Category.PARAMETER}
    storages = tuple(
        Storage(i, size, categories.get(i, Category.ACTIVATION), on_device=i != 7)
        for i, size in enumerate(sizes)
    )
    operators = (
        Operator(0, "Shape", (meta(0, 10),), (meta(7, 2),), module="shape"),
        Operator(1, "Conv", (meta(0, 10), meta(1, 20)), (meta(2, 100),), module="conv"),
        Operator(2, "Reshape", (meta(2, 100), meta(7, 2)), (meta(3, 100),), module="reshape"),
        Operator(3, "Relu", (meta(3, 100),), (meta(4, 100),), module="relu"),
        Operator(4, "Gemm", (meta(4, 100), meta(5, 50)), (meta(6, 6),), module="gemm"),
    )
    program = (
        *(Birth(i) for i in (0, 1, 5)),
        *(Run(0), Run(1), Run(2), Death(2), Run(3), Death(3), Run(4), Death(4), Death(7)),
    )
    graph = Graph("onnx", storages, operators, program).check()
    assert onnx_leaves(graph) == (
        LeafOutput("conv", 400, 100, True),
        LeafOutput("relu", 400, 100, False),
        LeafOutput("gemm", 24, 6, True),
    )
    naive = from_onnx(graph)
    assert (naive.data, naive.weights, naive.forward_output) == (40 + 24, 280, 800)
    assert naive.total == 64 + 280 + 800


# What rule 3 and the literature say of an optimizer, by its name in `torch.optim`.
MOMENTS = {
    "SGD": 0, "Adagrad": 1, "RMSprop": 1, "Adam": 2, "AdamW": 2, "Adamax": 2, "NAdam": 2, "RAdam": 2, "Adadelta": 2,
    "Rprop": 2, "ASGD": 1, "Muon": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_are_what_torch_keeps(name: str) -> None:
    """A real optimizer's state tensors of the parameter's shape, and what is counted in the captured graph of one step."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    model = torch.nn.Linear(64, 48, bias=False)
    captured = analyzer.analyze(
        model, (torch.zeros(2, 64),), mode="train", loss="sum", optimizer=name.lower(), device="h200"
    )
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    kept = [getattr(value, "shape", ()) for value in optimizer.state[model.weight].values()]
    assert captured.naive.moments == kept.count((48, 64)) == MOMENTS[name]


def test_what_a_sum_is_without_options() -> None:
    naive = formula(data_bytes=10, weight_bytes=100, output_bytes=1000)
    assert naive == from_leaves(
        [LeafOutput("a", 1000, 250, True), LeafOutput("b", 7, 1, True)], data_bytes=10, weight_bytes=100
    )
    assert (naive.moments, naive.precision_factor, naive.ddp_factor, naive.mode) == (0, 1.0, 1, "train")
    assert (naive.weight_gradient, naive.total) == (100, 10 + 100 + 1000 + 100 + 1010)


def test_options_of_an_onnx_sum() -> None:
    storages = (
        Storage(0, 40, Category.INPUT),
        Storage(1, 80, Category.BUFFER),
        Storage(2, 400, Category.ACTIVATION),
    )
    operators = (
        Operator(0, "Add", (meta(0, 10), meta(1, 20)), (meta(2, 100), None)),
        Operator(1, "Neg", (meta(2, 100),), (meta(2, 100),)),
    )
    graph = Graph("onnx", storages, operators, (Birth(0), Birth(1), Run(0), Run(1)))
    assert onnx_leaves(graph) == (LeafOutput("", 400, 100, False),)
    naive = from_onnx(graph, moments=2, ddp_factor=2, precision_factor=0.5, mode="train")
    assert (naive.data, naive.weights, naive.forward_output, naive.weight_gradient) == (440, 80, 0, 320)
    assert (naive.moments, naive.ddp_factor, naive.precision_factor, naive.mode) == (2, 2, 0.5, "train")
    assert from_onnx(graph).moments == 0 and from_onnx(graph).mode == "infer"


def test_moments_in_a_graph() -> None:
    weight = Storage(0, 1000, Category.PARAMETER)
    state = (
        Storage(1, 1000, Category.OPTIMIZER_STATE),
        Storage(2, 1000, Category.OPTIMIZER_STATE),
        Storage(3, 4, Category.OPTIMIZER_STATE),
        Storage(4, 4000, Category.OPTIMIZER_STATE, on_device=False),
    )
    births = tuple(Birth(i) for i in range(5))
    assert moments_in(Graph("pytorch", (weight, *state), (), births), 1000) == 2
    assert moments_in(Graph("pytorch", (weight,), (), births[:1]), 1000) == 0
    assert moments_in(Graph("pytorch", (), (), ()), 0) == 0


def test_values_cannot_be_changed() -> None:
    assert not_values("analyzer.liveness") == set()
