"""What following a program costs, in calls of Python's functions: seconds would measure the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from analyzer.capture.pytorch.environment import cuda_environment, watching
from analyzer.devices import load
from analyzer_programs.following.repetition import NormalForm
from analyzer_programs.live import Live
from tests.capture.pytorch import counting

H200 = load("h200")


def calls_of(make: Callable[[], Callable[[], Any]]) -> int:
    """Calls, of Python's and of C's functions, of what `make` gives, the third time it runs under a recorder that simulates."""
    with torch.no_grad(), cuda_environment(H200, Live(H200, "")) as recorder:
        recorder.whole_program(())
        with watching(recorder, whole=True):
            run = make()
            run()
            run()
            return counting.calls_of(run)


def product() -> Callable[[], Any]:
    a, b, c = (torch.randn(shape, device="cuda").exp() for shape in ((64, 768), (768, 768), (768,)))
    return lambda: torch.addmm(c, a, b)


def total() -> Callable[[], Any]:
    x = torch.randn(4, 16, 768, device="cuda").exp()
    return lambda: x + x


def total_of_drawn() -> Callable[[], Any]:
    """Of these it is known how they were drawn."""
    x = torch.randn(4, 16, 768, device="cuda")
    return lambda: x + x


def view() -> Callable[[], Any]:
    x = torch.randn(4, 16, 768, device="cuda").exp()
    return lambda: x.view(64, 768)


@pytest.mark.parametrize(("make", "most"), [(product, 352), (total, 248), (total_of_drawn, 258), (view, 140)])
def test_an_operator_that_ran_before_is_cheap(make: Callable[[], Callable[[], Any]], most: int) -> None:
    """1,914, 306 and 188 of them before: a product asked PyTorch's decomposition every time. Of values nobody knows, as most are.

    Two more since an operator has a GPU: its stream is looked up by it, and it is one more field.
    """
    assert calls_of(make) <= most


def test_the_form_of_a_segment_unlike_all_others_is_not_told() -> None:
    """Every token of a generation is longer than the last."""

    def tell() -> Any:
        raise AssertionError

    assert NormalForm((7, [(4, 1)]), tell) != NormalForm((7, [(4, 2)]), tell)
    assert NormalForm((7, [(4, 1)]), lambda: (1,)) == NormalForm((7, [(4, 1)]), lambda: (1,))
    assert NormalForm((7, [(4, 1)]), lambda: (1,)) != NormalForm((7, [(4, 1)]), lambda: (2,))
