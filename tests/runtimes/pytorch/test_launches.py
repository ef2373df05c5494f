"""Which kernels operators run, against what each took as the first kernel of a process on an H200."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from analyzer.allocators.driver import MIB
from analyzer.allocators.process import KernelNeeds, Process
from analyzer.graph import Category, Operator, Storage, TensorMeta
from analyzer.runtimes.pytorch.launches import kernel_named, kernel_of
from tests.allocators.holes import holes_in, holes_of, recorded


@pytest.mark.parametrize(
    ("step", "operator"),
    [
        ("torch.randn(256, device='cuda')", "normal_"),
        ("torch.rand(256, device='cuda')", "uniform_"),
        ("torch.randint(0, 9, (256,), device='cuda')", "randint.low"),
        ("torch.arange(100, device='cuda')", "arange.start"),
        ("torch.linspace(0, 1, 100, device='cuda')", "linspace"),
        ("torch.cat([empty(8), empty(8)])", "cat"),
        ("empty(8, 16).cumsum(1)", "cumsum"),
        ("empty(256).sort()", "sort"),
        ("F.softmax(empty(8, 16), 1)", "_softmax"),
        ("F.max_pool2d(empty(2, 3, 8, 8), 2)", "max_pool2d_with_indices"),
        ("empty(3, 3).tril()", "tril"),
        ("torch._foreach_add_([empty(8)], 1.0)", "_foreach_add_.Scalar"),
        ("torch.zeros(9, device='cuda')", "zeros"),
        ("empty(256) + 0", "add.Tensor"),
        ("empty(256).mul_(2)", "mul_.Tensor"),
        ("empty(256).relu_()", "relu_"),
        ("F.layer_norm(empty(8, 64), (64,))", "native_layer_norm"),
        ("F.dropout(empty(256), 0.5)", "native_dropout"),
        ("torch.where(empty(8) > 0, empty(8), empty(8))", "where.self"),
        ("empty(8, 16).sum()", "sum"),
        ("empty(8, 16).argmax(1)", "argmax"),
        ("empty(8, 16).topk(3)", "topk"),
        ("empty(8, 4)[torch.zeros(2).long().cuda()]", "index.Tensor"),
        ("F.embedding(torch.zeros(8).long().cuda(), empty(10, 16))", "embedding"),
        ("torch.bernoulli(empty(256).cpu().fill_(0.5).cuda())", "bernoulli"),
    ],
)
def test_what_an_operator_needs_as_the_first_kernel(step: str, operator: str) -> None:
    kernel = kernel_named(operator)
    assert kernel is not None
    process = Process()
    process.take(2 * MIB)
    process.launch(kernel)
    assert holes_in(process) == holes_of(recorded()[f"alone first: {step}", 2])


ON, OFF = (Storage(index, 64, Category.INPUT, on_device=index == 0) for index in (0, 1))
PROGRAM = SimpleNamespace(storages=[ON, OFF, Storage(2, 64, Category.ACTIVATION)], operators=[])
GIVEN, HOST = TensorMeta(0, (4, 4), (4, 1), "float32"), TensorMeta(1, (4, 4), (4, 1), "float32")


@pytest.mark.parametrize(
    ("name", "given", "made", "kernel"),
    [
        ("aten::clone", GIVEN, TensorMeta(2, (4, 4), (4, 1), "float32"), None),
        (
            "aten::clone",
            TensorMeta(0, (4, 4), (1, 4), "float32"),
            TensorMeta(2, (4, 4), (4, 1), "float32"),
            KernelNeeds.STACK,
        ),
        ("aten::_to_copy", GIVEN, TensorMeta(2, (4, 4), (4, 1), "bfloat16"), KernelNeeds.STACK),
        ("aten::_to_copy", HOST, TensorMeta(2, (4, 4), (4, 1), "float32"), None),
        ("aten::relu", GIVEN, TensorMeta(1, (4, 4), (4, 1), "float32"), None),
        ("aten::view", GIVEN, GIVEN, None),
        ("aten::empty_like", GIVEN, TensorMeta(2, (4, 4), (4, 1), "float32"), None),
        ("aten::mm", GIVEN, TensorMeta(2, (4, 4), (4, 1), "float32"), None),
        ("_c10d_functional::all_reduce", GIVEN, TensorMeta(2, (4, 4), (4, 1), "float32"), None),
        ("aten::sum", GIVEN, TensorMeta(2, (), (), "float32"), KernelNeeds.ASSERTING),
        ("torch_scatter::scatter_max", GIVEN, TensorMeta(2, (4,), (1,), "float32"), KernelNeeds.ASSERTING),
    ],
)
def test_copies_views_and_libraries(
    name: str, given: TensorMeta, made: TensorMeta, kernel: KernelNeeds | None
) -> None:
    assert kernel_of(Operator(0, name, (given,), (made,)), PROGRAM) is kernel


def test_what_is_changed_in_place_was_written_by_a_kernel() -> None:
    given = TensorMeta(2, (4, 4), (4, 1), "float32")
    assert (
        kernel_of(Operator(0, "aten::zero_", (given,), (given,), writes=(2,)), PROGRAM) is KernelNeeds.STACK
    )
    copied = Operator(0, "aten::copy_", (given, HOST), (given,), writes=(2,))
    assert kernel_of(copied, PROGRAM) is None
    assert kernel_of(Operator(0, "aten::copy_", (given, GIVEN), (given,), writes=(2,)), PROGRAM) is None
