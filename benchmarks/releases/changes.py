"""What a release changed of what is relied on here: `docs/evidence/RELEASES.md`, a section for each pair that is asked for.

    python -m benchmarks releases torch A B
    python -m benchmarks releases onnxruntime A B
    python -m benchmarks releases matrix PYTHON            (`matrix.py`)
    python -m benchmarks releases differential PYTHON      (`differential.py`)
    python -m benchmarks releases table                    (both)
    python -m benchmarks releases schemas WHEEL...         (`schemas.py`)

A, B: Pythons that have the older and the newer release (`/tmp/v211/bin/python`). Of torch: the schemas of operators, those under
a rule of ours first, names that are replaced or read and are not there, operators that are new, and which of them nobody
covers. Of ONNX Runtime: operators its CPU provider has a kernel for, and in which versions.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping

import click

from benchmarks import ROOT
from benchmarks.releases import differential, matrix

PAGE = ROOT / "docs" / "evidence" / "RELEASES.md"
_HEAD = (
    "# Releases\n\nWhat a release changed of what is relied on here, as `python -m benchmarks releases NAME A B` writes it "
    '([CONTRIBUTING.md](../../CONTRIBUTING.md), "The next torch"). `analyze --version` says which are modelled.\n'
)
# Run by each of the two Pythons: what it has, as JSON.
_TORCH = """
import importlib, json, sys, torch
def there(where):
    head, _, name = where.rpartition(".")
    parts = head.split(".")
    owner = importlib.import_module(parts[0])
    for at, part in enumerate(parts[1:], 2):
        if not hasattr(owner, part):
            try: importlib.import_module(".".join(parts[:at]))
            except ImportError: return False
        owner = getattr(owner, part)
    return hasattr(owner, name)
schemas = {s.name + ("." + s.overload_name if s.overload_name else ""): str(s) for s in torch._C._jit_get_all_schemas()
           if s.name.startswith(("aten::", "c10d::", "_c10d_functional::"))}
print(json.dumps({"version": torch.__version__, "has": schemas, "missing": [n for n in json.load(sys.stdin) if not there(n)]}))
"""
_ONNXRUNTIME = """
import json, onnxruntime as o
from onnxruntime.capi import _pybind_state as c
found = {}
for k in c.get_all_opkernel_def():
    if k.provider == "CPUExecutionProvider":
        found.setdefault(f"{k.domain or 'ai.onnx'}.{k.op_name}", set()).add(k.version_range[0])
print(json.dumps({"version": o.__version__, "has": {n: str(sorted(v)) for n, v in found.items()}, "missing": []}))
"""


@click.command("torch")
@click.argument("older")
@click.argument("newer")
def torch(older: str, newer: str) -> None:
    """Write what changed between two Pythons' torch."""
    _write(_section("torch", _asked(older, "torch"), _asked(newer, "torch")))


@click.command("onnxruntime")
@click.argument("older")
@click.argument("newer")
def onnxruntime(older: str, newer: str) -> None:
    """Write what changed between two Pythons' ONNX Runtime."""
    _write(_section("onnxruntime", _asked(older, "onnxruntime"), _asked(newer, "onnxruntime")))


@click.command("table")
def table() -> None:
    """Write the sections of the matrix and of the random requests."""
    for section in (matrix.table(), differential.table()):
        _write("\n".join(section))


def _write(section: str) -> None:
    """Puts a section in the place of the one of its title, and prints it."""
    page = PAGE.read_text() if PAGE.exists() else _HEAD
    title = section.splitlines()[0]
    kept = [part for part in page.split("\n## ")[1:] if not part.startswith(title.removeprefix("## "))]
    PAGE.write_text(
        _HEAD + "".join(f"\n## {part.strip()}\n" for part in [*kept, section.removeprefix("## ")])
    )
    print(section)


def _asked(python: str, name: str) -> dict[str, object]:
    relied: list[str] = []
    if name == "torch":
        from analyzer.capture.pytorch.patches import PATCHES, RELIED_ON

        relied = [*(n for n, patch in PATCHES.items() if not patch.cuda_only), *RELIED_ON]
    code = _TORCH if name == "torch" else _ONNXRUNTIME
    run = subprocess.run(
        [python, "-c", code], input=json.dumps(relied), capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(run.stdout.splitlines()[-1])
    return found


def _section(name: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    old, new = before["has"], after["has"]
    assert isinstance(old, dict) and isinstance(new, dict)
    added = sorted(set(new) - set(old))
    gone = sorted(set(old) - set(new))
    changed = sorted(n for n in set(old) & set(new) if old[n] != new[n])
    lines = [f"## {name} {before['version']} to {after['version']}", ""]
    if name == "torch":
        from analyzer.runtimes.pytorch.scratch.inert import is_inert
        from analyzer.runtimes.pytorch.scratch.script import rule_for

        ruled = [n for n in changed if rule_for(n) is not None]
        lines += _listed("Schemas under a rule that changed", (f"`{old[n]}` → `{new[n]}`" for n in ruled))
        lines += _listed("Other schemas that changed", (f"`{n}`" for n in changed if n not in ruled))
        missing = after["missing"]
        assert isinstance(missing, list)
        lines += _listed(
            "Names that are replaced or read here and are not there", (f"`{n}`" for n in missing)
        )
        covered = {n for n in added if rule_for(n) is not None or is_inert(n)}
        lines += _listed("New operators that are covered", (f"`{n}`" for n in sorted(covered)))
        lines += _listed("New operators that nobody covers", (f"`{n}`" for n in added if n not in covered))
    else:
        lines += _listed(
            "Operators with kernels of other versions", (f"`{n}` {old[n]} → {new[n]}" for n in changed)
        )
        lines += _listed("New operators", (f"`{n}`" for n in added))
    lines += _listed("Operators that are gone", (f"`{n}`" for n in gone))
    return "\n".join(lines)


def _listed(title: str, entries: Iterable[str]) -> list[str]:
    found = list(entries)
    return [f"{title}: {len(found)}.", "", *(f"- {entry}" for entry in found), *([""] if found else [])]
