"""`analyze engine`: environments made from wheels that lie in a folder, by the pip that makes real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from analyzer.errors import OptionError, RunError
from analyzer_emulation import store
from analyzer_emulation.commands.engine import command
from analyzer_emulation.launch import find_torch
from analyzer_emulation.reach import within_reach
from tests.extensions.emulation.engines import builds


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANALYZER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    builds.torch_wheels(tmp_path / "wheels")
    return tmp_path / "wheels"


@pytest.mark.usefixtures("wheels")
def test_an_engine_is_made_found_shown_and_removed() -> None:
    said: list[str] = []
    engine = store.install([store.DEFAULT], said.append)
    assert engine.complete
    assert find_torch(engine.python).version == "2.11.0+cu130"
    assert not (engine.folder / "wheels").exists()
    assert "GB to download" in " ".join(said)
    assert (found := within_reach()) is not None
    assert found.python == engine.python
    shown = CliRunner().invoke(command, ["list"], standalone_mode=False).output
    assert shown.startswith("torch-2.11.0: ")
    assert str(engine.folder) in shown
    store.remove("torch==2.11.0")
    assert not engine.folder.exists()
    assert within_reach() is None


def test_what_was_interrupted_goes_on(wheels: Path) -> None:
    def interrupts(text: str) -> None:
        if text.startswith("2 of "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.install([store.DEFAULT], interrupts)
    (engine,) = store.every()
    assert not engine.complete
    assert within_reach() is None
    kept = list((engine.folder / "wheels").iterdir())
    assert len(kept) == 2
    written = {path: path.stat().st_mtime_ns for path in kept}

    def looks(text: str) -> None:
        if text == "installing":
            assert {path: path.stat().st_mtime_ns for path in kept} == written

    assert store.install([store.DEFAULT], looks).complete
    (wheels / "torch-2.11.0-py3-none-any.whl").unlink()


def test_what_cannot_be_had_is_said(wheels: Path) -> None:
    with pytest.raises(RunError, match=r"pip install ended with exit code 1: .*torch==9\.9"):
        store.install(["torch==9.9"], lambda _: None)
    for path in wheels.iterdir():
        path.unlink()
    with pytest.raises(RunError, match="pip install ended"):
        store.install([store.DEFAULT], lambda _: None)


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        (["torch>=2"], "'torch>=2' is no requirement"),
        (["--index-url=x"], "'--index-url=x' is no requirement"),
        (["../torch"], "'../torch' is no requirement"),
        (["numpy==2"], "numpy is no engine"),
    ],
)
def test_only_packages_are_installed(requirements: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        store.install(requirements, lambda _: None)


def test_a_disk_without_room_is_told_before(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_size", lambda _: 10**15)
    with pytest.raises(RunError, match=r"GB free, and about .* GB are needed"):
        store.install([store.DEFAULT], lambda _: None)
    assert wheels.exists()


@pytest.mark.usefixtures("wheels")
def test_what_is_not_there_is_not_removed() -> None:
    with pytest.raises(OptionError, match=r"no engine 'torch-2\.11\.0' is installed\n  hint: there is none"):
        store.remove("torch-2.11.0")
    with pytest.raises(OptionError, match=r"no engine '\.\.' is installed"):
        store.remove("..")
