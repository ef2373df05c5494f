"""The site's reference, generated from the code when the site is built (a hook of mkdocs): commands, Python, rules."""

from __future__ import annotations

import inspect
from typing import Any

import click
from mkdocs.structure.files import File

import analyzer
from analyzer import rules
from analyzer.cli import group


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
    """What `import analyzer` offers."""
    parts = ["# Python", "", inspect.cleandoc(analyzer.__doc__ or "").split("\n")[0], ""]
    for name in sorted(analyzer.__all__):
        thing = getattr(analyzer, name)
        if name.startswith("_") or not callable(thing):
            continue
        parts += [
            f"## analyzer.{name}",
            "",
            "```text",
            _signature(thing),
            "",
            inspect.getdoc(thing) or "",
            "```",
            "",
        ]
        if inspect.isclass(thing):
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_") and method in vars(thing):
                    said = [
                        f"{name}.{method}{inspect.signature(function)}",
                        "",
                        inspect.getdoc(function) or "",
                    ]
                    parts += ["```text", *said, "```", ""]
    return "\n".join(parts)


def _signature(thing: Any) -> str:
    try:
        return f"{thing.__name__}{inspect.signature(thing)}"
    except (TypeError, ValueError):
        return str(thing.__name__)


def rule_pages() -> str:
    """Every rule by its name, with its text and source."""
    from analyzer.report import formats

    parts = ["# Rules by their names", "", "`analyze explain NAME` prints the same.", ""]
    for rule in sorted(rules.catalogue().values(), key=lambda found: found.name):
        shown = formats.render("explanation", "text", [rule], formats.View(width=100))
        parts += [f"## {rule.name}", "", "```text", str(shown).rstrip(), "```", ""]
    return "\n".join(parts)
