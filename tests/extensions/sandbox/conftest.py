"""A folder with files of a user's, and programs that run in sandboxes there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.sandbox.folders import HERE, STARTS
from tests.paths import PYTHONPATH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a user may have."""
    made = tmp_path / "project"
    made.mkdir()
    for name, text in (
        ("best.pt", "trained for a week"), ("log.txt", "before "), ("data.bin", "0123456789"), ("old.txt", "old"), ("old2.txt", "old"),
        ("old3.txt", "old"), ("first", "first"), ("first2", "first"), ("mode.txt", "mode"), ("map.bin", "map"),
    ):  # fmt: skip
        (made / name).write_text(text)
    for name in ("folder", "tree/sub", "linked", "runs"):
        (made / name).mkdir(parents=True)
    (made / "folder/inner").write_text("inner")
    (made / "tree/leaf").write_text("leaf")
    (made / "link").symlink_to(made / "linked")
    with sqlite3.connect(made / "known.db") as database:
        database.execute("create table runs (id integer)")
    database.close()
    return made


@pytest.fixture(params=STARTS)
def start(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Starts a program in a sandbox in `folder`, under each protection there is here."""
    before, _ = STARTS[request.param]
    if not sys.platform.startswith("linux"):
        pytest.skip("Linux's protections")
    if (
        before[:-1] and subprocess.run([*before[:-1], "true"], check=False, capture_output=True).returncode
    ) or not shutil.which(before[-1]):
        pytest.skip(f"this user, or this machine, has no {before[0]}")
    if request.param == "another user":
        if subprocess.run([*before[:-1], "test", "-r", str(HERE / "inside.py")], check=False).returncode:
            pytest.skip("another user cannot read the repository")
        for path in (tmp_path, *tmp_path.parents):
            if path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o777 == 0o700:
                path.chmod(0o755)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 12345, 12345, follow_symlinks=False)

    def start(*words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*before, str(HERE / "inside.py"), *words], cwd=folder, text=True,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": str(folder), **variables},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    start.protection = request.param  # type: ignore[attr-defined]
    start.refused = STARTS[request.param][1]  # type: ignore[attr-defined]
    return start
