"""Losses, softmax, dropout and lists of tensors, told by hand."""

from __future__ import annotations

import pytest

from tests.runtimes.pytorch.scratch.handwritten import call, spread, tensor, words

SCALAR = tensor()
A, B = tensor(30, 100), tensor(30, 100)
N = 30 * 100 * 4


@pytest.mark.parametrize("name", ["aten::mse_loss", "aten::smooth_l1_loss"])
def test_a_loss_reduced_in_place(name: str) -> None:
    assert words(call(name, (A, B), (SCALAR,))) == f"=0:{N} +{N} -{N}"
    assert words(call(name, (tensor(30, 1), tensor(100)), (SCALAR,))) == f"=0:{N} +{N} -{N}"
    assert words(call(name, (A, B, 2), (SCALAR,))) == f"=0:{N} +{N} -{N}"
    assert words(call(name, (A, B, 0), (A,))) == words(call(name, (None, B), (A,))) == "=0"
    assert words(call(name, (A, None), (A,))) == "=0"


def test_a_long_loss_is_summed_by_several_blocks() -> None:
    """2^20 floats in one sum: a block of 512 threads would leave each 2,048 values; 132 x 4 blocks fit, but at 16 values
    a thread there are 128: so 128 partial sums of 4 bytes, and a semaphore."""
    long, n = tensor(1 << 20), 4 << 20
    assert words(call("aten::mse_loss", (long, long), (SCALAR,))) == f"=0:{n} +{n} +512 +4 -4 -512 -{n}"
    assert words(call("aten::huber_loss", (long, long), (SCALAR,))) == f"+{n} =0 +512 +4 -4 -512 -{n}"
    cross = call("aten::binary_cross_entropy", (long, long), (SCALAR,))
    assert words(cross) == f"=0:{n} +4 +512 +4 -4 -512 -4"


def test_huber_loss() -> None:
    assert words(call("aten::huber_loss", (A, B), (SCALAR,))) == f"+{N} =0 -{N}"
    assert words(call("aten::huber_loss", (A, B, 0), (A,))) == "=0"
    assert words(call("aten::huber_loss", (A, None), (A,))) == "=0"


def test_cross_entropies() -> None:
    half = tensor(30, 100, dtype="float16")
    assert words(call("aten::binary_cross_entropy", (half, half, None), (SCALAR,))) == "=0:6000 +2 -2"
    assert words(call("aten::binary_cross_entropy", (A, B, None, 0), (A,))) == "=0"
    assert words(call("aten::binary_cross_entropy", (A, B, 0), (A,))) != "=0"


def test_margin_losses_sum_a_loss_a_row() -> None:
    """As PyTorch's own host code asks: (4, 6) with one label a row and with several; transposed, both are copied first."""
    rows, label, labels = tensor(4, 6), tensor(4, dtype="int64"), tensor(4, 6, dtype="int64")
    name = "aten::multi_margin_loss"
    assert words(call(name, (rows, label, 1, 1.0, None, 1), (SCALAR,))) == "=0 +16 -16"
    assert words(call(name, (rows, label, 1, 1.0, None, 0), (tensor(4),))) == "=0"
    assert words(call(name, (spread(rows), label, 1, 1.0, None, 2), (SCALAR,))) == "=0 +96 +16 -16 -96"
    name = "aten::multilabel_margin_loss_forward"
    assert words(call(name, (rows, labels, 1), (SCALAR, rows))) == "=1 +16 =0 -16"
    several = words(call(name, (spread(rows), spread(labels), 1), (SCALAR, rows)))
    assert several == "+96 +192 =1 +16 =0 -16 -192 -96"
    assert words(call(name, (tensor(6), tensor(6, dtype="int64"), 2), (SCALAR, tensor(6)))) == "=1 =0"


def test_negative_log_likelihood() -> None:
    """Input, target and weight are copied where they are not contiguous, in the backward pass the target first."""
    source, target, weight = spread(A), spread(tensor(30, dtype="int64")), spread(tensor(100))
    forward = call("aten::nll_loss_forward", (source, target, weight), (SCALAR, SCALAR))
    assert words(forward) == f"=0 =1 +{N} +240 +400 -400 -240 -{N}"
    backward = call("aten::nll_loss_backward", (spread(SCALAR), source, target, weight), (A,))
    assert words(backward) == f"=0 +240 +{N} +400 -400 -{N} -240"
    assert (
        words(call("aten::nll_loss_forward", (A, tensor(30, dtype="int64"), None), (SCALAR, SCALAR)))
        == "=0 =1"
    )


def test_negative_log_likelihood_per_pixel() -> None:
    """The total weight first; backward reads target and weight."""
    source, target, weight = spread(A), spread(tensor(30, dtype="int64")), spread(tensor(100))
    forward = call("aten::nll_loss2d_forward", (source, target, weight), (SCALAR, SCALAR))
    assert words(forward) == f"=1 =0 +{N} +240 +400 -400 -240 -{N}"
    backward = call("aten::nll_loss2d_backward", (spread(B), source, target, weight), (A,))
    assert words(backward) == "=0 +240 +400 -400 -240"


def test_softmax() -> None:
    strided = spread(A)
    for name in ("aten::_softmax", "aten::_log_softmax"):
        assert words(call(name, (A, 1, False), (A,))) == "=0"
        assert words(call(name, (strided, 1, False), (A,))) == f"=0 +{N} -{N}"
    name = "aten::_log_softmax_backward_data"
    assert words(call(name, (strided, A), (A,))) == words(call(name, (A, strided), (A,))) == f"=0 +{N} -{N}"
    half = tensor(30, 100, dtype="float16", stride=(200, 2))
    assert words(call(name, (strided, half), (A,))) == f"=0 +{N} +6000 -6000 -{N}"


def test_softmax_backward_multiplies_first() -> None:
    """The product lies as its factors do: where they are turned it is copied too, and the output with it."""
    name, turned = "aten::_softmax_backward_data", tensor(30, 100, stride=(1, 30))
    assert words(call(name, (A, B), (A,))) == f"=0 +{N} -{N}"
    assert words(call(name, (turned, turned), (A,))) == f"=0 +{N} +{N} +{N} -{N} -{N} -{N}"
    assert words(call(name, (A, turned), (A,))) == f"=0 +{N} +{N} -{N} -{N}"
    assert words(call(name, (None, A), (A,))) == words(call(name, (A, None), (A,))) == "=0"


def test_safe_softmax() -> None:
    """A copy in another type, one of what is not contiguous; a mask, a flag a row (100 along the last), a scalar."""
    name, half = "aten::_safe_softmax", tensor(30, 100, dtype="float16")
    ends = "+3000 +30 +4 -4 -30 -3000"
    assert words(call(name, (A, -1), (A,))) == f"=0 {ends}"
    assert words(call(name, (A, 0), (A,))) == "=0 +3000 +100 +4 -4 -100 -3000"
    assert words(call(name, (A,), (A,), dim=0)) == "=0 +3000 +100 +4 -4 -100 -3000"
    assert words(call(name, (spread(A), 1), (A,))) == f"=0 +{N} -{N} {ends}"
    assert words(call(name, (half, 1, "float32"), (A,))) == f"+{N} =0 -{N} {ends}"
    narrow = ends.replace("4 -4", "2 -2")
    assert words(call(name, (half, 1), (half,))) == f"=0 {narrow}"
    assert words(call(name, (half, 1, "float16"), (half,))) == f"=0 {narrow}"
    assert words(call(name, (SCALAR, -1), (SCALAR,))) == "=0 +1 +1 +4 -4 -1 -1"
    assert words(call(name, (None, -1), (A,))) == "=0"
    long = tensor(1, 1 << 20)
    assert words(call(name, (long, -1), (long,))) == (
        f"=0 +{1 << 20} +1 +128 +4 -4 -128 +4 -4 -1 -{1 << 20}"
    )  # 128 partial flags of a byte


def test_dropout_allocates_its_mask_first() -> None:
    assert words(call("aten::native_dropout", (A, 0.5, True), (A, A))) == "=1 =0"
    assert words(call("aten::native_dropout", (A, 0.5, True), (A,))) == "=0"


def test_partial_norms_of_a_list() -> None:
    """As many for every tensor as the largest has chunks of 65,536 elements, in the accumulator's type."""
    small, large = tensor(65536, dtype="float16"), tensor(65537, dtype="float16")
    for tensors, nbytes in (((small,), 4), ((small, large), 2 * 2 * 4), ((large, small, small), 3 * 2 * 4)):
        outputs = tuple(tensor(dtype="float16") for _ in tensors)
        allocations = " ".join(f"={index}" for index in range(len(tensors)))
        expected = f"+{nbytes} {allocations} -{nbytes}"
        assert words(call("aten::_foreach_norm", (tensors, 2), outputs)) == expected
        assert words(call("aten::_foreach_max", (tensors,), outputs)) == expected
    doubles = (tensor(10, dtype="float64"),)
    assert words(call("aten::_foreach_norm", (doubles,), (None,))) == "+8 =0 -8"
    assert words(call("aten::_foreach_norm", ((),), ())) == words(call("aten::_foreach_norm", (), ())) == ""


def test_masked_softmax_is_one_kernel_where_the_mask_lies_plainly() -> None:
    """As PyTorch's own host code asks (torch 2.11, emulated): the input may lie otherwise, the mask may not."""
    scores, mask = tensor(2, 4, 6, 6), tensor(2, 6, dtype="bool")
    copies = f"+{2 * 4 * 6 * 6 * 4} +{2 * 4 * 6 * 6 * 4}"
    back = copies.replace("+", "-")
    for given, kind, taken in (
        ((scores, mask), 1, "=0"),
        ((spread(scores), mask), 1, "=0"),
        ((scores, spread(mask)), 1, f"{copies} =0 {back}"),
        ((scores, tensor(6, 6, dtype="bool")), 0, f"{copies} =0 {back}"),
        ((spread(scores), tensor(2, 4, 6, 6, dtype="bool")), 2, "=0"),
        ((tensor(2, 1, 1, 1025), tensor(2, 1025, dtype="bool")), 1, "+8200 +8200 =0 -8200 -8200"),
    ):
        assert words(call("aten::_masked_softmax", (*given, 3, kind), (scores,))) == taken
