"""What a user can get wrong is told with place, reason and remedy; nothing else leaks out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analyzer import TensorSpec, analyze
from analyzer.capture.pytorch.module.from_options import loss_named, optimizer_named
from analyzer.errors import AnalyzerError, CaptureError, InputError, OptionError, TargetError
from tests.capture.pytorch.captures import H200, Model, inference, step

X = torch.empty(2, 4)


def line_of(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    (found,) = (number for number, line in enumerate(lines, first) if text in line)
    return f"test_errors.py:{found}"


class Inner(nn.Module):
    def forward(self, x: Any) -> Any:
        if x.dim() == 2:
            raise LookupError("nothing\n   here")  # raised
        return x


class TestModelRaises:
    def test_module_line_and_message(self) -> None:
        module = nn.Sequential(nn.Identity(), nn.ModuleDict({"deep": Inner()})["deep"])
        with pytest.raises(CaptureError) as caught:
            inference(module, X)
        assert (
            caught.value.message
            == f"{line_of(Inner.forward, '# raised')} in module 1: LookupError: nothing here"
        )
        assert isinstance(caught.value.__cause__, LookupError)

    def test_innermost_module_is_named(self) -> None:
        module = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4)))
        with pytest.raises(
            CaptureError, match=r"in module 0\.1: RuntimeError: .*\[2, 4\] X \[5, 4\]"
        ) as caught:
            inference(module, X)
        assert "shape and dtype" in caught.value.hint

    def test_an_exception_the_model_handles_is_none(self) -> None:
        def handled(model: Any, x: Any) -> Any:
            try:
                model.inner(x)
            except LookupError:
                return x + 1

        inference(Model(handled, inner=Inner()), X)

    def test_and_is_not_blamed_later(self) -> None:
        def handled(model: Any, x: Any) -> Any:
            try:
                model.inner(x)
            except LookupError:
                return model.other(x)

        module = Model(handled, inner=Inner(), other=nn.Linear(5, 5))
        with pytest.raises(CaptureError, match="in module other"):
            inference(module, X)

    def test_wrong_number_of_inputs(self) -> None:
        with pytest.raises(CaptureError, match="missing 1 required positional argument: 'input2'"):
            inference(nn.Bilinear(4, 4, 4), X)

    def test_loss_that_lacks_a_target(self) -> None:
        with pytest.raises(CaptureError, match=r"^the loss: TypeError: .*'target'") as caught:
            step(nn.Linear(4, 4), X, loss=F.mse_loss)
        assert "targets" in caught.value.hint

    def test_loss_that_is_no_number(self) -> None:
        with pytest.raises(CaptureError, match=r"^backward.*scalar outputs"):
            step(nn.Linear(4, 4), X, loss=lambda out, *_: out)

    def test_output_without_gradient(self) -> None:
        with pytest.raises(CaptureError, match="does not require grad"):
            step(Model(lambda m, x: x * 2, part=nn.Linear(1, 1)), X)

    def test_model_without_parameters_cannot_be_trained(self) -> None:
        with pytest.raises(CaptureError, match="empty parameter list"):
            step(nn.ReLU(), X)


class TestDevices:
    @pytest.mark.parametrize("make", [
        lambda m, x: m.part(x) * torch.ones(4),
        lambda m, x: m.part(x) + m.table,
        lambda m, x: torch.cat([x, torch.ones(2, 4)]),
        lambda m, x: m.part(torch.ones(2, 4)) + x,
    ])  # fmt: skip
    def test_host_tensor_among_device_tensors(self, make: Any) -> None:
        """As on CUDA: a tensor that was not moved is an error, and it is not about meta tensors."""
        module = Model(make, part=nn.Linear(4, 4), table=torch.ones(4))
        with pytest.raises(CaptureError, match=r"test_errors\.py:.*device") as caught:
            inference(module, X)
        assert "meta" not in caught.value.message
        assert "register_buffer" in caught.value.hint

    def test_buffer_moves_with_the_module(self) -> None:
        module = Model(lambda m, x: x + m.table)
        module.register_buffer("table", torch.ones(4))
        inference(module, X)

    def test_zero_dimensional_host_tensor_is_a_scalar(self) -> None:
        inference(Model(lambda m, x: x * torch.tensor(2.0)), X)

    @pytest.mark.parametrize("make", [
        lambda x: torch.ones(4, device="cuda"),
        lambda x: torch.ones(4, device=0),
        lambda x: torch.ones(4, device=torch.device("cuda:0")),
        lambda x: torch.ones(4, device=x.device),
        lambda x: torch.ones(4).cuda(),
        lambda x: torch.ones(4).to("cuda"),
        lambda x: torch.ones(4).to(x),
        lambda x: torch.ones(4).to(x.device, non_blocking=True),
        lambda x: torch.ones(4, dtype=torch.int64).to(device=x.device, dtype=x.dtype),
        lambda x: torch.tensor([1.0, 2, 3, 4], device=x.device),
        lambda x: torch.as_tensor([1.0, 2, 3, 4]).to(x.get_device()),
        lambda x: x.new_tensor([1.0, 2, 3, 4]),
        lambda x: x.new_zeros(4),
        lambda x: torch.zeros_like(x[0]),
        lambda x: torch.arange(4, device="cuda"),
        lambda x: torch.linspace(0, 1, 4, device="cuda"),
        lambda x: torch.randn(4, device="cuda"),
        lambda x: torch.full((4,), 2.0, device="cuda"),
    ])  # fmt: skip
    def test_ways_to_make_a_device_tensor(self, make: Any) -> None:
        seen = []

        def forward(_: Any, x: Any) -> Any:
            made = make(x)
            seen.append((made.is_cuda, made.device, made.is_cpu, made.get_device()))
            return x + made

        inference(Model(forward), X)
        assert seen == [(True, torch.device("cuda:0"), False, 0)]

    def test_default_device_context(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            with torch.device("cuda"):
                return x + torch.ones(4)

        inference(Model(forward), X)

    def test_cuda_housekeeping_of_models(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            with (
                torch.cuda.device(0),
                torch.cuda.stream(torch.cuda.Stream()),
                torch.cuda.nvtx.range("forward"),
            ):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                start = torch.cuda.Event(enable_timing=True)
                start.record()
                torch.cuda.synchronize()
                assert torch.cuda.is_available() and torch.cuda.device_count() == 1
                torch.cuda.manual_seed(0)
                assert torch.cuda.mem_get_info()[1] == H200.capacity_bytes
                assert torch.cuda.memory_reserved() == torch.cuda.max_memory_reserved() == 0
                assert torch.cuda.get_device_properties(0).multi_processor_count == 132
            return x + 1

        inference(Model(forward), X)

    def test_legacy_names_of_types(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            assert x.type() == "torch.cuda.FloatTensor" and torch.ones(1).long().type() == "torch.LongTensor"
            assert x.type("torch.cuda.HalfTensor").dtype is torch.float16
            assert x.type(torch.int64).type() == "torch.cuda.LongTensor"
            assert torch.ones(4).type("torch.cuda.DoubleTensor").is_cuda
            return x.type_as(x.half())

        result = inference(Model(forward), X).operators[-1].outputs[0]
        assert result and result.dtype == "float16"


class TestDtypes:
    @pytest.mark.parametrize(("module", "x"), [
        (nn.Linear(4, 4), X.half()),
        (nn.Linear(4, 4, bias=False), X.bfloat16()),
        (nn.Linear(4, 4).half(), X),
        (nn.Conv2d(3, 4, 3), torch.empty(1, 3, 8, 8).half()),
        (Model(lambda m, x: x @ torch.ones(4, 4, device="cuda")), X.half()),
        (Model(lambda m, x: torch.bmm(x[None], torch.ones(1, 4, 4, device="cuda"))), X.double()),
        (nn.Linear(4, 4), X.long()),
        (nn.Embedding(4, 4), X),
    ])  # fmt: skip
    def test_mismatch(self, module: nn.Module, x: Any) -> None:
        with pytest.raises(CaptureError, match=r"dtype|type|scalar type") as caught:
            inference(module, x)
        assert "dtype" in caught.value.hint

    def test_autocast_makes_them_agree(self) -> None:
        inference(nn.Linear(4, 4), X.half(), amp="fp16")


class TestData:
    def test_branch(self) -> None:
        def forward(_: Any, x: Any) -> Any:
            if x.sum() > 0:  # branch
                return x
            return -x

        with pytest.raises(CaptureError) as caught:
            inference(Model(forward), X)
        assert line_of(forward, "# branch") in caught.value.message
        assert "not known before the model runs" in caught.value.message
        assert "independent of data" in caught.value.hint

    @pytest.mark.parametrize("make", [
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
        lambda x: torch.where(x > 0)[0],
        lambda x: x.tolist(),
        lambda x: x.cpu().numpy(),
        lambda x: range(x.long().max()),
        lambda x: x.repeat_interleave((x[:, 0] > 0).long(), 0),
    ])  # fmt: skip
    def test_shape_or_value_from_data(self, make: Any) -> None:
        with pytest.raises(CaptureError, match=r"test_errors\.py:") as caught:
            inference(Model(lambda m, x: make(x)), X)
        assert "data" in caught.value.hint
        assert "meta" not in caught.value.message.lower()

    def test_module_is_named(self) -> None:
        with pytest.raises(CaptureError, match="in module 1"):
            inference(nn.Sequential(nn.Identity(), Model(lambda m, x: x if bool(x[0, 0] > 0) else -x)), X)


class TestOptions:
    def test_amp(self) -> None:
        with pytest.raises(InputError, match="'fp8'"):
            inference(nn.Linear(4, 4), X, amp="fp8")

    def test_element_type(self) -> None:
        with pytest.raises(InputError, match="'float31'"):
            analyze(nn.Linear(4, 4), [TensorSpec((2, 4), "float31")])

    @pytest.mark.parametrize(("options", "error", "message"), [
        ({"optimizer": "adamq", "mode": "train"}, OptionError, "unknown optimizer 'adamq'"),
        ({"loss": "hinge", "mode": "train"}, OptionError, "unknown loss 'hinge'"),
        ({"dtype": "int8"}, OptionError, "unknown dtype 'int8'"),
        ({"dtype": "float13"}, OptionError, "unknown dtype"),
        ({"checkpoint": "layer*"}, OptionError, r"no module matches the checkpoint pattern 'layer\*'"),
        ({"mode": "test"}, OptionError, "unknown mode"),
        ({"batch": 0}, InputError, "batch is 0"),
        ({"steps": 1.5}, InputError, "steps is 1.5"),
        ({"grad_accumulation": True}, InputError, "grad_accumulation is True"),
        ({"runtime": "tensorrt"}, OptionError, "unknown runtime"),
        ({"runtime_options": {"streams": 2}}, OptionError, "unknown runtime option 'streams'"),
        ({"runtime_options": {"cublas_workspace": ":x"}}, OptionError, "cublas_workspace is ':x'"),
        ({"device": "gtx9"}, AnalyzerError, "gtx9"),
    ])  # fmt: skip
    def test_value(self, options: dict[str, Any], error: type, message: str) -> None:
        with pytest.raises(error, match=message):
            analyze(nn.Sequential(nn.Linear(4, 4)), [X], **{"steps": 1, **options})

    def test_channels_last_of_three_dimensions(self) -> None:
        with pytest.raises(OptionError, match="weights of five dimensions"):
            analyze(nn.Conv3d(1, 2, 3), [torch.zeros(2, 1, 4, 4, 4)], channels_last=True)

    def test_no_model(self) -> None:
        with pytest.raises(TargetError, match="a dict is no model"):
            analyze({}, [X])  # type: ignore[arg-type]

    def test_no_inputs(self) -> None:
        with pytest.raises(InputError, match="does not say what its inputs are"):
            analyze(nn.Linear(4, 4))

    def test_optimizer_close_to_a_known_one(self) -> None:
        with pytest.raises(OptionError) as caught:
            optimizer_named("admaw")
        assert "'adamw'" in caught.value.hint

    def test_loss_hint_lists_them(self) -> None:
        with pytest.raises(OptionError) as caught:
            loss_named("nll")
        assert "cross_entropy" in caught.value.hint
