"""The folder of an overlay among temporary files, where other users may put things, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analyzer_sandbox.scratch import Scratch


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared folder for temporary files."""
    made = tmp_path / "shared"
    made.mkdir()
    made.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(made))
    return made


def _abandoned(place: Path, name: str = "analyze-overlay-old") -> Path:
    folder = place / name
    (folder / "upper/closed").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "upper/closed/file").write_text("1")
    return folder


def test_a_link_among_temporary_files_is_not_followed(place: Path, tmp_path: Path) -> None:
    victim = _abandoned(tmp_path, "victim")
    (place / "analyze-overlay-link").symlink_to(victim)
    victim.chmod(0o755)
    modes = [path.stat().st_mode for path in (place, victim)]
    Scratch.new().drop()
    assert (victim / "upper/closed/file").read_text() == "1"
    assert [path.stat().st_mode for path in (place, victim)] == modes
    assert [path.name for path in place.iterdir()] == ["analyze-overlay-link"]


def test_a_lock_that_is_a_link_is_not_opened(place: Path, tmp_path: Path) -> None:
    folder = _abandoned(place)
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(tmp_path / "made")
    Scratch.new().drop()
    assert folder.is_dir() and not (tmp_path / "made").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_folders_of_others_are_left_alone(place: Path) -> None:
    folder = _abandoned(place)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 12345, 12345)
    Scratch.new().drop()
    assert (folder / "upper/closed/file").exists()


def test_own_folders_go_with_what_nobody_may_enter_and_links_in_them_stay(
    place: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("1")
    folder = _abandoned(place)
    (folder / "upper/link").symlink_to(kept)
    (folder / "upper/closed").chmod(0)
    modes = [path.stat().st_mode for path in (place, kept)]
    Scratch.new().drop()
    assert list(place.iterdir()) == [] and (kept / "file").exists()
    assert [path.stat().st_mode for path in (place, kept)] == modes
