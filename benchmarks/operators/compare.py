"""PyTorch's own tests traced beside emulated: what every call asks the allocator for, in order.

    python -m benchmarks operators beside PYTHON NAME                                  one operator, both histories of every sample
    python -m benchmarks operators emulate PYTHON OUT.jsonl [--only NAME] [--dtype float32] [--scale 8] ...
    python -m benchmarks operators compare OUT.jsonl ... [--show] [--only NAME] [-o COMPARED.jsonl]
    python -m benchmarks operators campaign PYTHON FOLDER ...                          both, in many processes
    python -m benchmarks operators keep OUT.jsonl COMPARED.jsonl ...                   adds to what is kept (`recorded.py`)
    python -m benchmarks operators table                                               docs/evidence/DISPATCHER.md, from what is kept

PYTHON: of an environment with a CUDA build of torch, run under the emulated runtime; `compare` follows the same cases with the
torch it is run with, which should be of the same release. A case is a call of an operator, module or optimizer on a sample of PyTorch's
own (`database.py`), and its backward pass.
"""

from __future__ import annotations

import collections
import datetime
import importlib.resources
import itertools
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from analyzer.errors import RunError
from analyzer.options import Options
from analyzer_emulation import emulate as emulation
from analyzer_sandbox import apart
from benchmarks import ROOT
from benchmarks.harness import files
from benchmarks.operators.recorded import Row, emulated_rows

MIB = 2**20
_ENOUGH = 2  # processes that a group ends
_PROGRAM = ROOT / "benchmarks/operators/emulated_run.py"


@dataclass(frozen=True, slots=True)
class Compared:
    """A case on both sides. kind: "same", "order" (the same sizes in another order), "sizes", "not followed", or why it counts for nothing:
    "invalid" (PyTorch refuses it), "emulator" (the emulated runtime cannot run it), "other sample" (another release's sample).

    at: the operator, rule or error where the two differ first; under_bytes: by how much the most bytes held at once are missed.
    """

    case: tuple[Any, ...]
    sample: str
    kind: str
    at: str
    under_bytes: int
    unknown: tuple[str, ...]
    emulated: tuple[tuple[str, tuple[int, ...]], ...] = ()
    traced: tuple[tuple[str, tuple[Any, ...]], ...] = ()


def run_emulated(python: str, out: Path, job: dict[str, Any]) -> None:
    """Append a line for each case of a job, in as many processes as it takes: one that a case ends goes on behind it, and leaves the rest of a
    group out that ended two."""
    os.environ.setdefault("ANALYZER_PYTHON", python)  # whose cuDNN is asked, as it is by the traced side
    done = 0
    ended: collections.Counter[str] = collections.Counter()
    while True:
        skip = [group for group in job["groups"] if ended[json.dumps(group)] >= _ENOUGH]
        with tempfile.TemporaryDirectory() as folder, out.open("a", encoding="utf-8") as stream:
            path, rows = Path(folder) / "job.json", Path(folder) / "rows.jsonl"
            path.write_text(json.dumps({**job, "done": done, "skip": skip}), "utf-8")
            message = None
            try:
                with apart(kept := Path(folder) / "kept"):  # what it writes
                    program = emulation.script(_PROGRAM, [str(path), str(rows)])
                    emulation.followed(program, Options(device="h200"), python, {})
            except RunError as error:
                message = error.message
            lines = [
                json.loads(line)
                for file in kept.rglob(rows.name)
                for line in file.read_text("utf-8").splitlines()
            ]
            last = lines[-1] if lines else {"parts": []}
            if message and "parts" not in last:
                ended[json.dumps(last["case"][0])] += 1
                lines.append(
                    {**last, "parts": [], "error": f"ended the process: {message.rpartition(' was ')[2]}"}
                )
            for line in lines:
                if "parts" in line:
                    print(json.dumps(line, separators=(",", ":")), file=stream)
                    done += 1
            if message is None:
                return
            if "parts" in last:
                raise RunError(message, "it ended between two cases")


def compared(rows: Sequence[dict[str, Any]]) -> Iterator[Compared]:
    """The recorded cases of each group, beside the same ones traced."""
    from benchmarks.operators import database
    from benchmarks.operators.traced import profile

    device = profile(torch_of(rows))
    for group, found in itertools.groupby(rows, key=lambda row: tuple(row["case"][0])):
        wanted = {tuple(row["case"][1:]): row for row in found}
        layouts = {layout for _, layout, _ in wanted}
        ways = {way for _, _, way in wanted}
        here = {}
        made = database.cases(
            database.Group(*group),
            [name for name in database.LAYOUTS if name in layouts],
            [name for name in database.WAYS if name in ways],
            next(iter(wanted.values()))["limit"],
        )
        for case, sample in made:
            here[case[1:]] = case, sample
        for key, row in wanted.items():
            case, sample = here.get(key, (None, "no such sample"))
            if isinstance(sample, str) or case is None:
                yield Compared(
                    (*group, *key), sample, "invalid" if row["error"] else "other sample", str(sample), 0, ()
                )
            elif sample.words != row.get("sample"):
                yield Compared((*group, *key), sample.words, "other sample", row.get("sample", ""), 0, ())
            else:
                yield _beside(case, sample, row, device)


def torch_of(rows: Sequence[dict[str, Any]]) -> str:
    """Whose PyTorch ran these cases; empty where none could be made."""
    return next((row["torch"] for row in rows if "torch" in row), "")


def _beside(case: Any, sample: Any, row: dict[str, Any], device: Any) -> Compared:
    from benchmarks.operators.traced import traced

    name = (*case.group, *case[1:])
    error = row["error"]
    if error is not None:
        kind = "emulator" if _is_ours(error) else "invalid"
        return Compared(name, sample.words, kind, error, 0, ())
    found = traced(case, sample, device)
    emulated = tuple((part, tuple(events)) for part, events in row["parts"])
    parts = " ".join(part for part, _ in found.parts)
    wanted = " ".join(part for part, _ in emulated)
    if found.error is not None or parts != wanted:
        at = found.error or f"{parts}, not {wanted}"
        return Compared(name, sample.words, "not followed", at, 0, found.unknown, emulated, found.parts)
    under = most(e for _, part in emulated for e in part) - most(
        a.nbytes for _, part in found.parts for a in part
    )
    kind, at = "same", ""
    for (part, theirs), (_, ours) in zip(emulated, found.parts, strict=True):
        sizes = [asked.nbytes for asked in ours]
        if sizes == list(theirs):
            continue
        same = collections.Counter(sizes) == collections.Counter(theirs)
        kind = "order" if same and kind == "same" else "sizes" if not same else kind
        if not at:
            first = next((i for i, (a, b) in enumerate(itertools.zip_longest(sizes, theirs)) if a != b))
            here = ours[min(first, len(ours) - 1)] if ours else None
            at = f"{part}: {here.operator} {here.rule}" if here else f"{part}: nothing"
    return Compared(name, sample.words, kind, at, max(under, 0), found.unknown, emulated, found.parts)


def most(sizes: Any) -> int:
    """The most bytes held at once."""
    return max(itertools.accumulate(sizes, initial=0))


def _is_ours(error: str) -> bool:
    """Whether it is the emulated runtime that cannot go on, not PyTorch that refuses the call."""
    return any(
        word in error
        for word in (
            "emulated",
            "ended the process",
            "TooLong",
            "Stuck",
            "operation not supported",
            "Unknown cusolver",
            "LibBlas",
        )
    )


@click.command("emulate")
@click.argument("python")
@click.argument("out", type=Path)
@click.option("--database", "databases", multiple=True, default=("op",), help="op, module, optim.")
@click.option("--only", multiple=True, help="Entries of this name, or that begin so with a * at the end.")
@click.option("--dtype", "dtypes", multiple=True, default=("float32",))
@click.option("--scale", "scales", multiple=True, type=int, default=(1,))
@click.option("--layout", "layouts", multiple=True, default=("contiguous",))
@click.option("--way", "ways", multiple=True, default=("plain",))
@click.option("--limit", default=12, help="Samples of an entry, evenly chosen.")
def emulate(python: str, out: Path, **asked: Any) -> None:
    """Record what PyTorch asks for in these cases, under the emulated runtime."""
    from benchmarks.operators import database

    groups = [
        (which, name, dtype, scale)
        for which in asked["databases"]
        for name in database.entries(which)
        if not asked["only"] or any(_matches(name, one) for one in asked["only"])
        for dtype in asked["dtypes"]
        if dtype in database.dtypes(which, name)
        for scale in asked["scales"]
    ]
    job = {"groups": groups, "layouts": asked["layouts"], "ways": asked["ways"], "limit": asked["limit"]}
    started = time.monotonic()
    run_emulated(python, out, job)
    click.echo(f"{len(groups)} groups in {time.monotonic() - started:.0f} s", err=True)


def _matches(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


@click.command("compare")
@click.argument("recorded", nargs=-1, required=True, type=Path)
@click.option("--only", multiple=True, help="Entries of this name, or that begin so with a * at the end.")
@click.option("--show", is_flag=True, help="Both histories of the first case that differs so.")
@click.option("-o", "--output", type=Path, help="A line of JSON for each case, for `table`.")
def compare(recorded: tuple[Path, ...], only: tuple[str, ...], show: bool, output: Path | None) -> None:
    """Follow the recorded cases, and say where they differ."""
    rows = emulated_rows(recorded)
    rows = [row for row in rows if not only or any(_matches(row["case"][0][1], one) for one in only)]
    kinds: collections.Counter[str] = collections.Counter()
    places: dict[tuple[str, str], list[Compared]] = collections.defaultdict(list)
    with (output or Path("/dev/null")).open("w", encoding="utf-8") as stream:
        for one, row in kept_rows(rows):
            kinds[one.kind] += 1
            print(json.dumps(row), file=stream, flush=True)
            if one.kind == "same":
                continue
            found = places[one.kind, f"{one.case[1]}: {one.at}"]
            found.append(one)
            if show and len(found) == 1:
                _show(one)
    for (kind, at), found in sorted(places.items(), key=lambda item: -len(item[1])):
        under = max(one.under_bytes for one in found)
        click.echo(f"{len(found):5} {kind:12} {at[:150]}" + (f"  (under by {under:,})" if under else ""))
    click.echo("  ".join(f"{kind}: {count:,}" for kind, count in kinds.most_common()))


def kept_rows(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[Compared, Row]]:
    """The recorded cases compared, and each as it is kept."""
    torch = torch_of(rows)
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    limits = {(*row["case"][0], *row["case"][1:]): row["limit"] for row in rows}
    for one in compared(rows):
        limit = limits[one.case]
        yield (
            one,
            Row(torch, one.case, one.sample[:200], one.kind, one.at[:200], one.under_bytes, limit, date),
        )


def _show(one: Compared) -> None:
    click.echo(f"\n{' '.join(map(str, one.case))}: {one.sample[:200]}\n  {one.kind}: {one.at[:300]}")
    for number, (part, theirs) in enumerate(one.emulated):
        ours = one.traced[number][1] if number < len(one.traced) else ()
        told = (f"{asked.nbytes:+}[{asked.operator.removeprefix('aten::')}]" for asked in ours)
        click.echo(f"  {part}: emulated {' '.join(f'{size:+}' for size in theirs)}")
        click.echo(f"  {part}: traced   {' '.join(told)}")


@click.command("sample")
@click.argument("recorded", nargs=-1, required=True, type=Path)
@click.option("-o", "--output", required=True, type=Path)
@click.option("--count", default=800)
@click.option("--seed", default=0)
def sample(recorded: tuple[Path, ...], output: Path, count: int, seed: int) -> None:
    """Draw cases from recorded ones, for the tests: as many of each file as its share."""
    rows = [json.loads(line) for path in recorded for line in path.read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["error"] is None]
    drawn = set(random.Random(seed).sample(range(len(rows)), min(count, len(rows))))
    kept = [row for number, row in enumerate(rows) if number in drawn]
    kept.sort(key=lambda row: json.dumps(row["case"][0]))
    files.write(output, kept)
    click.echo(f"{len(kept)} of {len(rows)} cases")


@click.command("beside")
@click.argument("python")
@click.argument("name")
@click.option("--dtype", default="float32")
@click.option("--scale", default=1)
@click.option("--limit", default=4, help="Samples, evenly chosen.")
def beside(python: str, name: str, dtype: str, scale: int, limit: int) -> None:
    """Show what PyTorch asks for in samples of an operator, beside what is traced, by which rule, and whose kernel it is."""
    from benchmarks.operators import database

    found = next(
        (which for which in ("op", "kernel", "module", "optim") if name in database.entries(which)), None
    )
    if found is None:
        near = [
            entry
            for which in ("op", "kernel", "module")
            for entry in database.entries(which)
            if name in entry
        ]
        raise click.BadParameter(
            f"{name} is in none of PyTorch's lists" + (f"; like it: {', '.join(near[:8])}" if near else "")
        )
    layouts = ("contiguous", "transposed", "sliced")
    job = {"groups": [(found, name, dtype, scale)], "layouts": layouts, "ways": ("plain",), "limit": limit}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        run_emulated(python, out, job)
        rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    operators: dict[str, None] = {}
    for one in compared(rows):
        _show(one)
        operators.update(dict.fromkeys(asked.operator for _, part in one.traced for asked in part))
    for operator in operators:
        _origin(operator)


def _origin(operator: str) -> None:
    """An operator's rule and its source, and the name of CUDA's kernel."""
    from analyzer.runtimes.pytorch import rules

    names = rules.names_of(operator)
    told = {rule.name: rule for rule in rules.rules()}
    click.echo(f"{operator}: {', '.join(names) or 'no rule'}")
    for name in names:
        if name in told and told[name].source:
            click.echo(f"    {name}: {told[name].source}")
    listed = importlib.resources.files("torchgen") / "packaged/ATen/native/native_functions.yaml"
    base = re.escape(operator.partition("::")[2].removesuffix(".default"))
    entry = re.search(rf"^- func: {base}\(.*?(?=^- func: |\Z)", listed.read_text("utf-8"), re.S | re.M)
    kernel = re.search(r"^ +[\w, ]*\bCUDA\b[\w, ]*: (\w+)", entry[0], re.M) if entry else None
    delegate = re.search(r"structured_delegate: (\S+)", entry[0]) if entry else None
    if kernel or delegate:
        click.echo(
            f"    kernel: {kernel[1] if kernel else delegate[1] if delegate else ''} (aten/src/ATen/native)"
        )
