"""Tools of an agent (`mcp.py`): commands of `analyze`, each in a process of its own, as JSON.

1. A tool is a command with `--format json`: the same limits, protection and exit codes. An estimate's
   columns by event, which are megabytes, are left out.
2. Options are those of an analysis (`Options`), by name. None of them writes a file.
3. Requests that would execute a file are refused, unless the server was started with `--allow-code`: a
   Python target, a loss of a file's, `trust`.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer import child
from analyzer.errors import OptionError, did_you_mean
from analyzer.options import Options

_COLUMNS = ("timeline", "allocations", "segments")
_FLAGS = {
    field.name: field.metadata["flags"][-1]
    for field in dataclasses.fields(Options)
    if field.metadata["flags"]
}


def words(command: str, target: str, options: Mapping[str, Any], allow_code: bool) -> list[str]:
    """Return the command line of a tool. Raises OptionError for an option that is none, and for what would
    execute a file where that is not allowed."""
    if target.startswith("-"):
        raise OptionError(f"{target!r} is no target", "name a file, a model, a rule")
    typed = [] if command == "estimate" else [command]
    for name, value in options.items():
        if name not in _FLAGS:
            raise OptionError(
                f"there is no option {name!r}",
                f"{did_you_mean(name, _FLAGS)}options: {', '.join(sorted(_FLAGS))}",
            )
        for part in value if isinstance(value, list) else [value]:
            typed += (
                [_FLAGS[name]]
                if part is True
                else []
                if part in (False, None)
                else [f"{_FLAGS[name]}={part}"]
            )
    if command != "explain" and not allow_code and _executes(target, options):
        raise OptionError(
            f"{target} would be executed, which this server was not allowed",
            "start it with: analyze mcp --allow-code; or ask for an ONNX file, a .pt2 or a config.json",
        )
    return [*typed, target, "--format", "json"]


def explaining(name: str, target: str, options: Mapping[str, Any], allow_code: bool) -> tuple[list[str], str]:
    """Return the command line that explains a rule, a file or a text itself, by a target's requests where one
    is named, and its stdin. Raises OptionError as `words`."""
    is_text = len(name.split()) > 1 and not _is_file(name)
    text, name = (name, "-") if is_text else ("", name)
    if name.startswith("-") and not is_text:
        raise OptionError(f"{name!r} is no name", "name a rule, a file, or give the text")
    if not target:
        return ["explain", name, "--format", "json"], text
    _, *typed = words("fit", target, options, allow_code)
    return ["explain", name, *typed], text


def _executes(target: str, options: Mapping[str, Any]) -> bool:
    """Return whether a target, or what is said of it, is code that runs."""
    path = Path(target)
    is_data = target.startswith("hf:") or path.suffix.lower() in (".onnx", ".json", ".pt2")
    is_data = is_data or (path.is_dir() and (path / "config.json").is_file())
    return not is_data or bool(options.get("trust")) or ":" in str(options.get("loss"))


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than a name may be
        return False


def answer(typed: list[str], text: str = "") -> dict[str, Any]:
    """Run a command; return its exit code, its result, and its messages. text: its stdin."""
    ran = subprocess.run(
        child.command("analyzer", *typed),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    result: Any = None
    if ran.stdout:
        result = json.loads(ran.stdout)
        if isinstance(result, dict):
            result = {name: value for name, value in result.items() if name not in _COLUMNS}
    return {"exit_code": ran.returncode, "result": result, "messages": ran.stderr.splitlines()}
