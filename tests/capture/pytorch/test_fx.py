"""The captured program as a `torch.fx` graph: executed on the CPU it computes what eager PyTorch computes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from analyzer.capture.pytorch.fx import dump, to_fx
from analyzer.graph import Category, Graph, Operator, TensorMeta
from tests.capture.pytorch.captures import Model, inference, step


class Block(nn.Module):
    """A transformer block out of plain operators."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (p.view(batch, length, 2, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) * (width / 2) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class Tied(nn.Module):
    """Weights used twice, gathered, sliced and concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        x = torch.cat([x[:, :1], x[:, 1:].flip(1)], 1)
        x = x[:, torch.arange(0, 3, 2, device=x.device)]
        return F.linear(x, self.table.weight)


CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)),
        lambda: torch.randn(5, 4), lambda: torch.randn(5, 3), F.mse_loss,
    ),
    "transformer block": (Block, lambda: torch.randn(2, 5, 16), lambda: torch.randn(2, 5, 16), F.mse_loss),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
        ),
        lambda: torch.randn(2, 3, 8, 8), lambda: torch.tensor([0, 2]), F.cross_entropy,
    ),
    "tied embedding": (Tied, lambda: torch.tensor([[1, 2, 3], [4, 5, 6]]), lambda: torch.randn(2, 2, 7), F.mse_loss),
    "batch norm": (  # without running statistics and with a small epsilon it is PyTorch's own on CUDA
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, eps=1e-6), nn.Linear(4, 3)),
        lambda: torch.randn(6, 4), lambda: torch.randn(6, 3), F.mse_loss,
    ),
}  # fmt: skip


class Checked(fx.Interpreter):
    """Executes a translated graph and keeps every value; `shapes` differ from the prediction only where it is empty."""

    def __init__(self, module: fx.GraphModule, graph: Graph) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._source = graph
        self.differences: list[str] = []
        self.last: dict[int, torch.Tensor] = {}

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        if "operator" in node.meta:
            self._compare(self._source.operators[node.meta["operator"]], value)
        return value

    def _compare(self, operator: Operator, value: Any) -> None:
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        for meta, tensor in zip(operator.outputs, values, strict=False):
            if meta is None or tensor is None:
                continue
            found = (tuple(tensor.shape), str(tensor.dtype)[6:], tensor.stride(), tensor.storage_offset())
            if found != (meta.shape, meta.dtype, meta.stride, meta.offset):
                self.differences.append(f"{operator.name}: {found} {meta}")
            self.last[meta.storage] = tensor


def fed(
    module: fx.GraphModule, graph: Graph, state: dict[str, torch.Tensor], batch: list[torch.Tensor]
) -> list[Any]:
    """Values for the placeholders: weights by name, the batch in order, everything as its whole flat storage."""
    waiting, values = list(batch), []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            storage = graph.storages[node.meta["tensor"].storage]
            if storage.name in state:
                values.append(state[storage.name].clone().flatten())
            else:
                assert not storage.on_device, storage
                values.append(waiting.pop(0).flatten())
    assert not waiting
    return values


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    make, x, y, loss = CASES[request.param]
    return make(), x(), y(), loss


class TestExecuted:
    def test_gradients_and_updated_weights_are_eager_pytorchs(self, case: Any) -> None:
        model, x, y, loss = case
        graph = step(model, x, targets=[y], loss=loss)
        module = to_fx(graph, 0, "cpu")
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        values = fed(module, graph, {name: t.detach() for name, t in state.items()}, [x, y])
        runner = Checked(module, graph)
        with torch.no_grad():
            result = runner.run(*values)

        eager = copy.deepcopy(model)
        expected = loss(eager(x), y)
        expected.backward()
        gradients = {f"{name}.grad": p.grad for name, p in eager.named_parameters()}
        torch.optim.SGD(eager.parameters(), lr=0.1).step()

        torch.testing.assert_close(result[0] if isinstance(result, tuple) else result, expected.detach())
        by_name = {graph.storages[index].name: value for index, value in runner.last.items()}
        assert gradients.keys() <= by_name.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(by_name[name].reshape(gradient.shape), gradient)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        updated = {
            graph.storages[node.meta["tensor"].storage].name: value
            for node, value in zip(placeholders, values, strict=True)
        }
        for name, weight in eager.named_parameters():
            torch.testing.assert_close(updated[name].view(weight.shape), weight.detach())

    def test_results_have_the_predicted_shapes_strides_and_types(self, case: Any) -> None:
        model, x, y, loss = case
        graph = step(model, x, targets=[y], loss=loss)
        module = to_fx(graph, 0, "cpu")
        state = {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}
        runner = Checked(module, graph)
        with torch.no_grad():
            runner.run(*fed(module, graph, state, [x, y]))
        # CPU kernels lay some results out differently: pooling's indices, and the weight's gradient of a convolution.
        assert {d.partition(":")[0] for d in runner.differences} <= {"aten"} and not [
            d for d in runner.differences if "convolution" not in d and "pool" not in d
        ]

    def test_storages_are_shared_where_predicted(self, case: Any) -> None:
        model, x, y, loss = case
        graph = step(model, x, targets=[y], loss=loss, optimizer=None)
        module = to_fx(graph, 0, "cpu")
        state = {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}
        seen: dict[int, set[int]] = {}

        class Sharing(Checked):
            def _compare(self, operator: Operator, value: Any) -> None:
                for meta, tensor in zip(
                    operator.outputs, value if isinstance(value, (tuple, list)) else [value], strict=False
                ):
                    if meta is not None and tensor is not None and tensor.numel():
                        seen.setdefault(meta.storage, set()).add(tensor.untyped_storage().data_ptr())

        with torch.no_grad():
            Sharing(module, graph).run(*fed(module, graph, state, [x, y]))
        assert seen and all(len(addresses) == 1 for addresses in seen.values())
        assert len({next(iter(a)) for a in seen.values()}) == len(seen)

    def test_inference_returns_the_output(self) -> None:
        torch.manual_seed(0)
        model, x = Block().eval(), torch.randn(2, 5, 16)
        graph = inference(model, x)
        module = to_fx(graph, 0, "cpu")
        values = fed(module, graph, {n: p.detach() for n, p in model.named_parameters()}, [x])
        with torch.no_grad():
            torch.testing.assert_close(Checked(module, graph).run(*values), model(x))


class TestTranslation:
    def test_every_operator_of_the_iteration_is_a_node(self) -> None:
        graph = step(Block(), torch.empty(2, 5, 16), steps=2)
        for iteration in range(2):
            nodes = [n.meta["operator"] for n in to_fx(graph, iteration).graph.nodes if "operator" in n.meta]
            assert nodes == [
                o.index for o in graph.operators if o.step == iteration and o.phase.value != "setup"
            ]

    def test_placeholders_are_what_is_read_before_it_is_made(self) -> None:
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), steps=2, optimizer=torch.optim.Adam)
        first, second = ([n for n in to_fx(graph, i).graph.nodes if n.op == "placeholder"] for i in range(2))
        kinds = [graph.storages[n.meta["tensor"].storage].category for n in second]
        assert kinds.count(Category.OPTIMIZER_STATE) == 4 and len(second) == len(first) + 4
        assert all(
            n.meta["tensor"].shape == (graph.storages[n.meta["tensor"].storage].nbytes // 4,) for n in first
        )

    def test_nodes_name_phase_module_and_line(self) -> None:
        graph = step(Block(), torch.empty(2, 5, 16))
        places = {(n.meta["phase"], n.meta["module"]) for n in to_fx(graph).graph.nodes if "phase" in n.meta}
        assert {
            ("forward", "norm"),
            ("backward", "norm"),
            ("forward", "mlp.0"),
            ("backward", "mlp.2"),
        } <= places

    def test_the_device_is_the_one_asked_for(self) -> None:
        graph = inference(Model(lambda m, x: x + torch.ones(4, device=x.device)), torch.empty(4))
        for device in ("cpu", "cuda"):
            (made,) = (n for n in to_fx(graph, 0, device).graph.nodes if str(n.target) == "aten.ones.default")
            assert made.kwargs["device"] == torch.device(device)

    def test_it_is_valid_python(self) -> None:
        module = to_fx(step(Block(), torch.empty(2, 5, 16)))
        module.graph.lint()
        assert "def forward(self" in module.code

    def test_operator_outside_aten(self) -> None:
        @torch.library.custom_op("analyzer_tests::doubled", mutates_args=())
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        doubled.register_fake(torch.empty_like)
        graph = inference(Model(lambda m, x: doubled(x)), torch.empty(4))
        module = to_fx(graph, 0, "cpu")
        with torch.no_grad():
            result = fx.Interpreter(module).run(torch.tensor([1.0, 2, 3, 4]))
        assert result.tolist() == [2.0, 4.0, 6.0, 8.0]


class TestDump:
    def test_text_is_stable_and_names_places(self) -> None:
        text = dump(inference(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.empty(2, 4)))
        assert text == dump(inference(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.empty(2, 4)))
        lines = text.splitlines()
        assert lines[-3].startswith(
            "%addmm_default : [num_users=1] = call_function[target=torch.ops.aten.addmm.default]"
        )
        assert lines[-3].endswith("# forward 0")
        assert lines[-2].endswith("# forward 1") and "relu" in lines[-2]
        assert lines[-1] == "return relu_default" and text.endswith("\n")

    def test_user_line(self) -> None:
        text = dump(inference(Model(lambda m, x: x.exp()), torch.empty(4)))
        assert "# forward test_fx.py:" in text

    def test_second_iteration(self) -> None:
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), steps=2)
        assert dump(graph, 0).count("call_function") == dump(graph, 1).count("call_function")


def test_whole_storage_of_a_view() -> None:
    """A buffer that is a part of a larger one is read through the larger one."""
    model = Model(lambda m, x: x + m.part)
    model.register_buffer("part", torch.arange(6.0)[2:4])
    graph = inference(model, torch.empty(2))
    (whole,) = (
        n.meta["tensor"]
        for n in to_fx(graph, 0, "cpu").graph.nodes
        if n.op == "placeholder" and "part" in n.name
    )
    assert isinstance(whole, TensorMeta) and whole.offset == 0
