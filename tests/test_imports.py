"""Modules form no circle: each can be read, and imported, after those it uses. import-linter keeps the rooms' order beside."""

from __future__ import annotations

import re

import grimp
import networkx as nx

from analyzer import child
from tests.paths import ROOT

# `Estimate.to_json` is a convenience that asks the report at the moment of the call (pyproject.toml lists it too).
ALLOWED = ("analyzer.results.estimate", "analyzer.report.json")


def circles(imports: nx.DiGraph) -> list[list[str]]:
    """Groups of modules of which each needs every other."""
    return [sorted(group) for group in nx.strongly_connected_components(imports) if len(group) > 1]


def test_no_circle_among_modules() -> None:
    packages = (package.name for package in child.packages())
    found = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    imports = nx.DiGraph(
        (module, used) for module in found.modules for used in found.find_modules_directly_imported_by(module)
    )
    assert imports.number_of_edges() > 500
    imports.remove_edge(*ALLOWED)  # raises where there is none: then the exception can go
    assert circles(imports) == []


def test_extensions_import_what_the_table_says() -> None:
    """docs/architecture.md, "Extensions", the third column; the core imports none."""
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `(analyzer_\w+)` \|[^|]*\| ([\w, ]+) \|", page, re.MULTILINE)
    named = {
        package: set() if others == "none" else {f"analyzer_{other}" for other in others.split(", ")}
        for package, others in rows
    }
    packages = [package.name for package in child.packages()]
    found = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    used: dict[str, set[str]] = {package: set() for package in packages}
    for module in found.modules:
        for imported in found.find_modules_directly_imported_by(module):
            used[module.partition(".")[0]].add(imported.partition(".")[0])
    assert used.pop("analyzer") <= {"analyzer"}
    assert {package: others - {package, "analyzer"} for package, others in used.items()} == named


def test_reports_know_results_alone() -> None:
    """Of all that computes, reports name what comes out and how users name things; in annotations too."""
    found = grimp.build_graph("analyzer", cache_dir=None)
    reports = {"analyzer.report", *found.find_descendants("analyzer.report")}
    used = {
        module
        for report in reports
        for module in found.find_modules_directly_imported_by(report)
        if module not in reports and not module.startswith("analyzer.results.")
    }
    assert used <= {
        "analyzer",  # its version
        "analyzer.devices",
        "analyzer.errors",
        "analyzer.extensions",  # forms of their results
        "analyzer.files",
        "analyzer.notes",  # codes of notes
        "analyzer.liveness.naive",  # a term of the estimate
        "analyzer.options",
        "analyzer.releases",
        "analyzer.runtimes.rules",  # what `analyze explain` prints
    }


def test_the_recorder_knows_nobody_who_registers() -> None:
    """Sparse tensors, indices, copies and streams know the recorder, in annotations too; not the other way round."""
    found = grimp.build_graph("analyzer", cache_dir=None)
    recorder = "analyzer.capture.pytorch.recording.recorder"
    knows = found.find_upstream_modules(recorder)
    known_by = found.find_downstream_modules(recorder)
    assert len(known_by) > 30
    assert knows & known_by == set()


def test_circles_are_seen() -> None:
    """The method itself, on a graph that has one."""
    assert circles(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])) == [["a", "b", "c"]]


def test_no_test_needs_another() -> None:
    """What several tests use lives in helpers: a `test_*` file can go, or be run, alone."""
    found = grimp.build_graph("tests", cache_dir=None)
    needed = {
        (module, used)
        for module in found.modules
        for used in found.find_modules_directly_imported_by(module)
        if used.rpartition(".")[2].startswith(("test_", "conftest"))
    }
    assert needed == set()
