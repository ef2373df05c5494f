"""The user's module and PyTorch's global state are as before, whatever is analysed and however it ends."""

from __future__ import annotations

import importlib
import random
import threading
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from analyzer.capture.pytorch.capture import capture_pytorch
from analyzer.capture.pytorch.module.twin import structural_copy
from analyzer.errors import CaptureError
from analyzer.graph import Category
from tests.capture.pytorch.captures import (
    H200,
    Model,
    inference,
    names,
    operators,
    saved,
    step,
    storage,
    the,
)

# One operator for every library this project registers kernels in, and one it leaves alone.
REGISTERED = (
    "aten::linear", "aten::scaled_dot_product_attention", "aten::dropout", "aten::_cudnn_rnn", "aten::lstm.input",
    "aten::sum.dim_IntList", "aten::matmul", "aten::index_put", "aten::relu",
)  # fmt: skip


def contents(module: nn.Module) -> dict[str, Any]:
    """Everything of a module's tensors that could have changed."""
    return {
        name: (id(t), t.device.type, t.untyped_storage()._cdata, t._version, t.requires_grad, t.tolist())
        for name, t in (*module.named_parameters(), *module.named_buffers())
    }


def torch_state() -> dict[str, Any]:
    """What a capture changes while it runs."""
    importlib.import_module("torch.cuda._pin_memory_utils")  # imported lazily by PyTorch
    return {
        "kernels": {name: torch._C._dispatch_dump(name) for name in REGISTERED},
        "torch.cuda": dict(vars(torch.cuda)),
        "cudnn": dict(vars(torch.backends.cudnn)),
        "cudnn.rnn": dict(vars(torch.backends.cudnn.rnn)),
        "overrides": dict(vars(torch.overrides)),
        "torch": {k: v for k, v in vars(torch).items() if callable(v)},
        "call": nn.Module.__call__,
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "autocast": (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
        "autocast key": torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.AutocastCUDA),
        "grad": torch.is_grad_enabled(),
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": numpy.random.get_state()[1].tolist(),
        "python random": random.getstate(),
    }


def everything() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(6, 6), nn.LSTM(6, 6)
    )  # fmt: skip


class TestModuleUnchanged:
    def test_weights_gradients_and_statistics(self) -> None:
        module = everything()
        module[0].weight.grad = torch.ones_like(module[0].weight)
        module[3].bias.requires_grad_(False)
        before, flags = contents(module), [m.training for m in module.modules()]
        step(module, torch.empty(2, 3, 8), loss=lambda out, *_: out[0].sum())
        assert contents(module) == before
        assert [m.training for m in module.modules()] == flags
        assert int(module[1].num_batches_tracked) == 0
        assert torch.equal(module[0].weight.grad, torch.ones_like(module[0].weight))

    def test_evaluation_does_not_leave_it_in_evaluation(self) -> None:
        module = nn.Dropout()
        inference(module, torch.empty(2))
        assert module.training

    def test_checkpointing_is_put_on_the_copy_only(self) -> None:
        module = nn.Sequential(nn.Linear(2, 2))
        step(module, torch.empty(1, 2, dtype=torch.half), prepare=lambda twin: twin.half())
        assert module[0].weight.dtype is torch.float32

    def test_meta_module(self) -> None:
        with torch.device("meta"):
            module = nn.Linear(4, 3)
        graph = step(module, torch.empty(2, 4))
        assert storage(graph, "weight").nbytes == 48
        assert module.weight.device.type == "meta" and module.weight.grad is None

    def test_meta_and_cpu_modules_give_the_same_graph(self) -> None:
        real = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        with torch.device("meta"):
            meta = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        one, other = (step(m, torch.empty(2, 4)) for m in (real, meta))
        assert names(one) == names(other)
        sizes = [sorted((s.name, s.nbytes) for s in graph.storages) for graph in (one, other)]
        assert sizes[0] == sizes[1]


class TestCopy:
    def test_weights_are_meta_with_shape_stride_dtype(self) -> None:
        module = nn.Conv2d(3, 4, 3, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        twin = structural_copy(module)
        assert twin.weight.device.type == "meta" and twin.weight.dtype is torch.bfloat16
        assert twin.weight.stride() == module.weight.stride() != torch.empty(4, 3, 3, 3).stride()
        assert isinstance(twin.weight, nn.Parameter) and twin.weight is not module.weight

    def test_requires_grad_is_kept(self) -> None:
        module = nn.Linear(2, 2)
        module.weight.requires_grad_(False)
        twin = structural_copy(module)
        assert not twin.weight.requires_grad and twin.bias.requires_grad

    def test_tied_weights_stay_tied(self) -> None:
        module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        module[1].weight = module[0].weight
        twin = structural_copy(module)
        assert twin[0].weight is twin[1].weight
        graph = step(module, torch.empty(2, 3))
        assert [s.nbytes for s in graph.storages if s.category is Category.PARAMETER] == [36]

    def test_views_of_one_storage_share_one(self) -> None:
        whole = torch.zeros(10)
        module = Model(lambda m, x: x)
        module.register_buffer("left", whole[:4])
        module.register_buffer("right", whole[4:])
        twin = structural_copy(module)
        assert twin.left.untyped_storage()._cdata == twin.right.untyped_storage()._cdata
        assert twin.left.untyped_storage().nbytes() == 40
        assert (twin.right.storage_offset(), twin.right.shape) == (4, (6,))

    def test_small_integer_buffers_keep_their_values(self) -> None:
        module = Model(lambda m, x: x)
        module.register_buffer("positions", torch.arange(5))
        module.register_buffer("large", torch.zeros(70_000, dtype=torch.int64))
        twin = structural_copy(module)
        assert twin.positions.tolist() == [0, 1, 2, 3, 4]
        assert twin.positions.untyped_storage()._cdata != module.positions.untyped_storage()._cdata
        assert twin.large.device.type == "meta"

    def test_hundred_gigabytes_take_no_memory(self) -> None:
        with torch.device("meta"):
            module = nn.Linear(1 << 18, 1 << 17, bias=False)
        assert storage(inference(module, torch.empty(1, 1 << 18)), "weight").nbytes == 1 << 37

    def test_part_that_cannot_be_copied(self) -> None:
        module = Model(lambda m, x: x, lock=threading.Lock())
        with pytest.raises(CaptureError, match=r"Model cannot be copied.*lock") as caught:
            inference(module, torch.empty(1))
        assert "locks" in caught.value.hint

    def test_lazy_module_names_the_parameter(self) -> None:
        with pytest.raises(CaptureError, match=r"'weight' of LazyLinear.*no shape yet") as caught:
            inference(nn.Sequential(nn.LazyLinear(3)), torch.empty(1, 2))
        assert "dummy batch" in caught.value.hint

    def test_weight_norm_by_hook_keeps_a_graph_tensor(self) -> None:
        """`torch.nn.utils.weight_norm` leaves the last weight, a result of autograd, in the module."""
        with pytest.warns(FutureWarning):
            module = nn.utils.weight_norm(nn.Linear(4, 3))
        graph = step(module, torch.empty(2, 4))
        the(graph, "_weight_norm_interface")
        assert storage(graph, "weight_v").nbytes == 48 and storage(graph, "weight_g").nbytes == 12
        assert type(module.weight) is torch.Tensor and module.weight.grad_fn is not None


class TestGlobalState:
    def test_restored_after_success(self) -> None:
        module, before = everything(), torch_state()
        step(module, torch.empty(2, 3, 8), loss=lambda out, *_: out[0].sum(), amp="fp16")
        assert torch_state() == before

    @pytest.mark.parametrize("amp", [None, "bf16"])
    def test_restored_after_an_exception(self, amp: str | None) -> None:
        def fails(*_: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.float16), torch.no_grad():
                raise ValueError("no")

        module = Model(fails, part=nn.Linear(2, 2))
        before = torch_state()
        with pytest.raises(CaptureError, match="no"):
            step(module, torch.empty(2), amp=amp)
        assert torch_state() == before

    def test_restored_after_an_exception_while_copying(self) -> None:
        before = torch_state()
        with pytest.raises(CaptureError):
            inference(Model(lambda m, x: x, lock=threading.Lock()), torch.empty(1))
        assert torch_state() == before

    def test_random_numbers_are_the_analysis_own(self) -> None:
        """Layer drop and the like draw on the host: the caller's generators do not advance, and every run is equal."""

        def drawing(model: Any, x: Any) -> Any:
            for _ in range(20):
                if torch.rand(()) + random.random() + numpy.random.rand() > 1.5:
                    x = x + 1
            return model.part(x)

        module = Model(drawing, part=nn.Identity())
        lengths = set()
        for seed in range(3):
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed)
            before = torch_state()
            lengths.add(len(inference(module, torch.empty(2)).operators))
            assert torch_state() == before
        assert len(lengths) == 1


class TestAgain:
    def test_twice_and_in_threads(self) -> None:
        module, graphs = everything(), []

        def analyse() -> None:
            graphs.append(step(module, torch.empty(2, 3, 8), loss=lambda out, *_: out[0].sum(), amp="bf16"))

        for _ in range(2):
            analyse()
            thread = threading.Thread(target=analyse)
            thread.start()
            thread.join()
        assert len(graphs) == 4
        assert all(g.operators == graphs[0].operators and g.program == graphs[0].program for g in graphs)

    def test_after_a_failure(self) -> None:
        module = nn.Linear(4, 3)
        fresh = step(module, torch.empty(2, 4))
        with pytest.raises(CaptureError):
            step(module, torch.empty(2, 5))
        assert step(module, torch.empty(2, 4)).operators == fresh.operators

    def test_a_model_on_another_batch(self) -> None:
        module = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
        small, large = (step(module, torch.empty(n, 4)) for n in (2, 64))
        assert [o.name for o in operators(small)] == [o.name for o in operators(large)]
        assert sum(s.nbytes for s in saved(small)) < sum(s.nbytes for s in saved(large))


def test_captured_sizes_in_bytes() -> None:
    """4x3 weights and 3 biases trained, a frozen 3x3; 2x4 inputs; 2x3 out: float32."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3, bias=False))
    module[1].weight.requires_grad_(False)
    captured = capture_pytorch(module, [torch.empty(2, 4)], device=H200, steps=1)
    assert captured.weight_bytes == 4 * (15 + 9)
    assert captured.trainable_bytes == 4 * 15
    assert (captured.input_bytes, captured.output_bytes) == (32, 24)
    assert [(leaf.module, leaf.nbytes, leaf.has_parameters) for leaf in captured.leaves] == [
        ("0", 24, True),
        ("1", 24, True),
    ]
