"""Operators nothing is known of: followed by their fake kernel or their body, counted, refused by `--strict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from analyzer import analyze
from analyzer.errors import CaptureError, UnknownOperatorError
from tests.capture.pytorch.captures import Model, inference, names, step

X = torch.empty(4, 8)


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators of a user: with a fake kernel and gradient, without a fake kernel, in place, sized by data."""
    made = torch.library.Library("analyzer_unknown", "DEF")
    made.define("scaled(Tensor x, float by) -> Tensor")
    made.impl("scaled", lambda x, by: x * by, "CPU")
    torch.library.register_fake("analyzer_unknown::scaled", lambda x, by: torch.empty_like(x), lib=made)
    torch.library.register_autograd(
        "analyzer_unknown::scaled",
        lambda ctx, g: (torch.ops.analyzer_unknown.scaled(g, ctx.by), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        lib=made,
    )
    made.define("opaque(Tensor x, Tensor y) -> (Tensor, Tensor)")
    made.impl("opaque", lambda x, y: (x, y), "CPU")
    made.define("nothing() -> Tensor")
    made.impl("nothing", lambda: torch.zeros(1), "CPU")
    yield torch.ops.analyzer_unknown
    made._destroy()


class TestCounted:
    def test_calls_and_a_lower_bound(self, library: Any) -> None:
        estimate = analyze(
            Model(lambda m, x: library.scaled(library.scaled(x, 2.0), 3.0)), [X], steps=2, device="h200"
        )
        ((name, calls),) = estimate.certainty.unknown_operators.items()
        assert name.startswith("analyzer_unknown::scaled") and calls == 4
        assert estimate.at_least and not estimate.fits() and estimate.verdict() == "may not fit"

    def test_known_operators_are_not_counted(self) -> None:
        assert not analyze(nn.Linear(8, 8), [X], steps=1, device="h200").certainty.unknown_operators

    def test_gradient_of_the_user(self, library: Any) -> None:
        graph = step(Model(lambda m, x: library.scaled(m.a(x), 2.0), a=nn.Linear(8, 8)), X)
        assert "analyzer_unknown::scaled" in names(graph, "forward")
        assert "analyzer_unknown::scaled" in names(graph, "backward")


def _custom(name: str, body: Callable[[torch.Tensor], torch.Tensor], **kind: Any) -> Any:
    """An operator of one tensor whose result is like it, with a gradient."""

    def annotated(x: torch.Tensor) -> torch.Tensor:
        return body(x)

    made = torch.library.custom_op(f"analyzer_custom::{name}", annotated, mutates_args=(), **kind)
    made.register_fake(torch.empty_like)
    made.register_autograd(lambda ctx, gradient: gradient * 2)
    return made


class TestBodies:
    def test_a_body_in_python_is_followed(self) -> None:
        """Of x 128 KiB: the differences of every pair 64 times as many, and their squares beside them."""

        def spread(x: torch.Tensor) -> torch.Tensor:
            assert x.is_cuda and torch.zeros(1, device=x.device).is_cuda
            return (x[:, None] - x[None]).square().sum(1)

        made = _custom("spread", spread)
        estimate = analyze(
            Model(lambda m, x: made(x)), [torch.empty(64, 512)], steps=1, device="h200", strict=True
        )
        assert not estimate.at_least and estimate.fits()
        assert estimate.peak_allocated == (1 + 64 + 64) * 64 * 512 * 4

    def test_the_one_for_cuda_comes_first(self) -> None:
        made = _custom("one", torch.exp)
        made.register_kernel("cuda", torch.sin)
        made.register_kernel("cpu", torch.cos)
        graph = step(Model(lambda m, x: made(m.a(x)), a=nn.Linear(8, 8)), X)
        assert names(graph, "forward") == ["addmm", "sin"]
        assert "mul.Tensor" in names(graph, "backward")

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            (torch.exp, {"device_types": "cpu"}),  # nothing for the GPU: as compiled code would be
            (lambda x: torch.from_numpy(compiled(x)), {}),
        ],
    )
    def test_what_cannot_be_followed_is_unknown(self, body: Any, kind: dict[str, str]) -> None:
        made = _custom(f"opaque_{len(kind)}", body, **kind)
        estimate = analyze(Model(lambda m, x: made(x)), [X], steps=1, device="h200")
        assert [*estimate.certainty.unknown_operators.values()] == [1] and estimate.at_least

    def test_an_error_of_its_own_is_the_programs(self) -> None:
        made = _custom("wrong", lambda x: x @ x)
        with pytest.raises(CaptureError, match="same reduction dim"):
            analyze(Model(lambda m, x: made(x)), [X], steps=1, device="h200")


def compiled(_: torch.Tensor) -> Any:
    """As an extension does that is handed a tensor of another device than its own."""
    raise RuntimeError("x must be a CUDA tensor")


class TestStrict:
    def test_raises_and_names_them(self, library: Any) -> None:
        with pytest.raises(UnknownOperatorError, match="analyzer_unknown::scaled") as caught:
            analyze(Model(lambda m, x: library.scaled(x, 2.0)), [X], steps=1, device="h200", strict=True)
        assert "--strict" in caught.value.hint

    def test_passes_where_all_is_known(self) -> None:
        analyze(nn.Linear(8, 8), [X], steps=1, device="h200", strict=True)


class TestWithoutFakeKernel:
    def test_each_result_is_as_large_as_the_largest_input(self, library: Any) -> None:
        """Inputs of 128 and 32 bytes: two results of 128."""
        model = Model(lambda m, x: library.opaque(x, x[:1].clone()))
        graph = inference(model, X)
        call = next(o for o in graph.operators if "opaque" in o.name)
        assert [o and o.shape for o in call.outputs] == [(4, 8), (4, 8)]
        (note,) = graph.notes
        assert "analyzer_unknown::opaque" in note and "as large as its largest input" in note

    def test_nothing_to_go_by(self, library: Any) -> None:
        def forward(_: Any, x: Any) -> Any:
            with torch.device("cuda"):
                return x + library.nothing()

        with pytest.raises(CaptureError):
            inference(Model(forward), X)
