"""The jobs of `jobs/*.json`: which public programs are run, with which arguments and data.

A file holds one domain: {"sources": {"owner/name": {"commit": ..., "licence": ..., "paths": [...]}}, "jobs": [...]}. paths: the
folders and files of the repository that its jobs need (all of them, if there is no such list). A job:

- name, repo; script: its path in the repository, or "-m package.module"; folder: where it is started, in the repository (the
  script's own folder, if not given);
- args, environment: as a user would give them, `{copy}` in them is the folder of the job's own copy of the repository;
- data: [[maker, folder, settings], ...]: `data/FILE.py`'s function, called as maker(folder, **settings); folder is relative to
  where the script is started;
- packages: what it imports beyond torch and what is installed with it (torchvision, numpy, ...);
- processes: 2 where it is one rank of two (started as torchrun would, or by itself where `spawns` is true);
- alone: true where the choice of an algorithm is timed (`torch.backends.cudnn.benchmark`), so that nothing else may run beside;
- until: the number of optimizer steps after which it is ended, where its arguments cannot end it; seconds: the most it may take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import SUBJECTS

FOLDER = SUBJECTS / "public/jobs"
_REQUIRED = {"name", "repo", "script"}
_KNOWN = _REQUIRED | {
    "folder", "args", "environment", "data", "packages", "processes", "spawns", "alone", "until", "seconds",
}  # fmt: skip


class JobError(ValueError):
    """A job file says something that cannot be carried out."""


def _checked(job: dict[str, Any], sources: dict[str, Any], file: str) -> dict[str, Any]:
    """The job with everything it leaves out. Raises JobError."""
    name = job.get("name", "a job without a name")
    if missing := _REQUIRED - set(job):
        raise JobError(f"{file}: {name} has no {', '.join(sorted(missing))}")
    if unknown := set(job) - _KNOWN:
        raise JobError(f"{file}: {name} says {', '.join(sorted(unknown))}, which nobody reads")
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise JobError(f"{file}: {name} becomes a file's name: a-z, 0-9 and _ only")
    if job["repo"] not in sources:
        raise JobError(f"{file}: {name} is of {job['repo']}, which sources do not name")
    script = job["script"]
    own = "." if script.startswith("-m ") else str(Path(script).parent)
    return {
        "folder": own, "args": [], "environment": {}, "data": [], "packages": [], "processes": 1, "spawns": False,
        "alone": False, "until": None, "seconds": 120, **job, "domain": Path(file).stem,
    }  # fmt: skip


def load(folder: Path = FOLDER) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """(sources by repository, jobs), of all files. Raises JobError."""
    sources: dict[str, dict[str, Any]] = {}
    jobs: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        for repo, source in told["sources"].items():
            if not re.fullmatch(r"[0-9a-f]{40}", source.get("commit", "")) or "licence" not in source:
                raise JobError(f"{file.name}: {repo} needs a whole commit and a licence")
            if sources.get(repo, source)["commit"] != source["commit"]:
                raise JobError(f"{file.name}: {repo} is taken at two commits")
            old = sources.get(repo)
            paths = [*old.get("paths", []), *source.get("paths", [])] if old else source.get("paths", [])
            whole = not source.get("paths") or (old is not None and not old.get("paths"))
            sources[repo] = {**source, "paths": [] if whole else sorted(set(paths))}
        jobs += [_checked(job, told["sources"], file.name) for job in told["jobs"]]
    names = [job["name"] for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise JobError(f"two jobs have the name {', '.join(twice)}")
    return sources, jobs


def chosen(jobs: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs that are named, all of them where none is; a name may end in * for all that begin so. Raises JobError."""
    for name in names:
        if not any(_named(job, name) for job in jobs):
            raise JobError(f"no job is called {name}")
    return [job for job in jobs if not names or any(_named(job, name) for name in names)]


def _named(job: dict[str, Any], name: str) -> bool:
    """Whether `name` means the job: its own name, the beginning of it before a *, or its domain and a slash."""
    if name.endswith("/"):
        return bool(job["domain"] == name[:-1])
    return bool(job["name"] == name or (name.endswith("*") and job["name"].startswith(name[:-1])))
