"""What a release promises and ships besides the package: the interface as it is stored, the checklist, recipes that agree."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import analyzer
from benchmarks import release
from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CONTAINERS = [ROOT / "Dockerfile", *sorted((ROOT / "containers").glob("*.Containerfile"))]


def test_the_interface_is_the_one_that_is_promised() -> None:
    stored, now = json.loads(release.INTERFACE.read_text()), json.loads(json.dumps(release.interface()))
    assert release.broken(stored, now) == []
    assert stored == now, "something is new: python -m benchmarks release table"
    assert {"analyze", "run", "fit", "sweep", "what_if", "compare", "emulate"} <= stored["python"].keys()
    assert {"peak_allocated", "fits", "top"} <= set(stored["results"]["Estimate"])
    assert stored["schema"]["peak_allocated"] == "integer, always"


@pytest.mark.parametrize(
    ("promised", "now", "found"),
    [
        ({"a": {"x": "needed"}}, {"a": {"x": "optional"}}, []),
        ({"a": {"x": "optional"}}, {"a": {"x": "needed"}}, ["a: x: 'optional' is now 'needed'"]),
        ({"a": {}}, {"a": {"x": "needed"}}, ["a: x must be given now"]),
        ({"a": {}}, {"a": {"x": "optional"}, "b": {}}, []),
        ({"a": 1, "b": 2}, {"a": 1}, ["b is gone"]),
        ({"o": {"--mode": ["infer", "train"]}}, {"o": {"--mode": ["infer"]}}, ["o: --mode: train is gone"]),
        ({"o": {"--mode": ["infer"]}}, {"o": {"--mode": ["infer", "train"]}}, []),
        ({"s": "integer"}, {"s": "integer, always"}, ["s: 'integer' is now 'integer, always'"]),
    ],
)
def test_what_breaks_a_promise_is_found(promised: Any, now: Any, found: list[str]) -> None:
    assert release.broken(promised, now) == found


def test_the_checklist_looks_every_line_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CliRunner().invoke(release.score, ["--no-wheel"], standalone_mode=False)
    lines = ran.output.splitlines()
    assert len(lines) == len(release.CHECKS) and all(line[:6] in ("open  ", "done  ") for line in lines[:-1])
    open_lines = sum(line.startswith("open") for line in lines)
    assert ran.return_value == int(open_lines > 0) and lines[-1].startswith(f"{open_lines} open")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "conda").mkdir()
    version = analyzer.__version__
    (tmp_path / "CITATION.cff").write_text(f"version: {version}\ndate-released: 2026-01-02\n")
    (tmp_path / "conda/recipe.yaml").write_text(f"context:\n  version: {version}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n## [{version}] - 2026-01-02\n\n- entry\n")
    assert not release._same_version() and not release._changelog() and not release._cited_date()
    (tmp_path / "CITATION.cff").write_text("version: 0.0.1\ndate-released: 2026-01-03\n")
    (tmp_path / "CHANGELOG.md").write_text(
        f"## [Unreleased]\n\n- new\n- newer\n\n## [{version}] - 2026-01-02\n"
    )
    assert "0.0.1" in release._same_version() and release._changelog() == "2 entries under Unreleased"
    assert "2026-01-03" in release._cited_date()
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert release._changelog().startswith("no section with a date")


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    wanted = [re.sub(r"(?=[<>=])", " ", needed, count=1) for needed in PROJECT["dependencies"]]
    run = recipe["requirements"]["run"]
    assert run == [f"python {PROJECT['requires-python']}", *wanted]
    assert recipe["package"]["name"] == PROJECT["name"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_pre_commit_checks_in_the_versions_of_ci() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    pins = set(re.findall(r"^(\S+==\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    for hook in hooks:
        if hook["language"] == "python":
            assert set(hook["additional_dependencies"]) <= pins, hook["id"]
    assert {"ruff", "mypy", "import-linter"} <= {pin.partition("==")[0] for pin in pins}
    ran = {" ".join(hook["entry"].split()[:2]) for hook in hooks}
    assert ran == {"ruff check", "ruff format", "mypy", "lint-imports"}
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert any("download.pytorch.org/whl/cpu" in word for word in offered["additional_dependencies"])
    changes_of = re.compile(offered["files"])  # pre-commit's way: searched for in each name
    assert all(changes_of.search(name) for name in ("train.py", "models/a.onnx", "a.pt2", "config.json"))
    assert not changes_of.search("README.md") and "types_or" not in offered


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    """As GitHub's syntax for issue forms has it: https://docs.github.com/en/communities (form schema)."""
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys() and form["body"]
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))
    for part in form["body"]:
        assert part["type"] in ("textarea", "input", "dropdown", "checkboxes") and part["attributes"]["label"]
        assert isinstance(part["validations"]["required"], bool)
    if path.stem != "feature":
        assert "version" in ids


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_sound(path: Path) -> None:
    """Steps do one thing, actions have a version, and jobs wait for jobs that are there."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"} and True in workflow  # YAML reads the key "on" so
    for job in workflow["jobs"].values():
        assert job["runs-on"] and all(("uses" in step) != ("run" in step) for step in job["steps"])
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= workflow["jobs"].keys()
        for step in job["steps"]:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d[\w.]*|release/v\d+)", step.get("uses", "a/b@v1"))


def test_ci_wheels_and_site_do_what_is_said() -> None:
    told = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    assert any(step.get("run") == ".ci/run" for step in told["ci"]["jobs"]["run"]["steps"])
    pythons = told["ci"]["jobs"]["run"]["strategy"]["matrix"]["python"]
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert pythons == named
    wheel = told["wheels"]["jobs"]["wheel"]
    builds = [entry["build"] for entry in wheel["strategy"]["matrix"]["include"]]
    assert "cp311-manylinux_x86_64" in builds
    assert f"-le {release.LARGEST_WHEEL_BYTES}" in str(wheel["steps"]) and "-cp311-abi3-" in str(wheel)
    assert "mkdocs build --strict" in str(told["site"]["jobs"]["build"]["steps"])


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_container_installs_what_there_is(path: Path) -> None:
    told = path.read_text()
    for copied in re.findall(r"^COPY (?!--from)(\S+)", told, re.MULTILINE):
        assert (ROOT / copied).exists()
    extras = [name for listed in re.findall(r"\*\.whl\)\[([\w,]+)\]", told) for name in listed.split(",")]
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    assert bool(extras) == ("download.pytorch.org/whl/cpu" in told)
    assert re.search(r"^USER 1000$", told, re.MULTILINE) and 'ENTRYPOINT ["analyze"]' in told


def test_security_says_what_was_tried() -> None:
    """The figures in SECURITY.md are those of the page that a command writes."""
    page, said = (ROOT / "docs/evidence/SANDBOX.md").read_text(), (ROOT / "SECURITY.md").read_text()
    changed = dict(
        re.findall(r"^\| (namespaces|Landlock alone) \| \d+ of 139 \| (\d+) \|", page, re.MULTILINE)
    )
    assert changed == {"namespaces": "0", "Landlock alone": "1"}
    assert "139 ways to change files" in said and "nothing changed under namespaces, one entry" in said
    assert "--unprotected" in said and "advisory" in said
