"""What CUDA runs where a CPU or meta tensor would run something else: each decision of `kernels/decisions.py`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import analyzer
from analyzer.capture.pytorch.kernels.attention import AttentionChoice
from analyzer.capture.pytorch.module.from_options import optimizer_named, optimizer_names
from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
from analyzer.devices import load
from analyzer.errors import CaptureError
from analyzer.graph import Category, Graph
from analyzer.runtimes.events import Free, Malloc
from analyzer.runtimes.pytorch import eager
from tests.capture.pytorch.captures import (
    H200,
    Model,
    inference,
    names,
    operators,
    short,
    step,
    the,
    traced,
)
from tests.paths import DATA

RECORDED = DATA / "operators_h200.json.gz"
HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


def cuda(*shape: int, dtype: torch.dtype = SINGLE) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


class TestDropout:
    def test_training_is_fused(self) -> None:
        graph = step(Model(lambda m, x: F.dropout(m.a(x), 0.5), a=nn.Linear(4, 4)), torch.empty(2, 4))
        out, mask = the(graph, "native_dropout").outputs
        assert out and mask and mask.dtype == "bool"
        assert graph.storages[mask.storage].saved and not graph.storages[out.storage].saved

    @pytest.mark.parametrize(("p", "train", "expected"), [
        (0.5, True, ["native_dropout"]), (0.5, False, []), (0.0, True, []), (1.0, True, ["zeros", "mul.Tensor"]),
    ])  # fmt: skip
    def test_probability(self, p: float, train: bool, expected: list[str]) -> None:
        assert names(traced(lambda: F.dropout(cuda(4, 4), p, train)))[1:] == expected

    def test_empty_tensor(self) -> None:
        assert "native_dropout" not in names(traced(lambda: F.dropout(cuda(0, 4), 0.5)))

    def test_feature_dropout_draws_a_small_mask(self) -> None:
        graph = traced(lambda: F.dropout2d(cuda(2, 3, 8, 8), 0.5))
        (noise,) = (o for o in operators(graph) if "bernoulli" in o.name)
        assert noise.inputs[0].shape == (2, 3, 1, 1)


class TestBatchNorm:
    @pytest.mark.parametrize(("options", "shape", "dtype", "train", "expected"), [
        ({}, (2, 4, 8, 8), SINGLE, True, "cudnn"),
        ({}, (2, 4, 8, 8), SINGLE, False, "cudnn"),
        ({}, (2, 4, 8), SINGLE, True, "cudnn"),
        ({}, (2, 4, 8, 8, 8), SINGLE, True, "cudnn"),
        ({}, (2, 4), SINGLE, True, "native"),
        ({}, (2, 4, 8, 8), HALF, True, "cudnn"),  # weights stay float32
        ({}, (2, 4, 8, 8), BRAIN, True, "native"),
        ({}, (2, 4, 8, 8), DOUBLE, True, "cudnn"),
        ({"affine": False}, (2, 4, 8, 8), SINGLE, True, "native"),
        ({"track_running_stats": False}, (2, 4, 8, 8), SINGLE, True, "cudnn"),
        ({"track_running_stats": False}, (2, 4, 8, 8), SINGLE, False, "cudnn"),  # the batch's own statistics
        ({"eps": 1e-6}, (2, 4, 8, 8), SINGLE, True, "native"),
        ({"eps": 1e-5}, (2, 4, 8, 8), SINGLE, True, "cudnn"),
        ({}, (65536, 4, 1), SINGLE, False, "native"),
        ({}, (65535, 4, 1), SINGLE, False, "cudnn"),
        ({}, (65536, 4, 1), SINGLE, True, "cudnn"),
        ({}, (880802, 4, 1), SINGLE, True, "native"),
    ])  # fmt: skip
    def test_library(self, options: Any, shape: Any, dtype: Any, train: bool, expected: str) -> None:
        kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
        layer = kinds[len(shape)](shape[1], **options, dtype=DOUBLE if dtype is DOUBLE else SINGLE)
        run = step if train else inference
        graph = run(
            Model(lambda m, x: m.norm((x + m.extra.bias).to(dtype)), norm=layer, extra=nn.Linear(1, 1)),
            torch.empty(shape),
        )
        assert f"{expected}_batch_norm" in names(graph, "forward")

    def test_half_weights(self) -> None:
        assert "native_batch_norm" in names(
            step(nn.BatchNorm2d(4).half(), torch.empty(2, 4, 8, 8, dtype=HALF))
        )

    def test_switched_off(self) -> None:
        with torch.backends.cudnn.flags(enabled=False):
            graph = step(nn.BatchNorm2d(4), torch.empty(2, 4, 8, 8))
        assert "native_batch_norm" in names(graph)

    def test_backward_is_the_same_library(self) -> None:
        for dtype, library in ((SINGLE, "cudnn"), (BRAIN, "native")):
            model = Model(
                lambda m, x, t=dtype: m.norm(m.conv(x).to(t)), norm=nn.BatchNorm2d(4), conv=nn.Conv2d(3, 4, 1)
            )
            assert f"{library}_batch_norm_backward" in names(step(model, torch.empty(2, 3, 8, 8)), "backward")


class TestMatrixRank:
    @pytest.mark.parametrize("options", [{}, {"atol": 1.0, "rtol": 1.0}, {"hermitian": True}, {"tol": 0.5}])
    def test_values_are_counted_into_a_result_that_is_there(self, options: Any) -> None:
        graph = traced(lambda: torch.linalg.matrix_rank(cuda(3, 5, 5), **options))
        called = [short(o) for o in operators(graph)]
        assert "sum.IntList_out" in called and "sum.dim_IntList" not in called
        made = next(
            o for o in operators(graph) if short(o).startswith("empty") and o.outputs[0].shape == (3,)
        )
        assert the(graph, "sum.IntList_out").outputs[0].storage == made.outputs[0].storage


class TestMathAttention:
    def test_locals_go_last_to_first(self) -> None:
        """The mask before what was converted: value, key, query."""
        with sdpa_kernel(SDPBackend.MATH):
            graph = traced(
                lambda: F.scaled_dot_product_attention(
                    *(cuda(2, n, 16, dtype=BRAIN) for n in (3, 5, 5)), is_causal=True
                )
            )
        gone = [graph.storages[e.storage].nbytes for e in graph.program if type(e).__name__ == "Death"]
        mask, key, query = 3 * 5 * 4, 2 * 5 * 16 * 4, 2 * 3 * 16 * 4
        assert gone[gone.index(mask) :][:4] == [mask, key, key, query]


class TestLinear:
    @pytest.mark.parametrize(("shape", "bias", "expected"), [
        ((2, 4), True, ["addmm"]),
        ((2, 4), False, ["mm"]),
        ((4,), True, ["addmm"]),
        ((2, 3, 4), True, ["addmm"]),
        ((2, 3, 4), False, ["mm"]),
        ((2, 3, 5, 4), True, ["addmm"]),
    ])  # fmt: skip
    def test_contiguous(self, shape: Any, bias: bool, expected: list[str]) -> None:
        graph = inference(nn.Linear(4, 6, bias), torch.empty(shape))
        found = [name for name in names(graph, "forward") if name != "addmv"]
        assert found == expected

    def test_transposed_input_is_copied_and_the_bias_added_in_place(self) -> None:
        layer = Model(lambda m, x: m.a(x.transpose(0, 1)), a=nn.Linear(4, 6))
        assert names(inference(layer, torch.empty(2, 3, 4)), "forward") == ["clone", "mm", "add_.Tensor"]

    def test_input_that_requires_no_gradient_keeps_nothing_but_itself(self) -> None:
        graph = step(nn.Linear(4, 6), torch.empty(2, 3, 4))
        assert names(graph, "backward")[:3] == ["ones_like", "mm", "sum.dim_IntList"]


class TestSoftmax:
    @pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
    @pytest.mark.parametrize(("source", "dtype", "copies"), [
        (HALF, SINGLE, 0), (BRAIN, SINGLE, 1), (SINGLE, None, 0), (SINGLE, HALF, 1), (HALF, None, 0),
    ])  # fmt: skip
    def test_conversion(self, function: Any, source: Any, dtype: Any, copies: int) -> None:
        graph = traced(lambda: function(cuda(4, 8, dtype=source), -1, dtype=dtype))
        assert names(graph).count("_to_copy") == copies
        call = the(graph, "_softmax" if function is F.softmax else "_log_softmax")
        assert call.arguments[2] is (source is HALF and dtype is SINGLE)
        assert call.outputs[0] and call.outputs[0].dtype == str(dtype or source)[6:]


def attention(device: str, dtype: Any = HALF, *, heads: tuple[int, int] = (4, 4), lengths: tuple[int, int] = (128, 128),
              sizes: tuple[int, int] = (64, 64), mask: Any = None, p: float = 0.0, causal: bool = False,
              gqa: bool = False, grad: bool = False, strided: bool = False) -> str:  # fmt: skip
    """The kernel chosen on a device."""

    def tensor(h: int, s: int, e: int) -> torch.Tensor:
        made = torch.empty(2, h, s, e * 2 if strided else e, dtype=dtype, device="meta", requires_grad=grad)
        return made[..., ::2] if strided else made

    q, k, v = (
        tensor(heads[0], lengths[0], sizes[0]),
        tensor(heads[1], lengths[1], sizes[0]),
        tensor(heads[1], lengths[1], sizes[1]),
    )
    return AttentionChoice(CompatibleDevices(load(device))).backend(q, k, v, mask, p, causal, gqa)


DEVICES = ("v100", "t4", "a100-80gb", "rtx4090", "h100", "h200", "b200")
BOOL = torch.empty(2, 1, 128, 128, dtype=torch.bool, device="meta")
ADDED = torch.empty(2, 4, 128, 128, dtype=HALF, device="meta")
LEARNED = torch.empty(4, 128, 128, dtype=HALF, device="meta", requires_grad=True).expand(2, 4, 128, 128)
THREE = torch.empty(4, 128, 128, dtype=HALF, device="meta")
TURNED = torch.empty(2, 1, 128, 128, dtype=torch.bool, device="meta").transpose(-1, -2)


class TestAttentionBackend:
    """By `sdp_utils.cpp`: rows are calls, columns devices of compute capability 7.0, 7.5, 8.0, 8.9, 9.0, 9.0, 10.0. Masks beside
    `is_causal` and of three dimensions: as torch 2.11's own binary chooses, emulated."""

    C, F, E, M = "cudnn", "flash", "efficient", "math"

    @pytest.mark.parametrize(("call", "expected"), [
        ({}, (E, E, F, F, C, C, C)),
        ({"dtype": BRAIN}, (M, M, F, F, C, C, C)),
        ({"dtype": SINGLE}, (E, E, E, E, E, E, E)),
        ({"dtype": DOUBLE}, (M, M, M, M, M, M, M)),
        ({"causal": True}, (E, E, F, F, C, C, C)),
        ({"causal": True, "lengths": (64, 128)}, (E, E, E, E, C, C, C)),
        ({"lengths": (64, 128)}, (E, E, F, F, C, C, C)),
        ({"lengths": (1, 128)}, (E, E, F, F, C, C, C)),
        ({"lengths": (1, 128), "p": 0.1}, (E, E, F, F, F, F, F)),
        ({"lengths": (128, 1)}, (E, E, F, F, F, F, F)),
        ({"mask": BOOL}, (E, E, E, E, C, C, C)),
        ({"mask": ADDED}, (E, E, E, E, C, C, C)),
        ({"mask": LEARNED}, (E, E, E, E, E, E, E)),
        ({"mask": TURNED}, (M, M, M, M, M, M, M)),
        ({"mask": BOOL, "causal": True}, (E, E, E, E, C, C, C)),
        ({"mask": THREE}, (E, E, E, E, E, E, E)),
        ({"mask": BOOL, "dtype": SINGLE}, (E, E, E, E, E, E, E)),
        ({"sizes": (128, 128)}, (E, E, F, F, C, C, C)),
        ({"sizes": (136, 136)}, (E, E, F, F, C, C, F)),
        ({"sizes": (256, 256)}, (E, E, F, F, C, C, F)),
        ({"sizes": (264, 264)}, (E, E, E, E, E, E, E)),
        ({"sizes": (60, 60)}, (M, M, F, F, F, F, F)),  # flash pads; tensor cores want multiples of 8
        ({"sizes": (60, 60), "dtype": SINGLE}, (E, E, E, E, E, E, E)),
        ({"sizes": (63, 63), "dtype": SINGLE}, (E, E, M, M, M, M, M)),
        ({"sizes": (64, 32)}, (E, E, E, E, C, C, C)),
        ({"sizes": (256, 256), "grad": True}, (E, E, F, F, C, C, F)),
        ({"sizes": (256, 256), "grad": True, "p": 0.1}, (E, E, F, E, C, C, F)),
        ({"sizes": (208, 208), "grad": True}, (E, E, F, E, C, C, F)),
        ({"heads": (8, 2), "gqa": True}, (M, M, F, F, C, C, C)),
        ({"heads": (8, 2), "gqa": True, "dtype": SINGLE}, (M, M, M, M, M, M, M)),
        ({"heads": (8, 3), "gqa": True}, (M, M, M, M, M, M, M)),
        ({"strided": True}, (M, M, M, M, M, M, M)),
    ])  # fmt: skip
    def test_table(self, call: dict[str, Any], expected: tuple[str, ...]) -> None:
        assert tuple(attention(device, **call) for device in DEVICES) == expected

    def test_tensor_cores_want_rows_aligned_and_a_p100_has_none(self) -> None:
        """As torch 2.7's own binary chooses, emulated."""
        assert attention("p100", sizes=(60, 60)) == attention("p100", sizes=(63, 63)) == "efficient"
        assert attention("p100", dtype=BRAIN) == "math"

    def test_three_dimensions(self) -> None:
        q = torch.empty(2, 16, 64, dtype=HALF, device="meta")
        assert AttentionChoice(CompatibleDevices(H200)).backend(q, q, q, None, 0.0, False, False) == "math"

    @pytest.mark.parametrize(("allowed", "expected"), [
        (SDPBackend.FLASH_ATTENTION, "flash"), (SDPBackend.EFFICIENT_ATTENTION, "efficient"), (SDPBackend.MATH, "math"),
        (SDPBackend.CUDNN_ATTENTION, "cudnn"),
    ])  # fmt: skip
    def test_context_that_switches_others_off(self, allowed: SDPBackend, expected: str) -> None:
        with sdpa_kernel(allowed):
            assert attention("h200") == expected


class TestAttentionCalls:
    def call(self, dtype: Any, **options: Any) -> Graph:
        shape = options.pop("shape", (2, 4, 128, 64))
        mask = options.pop("mask", None)

        def run() -> Any:
            q, k, v = (torch.empty(shape, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3))
            return F.scaled_dot_product_attention(q, k, v, None if mask is None else mask(), **options)

        return traced(run, device=options.pop("device", H200))

    def test_log_sum_exp_of_each_kernel(self) -> None:
        shapes = {
            "efficient": self.call(SINGLE, shape=(2, 4, 100, 64)),
            "cudnn": self.call(HALF, shape=(2, 4, 100, 64)),
            "flash": self.call(HALF, shape=(2, 4, 100, 64), device=load("a100-80gb")),
        }
        found = {
            name: the(graph, f"_scaled_dot_product_{name}_attention").outputs[1]
            for name, graph in shapes.items()
        }
        assert {name: t and (t.shape, t.dtype) for name, t in found.items()} == {
            "efficient": ((2, 4, 128), "float32"),  # rounded up to 32
            "cudnn": ((2, 4, 100, 1), "float32"),
            "flash": ((2, 4, 100), "float32"),
        }

    def test_flash_pads_heads_to_8(self) -> None:
        graph = self.call(HALF, shape=(2, 4, 16, 60), device=load("a100-80gb"))
        assert names(graph).count("constant_pad_nd") == 3
        result = the(graph, "_scaled_dot_product_flash_attention").outputs[0]
        assert result and result.shape == (2, 4, 16, 64)

    def test_boolean_mask_becomes_an_added_one(self) -> None:
        graph = self.call(HALF, mask=lambda: torch.ones(2, 1, 128, 128, dtype=torch.bool, device="cuda"))
        added = the(graph, "where.self").outputs[0]
        assert added and (added.shape, added.dtype) == ((2, 1, 128, 128), "float16")

    def test_efficient_pads_a_misaligned_mask(self) -> None:
        graph = self.call(SINGLE, shape=(2, 4, 20, 64), mask=lambda: torch.zeros(2, 1, 20, 20, device="cuda"))
        padded = the(graph, "constant_pad_nd").outputs[0]
        assert padded and padded.shape == (2, 1, 20, 24)
        aligned = self.call(
            SINGLE, shape=(2, 4, 24, 64), mask=lambda: torch.zeros(2, 1, 24, 24, device="cuda")
        )
        assert "constant_pad_nd" not in names(aligned)

    def test_math_adds_the_mask_in_place_and_computes_in_float32(self) -> None:
        with sdpa_kernel(SDPBackend.MATH):
            graph = self.call(HALF, mask=lambda: torch.zeros(2, 1, 128, 128, dtype=HALF, device="cuda"))
        assert "add_.Tensor" in names(graph) and "_safe_softmax" in names(graph)
        scores = next(o for o in operators(graph) if o.name == "aten::bmm.default").outputs[0]
        assert scores and scores.dtype == "float32"

    def test_a_boolean_mask_becomes_one_of_the_query_before_math_converts_it(self) -> None:
        """`scaled_dot_product_attention` makes it, whatever kernel runs (falcon under autocast on an H100)."""

        def mask() -> Any:
            return torch.ones(2, 1, 128, 128, dtype=torch.bool, device="cuda")

        with sdpa_kernel(SDPBackend.MATH):
            graph = self.call(HALF, mask=mask)
        found = names(graph)
        assert found.index("where.self") < found.index("_to_copy")
        additive = the(graph, "where.self").outputs[0]
        assert additive and (additive.shape, additive.dtype) == ((2, 1, 128, 128), "float16")

    def test_math_grouped_queries_repeat_the_keys(self) -> None:
        def run() -> Any:
            q, k = cuda(2, 8, 16, 64), cuda(2, 2, 16, 64)
            return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)

        assert "bmm" in names(traced(run))

    def test_negative_scale(self) -> None:
        with sdpa_kernel(SDPBackend.MATH):
            assert "bmm" in names(self.call(SINGLE, scale=-0.5))

    def test_backward_is_the_same_kernel(self) -> None:
        model = Model(
            lambda m, x: F.scaled_dot_product_attention(m.a(x), m.a(x), m.a(x)), a=nn.Linear(64, 64)
        )
        for dtype, kernel in ((SINGLE, "efficient"), (BRAIN, "cudnn")):
            graph = step(model.to(dtype), torch.empty(2, 4, 16, 64, dtype=dtype))
            assert f"_scaled_dot_product_{kernel}_attention_backward" in names(graph, "backward")


def requests(graph: Graph, first: int) -> list[int]:
    """Requested (positive) and freed bytes from the first operator whose index is `first` on, workspaces left out."""
    sizes: dict[int, int] = {}
    found = []
    started = False
    for event in eager.requests(graph, H200).events:
        if isinstance(event, Malloc):
            sizes[event.key] = event.nbytes
            started = started or event.operator >= first
            if started and event.nbytes and event.category is not Category.WORKSPACE:
                found.append(event.nbytes)
        elif isinstance(event, Free) and started and sizes[event.key]:
            found.append(-sizes[event.key])
    return found


def recorded_calls(case: str, operator: str) -> list[Any]:
    with gzip.open(RECORDED, "rt") as file:
        return [row for row in json.load(file)["cases"][case] if row[0] == operator]


def made(value: Any) -> Any:
    if isinstance(value, list):
        if value and value[0] == "T":
            return torch.empty_strided(value[1], value[3], dtype=getattr(torch, value[2]), device="cuda")
        return [made(part) for part in value]
    return value


class TestFusedTransformer:
    """One operator on CUDA; taken apart here. What it asks of the allocator was recorded on an H200."""

    def check_requests(self, run: Callable[[], Any], expected: list[int]) -> None:
        graph = traced(run)
        begin = sum(1 for o in operators(graph) if o.name.startswith("aten::empty_strided"))
        found = requests(graph, begin)
        assert found[: len(expected)] == expected
        assert all(nbytes < 0 for nbytes in found[len(expected) :])  # the arguments and results go

    @pytest.mark.parametrize("number", [0, 1])
    def test_attention_asks_for_what_was_recorded(self, number: int) -> None:
        _, expected, arguments, keywords, _ = recorded_calls(
            "mha", "aten._native_multi_head_attention.default"
        )[number]

        def run() -> Any:
            args = made(arguments)
            args[1] = args[2] = args[0]  # self-attention
            with torch.no_grad():
                return torch._native_multi_head_attention(*args, **keywords)

        self.check_requests(run, expected)

    @pytest.mark.parametrize("number", range(4))
    def test_encoder_layer_asks_for_what_was_recorded(self, number: int) -> None:
        calls = recorded_calls("encoder eval", "aten._transformer_encoder_layer_fwd.default")
        _, expected, arguments, keywords, _ = calls[number]

        def run() -> Any:
            args = made(arguments)
            with torch.no_grad():
                return torch._transformer_encoder_layer_fwd(*args, **keywords)

        self.check_requests(run, expected)

    X = torch.empty(2, 16, 64)

    def test_fast_path_of_attention(self) -> None:
        model = Model(
            lambda m, x: m.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(64, 4, batch_first=True)
        )
        assert names(inference(model, self.X), "forward") == [
            "addmm",
            "_scaled_dot_product_efficient_attention",
            "addmm",
        ]
        slow = names(step(model, self.X), "forward")
        assert "mm" in slow and slow[-1] == "addmm" and slow.count("clone") == 3

    def test_weights_are_averaged_in_place(self) -> None:
        model = Model(lambda m, x: m.a(x, x, x), a=nn.MultiheadAttention(64, 4, batch_first=True))
        assert names(inference(model, self.X), "forward")[-2:] == ["sum.dim_IntList", "div_.Tensor"]

    def test_padding_mask_is_used_as_flags(self) -> None:
        model = Model(
            lambda m, x, k: m.a(x, x, x, key_padding_mask=k, need_weights=False)[0],
            a=nn.MultiheadAttention(64, 4, batch_first=True),
        )
        graph = inference(model, self.X, torch.empty(2, 16, dtype=torch.bool))
        mask = the(graph, "_masked_softmax").inputs[1]
        assert mask.dtype == "bool"

    def test_fast_path_of_the_encoder_layer(self) -> None:
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        fast, slow = names(inference(layer, self.X), "forward"), names(step(layer, self.X), "forward")
        assert "_addmm_activation" in fast and "relu" not in fast
        assert "_addmm_activation" not in slow and slow.count("native_dropout") == 3

    def test_no_fast_path_under_autograd_autocast_or_odd_heads(self) -> None:
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        assert "_addmm_activation" not in names(inference(layer, self.X, amp="fp16"))
        odd = nn.TransformerEncoderLayer(63, 3, 128, batch_first=True)
        assert "_addmm_activation" not in names(inference(odd, torch.empty(2, 16, 63)))

    def test_padded_batch_stays_padded_and_it_is_noted(self) -> None:
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
        model = Model(lambda m, x, k: m.a(x, src_key_padding_mask=k), a=encoder)
        graph = inference(model, self.X, torch.empty(2, 16, dtype=torch.bool))
        assert names(graph).count("_masked_softmax") == 2
        assert graph.notes == ("padded batches of nn.TransformerEncoder are assumed to stay padded",)


class TestRecurrent:
    @pytest.mark.parametrize(
        "layer", [nn.LSTM(4, 6, 2), nn.GRU(4, 6, 2), nn.RNN(4, 6, 2), nn.RNN(4, 6, 2, "relu")]
    )
    def test_one_operator(self, layer: nn.Module) -> None:
        graph = step(layer, torch.empty(5, 2, 4), loss=lambda o, *_: o[0].sum())
        assert names(graph, "forward").count("_cudnn_rnn") == 1 and "mm" not in names(graph, "forward")
        assert names(graph, "backward").count("_cudnn_rnn_backward") == 1

    def test_weights_are_flattened_when_the_module_moves(self) -> None:
        """Four weights of 96, 144, 24 and 24 elements: one buffer of 1,152 bytes, the parameters views of it."""
        graph = step(nn.LSTM(4, 6), torch.empty(5, 2, 4), loss=lambda o, *_: o[0].sum())
        buffer = [s for s in graph.storages if s.category is Category.PARAMETER and s.nbytes == 1152]
        assert len(buffer) == 1
        assert the(graph, "_cudnn_rnn").arguments[3] is not None

    def test_bfloat16_weights_stay_apart(self) -> None:
        layer = nn.LSTM(4, 6, dtype=BRAIN)
        graph = inference(layer, torch.empty(5, 2, 4, dtype=BRAIN))
        assert sorted(s.nbytes for s in graph.storages if s.category is Category.PARAMETER) == [
            48,
            48,
            192,
            288,
        ]

    def test_dropout_state_is_made_once(self) -> None:
        graph = step(
            nn.LSTM(4, 6, 2, dropout=0.5), torch.empty(5, 2, 4), loss=lambda o, *_: o[0].sum(), steps=2
        )
        assert names(graph).count("_cudnn_init_dropout_state") == 1

    def test_no_dropout_state_in_evaluation(self) -> None:
        graph = inference(nn.LSTM(4, 6, 2, dropout=0.5), torch.empty(5, 2, 4))
        assert "_cudnn_init_dropout_state" not in names(graph)

    def test_cells_are_one_kernel_behind_two_products(self) -> None:
        """Batch 2, 6 units: an LSTM cell keeps 4 gates a unit, a GRU cell 5 values a unit."""
        for layer, kind, width in ((nn.LSTMCell(4, 6), "lstm", 24), (nn.GRUCell(4, 6), "gru", 30)):
            graph = step(layer, torch.empty(2, 4), loss=lambda o, *_: o[0].sum())
            assert names(graph, "forward")[-3:] == ["mm", "mm", f"_thnn_fused_{kind}_cell"]
            workspace = the(graph, f"_thnn_fused_{kind}_cell").outputs[-1]
            assert workspace and workspace.shape == (2, width) and graph.storages[workspace.storage].saved
            backward = names(graph, "backward")
            assert any(n.startswith(f"_thnn_fused_{kind}_cell_backward") for n in backward)
            assert len([s for s in graph.storages if s.name.endswith(".grad")]) >= 3

    def test_plain_cell_is_composed(self) -> None:
        assert "tanh" in names(inference(nn.RNNCell(4, 6), torch.empty(2, 4)))


class TestWeightNorm:
    def test_fused_for_the_first_and_last_dimension(self) -> None:
        for dim in (0, 1):
            layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6), dim=dim)
            graph = step(layer, torch.empty(2, 4))
            assert "_weight_norm_interface" in names(graph, "forward")
            assert "_weight_norm_interface_backward" in names(graph, "backward")

    def test_composed_in_between(self) -> None:
        layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=1)
        assert "_weight_norm_interface" not in names(step(layer, torch.empty(2, 4, 8)))


SPECIAL = ("lbfgs", "sparseadam")  # need a closure, sparse gradients


class TestOptimizers:
    @pytest.mark.parametrize("name", [n for n in optimizer_names() if n not in SPECIAL])
    def test_every_one_runs(self, name: str) -> None:
        graph = step(nn.Linear(4, 4, bias=False), torch.empty(2, 4), optimizer=optimizer_named(name), steps=2)
        assert graph.check() and names(graph, "optimizer")

    @pytest.mark.parametrize("name", SPECIAL)
    def test_special_ones_say_why_not(self, name: str) -> None:
        with pytest.raises(CaptureError, match=r"closure|dense gradients") as caught:
            step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=optimizer_named(name))
        assert "optimizer" in caught.value.hint

    def test_foreach_is_what_cuda_chooses(self) -> None:
        for name, call in (("sgd", "_foreach_add_.List"), ("adam", "_foreach_addcdiv_.ScalarList")):
            assert call in names(
                step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=optimizer_named(name)), "optimizer"
            )

    def test_forloop(self) -> None:
        graph = step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=optimizer_named("sgd_forloop"))
        assert names(graph, "optimizer") == ["add_.Tensor", "add_.Tensor"]

    @pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
    def test_fused(self, name: str) -> None:
        graph = step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=optimizer_named(f"{name}_fused"))
        fused = [n for n in names(graph, "optimizer") if n.startswith(f"_fused_{name}_")]
        assert len(fused) == 1 and not any(n.startswith("_foreach_addc") for n in names(graph, "optimizer"))

    def test_state_of_adam_is_twice_the_weights(self) -> None:
        graph = step(nn.Linear(4, 4, bias=False), torch.empty(2, 4), optimizer=optimizer_named("adam"))
        assert [s.nbytes for s in graph.storages if s.category is Category.OPTIMIZER_STATE] == [64, 64]

    def test_momentum_is_the_weights_once(self) -> None:
        graph = step(nn.Linear(4, 4, bias=False), torch.empty(2, 4), optimizer=optimizer_named("momentum"))
        assert [s.nbytes for s in graph.storages if s.category is Category.OPTIMIZER_STATE] == [64]

    def test_clipping_in_the_step_of_the_user(self) -> None:
        class Clipped(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
                return super().step(closure)

        graph = step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=lambda p: Clipped(p, lr=0.1))
        called = names(graph, "optimizer")
        assert called[0] == "_foreach_norm.Scalar" and "_foreach_mul_.Tensor" in called

    def test_clipping_by_value(self) -> None:
        class Clipped(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                nn.utils.clip_grad_value_(self.param_groups[0]["params"], 1.0)
                return super().step(closure)

        graph = step(nn.Linear(4, 4), torch.empty(2, 4), optimizer=lambda p: Clipped(p, lr=0.1))
        assert any(n.startswith("_foreach_clamp_m") for n in names(graph, "optimizer"))


@pytest.mark.parametrize(("release", "peak"), [("2.11", 13 << 19), ("2.12", 6 << 20)])
def test_attention_keeps_its_projections_until_torch_2_11(tmp_path: Path, release: str, peak: int) -> None:
    """What is dropped before the result is copied makes the peak; 13 << 19 is what torch 2.11 itself takes, emulated."""
    script = tmp_path / "attention.py"
    script.write_text(
        f"""
import torch
layer = torch.nn.MultiheadAttention(512, 4).cuda().train()
x = torch.ones(64, 8, 512, device="cuda")
with torch.no_grad():
    layer(x, x, x)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    layer(x, x, x)
    assert torch.cuda.max_memory_allocated() - before == {peak}
"""
    )
    estimate = analyzer.run(script, device="h200", release={"torch": release}, engine="trace")
    assert estimate.incomplete is None


def test_an_encoder_layer_keeps_what_its_second_half_is_given(tmp_path: Path) -> None:
    """The fused layer's feed-forward part holds its input to its end; the peak is that of torch 2.11 itself, emulated."""
    script = tmp_path / "encoder.py"
    script.write_text(
        """
import torch
layer = torch.nn.TransformerEncoderLayer(64, 2, 600, batch_first=True, norm_first=True).cuda().eval()
x = torch.ones(663, 52, 64, device="cuda")
with torch.no_grad():
    layer(x)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    layer(x)
    assert torch.cuda.max_memory_allocated() - before == 109220352
"""
    )
    estimate = analyzer.run(script, device="h100", release={"torch": "2.11"}, engine="trace")
    assert estimate.incomplete is None
