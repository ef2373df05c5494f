"""What the analyzer knows of each ONNX operator, and where: `docs/evidence/OPERATORS.md`, or one operator on the terminal.

    python -m benchmarks onnx_operators table            # write docs/evidence/OPERATORS.md
    python -m benchmarks onnx_operators show Conv Gelu  # what is known of these

Everything comes from the registries the analyzer itself works with, never from a search through its text. Operators of
ONNX go by their name, others by "domain.name"; asked for by the name alone, one of ONNX Runtime's own is found too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import onnx

import analyzer
from analyzer.capture.lowering import module as _register_all  # noqa: F401  registers every function
from analyzer.capture.lowering.call import FUNCTIONS, SETTINGS
from analyzer.onnx import values
from analyzer.onnx.shapes import bounds, contrib, control
from analyzer.runtimes.onnxruntime.kernels import declared, packing, registered, scratch
from analyzer.runtimes.onnxruntime.plan import placement
from analyzer.runtimes.onnxruntime.rewrite import bodies, cleanup, folding, layout, transformers
from analyzer.runtimes.onnxruntime.rewrite.fusions import ORDER
from analyzer.runtimes.onnxruntime.rewrite.transposes.handlers import HANDLERS
from benchmarks import ROOT

PAGE = ROOT / "docs" / "evidence" / "OPERATORS.md"
MICROSOFT = "com.microsoft."
TOPICS = ("shapes", "to PyTorch", "kernel", "scratch", "kept weights", "rewrites")


@dataclass(frozen=True, slots=True)
class Fact:
    """topic: a column of the page; file: in `analyzer/`; what: what that file knows of the operator."""

    topic: str
    file: str
    what: str = ""


def where(function: Callable[..., Any]) -> tuple[str, str]:
    """(file in `analyzer/`, name) of a registered function; lambdas have no name worth showing."""
    file = function.__module__.removeprefix("analyzer.").replace(".", "/") + ".py"
    return file, "" if "<lambda>" in function.__name__ else function.__name__.lstrip("_")


def file_of(module: Any) -> str:
    """A module's file in `analyzer/`."""
    return str(Path(module.__file__).relative_to(Path(analyzer.__file__).parent))


@lru_cache(maxsize=1)
def facts() -> dict[str, tuple[Fact, ...]]:
    """Operator -> everything registered for it."""
    found: dict[str, list[Fact]] = {}
    for operator, fact in _all():
        found.setdefault(operator, []).append(fact)
    return {operator: tuple(dict.fromkeys(found[operator])) for operator in sorted(found, key=str.lower)}


def of(operator: str) -> tuple[Fact, ...]:
    """What is registered for an operator; () if nothing is. ONNX's own inference counts where it has a schema."""
    known = facts().get(operator, ())
    if "." not in operator and operator not in contrib.IN_DEFAULT_DOMAIN and onnx.defs.has(operator):
        known = (Fact("shapes", file_of(_native()), "ONNX's own"), *known)
    return known


def _native() -> Any:
    from analyzer.onnx.shapes import native

    return native


def _all() -> Iterator[tuple[str, Fact]]:
    yield from _shapes()
    yield from _lowering()
    yield from _kernels()
    yield from _rewrites()


def _shapes() -> Iterator[tuple[str, Fact]]:
    file = file_of(contrib)
    contributed = {
        **{name: where(rule)[1] for name, rule in contrib.RULES.items()},
        **{name: f"as {target}" for name, (target, _) in contrib.DELEGATES.items()},
        **dict.fromkeys(contrib.SAME, "as its first input"),
    }
    for name, what in contributed.items():
        for operator in _own(name):
            yield operator, Fact("shapes", file, what)
    for name, rule in control.RULES.items():
        yield name, Fact("shapes", file_of(control), where(rule)[1])
    for name, rule in bounds.RULES.items():
        yield name, Fact("shapes", file_of(bounds), f"largest: {where(rule)[1]}")
    for name in values.PURE:
        yield name, Fact("shapes", file_of(values), "computed on constants")


def _own(name: str) -> tuple[str, ...]:
    """A contrib operator's name with its domain; those that ONNX Runtime keeps in ONNX's domain go by both."""
    return (MICROSOFT + name, *((name,) if name in contrib.IN_DEFAULT_DOMAIN else ()))


def _lowering() -> Iterator[tuple[str, Fact]]:
    for (domain, name), function in FUNCTIONS.items():
        file, what = where(function)
        yield f"{domain}.{name}" if domain else name, Fact("to PyTorch", file, what or "one call")
    for name, position in SETTINGS.items():
        yield name, Fact("to PyTorch", "capture/lowering/call.py", f"settings from input {position}")


def _kernels() -> Iterator[tuple[str, Fact]]:
    yield from _kernels_by_name()
    for name in _onnx_names():
        for provider in ("cpu", "cuda"):
            if not registered.knows(provider, "", name):
                yield name, Fact("kernel", file_of(registered), f"none on {provider}")
    for name in scratch.KNOWN_CONTRIB:
        for operator in _own(name):
            yield operator, Fact("kernel", file_of(scratch), "known")
    for name, pack in packing.PACKED.items():
        yield name, Fact("kept weights", file_of(packing), f"{where(pack)[1]} on cpu")
    for name in packing.CACHED:
        yield name, Fact("kept weights", file_of(packing), "cached on cuda")


@lru_cache(maxsize=1)
def _onnx_names() -> tuple[str, ...]:
    """Every operator of ONNX's own domain that is not withdrawn."""
    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))


def _kernels_by_name() -> Iterator[tuple[str, Fact]]:
    file = file_of(declared)
    for table, what in ((declared.ALIAS, "alias"), (declared.IN_PLACE, "in place")):
        for provider, operators in table.items():
            for name in operators:
                yield name, Fact("kernel", file, f"{what} on {provider}")
    for name, inputs in declared.HOST_INPUTS.items():
        which = "all" if inputs is None else ", ".join(map(str, sorted(inputs)))
        yield name, Fact("kernel", file, f"host inputs {which}")
    for name, outputs in declared.HOST_OUTPUTS.items():
        yield name, Fact("kernel", file, f"host outputs {', '.join(map(str, sorted(outputs)))}")
    for name in declared.STAYS_ON_GPU:
        yield name, Fact("kernel", file_of(placement), "stays on cuda")
    for provider, rules in scratch.RULES.items():
        for name, rule in rules.items():
            place, what = where(rule.takes)
            yield name, Fact("scratch", place, f"{what} on {provider}")


def _rewrites() -> Iterator[tuple[str, Fact]]:
    for turn in ORDER:
        fusion = turn.fusion
        file = where(fusion.apply)[0]
        for name in fusion.operators:
            yield name, Fact("rewrites", file, fusion.name)
    for name in HANDLERS:
        yield (
            name,
            Fact("rewrites", "runtimes/onnxruntime/rewrite/transposes/handlers.py", "Transpose passes"),
        )
    for name in _onnx_names():
        schema: Any = onnx.defs.get_schema(name)
        if schema.has_function or schema.has_context_dependent_function:
            yield name, Fact("rewrites", file_of(bodies), "a function where there is no kernel")
    for name in cleanup.NO_OPERATION:
        yield name, Fact("rewrites", file_of(cleanup), "may do nothing")
    for name in folding.NEVER:
        yield name, Fact("rewrites", file_of(folding), "never folded")
    for name in layout.KERNELS:
        yield name, Fact("rewrites", file_of(layout), "channels last")


def cell(known: tuple[Fact, ...], topic: str) -> str:
    """A topic's facts, file by file."""
    by_file: dict[str, list[str]] = {}
    for fact in known:
        if fact.topic == topic:
            by_file.setdefault(fact.file, []).append(fact.what)
    return "; ".join(
        f"`{Path(file).parent.name + '/' if file.endswith('__init__.py') else ''}{Path(file).name}` {', '.join(sorted(whats))}"
        for file, whats in sorted(by_file.items())
    )


def page() -> str:
    """The page, generated."""
    rows = {operator: of(operator) for operator in facts()}
    files = sorted({fact.file for known in rows.values() for fact in known})
    lines = [
        "# What is known of each ONNX operator, and where",
        "",
        "Written by `python -m benchmarks onnx_operators table` from the analyzer's own registries;",
        "`python -m benchmarks onnx_operators show Conv` prints one operator's. *shapes*: inference, largest shapes of results that",
        "depend on data, values computed for shape arithmetic. *to PyTorch*: the function that stands for it under `--mode",
        "train`; without one its results are made and everything is kept for backward. *kernel*, *scratch*, *kept weights*,",
        "*rewrites*: what ONNX Runtime's kernels declare, take while they run, keep from the session's start, and how its",
        "optimizer treats the operator. An empty cell means the general rule: a buffer of its own, on the device, no scratch.",
        "",
        f"| operator | {' | '.join(TOPICS)} |",
        f"|---|{'---|' * len(TOPICS)}",
        *(
            f"| {operator} | {' | '.join(cell(known, topic) for topic in TOPICS)} |"
            for operator, known in rows.items()
        ),
        "",
        "The shapes of ONNX's other operators are inferred by ONNX itself; for everything else the general rules hold.",
        "",
        "The files, in `analyzer/`:",
        "",
        *(f"- `{file}`" for file in files),
        "",
        "## Graph transformers of ONNX Runtime 1.30",
        "",
        "*followed*: carried out, in the file named. *named*: a note says where one may act. *elsewhere*: no session predicted",
        "here runs it, and why.",
        "",
        "| transformer | | |",
        "|---|---|---|",
        *(
            f"| {name} | {done} | {f'`{where}`' if done != 'elsewhere' else where} |"
            for name in transformers.names()
            for done, where in (transformers.about(name) or ("", ""),)
        ),
    ]
    return "\n".join(lines) + "\n"


@click.command()
def table() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


@click.command()
@click.argument("operators", nargs=-1, required=True)
def show(operators: tuple[str, ...]) -> int:
    """Print what is known of these operators; 2 for a name nothing knows."""
    for operator in operators:
        known = of(operator) or of(MICROSOFT + operator)
        if not known:
            sys.stderr.write(f"nothing is known of {operator!r}; operators outside ONNX go by domain.name\n")
            return 2
        sys.stdout.write(f"{operator}\n")
        for fact in known:
            sys.stdout.write(f"  {fact.topic:12}  analyzer/{fact.file}: {fact.what}\n")
    return 0
