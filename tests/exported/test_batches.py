"""The batches of an exported program: those it takes, and no figure under another batch's name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer.errors import InputError  # noqa: E402
from analyzer.planning.intervals import Intervals  # noqa: E402
from analyzer.targets import load, parse  # noqa: E402


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.linear(x), self.linear(y)


def exported(folder: Path, first: int, second: int, *varying: Any) -> Path:
    """Write a program of two inputs with these first dimensions. varying: the dimension of each, None: fixed."""
    sizes = tuple({0: each} if each else None for each in varying) if varying else None
    samples = (torch.zeros(first, 16), torch.zeros(second, 16))
    torch.export.save(torch.export.export(_Two(), samples, dynamic_shapes=sizes), folder / "two.pt2")
    return folder / "two.pt2"


def dimension(name: str, **span: int) -> Any:
    return torch.export.Dim(name, **span)


def shapes(path: Path, batch: int) -> list[tuple[int, ...]]:
    program = load(parse(path))
    assert program.make_batch is not None
    return [tuple(tensor.shape) for tensor in program.make_batch(batch)[0]]


def test_a_batch_that_was_exported_as_a_number(tmp_path: Path) -> None:
    path = exported(tmp_path, 8, 8)
    assert shapes(path, 8) == [(8, 16), (8, 16)]
    for analysis in (analyzer.analyze, analyzer.fit):
        options = {"batch": 4} if analysis is analyzer.analyze else {}
        with pytest.raises(InputError, match=r"two\.pt2 was exported for a batch of 8 alone") as caught:
            analysis(path, device="h200", **options)
        assert "engine install" not in caught.value.hint


def test_what_varies_is_the_batch(tmp_path: Path) -> None:
    path = exported(tmp_path, 8, 32, dimension("batch"), None)
    assert shapes(path, 64) == [(64, 16), (32, 16)]
    assert load(parse(path)).own_batch == 8
    batch = dimension("batch")
    assert shapes(exported(tmp_path, 8, 8, batch, batch), 3) == [(3, 16), (3, 16)]


def test_inputs_that_vary_apart_have_no_batch(tmp_path: Path) -> None:
    path = exported(tmp_path, 8, 32, dimension("a"), dimension("b"))
    assert shapes(path, 8) == [(8, 16), (32, 16)]
    with pytest.raises(InputError, match="vary apart"):
        analyzer.analyze(path, batch=64, device="h200")


def test_a_batch_beyond_its_range(tmp_path: Path) -> None:
    batch = dimension("batch", min=4, max=64)
    path = exported(tmp_path, 8, 8, batch, batch)
    assert shapes(path, 4) == [(4, 16), (4, 16)] and shapes(path, 64) == [(64, 16), (64, 16)]
    for wrong in (3, 65):
        with pytest.raises(InputError, match=f"for batches from 4 to 64, and this is {wrong}"):
            shapes(path, wrong)


def test_loads_of_one_program_are_the_same_program(tmp_path: Path) -> None:
    """PyTorch numbers the code it generates through the process."""
    path = exported(tmp_path, 8, 32, dimension("batch"), None)
    places = [{row.source for row in analyzer.analyze(path, batch=n, device="h200").top(9)} for n in (2, 4)]
    assert places[0] == places[1] and any(place.startswith("<eval_with_key>:") for place in places[0])


def test_the_middle_of_a_short_range_is_no_end() -> None:
    captured = SimpleNamespace(workload=SimpleNamespace(captured_batches=lambda: [1, 8, 12, 16]))
    assert Intervals._middle(captured, 8, 16) == 12  # type: ignore[arg-type]
    captured.workload.captured_batches = lambda: [12, 16]
    assert Intervals._middle(captured, 12, 16) == 15  # type: ignore[arg-type]
