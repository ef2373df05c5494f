"""What `analyzer.analyze` takes besides what the command line can give, and how it refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import InputError, OptionError, TensorSpec  # noqa: E402

MODEL = torch.nn.Linear(64, 8)


def test_one_tensor_is_one_input() -> None:
    """Not as many inputs as it has rows."""
    whole = analyzer.analyze(MODEL, (torch.zeros(4, 64),))
    assert analyzer.analyze(MODEL, torch.zeros(4, 64)).peak_allocated == whole.peak_allocated
    assert analyzer.analyze(MODEL, TensorSpec((4, 64))).peak_allocated == whole.peak_allocated


def test_one_tensor_is_one_target() -> None:
    def trained(targets: Any) -> int:
        return analyzer.analyze(
            MODEL, (torch.zeros(4, 64),), targets=targets, mode="train", loss="cross_entropy"
        ).peak_allocated

    labels = torch.zeros(4, dtype=torch.int64)
    assert trained(labels) == trained((labels,))


def test_inputs_by_name_are_in_the_order_of_forward() -> None:
    class Two(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    a, b = TensorSpec((4, 64)), TensorSpec((64, 8))
    named = analyzer.analyze(Two(), {"b": b, "a": a})
    assert named.peak_allocated == analyzer.analyze(Two(), (a, b)).peak_allocated
    with pytest.raises(InputError, match="Two takes no input 'x'"):
        analyzer.analyze(Two(), {"x": a, "y": b})


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"checkpoint": ["0"]}, OptionError),
        ({"runtime_options": "x"}, OptionError),
        ({"batch": 2.0}, InputError),
    ],
)
def test_options_of_another_type(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        analyzer.analyze(MODEL, (torch.zeros(4, 64),), **options)


@pytest.mark.parametrize("made", [((4, -64), "float32"), ((4, 1.5), "float32"), ((4, 64), torch.float32)])
def test_a_spec_of_no_tensor(made: tuple[Any, Any]) -> None:
    with pytest.raises(InputError):
        TensorSpec(*made)


def test_a_tensor_torch_cannot_count() -> None:
    for shape in ((10**20, 64), (2**40, 2**40)):
        with pytest.raises(InputError, match="no tensor of torch"):
            analyzer.analyze(MODEL, (TensorSpec(shape),))
