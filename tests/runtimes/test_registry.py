"""The registry of runtimes: by name, registered, announced by packages, and what a runtime refuses by default."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.allocators import create
from analyzer.devices import DeviceProfile, load
from analyzer.errors import OptionError
from analyzer.graph import Category, Graph
from analyzer.options import Options
from analyzer.runtimes import base
from analyzer.runtimes.base import Prediction, Runtime, Source
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.timeline import Simulation
from tests.values import not_values

H200 = load("h200")


class Toy(Runtime):
    name = "toy"

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        del source, options

        def device_used(simulation: Simulation) -> int:
            return simulation.peak_reserved + profile.context_bytes

        return Prediction((), lambda: create("pytorch"), device_used)


class Entry:
    """An entry point of another package."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> type[Runtime]:
        return Toy


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    groups: list[str] = []

    def entry_points(group: str) -> tuple[Entry, ...]:
        groups.append(group)
        return (Entry("pytorch"), Entry("theirs"))

    monkeypatch.setattr(base.metadata, "entry_points", entry_points)
    monkeypatch.setattr(base, "_registered", {})
    return groups


def test_names_once_each_own_ones_first(announced: list[str]) -> None:
    base.register(Toy())
    assert base.names() == (*base._OWN, "toy", "theirs")
    assert set(announced) == {"analyzer.runtimes"}


@pytest.mark.usefixtures("announced")
def test_named() -> None:
    toy = Toy()
    assert (base.named("pytorch").name, base.named("onnxruntime").name) == ("pytorch", "onnxruntime")
    assert isinstance(base.named("theirs"), Toy)
    base.register(toy)
    assert base.named("toy") is toy
    with pytest.raises(OptionError, match="unknown runtime 'toi'") as caught:
        base.named("toi")
    assert "did you mean 'toy'" in caught.value.hint
    assert "one of pytorch, onnxruntime, paddle, tensorflow, toy, theirs" in caught.value.hint


def test_a_registered_runtime_wins_over_the_own_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_registered", {})
    mine = type("Mine", (Toy,), {"name": "pytorch"})()
    base.register(mine)
    assert base.named("pytorch") is mine


def test_by_default_a_runtime_has_no_options_and_leaves_the_profile() -> None:
    assert Toy().profile(H200, Options()) == H200
    with pytest.raises(OptionError, match="unknown runtime option 'a' for toy") as caught:
        Toy().profile(H200, Options(runtime_options={"a": 1}))
    assert caught.value.hint == "it has none"
    assert Toy.frameworks == ("pytorch", "onnx")


def test_what_a_runtime_need_not_say() -> None:
    source = Source(Graph("pytorch", (), (), ()))
    found = Toy().predict(source, Options(), H200)
    rest: tuple[Any, ...] = (found.libraries, found.unknown, found.notes, found.savings)
    assert rest == (frozenset(), {}, (), ())
    assert found.describe is None and found.capped is None and source.model is None
    malloc = Malloc(3, 8, Category.INPUT)
    assert (malloc.operator, malloc.storage, malloc.basis, malloc.stream) == (-1, -1, "exact", 0)
    assert not malloc.apart


def test_values_cannot_be_changed() -> None:
    assert (
        not_values("analyzer.runtimes.base", "analyzer.runtimes.events", "analyzer.runtimes.timeline")
        == set()
    )
