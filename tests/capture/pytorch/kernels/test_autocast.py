"""`torch.autocast("cuda")` on tensors that stand for CUDA ones: the same operators, casts, order and cache."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analyzer.capture.pytorch.kernels import autocast
from analyzer.errors import CaptureError
from analyzer.graph import Graph
from tests.capture.pytorch.captures import (
    Model,
    inference,
    names,
    operators,
    short,
    step,
    the,
    traced,
)

LISTED = {f"aten::{name}" for listed in autocast.POLICIES.values() for name in listed}


def registered() -> set[str]:
    """The operators PyTorch itself has an AutocastCUDA kernel for."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {name for name in torch._C._dispatch_get_all_op_names() if has(name, "AutocastCUDA")}


def casts(graph: Graph, phase: str | None = "forward") -> list[tuple[tuple[int, ...], str]]:
    """Shape and new type of every conversion, in order."""
    found = []
    for operator in operators(graph, phase):
        result = operator.outputs[0] if operator.outputs else None
        if short(operator) == "_to_copy" and result and result.dtype != operator.inputs[0].dtype:
            found.append((result.shape, result.dtype))
    return found


def types(graph: Graph, name: str) -> tuple[list[str], list[str]]:
    operator = the(graph, name)
    return [t.dtype for t in operator.inputs], [t.dtype for t in operator.outputs if t]


class TestLists:
    def test_are_those_pytorch_registers(self) -> None:
        documented = {"aten::binary_cross_entropy", "aten::rms_norm"}
        # PyTorch casts `_cudnn_rnn` in a kernel of the CUDA build (`cudnn/AutocastRNN.cpp`), which is not here.
        assert LISTED - registered() == {"aten::_cudnn_rnn"}
        of_pytorch = {name for name in registered() if name.startswith("aten::")}  # torchvision has its own
        assert of_pytorch - LISTED <= documented
        assert "aten::binary_cross_entropy" in registered()

    def test_no_operator_has_two_policies(self) -> None:
        policies = Counter(name for listed in autocast.POLICIES.values() for name in listed)
        assert max(policies.values()) == 1

    def test_every_name_is_an_operator(self) -> None:
        assert all(autocast.overload(name.removeprefix("aten::")) for name in LISTED)

    def test_banned_function_raises(self) -> None:
        model = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())
        target = torch.empty(3, 1)
        with pytest.raises(CaptureError, match="unsafe to autocast"):
            step(model, torch.empty(3, 2), targets=[target], loss=F.binary_cross_entropy, amp="fp16")
        step(model, torch.empty(3, 2), targets=[target], loss=F.binary_cross_entropy)


class TestPolicies:
    @pytest.mark.parametrize(("amp", "low"), [("bf16", "bfloat16"), ("fp16", "float16")])
    def test_lower_precision_casts_last_argument_first(self, amp: str, low: str) -> None:
        graph = inference(nn.Linear(4, 3), torch.empty(2, 4), amp=amp)
        assert casts(graph) == [((3,), low), ((3, 4), low), ((2, 4), low)]
        assert types(graph, "addmm") == ([low] * 3, [low])

    def test_convolution(self) -> None:
        graph = inference(nn.Conv2d(3, 4, 3), torch.empty(1, 3, 8, 8), amp="bf16")
        assert casts(graph) == [((4,), "bfloat16"), ((4, 3, 3, 3), "bfloat16"), ((1, 3, 8, 8), "bfloat16")]

    def test_float32_operators(self) -> None:
        graph = inference(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), torch.empty(2, 4), amp="bf16")
        assert casts(graph)[-1] == ((2, 4), "float32")
        assert set(types(graph, "native_layer_norm")[0]) == {"float32"}

    @pytest.mark.parametrize("function", [
        torch.exp, torch.log, torch.rsqrt, lambda x: x**2, lambda x: 2**x, F.softplus, lambda x: torch.cdist(x, x),
        lambda x: F.interpolate(x[None], scale_factor=2), lambda x: F.mse_loss(x, x), lambda x: torch.logsumexp(x, 0),
    ])  # fmt: skip
    def test_float32_results(self, function: Any) -> None:
        graph = inference(Model(lambda m, x: function(x.half())), torch.empty(4, 4), amp="fp16")
        result = operators(graph, "forward")[-1].outputs[0]
        assert result and result.dtype == "float32"

    @pytest.mark.parametrize(("function", "operator"), [
        (lambda x: x.softmax(-1), "_softmax"), (lambda x: x.sum(), "sum"), (lambda x: x.sum(1), "sum.dim_IntList"),
        (lambda x: x.prod(), "prod"), (lambda x: x.cumsum(0), "cumsum"), (lambda x: x.norm(), "linalg_vector_norm"),
        (lambda x: x.norm(dim=1), "linalg_vector_norm"), (torch.linalg.vector_norm, "linalg_vector_norm"),
    ])  # fmt: skip
    def test_result_type_is_set_instead_of_a_copy(self, function: Any, operator: str) -> None:
        graph = inference(Model(lambda m, x: function(x.half())), torch.empty(4, 4), amp="fp16")
        assert len(casts(graph)) == 1  # the model's own `half`
        assert operator in names(graph)
        result = [o for o in operators(graph, "forward") if o.outputs[0]][-1].outputs[0]
        assert result and result.dtype == "float32"

    def test_a_result_type_the_model_asks_for_stands(self) -> None:
        graph = inference(Model(lambda m, x: x.half().sum(dtype=torch.float64)), torch.empty(4), amp="fp16")
        assert types(graph, "sum")[1] == ["float64"]

    def test_promotion_to_the_widest(self) -> None:
        mixed = inference(Model(lambda m, x: torch.dot(x.half(), x)), torch.empty(4), amp="fp16")
        assert casts(mixed) == [((4,), "float16"), ((4,), "float32")]
        halves = inference(Model(lambda m, x: torch.dot(x.half(), x.half())), torch.empty(4), amp="fp16")
        assert [dtype for _, dtype in casts(halves)] == ["float16", "float16"]

    def test_other_operators_promote_by_themselves(self) -> None:
        graph = inference(
            Model(lambda m, x: m.a(x) + x, a=nn.Linear(4, 4, bias=False)), torch.empty(2, 4), amp="bf16"
        )
        assert types(graph, "add.Tensor") == (["bfloat16", "float32"], ["float32"])

    def test_float64_and_integers_are_left_alone(self) -> None:
        graph = inference(
            nn.Linear(4, 4, dtype=torch.float64), torch.empty(2, 4, dtype=torch.float64), amp="bf16"
        )
        assert casts(graph) == []
        looked_up = inference(nn.Embedding(4, 4), torch.empty(2, dtype=torch.int64), amp="bf16")
        assert casts(looked_up) == []

    def test_list_arguments(self) -> None:
        graph = inference(Model(lambda m, x: torch.einsum("ij,kj->ik", x, x)), torch.empty(2, 4), amp="bf16")
        assert set(types(graph, "bmm")[0]) == {"bfloat16"}


class TestCache:
    def twice(self, x: Any, **options: Any) -> Any:
        def forward(model: Any, x: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16, **options):
                return model.a(model.a(x))

        return step(Model(forward, a=nn.Linear(4, 4, bias=False)), x)

    def test_a_parameter_is_cast_once_per_context(self) -> None:
        graph = self.twice(torch.empty(2, 4))
        assert casts(graph) == [((4, 4), "bfloat16"), ((2, 4), "bfloat16")]

    def test_without_the_cache_every_time(self) -> None:
        graph = self.twice(torch.empty(2, 4), cache_enabled=False)
        assert casts(graph).count(((4, 4), "bfloat16")) == 2

    def test_parameters_that_need_no_gradient_are_not_cached(self) -> None:
        """`cached_cast`: only leaves that require a gradient."""

        def forward(model: Any, x: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return model.a(model.a(x))

        model = Model(forward, a=nn.Linear(4, 4, bias=False)).requires_grad_(False)
        assert casts(inference(model, torch.empty(2, 4))).count(((4, 4), "bfloat16")) == 2

    def test_inference_caches_too(self) -> None:
        """Under `no_grad` the parameters still require a gradient."""
        model = Model(lambda m, x: m.a(m.a(x)), a=nn.Linear(4, 4, bias=False))
        assert casts(inference(model, torch.empty(2, 4), amp="bf16")).count(((4, 4), "bfloat16")) == 1

    def test_cleared_when_the_outermost_context_ends(self) -> None:
        def forward(model: Any, x: Any) -> Any:
            for _ in range(2):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    x = model.a(x)
            return x

        graph = inference(Model(forward, a=nn.Linear(4, 4, bias=False)), torch.empty(2, 4))
        assert casts(graph).count(((4, 4), "bfloat16")) == 2
        nested = inference(Model(forward, a=nn.Linear(4, 4, bias=False)), torch.empty(2, 4), amp="bf16")
        assert casts(nested).count(((4, 4), "bfloat16")) == 1

    def test_the_copy_dies_with_the_context_unless_saved(self) -> None:
        def alive(graph: Graph) -> bool:
            from tests.capture.pytorch.captures import deaths

            made = next(o for o in operators(graph, "forward") if o.outputs[0] and o.outputs[0].shape == (4, 3)
                        and o.outputs[0].dtype == "bfloat16" and short(o) == "_to_copy").outputs[0]  # fmt: skip
            return bool(made and deaths(graph)[made.storage] in ("mm", "0.backward", "sum.dim_IntList"))

        head = nn.Linear(3, 4, bias=False)
        assert not alive(step(head, torch.empty(2, 3), amp="bf16"))  # the input needs no gradient: not saved
        assert alive(step(nn.Sequential(nn.Linear(5, 3), head), torch.empty(2, 5), amp="bf16"))


class TestContexts:
    def test_disabled_inside(self) -> None:
        def forward(model: Any, x: Any) -> Any:
            x = model.a(x)
            with torch.autocast("cuda", enabled=False):
                return model.b(x.float())

        graph = inference(Model(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4)), torch.empty(2, 4), amp="bf16")
        kinds = [
            o.outputs[0].dtype for o in operators(graph, "forward") if short(o) == "addmm" and o.outputs[0]
        ]
        assert kinds == ["bfloat16", "float32"]

    def test_another_type_inside(self) -> None:
        def forward(model: Any, x: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.float16):
                return model.a(x)

        graph = inference(Model(forward, a=nn.Linear(4, 4)), torch.empty(2, 4), amp="bf16")
        assert types(graph, "addmm")[1] == ["float16"]

    def test_decorators_of_autograd_functions(self) -> None:
        class Double(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(_: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(_: Any, gradient: Any) -> Any:
                return gradient * 2

        graph = step(
            Model(lambda m, x: Double.apply(m.a(x)), a=nn.Linear(4, 4)), torch.empty(2, 4), amp="bf16"
        )
        assert types(graph, "addmm")[1] == ["bfloat16"]
        doubled = next(o for o in operators(graph, "forward") if short(o) == "mul.Tensor").outputs[0]
        assert doubled and doubled.dtype == "float32"

    def test_models_see_that_it_is_on(self) -> None:
        seen = []

        def forward(_: Any, x: Any) -> Any:
            seen.append((torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")))
            return x

        inference(Model(forward), torch.empty(2), amp="bf16")
        inference(Model(forward), torch.empty(2))
        assert seen[0] == (True, torch.bfloat16) and seen[1][0] is False

    def test_backward_runs_outside(self) -> None:
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), amp="bf16")
        gradients = [
            t.dtype for o in operators(graph, "backward") if short(o) == "mm" for t in o.outputs if t
        ]
        assert gradients == ["bfloat16"]
        assert casts(graph, "backward")[-2:] == [((3, 4), "float32"), ((3,), "float32")]

    def test_host_tensors_are_not_cast(self) -> None:
        graph = traced(lambda: _under_autocast(lambda: torch.ones(2, 2) @ torch.ones(2, 2)))
        assert graph.operators == ()


def _under_autocast(function: Any) -> Any:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return function()


class TestScaler:
    def test_float16_training_scales_and_unscales(self) -> None:
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), amp="fp16", steps=2)
        first = [o for o in operators(graph) if o.step == 0]
        backward = [short(o) for o in first if o.phase.value == "backward"]
        assert backward[:3] == ["full", "full", "mul.Tensor"]  # scale, growth tracker, the scaled loss
        stepping = [short(o) for o in first if o.phase.value == "optimizer"]
        assert [n for n in stepping if n.startswith("_amp")] == [
            "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_",
        ]  # fmt: skip
        assert stepping.index("_foreach_add_.List") == stepping.index("_amp_update_scale_") - 1
        second = [short(o) for o in operators(graph) if o.step == 1 and o.phase.value == "backward"]
        assert "full" not in second

    def test_inverse_scale_is_computed_in_float64(self) -> None:
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), amp="fp16")
        assert types(graph, "reciprocal") == (["float64"], ["float64"])

    def test_bfloat16_and_inference_use_none(self) -> None:
        assert "_amp_update_scale_" not in names(step(nn.Linear(4, 3), torch.empty(2, 4), amp="bf16"))
        assert "_amp_update_scale_" not in names(inference(nn.Linear(4, 3), torch.empty(2, 4), amp="fp16"))

    def test_the_step_is_taken(self) -> None:
        """Gradients are taken to be finite."""
        graph = step(nn.Linear(4, 3), torch.empty(2, 4), amp="fp16", optimizer=torch.optim.Adam)
        assert "_foreach_addcdiv_.ScalarList" in names(graph, "optimizer") and not graph.notes

    def test_fused_optimizers_unscale_themselves(self) -> None:
        graph = step(
            nn.Linear(4, 3),
            torch.empty(2, 4),
            amp="fp16",
            optimizer=lambda p: torch.optim.AdamW(p, fused=True),
        )
        assert "_fused_adamw_" in names(graph, "optimizer")


class TestRecurrent:
    def test_weights_go_into_one_flat_buffer_then_states_and_input(self) -> None:
        """LSTM 4 → 6: 288 weights of float16 are 576 bytes."""
        layer = nn.LSTM(4, 6)
        graph = step(layer, torch.empty(5, 2, 4), loss=lambda o, *_: o[0].float().sum(), amp="fp16")
        buffer = next(
            o
            for o in operators(graph, "forward")
            if short(o) == "zeros" and o.outputs[0] and o.outputs[0].shape == (288,)
        ).outputs[0]
        assert buffer and graph.storages[buffer.storage].nbytes == 576
        called = [short(o) for o in operators(graph, "forward")]
        assert called.count("copy_") == 4
        assert [shape for shape, _ in casts(graph)] == [(1, 2, 6), (1, 2, 6), (5, 2, 4)]
        assert types(graph, "_cudnn_rnn")[0][0] == "float16"

    def test_another_type_is_float16_all_the_same(self) -> None:
        """Without biases the buffer has room for both: 240 weights, 2 x 24 biases."""
        layer = nn.LSTM(4, 6, bias=False)
        graph = step(layer, torch.empty(5, 2, 4), loss=lambda o, *_: o[0].float().sum(), amp="bf16")
        made = [o.outputs[0] for o in operators(graph, "forward") if short(o) == "zeros" and o.outputs[0]]
        assert ("float16", (288,)) in [(t.dtype, t.shape) for t in made]
        assert types(graph, "_cudnn_rnn")[0][0] == "float16"

    def test_packed_sequences(self) -> None:
        def packed(model: Any, x: Any) -> Any:
            sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
            return model.lstm(sequence)[0].data

        graph = step(Model(packed, lstm=nn.LSTM(4, 6, batch_first=True)), torch.empty(2, 5, 4), amp="fp16")
        assert types(graph, "_cudnn_rnn")[0][0] == "float16"


class TestAttention:
    def test_inputs_and_mask_are_cast(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            return F.scaled_dot_product_attention(x, x, x, torch.zeros(16, 16, device="cuda"))

        graph = inference(Model(forward), torch.empty(2, 4, 16, 64), amp="bf16")
        assert set(types(graph, "_scaled_dot_product_cudnn_attention")[0]) == {"bfloat16"}


class TestInferenceMode:
    """What reaches the recorder whole there is taken apart with autocast at work, as in the library."""

    def test_casts_are_not_cached(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
                    return self.linear(self.linear(x))

        graph = inference(Twice(), torch.empty(4, 8))
        assert casts(graph) == [
            ((8,), "bfloat16"),
            ((8, 8), "bfloat16"),
            ((4, 8), "bfloat16"),
            ((8,), "bfloat16"),
            ((8, 8), "bfloat16"),
        ]

    def test_parts_of_a_composite_operator_are_cast(self) -> None:
        class Enlarged(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.convolution = nn.Conv2d(3, 3, 1, bias=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
                    return F.interpolate(self.convolution(x), size=[7, 7], mode="nearest-exact")

        graph = inference(Enlarged(), torch.empty(2, 3, 5, 5))
        assert types(graph, "_upsample_nearest_exact2d") == (["float32"], ["float32"])
        assert "arange" not in {short(operator) for operator in graph.operators}


def test_the_gradient_of_mish_is_one_kernel() -> None:
    graph = step(nn.Sequential(nn.Linear(8, 8), nn.Mish()), torch.empty(4, 8))
    assert "mish_backward" in {short(operator) for operator in graph.operators}
    assert "softplus" not in {short(operator) for operator in graph.operators}
