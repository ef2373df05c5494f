"""The site's reference, generated from the code when the site is built (a hook of mkdocs): commands, Python, rules."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
from mkdocs.structure.files import File

import analyzer
from analyzer import rules
from analyzer.cli import group
from analyzer.options import Options


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    pages = {"commands.md": commands(), "python.md": python(), "rules.md": rule_pages()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}", content=content))
    return files


def commands() -> str:
    """Every command with its help."""
    assert isinstance(group, click.Group)
    context = click.Context(group, info_name="analyze")
    parts = ["# Commands", ""]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        title = "analyze TARGET" if name == "estimate" else f"analyze {name}"
        inner = click.Context(command, info_name=title.removesuffix(" TARGET"), max_content_width=100)
        parts += [f"## {title}", "", "```text", command.get_help(inner), "```", ""]
    return "\n".join(parts)


def python() -> str:
    """What `import analyzer` offers, as tables: functions with their parameters, options, results, errors."""
    things = {name: getattr(analyzer, name) for name in sorted(analyzer.__all__) if not name.startswith("_")}
    errors = {name: thing for name, thing in things.items() if _is_error(thing)}
    functions = {name: thing for name, thing in things.items() if inspect.isfunction(thing)}
    classes = {name: thing for name, thing in things.items() if name not in (*errors, *functions)}
    classes |= {thing.__name__: thing for thing in _results()}
    parts = ["# Python", "", inspect.cleandoc(analyzer.__doc__ or "").split("\n")[0], ""]
    for title, some in (("Functions", functions), ("Results and inputs", classes)):
        rows = [[_link(_title(name), name), _summary(thing)] for name, thing in some.items()]
        parts += [_table((title, "what it gives"), rows), ""]
    parts += [f"All functions that analyse take the {_link('options', 'Options')}.", ""]
    for name, function in functions.items():
        parts += [f"## {_title(name)}", "", *_function(function)]
    parts += [
        "## Options",
        "",
        _table(("option", "default", "on the command line", "meaning"), _options()),
        "",
    ]
    for name, kind in classes.items():
        parts += [f"## {_title(name)}", "", *_class(kind)]
    rows = [
        [f"`{name}`", f"`{thing.__mro__[1].__name__}`", _summary(thing)] for name, thing in errors.items()
    ]
    parts += ["## Errors", "", _table(("error", "is a", "when"), rows), ""]
    return "\n".join(parts)


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _results() -> tuple[type, ...]:
    """The types of what functions return that are not in `analyzer` itself."""
    from analyzer.results.curve import Curve
    from analyzer.results.difference import Difference
    from analyzer.results.fit import Fit
    from analyzer.results.strategy import Strategy
    from analyzer_timing.results import Advice

    return Curve, Fit, Strategy, Difference, Advice


def _title(name: str) -> str:
    """How a thing is headed: results that functions return are in no namespace of their own."""
    return f"analyzer.{name}" if name in analyzer.__all__ else name


def _function(function: Any) -> list[str]:
    """A function's own parameters as a table, and what its documentation says besides."""
    said = (inspect.getdoc(function) or "").partition("\nOptions:")[0].rstrip()
    shared = {entry.name: entry.metadata["help"] for entry in dataclasses.fields(Options)}
    meanings = shared | _entries(inspect.getdoc(analyzer.analyze) or "") | _entries(said)
    names = {entry.name for entry in dataclasses.fields(Options)}
    own = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.name not in names - {"device"}
    ]
    rows = [
        [
            f"`{each.name}`",
            "" if each.default is each.empty else f"`{each.default!r}`",
            _cell(meanings.get(each.name, "")),
        ]
        for each in own
        if each.kind is not each.VAR_KEYWORD
    ]
    returned = inspect.signature(function).return_annotation
    gives = getattr(returned, "__name__", str(returned)).strip("'")
    return [_table(("parameter", "default", "meaning"), rows), "", f"Returns `{gives}`.", "", *_text(said)]


def _options() -> list[list[str]]:
    """Every option: its default, its words on the command line, its meaning."""
    rows = []
    for entry in dataclasses.fields(Options):
        default = None if entry.default is dataclasses.MISSING else entry.default
        flags = ", ".join(f"`{flag}`" for flag in entry.metadata["flags"])
        rows.append([f"`{entry.name}`", f"`{default!r}`", flags, _cell(entry.metadata["help"])])
    return rows


def _class(kind: type) -> list[str]:
    """A class's fields, properties and methods as a table, and its own documentation."""
    said = inspect.getdoc(kind) or ""
    meanings, rows = _entries(said), []
    for entry in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if not entry.name.startswith("_"):
            rows.append([f"`{entry.name}`", _cell(f"`{entry.type}`"), _cell(meanings.get(entry.name, ""))])
    for name, member in vars(kind).items():
        if name.startswith("_") or (not isinstance(member, property) and not inspect.isfunction(member)):
            continue
        shown = "property" if isinstance(member, property) else f"`{name}{inspect.signature(member)}`"
        rows.append([f"`{name}`", _cell(shown), _cell(_summary(member))])
    return [_table(("name", "type", "meaning"), rows), "", *_text(said)]


def _entries(said: str) -> dict[str, str]:
    """What a documentation says of single names: "name, other: meaning", with its further lines indented."""
    found = {}
    for _, names, meaning in re.findall(r"^( *)((?:\w+, )*\w+): (.+(?:\n\1 {4}.+)*)", said, re.MULTILINE):
        for name in names.split(", "):
            found.setdefault(name, " ".join(meaning.split()))
    return found


def _summary(thing: Any) -> str:
    """The first sentence of what a thing's documentation says."""
    first = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return _cell(re.split(r"(?<=[.:]) (?=[A-Z])", first)[0])


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def _link(anchor: str, words: str) -> str:
    """A link to a heading of this page, by the name that Markdown's table of contents gives it."""
    return f"[{words}](#{re.sub(r'[^a-z0-9_]+', '', anchor.lower())})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines])


def _text(said: str) -> list[str]:
    return ["```text", said, "```", ""]


def rule_pages() -> str:
    """Every rule by its name, with its text and source."""
    from analyzer.report import formats

    parts = ["# Rules by their names", "", "`analyze explain NAME` prints the same.", ""]
    for rule in sorted(rules.catalogue().values(), key=lambda found: found.name):
        shown = formats.render("explanation", "text", [rule], formats.View(width=100))
        parts += [f"## {rule.name}", "", "```text", str(shown).rstrip(), "```", ""]
    return "\n".join(parts)
