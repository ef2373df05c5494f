"""Activation checkpointing: by pattern, written by the user, selective; what is saved, and what is computed again."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from analyzer import analyze
from analyzer.capture.pytorch.module.from_options import apply_checkpointing
from analyzer.errors import OptionError
from analyzer.graph import Graph
from tests.capture.pytorch.captures import Model, names, operators, saved, step


def deep(count: int = 3) -> nn.Sequential:
    """`count` blocks of linear 8 → 8 and tanh: each keeps its input and tanh's result, 64 bytes of batch 2."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(count)))


X = torch.empty(2, 8)


def kept(graph: Graph) -> int:
    """Bytes born in the forward pass that are alive when it ends."""
    from tests.capture.pytorch.captures import live_bytes

    live = live_bytes(graph)
    return live["0.forward"] - live["0.zero_grad"]


def products(graph: Graph, phase: str) -> int:
    return sum(name == "addmm" for name in names(graph, phase))


def checkpointed(pattern: str, model: nn.Module | None = None) -> Graph:
    return step(model or deep(), X, prepare=functools.partial(apply_checkpointing, pattern=pattern))


class TestPattern:
    def test_everything_is_kept_without(self) -> None:
        graph = step(deep(), X)
        assert kept(graph) == 3 * 64 and products(graph, "backward") == 0

    def test_blocks_keep_only_their_inputs(self) -> None:
        """Inputs of blocks 1 and 2, and the output: block 0's input is the batch."""
        graph = checkpointed("?", deep())
        assert kept(graph) == 3 * 64  # tanh's results are the next block's inputs: nothing won here
        wide = nn.Sequential(
            *(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)) for _ in range(3))
        )
        assert kept(step(wide, X)) - kept(checkpointed("?", wide)) == 3 * 4 * 2 * 32

    def test_a_container_stands_for_what_is_in_it(self) -> None:
        """A ModuleList is never called itself."""

        class Layers(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                for layer in self.layers:
                    x = layer(x)
                return x

        for pattern in ("layers", "*", "layers.?"):
            assert products(checkpointed(pattern, Layers()), "backward") == 3

    def test_the_forward_runs_again_in_the_backward_pass(self) -> None:
        graph = checkpointed("?")
        assert products(graph, "forward") == products(graph, "backward") == 3

    def test_computed_again_in_reverse_order_under_the_same_module(self) -> None:
        graph = checkpointed("?")
        again = [o.module for o in operators(graph, "backward") if o.name == "aten::addmm.default"]
        assert again == ["2.0", "1.0", "0.0"]

    def test_only_matching_modules(self) -> None:
        graph = checkpointed("1")
        assert products(graph, "backward") == 1

    def test_a_match_inside_a_match_is_left_alone(self) -> None:
        graph = checkpointed("*")
        assert products(graph, "backward") == 3

    def test_leaf_pattern(self) -> None:
        """tanh keeps its result, so it runs again; a linear layer keeps its input, so nothing is left to compute."""
        assert names(checkpointed("*.1"), "backward").count("tanh") == 3
        assert products(checkpointed("*.0"), "backward") == 0

    def test_no_match_names_the_children(self) -> None:
        with pytest.raises(OptionError, match=r"'layer\*'") as caught:
            apply_checkpointing(deep(), "layer*")
        assert "0, 1, 2" in caught.value.hint

    def test_dropout_draws_the_same_numbers(self) -> None:
        """The state of the random number generators is put back; in the analysis it takes no device memory."""
        block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())
        graph = checkpointed("0", nn.Sequential(block))
        assert (
            names(graph, "forward").count("native_dropout")
            == names(graph, "backward").count("native_dropout")
            == 1
        )

    def test_under_autocast(self) -> None:
        graph = step(deep(), X, amp="bf16", prepare=functools.partial(apply_checkpointing, pattern="?"))
        again = [o.outputs[0] for o in operators(graph, "backward") if o.name == "aten::addmm.default"]
        assert len(again) == 3 and all(t and t.dtype == "bfloat16" for t in again)

    def test_saves_memory_in_the_estimate(self) -> None:
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)) for _ in range(8))
        )
        options: dict[str, Any] = {"mode": "train", "loss": "sum", "device": "h200", "steps": 1}
        plain = analyze(model, [torch.empty(256, 64)], **options)
        less = analyze(model, [torch.empty(256, 64)], checkpoint="?", **options)
        assert less.peak_allocated < plain.peak_allocated
        assert less.saved_for_backward < plain.saved_for_backward
        after = [
            {k: v for k, v in e.marks[-1].by_category.items() if k != "workspace"} for e in (plain, less)
        ]
        assert after[0] == after[1]  # autograd's thread now also takes cublasLt's workspace


class TestWrittenByTheUser:
    @pytest.mark.parametrize("reentrant", [False, True])
    def test_function(self, reentrant: bool) -> None:
        model = Model(
            lambda m, x: checkpoint(m.rest, m.first(x), use_reentrant=reentrant),
            first=nn.Linear(8, 8),
            rest=deep(2),
        )
        graph = step(model, X)
        assert products(graph, "forward") == 3 and products(graph, "backward") == 2
        plain = step(Model(lambda m, x: m.rest(m.first(x)), first=nn.Linear(8, 8), rest=deep(2)), X)
        assert kept(graph) < kept(plain)
        wanted = sorted(s.name for s in plain.storages if s.name.endswith(".grad"))
        assert sorted(s.name for s in graph.storages if s.name.endswith(".grad")) == wanted

    def test_reentrant_without_a_gradient_on_the_input_trains_nothing(self) -> None:
        """PyTorch warns; the first block's weights get no gradient."""
        model = Model(
            lambda m, x: m.last(checkpoint(m.part, x, use_reentrant=True)), part=deep(1), last=nn.Linear(8, 8)
        )
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
            graph = step(model, X)
        assert {s.name for s in graph.storages if s.name.endswith(".grad")} == {
            "last.weight.grad",
            "last.bias.grad",
        }

    def test_sequential(self) -> None:
        model = Model(lambda m, x: checkpoint_sequential(m.part, 2, x, use_reentrant=False), part=deep(4))
        graph = step(model, X)
        assert products(graph, "backward") == 2  # the last segment is not checkpointed

    def test_selective(self) -> None:
        """Products are saved, the rest is computed again."""

        def policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            del args, kwargs
            keep = operator is torch.ops.aten.addmm.default
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        model = Model(
            lambda m, x: checkpoint(m.part, x, use_reentrant=False, context_fn=contexts), part=deep(2)
        )
        graph = step(model, X)
        assert products(graph, "backward") == 0
        assert names(graph, "backward").count("tanh") == 2

    def test_hugging_face_style_flag(self) -> None:
        """A wrapped `__call__` with keyword arguments, as `gradient_checkpointing_enable` makes."""

        def forward(model: Any, x: Any) -> Any:
            run = functools.partial(checkpoint, use_reentrant=False)
            return run(functools.partial(model.part.__call__), x)

        assert products(step(Model(forward, part=deep(2)), X), "backward") == 2


class TestUserCodeInTheBackwardPass:
    """It sees CUDA tensors, as in the forward pass."""

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_checkpointed_function_asks_for_the_device(self, reentrant: bool) -> None:
        seen = []

        def part(x: Any) -> Any:
            seen.append((x.device.type, x.is_cuda))
            return (x * torch.ones(8, device="cuda") + torch.ones(8).to(x.device)).sin()

        model = Model(lambda m, x: checkpoint(part, m.a(x), use_reentrant=reentrant), a=nn.Linear(8, 8))
        graph = step(model, X)
        assert seen == [("cuda", True)] * 2
        assert names(graph, "forward").count("_to_copy") == names(graph, "backward").count("_to_copy") == 1

    def test_custom_backward(self) -> None:
        class Masked(torch.autograd.Function):
            @staticmethod
            def forward(_: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                assert gradient.is_cuda
                return gradient * torch.ones(8, device="cuda").to(gradient.device)

        assert "ones" in names(
            step(Model(lambda m, x: Masked.apply(m.a(x)), a=nn.Linear(8, 8)), X), "backward"
        )

    def test_hook_on_a_gradient(self) -> None:
        def forward(model: Any, x: Any) -> Any:
            y = model.a(x)
            y.register_hook(lambda g: g * torch.ones(8, device=g.device))
            return y.sin()

        assert "ones" in names(step(Model(forward, a=nn.Linear(8, 8)), X), "backward")

    def test_gradient_inside_the_forward_pass(self) -> None:
        def penalty(model: Any, x: Any) -> Any:
            y = model.a(x)
            (g,) = torch.autograd.grad(y.sin().sum(), y, create_graph=True)
            return g * torch.ones(8, device=g.device)

        assert "ones" in names(step(Model(penalty, a=nn.Linear(8, 8)), X), "forward")

    def test_sums_are_still_in_place(self) -> None:
        def both(model: Any, x: Any) -> Any:
            y = model.a(x)
            return y.sin() + y.cos()

        assert "add_.Tensor" in names(step(Model(both, a=nn.Linear(8, 8)), X), "backward")


class TestHooks:
    def test_offloading_saved_tensors_to_the_host(self) -> None:
        """`save_on_cpu`: nothing stays on the device but what the step itself holds."""

        def forward(model: Any, x: Any) -> Any:
            with torch.autograd.graph.save_on_cpu():
                return model.part(x)

        plain, offloaded = step(deep(), X), step(Model(forward, part=deep()), X)
        assert kept(offloaded) < kept(plain)
        assert sum(s.nbytes for s in saved(offloaded) if s.on_device) <= sum(s.nbytes for s in saved(plain))
