"""From operators to pieces of work: views, layouts, products, convolutions, copies, on calls written down by hand."""

from __future__ import annotations

import pytest

from analyzer.graph import Operator
from analyzer_timing import products
from analyzer_timing.dispatch import works_of
from analyzer_timing.elementwise import alike, dense, order
from analyzer_timing.work import Work
from tests.extensions.timing.graphs import call, h100, storage, tensor


def works(operator: Operator, on_host: tuple[int, ...] = ()) -> list[Work]:
    """What the device does for it, storages 0 to 4 being there."""
    return works_of(operator, tuple(storage(n, 1 << 20, n not in on_host) for n in range(5)), h100())


def categories(operator: Operator) -> list[str]:
    """By name."""
    return [work.category for work in works(operator)]


def test_a_view_does_nothing() -> None:
    assert not works(call(0, "aten::view.default", (tensor(0, 8, 8),), (tensor(0, 64),)))


def test_memory_that_is_not_filled_takes_nothing() -> None:
    assert not works(call(0, "aten::empty.memory_format", (), (tensor(0, 64),)))


def test_what_runs_on_the_host_takes_nothing_of_the_device() -> None:
    assert not works(call(0, "aten::add.Tensor", (tensor(0, 8),), (tensor(1, 8),)), on_host=(0, 1))


def test_a_copy_from_the_host_is_one_over_the_bus() -> None:
    operator = call(0, "aten::_to_copy.default", (tensor(0, 1024),), (tensor(1, 1024),))
    (work,) = works(operator, on_host=(0,))
    assert work.category == "host_copy"


@pytest.mark.parametrize(
    ("stride", "layout"), [((64, 1), "nn"), ((1, 64), "nt")], ids=["as it lies", "a transposed view"]
)
def test_a_product_knows_transposed_views(stride: tuple[int, int], layout: str) -> None:
    operator = call(
        0, "aten::mm.default", (tensor(0, 64, 64), tensor(1, 64, 64, stride=stride)), (tensor(2, 64, 64),)
    )
    assert categories(operator) == [f"mm:float32:{layout}:0:0"]


def test_a_product_whose_rows_begin_anywhere_is_another() -> None:
    operator = call(0, "aten::mm.default", (tensor(0, 64, 63), tensor(1, 63, 50)), (tensor(2, 64, 50),))
    assert categories(operator) == ["mm:float32:nn:2:1"]


def test_float32_that_may_be_rounded_is_tf32() -> None:
    operator = call(
        0,
        "aten::mm.default",
        (tensor(0, 64, 64), tensor(1, 64, 64)),
        (tensor(2, 64, 64),),
        settings=frozenset({"tf32"}),
    )
    assert categories(operator) == ["mm:tf32:nn:0:0"]


def test_the_last_wave_of_tiles_is_paid_for_whole() -> None:
    rates = h100()
    full = products.seconds(128 * 132, 256, 4096, 1, "bfloat16", rates)  # 132 tiles of 128 x 256
    more = products.seconds(128 * 133, 256, 4096, 1, "bfloat16", rates)
    twice = products.seconds(128 * 264, 256, 4096, 1, "bfloat16", rates)
    assert more > 1.1 * full
    assert twice / more < 1.9


def test_the_gradients_of_a_convolution_are_those_asked_for() -> None:
    x, weight, grad = tensor(0, 8, 16, 32, 32), tensor(1, 16, 16, 3, 3), tensor(2, 8, 16, 32, 32)
    names = ("grad_output", "input", "weight", "bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding",
             "groups", "output_mask")  # fmt: skip
    rest = ((16,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    both = call(
        0,
        "aten::convolution_backward.default",
        (grad, x, weight, *rest, (True, True, True)),
        (tensor(3, 8, 16, 32, 32), tensor(4, 16, 16, 3, 3), None),
        names,
    )
    assert categories(both) == [
        "conv:tf32:first:input:plain",
        "conv:tf32:first:weight:plain",
        "reduced:sum_mid:4",
    ]
    one = call(
        0,
        "aten::convolution_backward.default",
        (grad, x, weight, *rest, (False, True, False)),
        (None, tensor(3, 16, 16, 3, 3), None),
        names,
    )
    assert categories(one) == ["conv:tf32:first:weight:plain"]


def test_the_gradient_of_a_part_is_zeros_and_a_copy() -> None:
    operator = call(
        0, "aten::slice_backward.default", (tensor(0, 8, 4),), (tensor(1, 8, 8),), ("grad_output",)
    )
    assert categories(operator) == ["vec:zero_:4", "strided:runs:4"]


def test_operands_of_one_shape_are_read_in_vectors_and_repeated_ones_are_not() -> None:
    same = call(0, "aten::add.Tensor", (tensor(0, 64, 64), tensor(1, 64, 64)), (tensor(2, 64, 64),))
    (work,) = works(same)
    assert work.category == "vec:add:4"
    assert work.moved == 2 * 64 * 64 * 4
    row = call(0, "aten::add.Tensor", (tensor(0, 64, 64), tensor(1, 64)), (tensor(2, 64, 64),))
    assert categories(row) == ["strided:bias_add:4"]
    column = call(0, "aten::mul.Tensor", (tensor(0, 64, 64), tensor(1, 64, 1)), (tensor(2, 64, 64),))
    assert categories(column) == ["strided:row_mul:4"]


def places(operator: Operator) -> list[tuple[str, tuple[float, ...]]]:
    """Categories, with what they have of their places besides the elements."""
    return [(work.category, work.place[1:]) for work in works(operator)]


def test_copies_between_orders_are_known_by_what_stays_together() -> None:
    heads = tensor(0, 8, 4, 16, 64, stride=(4096, 64, 256, 1))
    runs = call(0, "aten::clone.default", (heads,), (tensor(1, 8, 4, 16, 64),))
    assert places(runs) == [("strided:runs:4", (6.0, pytest.approx(2.1)))]
    last = call(0, "aten::clone.default", (tensor(0, 8, 4, 64, stride=(256, 1, 4)),), (tensor(1, 8, 4, 64),))
    assert places(last) == [("strided:turned:4", (6.0, 2.0))]
    cast = call(
        0,
        "aten::_to_copy.default",
        (tensor(0, 512, 256, stride=(1, 512)),),
        (tensor(1, 512, 256, dtype="bfloat16"),),
    )
    assert places(cast) == [("strided:turned-cast:2", (8.0, 9.0))]
    whole = call(0, "aten::_to_copy.default", (tensor(0, 64),), (tensor(1, 64, dtype="bfloat16"),))
    assert categories(whole) == ["vec:to2:4"]


def test_a_repeated_operand_is_known_by_the_order_in_memory() -> None:
    """A number a channel: each is repeated over a plane, or, channels-last, all of them over each place."""
    bias = tensor(1, 16, 1, 1)
    for stride, kind, run in (
        ((4096, 256, 16, 1), "channel_mul", 8.0),
        ((4096, 1, 256, 16), "bias_add", 4.0),
    ):
        x = tensor(0, 2, 16, 16, 16, stride=stride)
        out = tensor(2, *x.shape, stride=stride)
        add = call(0, "aten::add.Tensor", (x, bias), (out,))
        assert places(add) == [(f"strided:{kind}:4", (run,))]


def test_operands_that_a_kernel_does_not_read_as_they_lie_are_copied_first() -> None:
    """A layer norm of rows that lie across; of dense ones nothing is copied, nor is a convolution's channels-last input."""
    norm, names = "aten::native_layer_norm.default", ("input", "normalized_shape", "weight", "bias", "eps")
    across, result = tensor(0, 64, 8, 256, stride=(256, 16384, 1)), tensor(1, 64, 8, 256)
    for x, copies in ((across, ["strided:runs:4"]), (tensor(0, 64, 8, 256), [])):
        operator = call(0, norm, (x, (256,), None, None, 1e-5), (result,), names)
        assert categories(operator) == [*copies, "rows:native_layer_norm:4"]
    last, weight = tensor(0, 2, 64, 8, 8, stride=(4096, 1, 512, 64)), tensor(1, 64, 64, 3, 3)
    out = tensor(2, 2, 64, 8, 8, stride=last.stride)
    names = (
        "input",
        "weight",
        "bias",
        "stride",
        "padding",
        "dilation",
        "transposed",
        "output_padding",
        "groups",
    )
    rest = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    convolution = call(0, "aten::convolution.default", (last, weight, *rest), (out,), names)
    assert categories(convolution) == ["strided:turned:4", "conv:tf32:last:forward:plain"]  # its weight is


def test_tensors_of_different_types_are_joined_one_by_one() -> None:
    one, other = tensor(0, 8, 4, 64), tensor(1, 8, 2, 64)
    names = ("tensors", "dim")
    same = call(0, "aten::cat.default", ((one, other), 1), (tensor(2, 8, 6, 64),), names)
    assert places(same) == [("strided:joined:4", (7.0, 1.0, 1.0))]
    half = tensor(1, 8, 2, 64, dtype="bfloat16")
    mixed = call(0, "aten::cat.default", ((one, half), 1), (tensor(2, 8, 6, 64),), names)
    assert categories(mixed) == ["strided:runs:4", "strided:runs-cast:4"]


def test_a_mask_is_filled_in_a_copy() -> None:
    x, mask, names = tensor(0, 64, 256), tensor(1, 64, 1, dtype="bool"), ("self", "mask", "value")
    operator = call(0, "aten::masked_fill.Scalar", (x, mask, 0.0), (tensor(2, 64, 256),), names)
    assert places(operator) == [("vec:clone:4", ()), ("strided:row_mul:4", (8.0,))]


def test_order_and_density_of_what_lies_otherwise() -> None:
    across = tensor(0, 4, 8, stride=(1, 4))
    assert order(across) == (1, 0)
    assert dense(across)
    assert not alike(across, tensor(0, 4, 8))
    assert not dense(tensor(0, 4, 4, stride=(8, 1)))


def test_what_nobody_measured_by_name_counts_as_elementwise() -> None:
    operator = call(0, "mylib::something.default", (tensor(0, 64),), (tensor(1, 64),))
    assert categories(operator) == ["vec:relu:4"]
