"""Bring the repositories of the jobs, by commit, outside of git: python -m benchmarks public sources [-o .public] [--from DIR]

Clones each from GitHub and checks out the commit its job file names, only the paths the jobs need, into FOLDER/owner+name. Their
sources are no part of this project and never committed. --from: takes local git folders DIR/owner+name/repo instead.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.public import job_files

DEFAULT = ROOT / ".public"
_COMMIT = ".commit"


def _git(*words: str) -> bytes:
    """What git prints."""
    return subprocess.run(["git", *words], check=True, capture_output=True).stdout


def _absent(git_folder: Path, commit: str) -> list[str]:
    """Files of a commit that this git folder lacks (a local one may be kept without its largest)."""
    told = _git("--git-dir", str(git_folder), "ls-tree", "-r", "-z", commit).decode().split("\0")
    lines = [line.split("\t", 1) for line in told if line and line.split()[1] == "blob"]
    asked = "".join(words.split()[2] + "\n" for words, _ in lines).encode()
    check = ["git", "--git-dir", str(git_folder), "cat-file", "--batch-check"]
    there = subprocess.run(check, input=asked, check=True, capture_output=True).stdout.decode().splitlines()
    return [name for (_, name), answer in zip(lines, there, strict=True) if answer.endswith("missing")]


def unpack(git_folder: Path, commit: str, paths: list[str], into: Path) -> None:
    """The files of a commit, of those paths only."""
    without = [f":(exclude,literal){name}" for name in _absent(git_folder, commit)]
    words = ["--", *(paths or ["."]), *without] if paths or without else []
    data = _git("--git-dir", str(git_folder), "archive", "--format=tar", commit, *words)
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(into, filter="data")


def bring(repo: str, source: dict[str, Any], folder: Path, local: Path | None = None) -> Path:
    """The repository's files in FOLDER/owner+name, brought if they are not there at this commit."""
    into = folder / repo.replace("/", "+")
    mark = "\n".join([source["commit"], *source.get("paths", [])])
    if (into / _COMMIT).exists() and (into / _COMMIT).read_text() == mark:
        return into
    paths = source.get("paths", [])
    if local is not None:
        where = local / repo.replace("/", "+") / "repo"
        unpack(where / ".git" if (where / ".git").exists() else where, source["commit"], paths, into)
    else:
        with tempfile.TemporaryDirectory() as fresh:
            _git("init", "-q", "--bare", fresh)
            url = f"https://github.com/{repo}.git"
            _git("--git-dir", fresh, "fetch", "-q", "--depth", "1", url, source["commit"])
            unpack(Path(fresh), source["commit"], paths, into)
    (into / _COMMIT).write_text(mark)
    return into


@click.command("sources")
@click.argument("names", nargs=-1)
@click.option("-o", "--output", type=Path, default=DEFAULT)
@click.option("--from", "local", type=Path)
def main(names: tuple[str, ...], output: Path, local: Path | None) -> int:
    """Clone the repositories of every job, or of those named (NAME, NAME*, DOMAIN/); 1 if one failed."""
    sources, jobs = job_files.load()
    failed = []
    for repo in sorted({job["repo"] for job in job_files.chosen(jobs, names)}):
        try:
            bring(repo, sources[repo], output, local)
            print(repo)
        except subprocess.CalledProcessError as error:
            failed.append(repo)
            print(repo, "failed:", error.stderr.decode(errors="replace").strip()[-300:], file=sys.stderr)
    return 1 if failed else 0
