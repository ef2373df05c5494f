"""Every form a result can be had in: one registry, by what is shown and by the form's name.

1. A command parses, a format renders: `render(result, view)` gives the whole text, or bytes for a file of its
   own kind. Nothing else decides what a result looks like; `view` is all that a user can say about it.
2. A format is one file in this folder and one line in `FORMATS`; or, of an extension's kind of result, one in
   the table that it announces by the kind's name (entry points "analyzer.formats"). Its module is imported
   when somebody asks for it.
3. The first name of each kind is what a command shows when nobody asks for a form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from analyzer import extensions

# Kind of result -> name of the format -> module:function.
FORMATS: dict[str, dict[str, str]] = {
    "estimate": {
        "text": "analyzer.report.text:render",
        "json": "analyzer.report.json:render",
        "html": "analyzer.report.html:render",
        "csv": "analyzer.report.csv:render",
        "snapshot": "analyzer.report.snapshot:render",
        "trace": "analyzer.report.trace:render",
        "folded": "analyzer.report.folded:render",
        "svg": "analyzer.report.picture:bars_svg",
        "png": "analyzer.report.picture:bars_png",
    },
    "summary": {"text": "analyzer.report.text:summary", "line": "analyzer.report.text:line"},
    "notebook": {"html": "analyzer.report.notebook:render"},
    "allocators": {
        "text": "analyzer.report.allocators:render",
        "json": "analyzer.report.allocators:render_json",
        "csv": "analyzer.report.allocators:render_csv",
        "html": "analyzer.report.allocators:render_html",
        "svg": "analyzer.report.allocators:render_svg",
        "png": "analyzer.report.allocators:render_png",
    },
    "curve": {
        "text": "analyzer.report.plan:curve_text",
        "json": "analyzer.report.plan:curve_json",
        "csv": "analyzer.report.plan:curve_csv",
        "svg": "analyzer.report.curve_svg:render",
        "html": "analyzer.report.pages:curve",
    },
    "fits": {
        "text": "analyzer.report.plan:fits_text",
        "json": "analyzer.report.plan:fits_json",
        "html": "analyzer.report.pages:fits",
    },
    "lengths": {
        "text": "analyzer.report.lengths:render",
        "json": "analyzer.report.lengths:render_json",
        "csv": "analyzer.report.lengths:render_csv",
        "svg": "analyzer.report.lengths:render_svg",
        "png": "analyzer.report.lengths:render_png",
    },
    "strategies": {
        "text": "analyzer.report.strategies:render",
        "json": "analyzer.report.strategies:render_json",
        "csv": "analyzer.report.strategies:render_csv",
        "html": "analyzer.report.pages:strategies",
    },
    "grid": {"csv": "analyzer.report.grid:render_csv", "parquet": "analyzer.report.grid:render_parquet"},
    "difference": {
        "text": "analyzer.report.difference:render",
        "json": "analyzer.report.difference:render_json",
        "html": "analyzer.report.pages:difference",
        "github": "analyzer.report.difference:render_github",
    },
    "device": {"text": "analyzer.report.devices:render_one", "json": "analyzer.report.devices:render_json"},
    "devices": {"text": "analyzer.report.devices:render", "json": "analyzer.report.devices:render_json"},
    "recording": {
        "text": "analyzer.report.recording:render",
        "json": "analyzer.report.recording:render_json",
        "html": "analyzer.report.recording:render_html",
    },
    "message": {
        "text": "analyzer.report.recording:message",
        "json": "analyzer.report.recording:message_json",
        "html": "analyzer.report.recording:message_html",
    },
    "rules": {"text": "analyzer.report.rules:render_list", "json": "analyzer.report.rules:render_json"},
    "explanation": {"text": "analyzer.report.rules:render", "json": "analyzer.report.rules:render_json"},
}


@dataclass(frozen=True, slots=True)
class View:
    """How a user wants a result shown; a form takes what it can use.

    top: how many of the largest tensors. budget_bytes: a limit to judge by besides the device. color: with
    ANSI styles. verbose: every note, also where many are alike. width: of a terminal, in columns. by, depth:
    whom the bytes at the peak are attributed to besides (`attribution.KINDS`, "": nobody), and how many names
    of a path.
    """

    top: int = 10
    budget_bytes: int | None = None
    color: bool = False
    width: int = 80
    by: str = ""
    depth: int | None = None
    verbose: bool = False


PLAIN = View()


def names(shown: str) -> tuple[str, ...]:
    """Return the forms of a kind of result, the usual one first. Raises KeyError for an unknown kind."""
    return tuple(_forms(shown))


def render(shown: str, form: str, result: Any, view: View = PLAIN) -> str | bytes:
    """`result`, of the kind `shown`, in that form. Raises KeyError for a kind or a form that is none."""
    module, _, function = _forms(shown)[form].partition(":")
    renderer: Callable[[Any, View], str | bytes] = getattr(import_module(module), function)
    return renderer(result, view)


def _forms(shown: str) -> Mapping[str, str]:
    """Return the forms of a kind of result, the core's or an extension's."""
    forms = FORMATS.get(shown)
    return extensions.optional("formats", shown) or {} if forms is None else forms
