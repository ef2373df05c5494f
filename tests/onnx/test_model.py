"""A model that is opened once: at every batch what a fresh reading finds."""

from __future__ import annotations

import pytest

from analyzer.errors import InputError
from analyzer.onnx.model import ShapedModel, opened, read
from tests.paths import MODELS
from tests.runtimes.onnxruntime import ort_models


@pytest.mark.parametrize("name", ["cnn.onnx", *sorted(ort_models.MODELS)])
def test_at_any_batch_as_if_read_for_it(name: str) -> None:
    source = MODELS / name if name.endswith(".onnx") else ort_models.MODELS[name]()
    model = opened(source)
    before: ShapedModel | None = None
    for batch in (4, 3, 7, 4):
        before, fresh = model.at(batch, like=before), read(source, batch)
        assert before.batch == batch and before.refused == fresh.refused
        assert before.shapes.binding == fresh.shapes.binding
        for ours, theirs in (
            (before.shapes.actual, fresh.shapes.actual),
            (before.shapes.symbolic, fresh.shapes.symbolic),
        ):
            assert (ours.types, ours.notes, ours.inexact) == (theirs.types, theirs.notes, theirs.inexact)


def test_what_is_wrong_with_a_batch_is_said_each_time() -> None:
    model = opened(MODELS / "cnn.onnx")
    for _ in range(2):
        with pytest.raises(InputError):
            model.at(0)
