"""Values a model computes from constants are known; values of its data are not, and it is said where they are asked for."""

# ruff: noqa: PLW0108  (a bound method would be made outside the capture)
from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from analyzer.errors import CaptureError
from analyzer.values.budget import LARGE_BYTES, LARGE_WORK
from tests.capture.pytorch.captures import Model, inference, names, step, traced


def value(function: Any) -> Any:
    """What a function of no arguments computes on the pretended device, asked for inside."""
    seen: list[Any] = []
    traced(lambda: seen.append(function()))
    return seen[0]


def arange(*arguments: Any, **options: Any) -> torch.Tensor:
    return torch.arange(*arguments, device="cuda", **options)


def test_generate_makes_a_mask_that_masks_nothing() -> None:
    """What `generate` of transformers computes where no attention mask is given, in a function of that name and file."""
    code = """
def _prepare_attention_mask_for_generation(inputs, pad):
    can_infer = torch.isin(inputs, pad).any() * ~torch.isin(torch.tensor([2], device="cuda"), pad).any()
    ones = torch.ones(inputs.shape, dtype=torch.long, device=inputs.device)
    return inputs.ne(pad).long() * can_infer + ones * ~can_infer
"""
    space: dict[str, Any] = {"torch": torch}
    exec(compile(code, "/site-packages/transformers/generation/utils.py", "exec"), space)
    make = space["_prepare_attention_mask_for_generation"]

    def masked() -> Any:
        return make(torch.randint(1000, (2, 5), device="cuda"), torch.tensor(0, device="cuda")).all().item()

    assert value(masked) is True


class TestKnown:
    @pytest.mark.parametrize(("function", "expected"), [
        (lambda: arange(4).tolist(), [0, 1, 2, 3]),
        (lambda: arange(4).sum().item(), 6),
        (lambda: int(arange(4).max()), 3),
        (lambda: bool((arange(4) < 4).all()), True),
        (lambda: (arange(4) > 2).any().item(), True),
        (lambda: arange(4).cpu().numpy().tolist(), [0, 1, 2, 3]),
        (lambda: numpy.asarray(arange(3).cpu()).sum(), 3),
        (lambda: bool((torch.rand(3, device="cuda") > 2) .logical_or(arange(3) >= 0).all()), True),
        (lambda: ((torch.rand(3, device="cuda") > 2) | (arange(3) >= 0)).tolist(), [True, True, True]),
        (lambda: (torch.randint(9, (3,), device="cuda") & (arange(3) < 0)).max().item(), 0),
        (lambda: (torch.randint(9, (2, 3), device="cuda") * (arange(3) < 0).any()).tolist(), [[0, 0, 0], [0, 0, 0]]),
        (lambda: torch.ones(2, 2, device="cuda").tril().tolist(), [[1.0, 0.0], [1.0, 1.0]]),
        (lambda: torch.tensor([3, 1, 2], device="cuda").sort()[0].tolist(), [1, 2, 3]),
        (lambda: torch.tensor(5).cuda().item(), 5),
        (lambda: torch.tensor([[1, 2], [3, 4]]).to("cuda").t().tolist(), [[1, 3], [2, 4]]),
        (lambda: torch.full((2,), 7, device="cuda").tolist(), [7, 7]),
        (lambda: torch.zeros(3, device="cuda").add_(1).mul_(2).tolist(), [2.0, 2.0, 2.0]),
        (lambda: torch.eye(2, device="cuda").bool().logical_not().tolist(), [[False, True], [True, False]]),
        (lambda: torch.cat([arange(2), arange(1)]).tolist(), [0, 1, 0]),
        (lambda: arange(6).view(2, 3)[1].tolist(), [3, 4, 5]),
        (lambda: arange(3).expand(2, 3).sum().item(), 6),
        (lambda: torch.nn.functional.pad(arange(2), (1, 1)).tolist(), [0, 0, 1, 0]),
        (lambda: torch.where(arange(3) > 1, 1.0, 0.0).tolist(), [0.0, 0.0, 1.0]),
        (lambda: len(range(arange(4)[2])), 2),
        (lambda: [0, 1, 2, 3][arange(4)[1] : 3], [1, 2]),
        (lambda: arange(4).nonzero().flatten().tolist(), [1, 2, 3]),
        (lambda: arange(4)[arange(4) > 1].tolist(), [2, 3]),
        (lambda: torch.ones(5, device="cuda", dtype=torch.int64).cumsum(0)[-1].item(), 5),
    ])  # fmt: skip
    def test_value(self, function: Any, expected: Any) -> None:
        assert value(function) == expected

    def test_writing_through_a_view_changes_the_whole(self) -> None:
        def function() -> Any:
            x = torch.zeros(2, 3, device="cuda")
            x[1, 1:] = 5
            x.select(0, 0).fill_(2)
            return x.tolist()

        assert value(function) == [[2.0, 2.0, 2.0], [0.0, 5.0, 5.0]]

    def test_transposed_results_keep_their_meaning(self) -> None:
        def function() -> Any:
            x = arange(6).view(2, 3).t().contiguous()
            return x.add(0).t().tolist()

        assert value(function) == [[0, 1, 2], [3, 4, 5]]

    def test_a_branch_on_a_constant_is_taken(self) -> None:
        def function() -> Any:
            x = torch.zeros(3, device="cuda")
            return x.sin() if (arange(3) < 3).all() else x.cos()

        assert "sin" in names(traced(function)) and "cos" not in names(traced(function))

    def test_integer_buffers_of_the_model(self) -> None:
        model = Model(lambda m, x: x[:, : int(m.lengths.max())])
        model.register_buffer("lengths", torch.tensor([2, 3]))
        result = inference(model, torch.empty(2, 5)).operators[-1].outputs[0]
        assert result and result.shape == (2, 3)

    @settings(deadline=None, max_examples=25)
    @given(
        st.lists(st.integers(-9, 9), min_size=1, max_size=5), st.lists(st.sampled_from("+-*sfcv"), max_size=6)
    )
    def test_any_chain_agrees_with_the_cpu(self, start: list[int], program: list[str]) -> None:
        steps = {
            "+": lambda x: x + 2, "-": lambda x: x.sub_(1), "*": lambda x: x * x, "s": lambda x: x.sort()[0],
            "f": lambda x: x.flip(0), "c": lambda x: x.cumsum(0), "v": lambda x: x.view(-1, 1).t().reshape(-1),
        }  # fmt: skip

        def chain(x: Any) -> Any:
            for step_name in program:
                x = steps[step_name](x)
            return x.tolist()

        assert value(lambda: chain(torch.tensor(start, device="cuda"))) == chain(torch.tensor(start))


class TestUnknown:
    @pytest.mark.parametrize("make", [
        lambda: torch.empty(3, device="cuda", dtype=torch.int64),
        lambda: torch.randint(5, (3,), device="cuda"),
        lambda: torch.zeros(3, device="cuda", dtype=torch.int64).random_(),
        lambda: torch.randperm(3, device="cuda"),
        lambda: torch.empty_like(torch.zeros(3, device="cuda", dtype=torch.int64)),
    ])  # fmt: skip
    def test_random_and_uninitialised(self, make: Any) -> None:
        with pytest.raises(CaptureError, match="not known before the model runs"):
            value(lambda: make().tolist())

    def test_unknown_input_makes_unknown_results(self) -> None:
        with pytest.raises(CaptureError):
            value(lambda: (torch.randint(5, (3,), device="cuda") + arange(3)).tolist())

    def test_writing_something_unknown_makes_unknown(self) -> None:
        def function() -> Any:
            x = torch.zeros(3, device="cuda", dtype=torch.int64)
            x[0] = torch.randint(5, (), device="cuda")
            return x.tolist()

        with pytest.raises(CaptureError):
            value(function)

    def test_large_tensors_are_not_followed(self) -> None:
        most = LARGE_BYTES // 8
        assert value(lambda: arange(most)[-1].item()) == most - 1
        with pytest.raises(CaptureError):
            value(lambda: arange(most + 1)[-1].item())

    def test_large_ones_are_followed_until_their_work_is_done(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            many = arange(LARGE_BYTES // 8)
            for _ in range(LARGE_WORK // LARGE_BYTES):
                many = many + 1
            return x[: many[0].item()]

        with pytest.raises(CaptureError):
            inference(Model(forward), torch.empty(3))

    def test_the_line_and_the_module_are_named(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            return x[: x.long().max()]

        with pytest.raises(CaptureError, match=r"test_known_values\.py:\d+ needs the value.*\(in module 0\)"):
            inference(nn.Sequential(Model(forward)), torch.empty(3))

    def test_a_float_is_assumed_and_noted(self) -> None:
        graph = inference(Model(lambda m, x: x * x.sum().item()), torch.empty(3))
        (note,) = graph.notes
        assert "test_known_values.py:" in note and "1.0 stands in for it" in note

    def test_a_known_float_is_not(self) -> None:
        graph = inference(Model(lambda m, x: x * torch.ones(3, device="cuda").sum().item()), torch.empty(3))
        assert graph.notes == ()

    def test_the_note_is_given_once(self) -> None:
        graph = inference(Model(lambda m, x: x * x.sum().item()), torch.empty(3), steps=3)
        assert len(graph.notes) == 1

    def test_operator_a_cpu_does_not_have(self) -> None:
        """cuDNN's dropout state has no inputs, so nothing about it is unknown but its value."""
        graph = step(nn.LSTM(2, 2, 2, dropout=0.5), torch.empty(3, 1, 2), loss=lambda o, *_: o[0].sum())
        assert "_cudnn_init_dropout_state" in names(graph)


class TestHost:
    def test_host_tensors_have_values(self) -> None:
        assert value(lambda: (torch.arange(3) * 2).tolist()) == [0, 2, 4]

    def test_tensor_from_a_list_of_device_scalars(self) -> None:
        assert value(lambda: torch.tensor([arange(3)[2], arange(3)[1]]).tolist()) == [2, 1]

    def test_lists_of_unknown_scalars(self) -> None:
        with pytest.raises(CaptureError):
            inference(Model(lambda m, x: torch.tensor([x[0].long()])), torch.empty(3))
