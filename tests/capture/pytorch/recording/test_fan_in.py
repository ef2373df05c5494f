"""Where gradients meet, and backward formulas that write into a fresh tensor: in place exactly where CUDA's autograd is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from analyzer.capture.pytorch.recording.fan_in import FanIn, _dense, _unshared_counts
from analyzer.graph import Phase
from analyzer.releases import parse
from tests.capture.pytorch.captures import Model, names, operators, short, step, traced


class Weight(nn.Module):
    """The loss of a function of one 3x4 parameter, times one so that gradients meet before the leaf."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3, 4))
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.w * 1, x)


def sums(function: Any) -> list[str]:
    """The additions of the backward pass of `function(y, x)`, x of the same shape."""
    graph = step(Weight(function), torch.empty(3, 4), optimizer=None, loss=lambda out, *_: out)
    return [n for n in names(graph, "backward") if n.startswith("add")]


class TestFanIn:
    def test_two_fresh_gradients_are_added_in_place(self) -> None:
        assert sums(lambda y, x: (y.sin() + y.cos()).sum()) == ["add_.Tensor"]

    def test_three_and_four(self) -> None:
        assert sums(lambda y, x: (y.sin() + y.cos() + y.exp()).sum()) == ["add_.Tensor"] * 2
        assert sums(lambda y, x: (y.sin() + y.cos() + y.exp() + y.tanh()).sum()) == ["add_.Tensor"] * 3

    def test_one_gradient_for_both_is_shared(self) -> None:
        """`y + y` sends one tensor along two edges: nobody may write into it."""
        assert sums(lambda y, x: (y + y).sin().sum()) == ["add.Tensor"]

    def test_residual_connections(self) -> None:
        """The gradient of `y + f(y)` is held by f's backward only until that has run: then the sum is in place."""

        def blocks(y: Any, _: Any) -> Any:
            for _ in range(2):
                y = y + y.sin()
            return y.exp().sum()

        assert sums(lambda y, x: (y + y.sin()).exp().sum()) == ["add_.Tensor"]
        assert sums(blocks) == ["add_.Tensor"] * 2

    def test_nodes_of_two_threads_bear_one_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A first backward pass numbers its nodes on a thread of its own: two that follow each other may bear one number."""
        begun: list[int] = []

        def storages() -> int:
            begun.append(len(begun))
            return len(begun)

        fan_in = FanIn(lambda _: None, storages)
        for name in ("MulBackward0", "MulBackward0", "SpecialErfcxBackward0"):
            node = SimpleNamespace(name=lambda name=name: name, _sequence_nr=lambda: 3, next_functions=())
            monkeypatch.setattr(torch._C, "_current_autograd_node", lambda node=node: node)
            fan_in.on_cuda(torch.ops.aten.sin.default, (torch.empty(2, device="meta"),), {})
        assert len(begun) == 2  # nodes

    def test_zeros_without_memory_are_asked_for_their_shape_alone(self) -> None:
        """The gradient of a sign: a sum with it is a copy (`add_zerotensor`)."""

        def twice(y: Any, _: Any) -> Any:
            return torch.autograd.grad(F.softsign(y).sum(), y, create_graph=True)[0].sum()

        graph = step(Weight(twice), torch.empty(3, 4), optimizer=None, loss=lambda out, *_: out)
        assert "zeros" in names(graph, "backward")
        assert "empty_permuted" not in names(graph, "backward")

    def test_expanded_gradient_is_not_written_into(self) -> None:
        """The gradient of `sum` is one number expanded; the later node runs first, so its gradient is the one kept."""
        assert sums(lambda y, x: y.sin().sum() + y.sum()) == ["add.Tensor"]
        assert sums(lambda y, x: y.sum() + y.sin().sum()) == ["add_.Tensor"]

    def test_view_of_a_fresh_gradient(self) -> None:
        """A view keeps its base, which holds the storage too."""
        assert sums(lambda y, x: y.cos().sum() + y.t().sin().sum()) == ["add.Tensor"]
        assert sums(lambda y, x: y.t().sin().sum() + y.cos().sum()) == ["add_.Tensor"]

    def test_slices_of_one_tensor(self) -> None:
        assert sums(lambda y, x: y[:1].sin().sum() + y[1:].cos().sum()) == ["add_.Tensor"]

    def test_chunks_meet_without_a_sum(self) -> None:
        assert sums(lambda y, x: sum(part.sin().sum() for part in y.chunk(2, 1))) == []

    def test_parameter_used_twice(self) -> None:
        """The gradient of a linear layer's weight is a transposed view (recorded histories of ALBERT and GPT-2)."""
        layer = nn.Linear(4, 4, bias=False)
        graph = step(nn.Sequential(layer, nn.Tanh(), layer), torch.empty(2, 4), optimizer=None)
        assert [n for n in names(graph, "backward") if n.startswith("add")] == ["add.Tensor"]

    def test_addition_written_by_the_user_stays_as_written(self) -> None:
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(_: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                return gradient.sin() + gradient.cos()

        assert sums(lambda y, x: Twice.apply(y).exp().sum()) == ["add.Tensor"]

    def test_sum_of_different_types_is_not_in_place(self) -> None:
        found = sums(lambda y, x: (y.sin() + y.double().cos()).sum())
        assert len(found) == 1

    def test_counts_are_stable(self) -> None:
        first = _unshared_counts()
        _unshared_counts.cache_clear()
        assert _unshared_counts() == first


_HAS_AMINMAX = pytest.mark.skipif(
    parse(torch.__version__) < (2, 13), reason="aminmax has no derivative before torch 2.13"
)
# Of a formula's calls, those of which autograd has one that writes over its first argument.
_WRITTEN = ("add", "logical_and", "logical_or", "masked_fill", "mul", "sub")


def written(calls: list[str]) -> list[str]:
    """Of these calls, by name, those that `_WRITTEN` has, in place or not."""
    return [name for name in calls if name.removesuffix("_") in _WRITTEN]


class TestBesideTheProfiler:
    """What a formula calls on the CPU, where nothing is like a subclass: the profiler sees it without a dispatch mode. Of the torch that
    runs."""

    @pytest.mark.parametrize("function", [
        lambda y, x: y.clamp(x, x + 1).sum(), lambda y, x: y.clamp(x[0], x[1]).sum(), lambda y, x: y.clamp(min=x).sum(),
        lambda y, x: y.maximum(x).sum(), lambda y, x: y.fmin(x).sum(),
        lambda y, x: y.atan2(x).sum(), F.binary_cross_entropy_with_logits,
        pytest.param(lambda y, x: sum(y.aminmax()), marks=_HAS_AMINMAX),
        pytest.param(lambda y, x: y.aminmax()[0] + y.sum(), marks=_HAS_AMINMAX),
    ])  # fmt: skip
    def test_the_same_calls_are_in_place(self, function: Any) -> None:
        graph = step(Weight(function), torch.empty(3, 4), optimizer=None, loss=lambda out, *_: out)
        ours = [name.partition(".")[0] for name in names(graph, "backward")]
        loss = function(torch.zeros(3, 4, requires_grad=True) * 1, torch.zeros(3, 4))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss.backward()
        theirs = [
            event.name.removeprefix("aten::")
            for event in sorted(profile.events(), key=lambda event: event.time_range.start)
            if event.name.startswith("aten::")
            and (event.cpu_parent is None or not event.cpu_parent.name.startswith("aten::"))
        ]
        assert written(theirs) and written(ours) == written(theirs)


class TestDense:
    @pytest.mark.parametrize(("shape", "stride", "expected"), [
        ((3, 4), (4, 1), True), ((3, 4), (1, 3), True), ((3, 4), (0, 0), False), ((3, 4), (8, 1), False),
        ((3, 1), (7, 9), False), ((3, 1), (1, 9), True), ((), (), True), ((2, 3, 4), (12, 1, 3), True),
    ])  # fmt: skip
    def test_cases(self, shape: Any, stride: Any, expected: bool) -> None:
        assert _dense(torch.empty_strided(shape, stride, device="meta")) is expected

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.integers(1, 4), max_size=4), st.randoms(), st.integers(1, 2))
    def test_permutations_are_dense_and_gaps_are_not(self, shape: list[int], random: Any, gap: int) -> None:
        order = list(range(len(shape)))
        random.shuffle(order)
        tensor = torch.empty([*shape, gap], device="meta").permute([*order, len(shape)])
        assert _dense(tensor)
        part = torch.empty([*shape, 2], device="meta")[..., 0].permute(order)
        assert _dense(part) is (part.numel() == 1)


class TestFormulas:
    """`FunctionsManual.cpp`: zeros, then written in place."""

    INDEX = torch.tensor([0, 2, 1])

    def backward(self, function: Any) -> list[str]:
        model = Model(lambda m, x: function(m.a(x)), a=nn.Linear(4, 4, bias=False))
        return list(names(step(model, torch.empty(3, 4), optimizer=None), "backward"))

    @pytest.mark.parametrize(("function", "expected"), [
        (lambda y: y[torch.tensor([0, 2], device="cuda")].sin(), ["new_zeros", "_index_put_impl_"]),
        (lambda y: y.index_select(0, torch.tensor([0, 2], device="cuda")).sin(), ["new_zeros", "index_add_"]),
        (lambda y: y.gather(1, torch.zeros(3, 2, dtype=torch.int64, device="cuda")).sin(), ["new_zeros", "scatter_add_"]),
    ])  # fmt: skip
    def test_in_place(self, function: Any, expected: list[str]) -> None:
        called = self.backward(function)
        place = called.index(expected[1])
        assert called[place - 1] == expected[0]

    def test_written_by_the_user_out_of_place(self) -> None:
        def function(y: Any) -> Any:
            index = torch.tensor([0, 2], device="cuda")
            return torch.index_add(y, 0, index, y[:2]).sin()

        assert "index_add" in names(
            step(Model(lambda m, x: function(m.a(x)), a=nn.Linear(4, 4)), torch.empty(3, 4)), "forward"
        )

    def test_selection_and_slicing_have_kernels_of_their_own(self) -> None:
        assert "select_backward" in self.backward(lambda y: y[0].sin())
        assert "slice_backward" in self.backward(lambda y: y[:2].sin())

    def test_embedding(self) -> None:
        graph = step(nn.Embedding(5, 4), torch.empty(3, dtype=torch.int64), optimizer=None)
        assert "embedding_dense_backward" in names(graph, "backward")
        frozen = nn.Embedding(5, 4, sparse=False)
        lookup = Model(lambda m, x: F.embedding(x, m.e.weight).sin(), e=frozen)
        assert "embedding_dense_backward" in names(
            step(lookup, torch.empty(3, dtype=torch.int64)), "backward"
        )


class TestReflectors:
    """`householder_product_backward`: gradients are written into columns of zeros, one reflector after the other."""

    @staticmethod
    def backward(function: Any, shape: tuple[int, ...]) -> list[str]:
        model = Model(lambda m, x: function(m.w * 1, x * m.w.sum()), w=nn.Parameter(torch.zeros(shape)))
        graph = step(model, torch.empty((*shape[:-2], min(shape[-2:]))), optimizer=None)
        return [short(o) for o in operators(graph, "backward")]

    @pytest.mark.parametrize("shape", [(6, 4), (2, 6, 4)])
    def test_columns_are_written_one_by_one(self, shape: tuple[int, ...]) -> None:
        called = self.backward(torch.linalg.householder_product, shape)
        assert "cat" not in called and called.count("zeros_like") == 2
        first = called.index("zeros_like")
        assert called[:first].count("sub_.Tensor") == 1  # the first reflector, before there is a gradient
        assert called[first:].count("copy_") == 2 * 4 and called[first:].count("sub_.Tensor") == 2 * 3

    @pytest.mark.parametrize(
        ("left", "transpose"), [(True, False), (True, True), (False, False), (False, True)]
    )
    def test_of_a_product_with_them(self, left: bool, transpose: bool) -> None:
        called = self.backward(lambda w, tau: torch.ormqr(w, tau, w, left, transpose), (4, 4))
        assert "cat" not in called and called.count("zeros_like") == 2 and called.count("ormqr") == 1

    def test_a_pass_that_is_differentiated_keeps_them_all(self) -> None:
        def function(w: Any, tau: Any) -> Any:
            made = torch.linalg.householder_product(w, tau).sum()
            (gradient,) = torch.autograd.grad(made, w, create_graph=True)
            return gradient.sum()

        model = Model(lambda m, x: function(m.w * 1, x), w=nn.Parameter(torch.zeros(6, 4)))
        called = [short(o) for o in operators(step(model, torch.empty(4), optimizer=None))]
        assert "cat" in called


class TestProduct:
    """`prod_backward`: the result divided by each factor, once it has been asked whether any is zero."""

    @staticmethod
    def backward(function: Any, *shape: int) -> list[str]:
        model = Model(lambda m, x: function(m.w * x), w=nn.Parameter(torch.zeros(shape)))
        return [short(o) for o in operators(step(model, torch.empty(shape), optimizer=None), "backward")]

    def test_zeros_are_looked_for(self) -> None:
        called = self.backward(torch.prod, 6, 4)
        assert called[called.index("eq.Scalar") :][:2] == ["eq.Scalar", "nonzero"]

    @pytest.mark.parametrize(("numbers", "expected"), [
        ([1.0, 2.0, 3.0], {"div.Tensor"}), ([1.0, 0.0, 3.0], {"cumprod"}), ([0.0, 0.0, 3.0], {"zeros_like"}),
    ])  # fmt: skip
    def test_zeros_that_are_known_decide(self, numbers: list[float], expected: set[str]) -> None:
        def run() -> None:
            torch.tensor(numbers).cuda().requires_grad_().prod().backward()

        called = names(traced(run, phase=Phase.BACKWARD))
        assert {"div.Tensor", "cumprod", "zeros_like"}.intersection(called) == expected

    def test_of_a_single_factor(self) -> None:
        assert "nonzero" in self.backward(torch.prod, 1)
        called = self.backward(lambda x: x.prod(1), 6, 1, 4)
        first = called.index("eq.Scalar")
        assert called[first:][:3] == ["eq.Scalar", "sum.dim_IntList", "sum"]


class TestAccumulation:
    """`AccumulateGrad` steals a gradient that nobody else holds and whose layout is the parameter's, else copies."""

    def gradients(self, function: Any, **options: Any) -> list[str]:
        graph = step(Weight(function), torch.empty(3, 4), optimizer=None, loss=lambda out, *_: out, **options)
        return [short(o) for o in operators(graph, "backward")]

    def test_stolen(self) -> None:
        assert self.gradients(lambda y, x: y.sin().sum())[-1] == "detach"

    def test_copied_when_the_layout_differs(self) -> None:
        graph = step(
            Model(lambda m, x: (x @ m.w.t()).sin(), w=nn.Parameter(torch.zeros(5, 4))),
            torch.empty(3, 4),
            optimizer=None,
        )
        assert "clone" not in names(graph, "backward")  # mm makes it in the layout wanted
        turned = nn.Parameter(torch.zeros(4, 5).t())
        graph = step(Model(lambda m, x: (m.w * 2).sin(), w=turned), torch.empty(1), optimizer=None)
        assert not any(n in ("clone", "new_empty_strided") for n in names(graph, "backward"))

    def test_added_in_place_to_what_is_there(self) -> None:
        called = self.gradients(lambda y, x: y.sin().sum(), grad_accumulation=2)
        assert called.count("add_.Tensor") == 1
