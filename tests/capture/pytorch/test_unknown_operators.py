"""Operators nothing is known of: followed by their fake kernel, counted, bounded, refused by `--strict`."""

from __future__ import annotations

from collections.abc import Iterator
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
    def test_calls_and_bound(self, library: Any) -> None:
        estimate = analyze(
            Model(lambda m, x: library.scaled(library.scaled(x, 2.0), 3.0)), [X], steps=2, device="h200"
        )
        ((name, (calls, bound)),) = estimate.certainty.unknown_operators.items()
        assert name.startswith("analyzer_unknown::scaled") and calls == 4
        assert bound >= 4 * 4 * 8  # at least as much as its result

    def test_known_operators_are_not_counted(self) -> None:
        assert not analyze(nn.Linear(8, 8), [X], steps=1, device="h200").certainty.unknown_operators

    def test_gradient_of_the_user(self, library: Any) -> None:
        graph = step(Model(lambda m, x: library.scaled(m.a(x), 2.0), a=nn.Linear(8, 8)), X)
        assert "analyzer_unknown::scaled" in names(graph, "forward")
        assert "analyzer_unknown::scaled" in names(graph, "backward")

    def test_bytes_are_bounded_in_the_estimate(self, library: Any) -> None:
        estimate = analyze(
            Model(lambda m, x: library.scaled(x, 2.0)), [torch.empty(1 << 20)], steps=1, device="h200"
        )
        assert estimate.certainty.bounded >= 0
        assert sum(estimate.breakdown.values()) == estimate.peak_allocated

    def test_python_custom_operator(self) -> None:
        @torch.library.custom_op("analyzer_unknown_py::norm", mutates_args=())
        def norm(x: torch.Tensor) -> torch.Tensor:
            return x / x.norm()

        norm.register_fake(torch.empty_like)
        estimate = analyze(Model(lambda m, x: norm(x)), [X], steps=1, device="h200")
        assert [n.removesuffix(".default") for n in estimate.certainty.unknown_operators] == [
            "analyzer_unknown_py::norm"
        ]


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
