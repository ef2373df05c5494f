"""What a release promises, and whether this checkout is ready to be one.

1. **The interface** is what docs/STABILITY.md promises: Python's names with their parameters, the results' fields,
   commands with their options and exit codes, the schema of a saved estimate. `python -m benchmarks release table` writes
   it to `tests/data/interface.json`; a test compares the code with that copy. What is gone from it or has changed is a
   break of the promise (`broken`); what is new has to be written down.
2. **The checklist** (`python -m benchmarks release score`): every line is looked up, none is answered by hand. Its exit code
   is 1 while a line is open.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

import analyzer
from benchmarks import ROOT

INTERFACE = ROOT / "tests/data/interface.json"
LARGEST_WHEEL_BYTES = 9_000_000
# Pages whose first lines say which release of this package predicted.
DATED = ("docs/evidence/ACCURACY.md", "docs/evidence/PEERS.md")


def interface() -> dict[str, Any]:
    """Return what is promised, as JSON values."""
    return {
        "python": {name: _python(name) for name in sorted(analyzer.__all__) if not name.startswith("_")},
        "results": {kind.__name__: _fields(kind) for kind in _results()},
        "commands": {name: _command(name) for name in _commands()},
        "schema": dict(sorted(_schema())),
    }


def _results() -> tuple[type, ...]:
    from analyzer.results.curve import Curve
    from analyzer.results.difference import Difference
    from analyzer.results.estimate import Estimate
    from analyzer.results.fit import Fit
    from analyzer.results.strategy import Strategy
    from analyzer_timing.results import Advice

    return Estimate, Curve, Fit, Strategy, Difference, Advice


def _python(name: str) -> Any:
    """Return a function's parameters, each with whether it must be given, or a class's bases."""
    thing = getattr(analyzer, name)
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return {"bases": [base.__name__ for base in thing.__mro__[1:] if base is not object]}
    parameters = inspect.signature(thing).parameters.values()
    return {
        "parameters": {
            each.name: "needed" if each.default is each.empty and each.kind < each.VAR_POSITIONAL else "optional"
            for each in parameters
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }
    }  # fmt: skip


def _fields(kind: type) -> list[str]:
    """Return the public names of a result: fields, properties and methods."""
    names = {entry.name for entry in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return sorted(name for name in names | {*vars(kind)} if not name.startswith("_"))


def _commands() -> list[str]:
    from analyzer.cli import Commands, group

    return Commands().list_commands(click.Context(group))


def _command(name: str) -> dict[str, Any]:
    """Return a command's arguments, options with their words, and what its exit codes mean."""
    from analyzer.cli import Commands, group

    command = Commands().get_command(click.Context(group), name)
    assert command is not None
    options = [param for param in command.params if isinstance(param, click.Option)]
    words = {
        flag: sorted(option.type.choices) if isinstance(option.type, click.Choice) else []
        for option in options
        for flag in (*option.opts, *option.secondary_opts)
    }
    text = " ".join(inspect.cleandoc(command.help or "").split())
    codes = re.search(r"Exit code .*", text)
    return {
        "arguments": [str(param.name) for param in command.params if isinstance(param, click.Argument)],
        "options": words,
        "exit codes": codes[0] if codes else "Exit code 0: done; 2: bad usage or input.",
    }


def _schema() -> Iterator[tuple[str, str]]:
    """Yield (path of a value in a saved estimate, its type and whether it is always there)."""
    schema = json.loads((ROOT / "analyzer/report/schema.json").read_text(encoding="utf-8"))

    def walk(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        for name, inner in part.get("properties", {}).items():
            kinds = inner.get("type", "any")
            told = "|".join(kinds) if isinstance(kinds, list) else str(kinds)
            yield f"{path}{name}", told + (", always" if name in part.get("required", ()) else "")
            yield from walk(inner, f"{path}{name}.")
        for name in ("items", "additionalProperties"):
            if isinstance(part.get(name), Mapping):
                yield from walk(part[name], f"{path}[].")

    return walk(schema, "")


def broken(promised: Any, now: Any, path: str = "") -> list[str]:
    """Return what of a stored interface is gone, or is another now; what is new breaks nothing, but a parameter that must be given."""
    if isinstance(promised, dict) and isinstance(now, dict):
        found = [f"{path}{name} is gone" for name in promised if name not in now]
        for name in promised.keys() & now.keys():
            found += broken(promised[name], now[name], f"{path}{name}: ")
        needed = [name for name in now.keys() - promised.keys() if now[name] == "needed"]
        return sorted(found) + [f"{path}{name} must be given now" for name in needed]
    if isinstance(promised, list) and isinstance(now, list):
        return [f"{path}{name} is gone" for name in promised if name not in now]
    weaker = promised == "needed" and now == "optional"
    return [] if promised == now or weaker else [f"{path}{promised!r} is now {now!r}"]


@click.command()
def table() -> None:
    """Write the interface to tests/data/interface.json."""
    INTERFACE.write_text(json.dumps(interface(), indent=1) + "\n", encoding="utf-8")


def _version() -> str:
    return analyzer.__version__


def _same_version() -> str:
    """The version is the same in the package, CITATION.cff and the conda recipe."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())["context"]["version"]
    return "" if citation == recipe == _version() else f"{_version()}, {citation}, {recipe}"


def _changelog() -> str:
    """The changelog has this version with its date, and nothing under "Unreleased"."""
    text = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(_version())}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        return f"no section with a date for {_version()}"
    unreleased = re.search(r"^## \[Unreleased\][^\n]*\n(.*?)^## \[", text, re.MULTILINE | re.DOTALL)
    count = len(re.findall(r"^- ", unreleased[1], re.MULTILINE)) if unreleased else 0
    return f"{count} entries under Unreleased" if count else ""


def _cited_date() -> str:
    """CITATION.cff has the date of this version's section of the changelog."""
    date = str(yaml.safe_load((ROOT / "CITATION.cff").read_text()).get("date-released", "none"))
    dated = f"## [{_version()}] - {date}"
    return "" if dated in (ROOT / "CHANGELOG.md").read_text() else f"the changelog has no line {dated!r}"


def _interface_kept() -> str:
    """The interface is the stored one (tests/data/interface.json)."""
    stored, now = json.loads(INTERFACE.read_text(encoding="utf-8")), json.loads(json.dumps(interface()))
    if gone := broken(stored, now):
        return "; ".join(gone[:3])
    return "" if stored == now else "something is new: python -m benchmarks release table"


def _evidence() -> str:
    """The pages of evidence that name a release of this package name this one."""
    old = [name for name in DATED if f"analyzer {_version()}" not in (ROOT / name).read_text()[:2000]]
    return f"older: {', '.join(old)}" if old else ""


def _untagged() -> str:
    """No tag has this version yet."""
    tags = _git("tag", "--list", f"v{_version()}")
    return f"v{_version()} is there" if tags else ""


def _clean() -> str:
    """Every change is committed."""
    changed = _git("status", "--porcelain").splitlines()
    return f"{len(changed)} files differ" if changed else ""


def _wheel() -> str:
    """The wheel is for every Python from 3.11 on (abi3), and at most 9 MB."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        committed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "HEAD"], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(source)], input=committed.stdout, check=True)
        words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
        made = subprocess.run([*words, str(source)], capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if made.returncode or len(wheels) != 1:
            return (made.stderr.strip().splitlines() or ["no wheel was made"])[-1]
        nbytes = wheels[0].stat().st_size
        if "-cp311-abi3-" not in wheels[0].name:
            return wheels[0].name
        return "" if nbytes <= LARGEST_WHEEL_BYTES else f"{nbytes:,} bytes"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    ).stdout.strip()


CHECKS: tuple[Callable[[], str], ...] = (
    _same_version, _changelog, _cited_date, _interface_kept, _evidence, _untagged, _clean, _wheel,
)  # fmt: skip


@click.command()
@click.option("--no-wheel", is_flag=True, help="Leave the wheel out, which takes a minute to build.")
def score(no_wheel: bool) -> int:
    """The checklist of a release: each line looked up, exit code 1 while one is open."""
    open_lines = 0
    for check in CHECKS:
        if no_wheel and check is _wheel:
            continue
        problem = check()
        open_lines += bool(problem)
        said = inspect.cleandoc(check.__doc__ or "").rstrip(".")
        click.echo(f"{'open' if problem else 'done'}  {said}{f': {problem}' if problem else ''}")
    click.echo(f"{open_lines} open; then .ci/run, and: git tag -s v{_version()}")
    return int(open_lines > 0)
