"""The registry of runtimes: by name, registered, announced by packages, and what a runtime refuses by default."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
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

    monkeypatch.setattr(metadata, "entry_points", entry_points)
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
    assert "one of pytorch, onnxruntime, toy, theirs" in caught.value.hint


PACKAGE = """
from analyzer.allocators import create
from analyzer.runtimes.base import Prediction, Runtime
from analyzer.runtimes.rules import concept


class Nothing(Runtime):
    name = "nothing"

    def predict(self, source, options, profile):
        return Prediction((), lambda: create("pytorch"), lambda simulation: profile.context_bytes)

    def rules(self):
        return (concept("nothing-is-taken", "nothing_runtime"),)


class Other:
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that announces a runtime, one that is none, and one that is not there."""
    (tmp_path / "nothing_runtime.py").write_text(f'"""Nothing is allocated.\n\nSource: none.\n"""\n{PACKAGE}')
    info = tmp_path / "nothing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
    entries = (
        "nothing = nothing_runtime:Nothing",
        "other = nothing_runtime:Other",
        "gone = no_such_module:It",
    )
    (info / "entry_points.txt").write_text("\n".join(("[analyzer.runtimes]", *entries, "")))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nothing_runtime", raising=False)
    return tmp_path


@pytest.mark.usefixtures("package")
def test_a_runtime_of_an_installed_package_is_found() -> None:
    assert "nothing" in base.plugins() and "nothing_runtime" not in sys.modules
    found = base.named("nothing")
    assert found.name == "nothing" and [rule.name for rule in found.rules()] == ["nothing-is-taken"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gone",
            "cannot be loaded from no_such_module:It: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("other", "cannot be loaded: nothing_runtime:Other is no subclass of analyzer.runtimes.base.Runtime"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_package_that_cannot_provide_its_runtime_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        base.named(name)
    assert caught.value.message == f"the runtime {name!r} {message}" and "uninstall it" in caught.value.hint


def test_built_in_runtimes_are_found_without_reading_entry_points(announced: list[str]) -> None:
    base.named("pytorch")
    assert announced == []
    code = "import sys, analyzer, analyzer.cli; assert not any('analyzer_plugins' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_this_project_announces_paddle_and_tensorflow() -> None:
    assert {"paddle", "tensorflow"} <= set(base.plugins())
    assert type(base.named("paddle")).__module__ == "analyzer_plugins.paddle.runtime"


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
    assert not malloc.outside_pools


def test_values_cannot_be_changed() -> None:
    assert (
        not_values("analyzer.runtimes.base", "analyzer.runtimes.events", "analyzer.runtimes.timeline")
        == set()
    )
