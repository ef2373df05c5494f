"""Storages, operators and where they come from, on programs small enough to follow by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analyzer.graph import Birth, Category, Phase
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.pytorch.eager import requests
from tests.capture.pytorch.captures import (
    H200,
    Model,
    deaths,
    inference,
    live_bytes,
    names,
    operators,
    saved,
    step,
    storage,
    the,
    traced,
)  # fmt: skip

FILE = "test_recorder.py"


def line_of(function: Callable[..., Any], text: str) -> str:
    """ "file.py:N" of the line of a function that contains the text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = (number for number, line in enumerate(lines, first) if text in line)
    return f"{FILE}:{found}"


class TestThreeLayers:
    """4 → 8 → 8 → 3 with ReLU, batch of 2, float32: weights and biases are 556 bytes, a hidden activation 64."""

    WEIGHTS = 4 * (32 + 8 + 64 + 8 + 24 + 3)
    BATCH = 4 * (2 * 4 + 2 * 3)

    @pytest.fixture(scope="class")
    @classmethod
    def graph(cls) -> Any:
        layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)]
        return step(
            nn.Sequential(*layers), torch.empty(2, 4), targets=[torch.empty(2, 3)], loss=F.mse_loss, steps=2
        )

    def test_operators(self, graph: Any) -> None:
        assert names(graph, "forward")[:5] == ["addmm", "relu", "addmm", "relu", "addmm"]
        assert names(graph, "loss")[:1] == ["mse_loss"]
        layer = ["mm", "mm", "sum.dim_IntList", "threshold_backward"]
        first = ["mm", "sum.dim_IntList"]  # the input needs no gradient
        assert names(graph, "backward")[:12] == ["ones_like", "mse_loss_backward", *layer, *layer, *first]
        assert names(graph, "optimizer")[:1] == ["_foreach_add_.List"]

    def test_live_bytes_at_every_mark(self, graph: Any) -> None:
        weights, batch, relus, out, loss = self.WEIGHTS, self.BATCH, 2 * 64, 24, 4
        live = live_bytes(graph)
        assert live["model"] == weights
        assert live["0.input"] == live["0.zero_grad"] == weights + batch
        assert live["0.forward"] == weights + batch + relus + out
        assert live["0.loss"] == weights + batch + relus + out + loss
        assert live["0.backward"] == live["0.step"] == weights + batch + out + loss + weights
        # The old batch goes when the new one takes its names; gradients go with zero_grad; old out and loss stay.
        assert live["1.input"] == live["0.step"]
        assert live["1.zero_grad"] == weights + batch + out + loss
        assert live["1.forward"] == weights + batch + relus + out + loss
        assert live["1.loss"] == weights + batch + relus + out + loss
        assert live["1.step"] == live["0.step"]

    def test_deaths(self, graph: Any) -> None:
        died = deaths(graph)
        addmm, relu, addmm2, relu2, out = (
            o.outputs[0].storage for o in operators(graph, "forward") if o.step == 0 and not o.name.endswith("t.default")
            and "detach" not in o.name and o.outputs[0]
        )  # fmt: skip
        assert died[addmm] == "relu" and died[addmm2] == "relu"
        assert died[relu2] == died[relu] == "threshold_backward"
        assert died[out] == "addmm"  # replaced by the next iteration's
        ones, loss_gradient, through, *_ = (
            o.outputs[0].storage for o in operators(graph, "backward") if "t." not in o.name
        )
        assert died[loss_gradient] == "sum.dim_IntList"
        assert died[through] == "threshold_backward"
        assert died[ones] == "sum.dim_IntList"  # the root gradient lives until backward() returns

    def test_saved_are_those_born_before_and_read_in_backward(self, graph: Any) -> None:
        first = list(saved(graph))[:4]
        assert [(s.name, s.nbytes) for s in first] == [
            ("aten::relu.default", 64), ("aten::relu.default", 64), ("aten::addmm.default", 24),
            ("aten::mse_loss.default", 4),
        ]  # fmt: skip
        assert all(s.category is Category.SAVED for s in first)
        assert not any(s.saved for s in graph.storages if s.category is not Category.SAVED)

    def test_categories_and_names(self, graph: Any) -> None:
        assert storage(graph, "0.weight").category is Category.PARAMETER
        assert storage(graph, "0.weight").nbytes == 128 and storage(graph, "4.bias").nbytes == 12
        by_category: dict[Category, int] = {}
        for s in graph.storages:
            if s.on_device:
                by_category[s.category] = by_category.get(s.category, 0) + s.nbytes
        assert by_category[Category.PARAMETER] == self.WEIGHTS
        assert by_category[Category.INPUT] == 2 * self.BATCH
        gradients = [s for s in graph.storages if s.name.endswith(".grad")]
        assert sum(s.nbytes for s in gradients) == 2 * self.WEIGHTS
        assert {s.category for s in gradients} == {Category.GRADIENT}
        assert {"input 0", "target 0", "2.weight.grad"} <= {s.name for s in graph.storages}

    def test_module_of_forward_and_backward_operators(self, graph: Any) -> None:
        for phase in ("forward", "backward"):
            products = [
                o
                for o in operators(graph, phase)
                if o.name.startswith(("aten::addmm", "aten::mm")) and o.step == 0
            ]
            assert {o.module for o in products} == {"0", "2", "4"}
        relus = [o.module for o in operators(graph, "backward") if "threshold" in o.name and o.step == 0]
        assert relus == ["3", "1"]

    def test_phases_and_steps(self, graph: Any) -> None:
        order = [Phase.SETUP, Phase.INPUT, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.OPTIMIZER]
        places = [order.index(o.phase) for o in operators(graph) if o.step == 0]
        assert places == sorted(places)
        assert {o.step for o in operators(graph)} == {0, 1}

    def test_invariants_hold(self, graph: Any) -> None:
        assert graph.check() is graph and graph.batch == 2 and graph.framework == "pytorch"

    def test_host_tensors_ask_for_nothing(self, graph: Any) -> None:
        host = {s.index for s in graph.storages if not s.on_device}
        assert host and {m.storage for m in graph.program if isinstance(m, Birth)} <= host
        asked = {e.storage for e in requests(graph, H200).events if isinstance(e, Malloc)}
        assert not asked & host


class TestAliases:
    def test_views_share_a_storage(self) -> None:
        def views() -> Any:
            x = torch.zeros(4, 6, device="cuda")
            return x, x.t(), x[1:3], x.view(24), x.expand(2, 4, 6), x.unbind()[0]

        graph = traced(views)
        assert len(graph.storages) == 1 and graph.storages[0].nbytes == 96
        part = the(graph, "slice.Tensor").outputs[0]
        assert part is not None and (part.shape, part.stride, part.offset) == ((2, 6), (6, 1), 6)

    def test_contiguous_copies_only_what_is_not(self) -> None:
        graph = traced(
            lambda: [
                torch.zeros(4, 6, device="cuda").contiguous(),
                torch.zeros(4, 6, device="cuda").t().contiguous(),
            ]
        )
        assert names(graph) == ["zeros", "zeros", "clone"]
        clone = the(graph, "clone").outputs[0]
        assert clone is not None and clone.stride == (4, 1)

    def test_in_place_operators_write_and_make_nothing(self) -> None:
        def in_place() -> Any:
            x = torch.zeros(8, device="cuda")
            return x.add_(1).mul_(2).relu_()

        graph = traced(in_place)
        assert len(graph.storages) == 1
        assert [o.writes for o in graph.operators] == [(), (0,), (0,), (0,)]

    def test_out_argument_is_written(self) -> None:
        def out() -> Any:
            result = torch.empty(8, device="cuda")
            return torch.add(torch.zeros(8, device="cuda"), 1, out=result)

        graph = traced(out)
        assert the(graph, "add.out").writes == (0,) and len(graph.storages) == 2

    def test_foreach_writes_every_tensor(self) -> None:
        def foreach() -> Any:
            xs = [torch.zeros(2, device="cuda") for _ in range(3)]
            torch._foreach_add_(xs, 1)
            return xs

        assert the(traced(foreach), "_foreach_add_.Scalar").writes == (0, 1, 2)

    def test_a_reused_name_frees_the_old_tensor_after_the_new_is_made(self) -> None:
        def chain() -> Any:
            x = torch.zeros(4, device="cuda")
            x = torch.sin(x)
            return torch.cos(x)

        died = deaths(traced(chain))
        assert died == {0: "sin", 1: "cos"}


class TestDtypesAndSizes:
    @pytest.mark.parametrize(("dtype", "nbytes"), [
        (torch.float64, 80), (torch.float32, 40), (torch.bfloat16, 20), (torch.bool, 10), (torch.complex64, 80),
        (torch.int16, 20), (torch.float8_e4m3fn, 10),
    ])  # fmt: skip
    def test_bytes(self, dtype: torch.dtype, nbytes: int) -> None:
        graph = traced(lambda: torch.empty(10, dtype=dtype, device="cuda"))
        assert graph.storages[0].nbytes == nbytes
        output = graph.operators[0].outputs[0]
        assert output is not None and output.dtype == str(dtype).removeprefix("torch.")

    def test_empty_tensor(self) -> None:
        assert traced(lambda: torch.empty(0, 5, device="cuda")).storages[0].nbytes == 0


class TestHostTensors:
    def test_calls_among_host_tensors_are_left_out(self) -> None:
        graph = traced(lambda: torch.zeros(5) + torch.ones(5))
        assert graph.operators == () and not any(s.on_device for s in graph.storages)

    def test_transfer_to_the_device_and_back(self) -> None:
        def there_and_back() -> Any:
            return (torch.ones(4, device="cuda") + torch.rand(4).cuda()).cpu()

        graph = traced(there_and_back)
        assert names(graph) == ["ones", "_to_copy", "add.Tensor"]
        host = [s for s in graph.storages if not s.on_device]
        assert [s.nbytes for s in host] == [
            16
        ]  # the argument of the transfer; what came back is a real tensor

    def test_scalar_of_the_host_in_a_device_operator(self) -> None:
        graph = traced(lambda: torch.ones(4, device="cuda") * torch.tensor(2.0))
        scalar = the(graph, "mul.Tensor").inputs[1]
        assert not graph.storages[scalar.storage].on_device

    def test_step_counter_of_adam_is_on_the_host(self) -> None:
        adam = step(nn.Linear(2, 2), torch.empty(1, 2), optimizer=torch.optim.Adam)
        counters = [s for s in adam.storages if s.category is Category.OPTIMIZER_STATE and s.nbytes == 4]
        assert not counters
        state = [s.name for s in adam.storages if s.category is Category.OPTIMIZER_STATE]
        assert sorted(state) == ["exp_avg", "exp_avg", "exp_avg_sq", "exp_avg_sq"]

    def test_step_counter_of_fused_adam_is_on_the_device(self) -> None:
        fused = step(nn.Linear(2, 2), torch.empty(1, 2), optimizer=lambda p: torch.optim.Adam(p, fused=True))
        state = sorted((s.name, s.nbytes) for s in fused.storages if s.category is Category.OPTIMIZER_STATE)
        assert state == [
            ("exp_avg", 8),
            ("exp_avg", 16),
            ("exp_avg_sq", 8),
            ("exp_avg_sq", 16),
            ("step", 4),
            ("step", 4),
        ]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Any) -> Any:
        y = torch.tanh(self.inner(x))
        return y * self.scale  # product


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x.sigmoid()  # last


class TestPlaces:
    @pytest.fixture(scope="class")
    @classmethod
    def graph(cls) -> Any:
        return step(Outer(), torch.empty(2, 4))

    def test_forward(self, graph: Any) -> None:
        places = {(o.name, o.module): o.source for o in operators(graph, "forward")}
        tanh = line_of(Block.forward, "torch.tanh")
        assert places["aten::tanh.default", "blocks.0"] == places["aten::tanh.default", "blocks.1"] == tanh
        assert (
            places["aten::addmm.default", "blocks.1.inner"] == tanh
        )  # the innermost line of the user's own code
        assert places["aten::mul.Tensor", "blocks.0"] == line_of(Block.forward, "# product")
        assert places["aten::sigmoid.default", ""] == line_of(Outer.forward, "# last")

    def test_backward_operators_are_where_their_forward_is(self, graph: Any) -> None:
        places = [(o.name, o.module, o.source) for o in operators(graph, "backward")]
        tanh, product = line_of(Block.forward, "torch.tanh"), line_of(Block.forward, "# product")
        for block in ("blocks.0", "blocks.1"):
            assert ("aten::tanh_backward.default", block, tanh) in places
            assert ("aten::mm.default", f"{block}.inner", tanh) in places
            assert ("aten::mul.Tensor", block, product) in places
        assert ("aten::sigmoid_backward.default", "", line_of(Outer.forward, "# last")) in places

    def test_buffers_are_named(self, graph: Any) -> None:
        assert storage(graph, "blocks.1.scale").category is Category.BUFFER

    def test_function_called_by_the_model(self) -> None:
        def helper(x: Any) -> Any:
            return x.exp()  # helper

        graph = inference(Model(lambda m, x: helper(x)), torch.empty(2))
        assert the(graph, "exp").source == line_of(helper, "# helper")

    def test_module_called_twice(self) -> None:
        shared = nn.Linear(3, 3)
        graph = step(nn.Sequential(shared, nn.Tanh(), shared), torch.empty(2, 3))
        assert [o.module for o in operators(graph, "forward") if "addmm" in o.name] == ["0", "0"]

    def test_loss_of_the_user(self) -> None:
        def loss(out: Any) -> Any:
            return out.abs().mean()  # the loss

        graph = step(nn.Linear(3, 3), torch.empty(2, 3), loss=loss)
        assert the(graph, "abs").source == line_of(loss, "# the loss")
        assert the(graph, "sgn", "backward").source == line_of(loss, "# the loss")


class TestSaved:
    def test_function_that_saves_its_input_keeps_it(self) -> None:
        graph = step(Model(lambda m, x: m.a(x).sin().cos(), a=nn.Linear(4, 4)), torch.empty(2, 4))
        died = deaths(graph)
        linear, sine = the(graph, "addmm").outputs[0], the(graph, "sin", "forward").outputs[0]
        assert linear is not None and sine is not None
        assert graph.storages[linear.storage].saved and graph.storages[sine.storage].saved
        assert died[sine.storage] == "mul.Tensor" and died[linear.storage] == "mul.Tensor"

    def test_without_gradients_nothing_is_saved(self) -> None:
        graph = inference(Model(lambda m, x: m.a(x).sin().cos(), a=nn.Linear(4, 4)), torch.empty(2, 4))
        assert not list(saved(graph))
        linear = the(graph, "addmm").outputs[0]
        assert linear is not None and deaths(graph)[linear.storage] == "sin"

    def test_frozen_layers_save_nothing(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
        model[0].requires_grad_(False)
        graph = step(model, torch.empty(2, 4))
        assert [s.name for s in saved(graph)][:2] == ["aten::tanh.default", "aten::tanh.default"]
        assert not any(s.name.startswith("0.") and s.name.endswith("grad") for s in graph.storages)
        assert len([o for o in operators(graph, "backward") if o.name == "aten::mm.default"]) == 1

    def test_saved_tensor_hooks_of_the_user(self) -> None:
        """`saved_tensors_hooks` that halve what is saved are followed."""

        def pack(x: Any) -> Any:
            return x.half()

        def forward(model: Any, x: Any) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x.float()):
                return torch.exp(model.a(x))

        graph = step(Model(forward, a=nn.Linear(4, 4)), torch.empty(2, 4))
        packed = [o.outputs[0] for o in operators(graph, "forward") if o.name == "aten::_to_copy.default"]
        assert packed and all(t is not None and graph.storages[t.storage].saved for t in packed)


class TestSubclassesAndAutogradFunctions:
    def test_autograd_function(self) -> None:
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 2 * x * gradient

        graph = step(Model(lambda m, x: Square.apply(m.a(x)), a=nn.Linear(4, 4)), torch.empty(2, 4))
        assert names(graph, "backward")[-4:] == ["mul.Tensor", "mul.Tensor", "mm", "sum.dim_IntList"]
        linear = the(graph, "addmm").outputs[0]
        assert linear is not None and graph.storages[linear.storage].saved
