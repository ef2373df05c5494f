"""A serving engine itself, started where no GPU is: its own accounting, from the weights to its cache.

1. The engine of an environment that has it is started by its starter (`inside/vllm_start.py`,
   `inside/sglang_start.py`) under the emulated runtime, as its own command starts it, in one process a rank.
   Its kernels compute nothing, its weights are random, and what it profiles, compiles and captures is its
   own.
2. The worker's figures are read there, not computed here: every starter writes the same report.
3. Specific to one engine (`vllm.py`, `sglang.py`): the ranks its arguments ask for, and the variables of its
   process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer import releases
from analyzer.devices import resolve
from analyzer.errors import MissingDependencyError, OptionError, RunError, TargetError
from analyzer.files import irregular
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer.recipes.config import opened
from analyzer_emulation import reach
from analyzer_emulation.emulate import EmulatedProgram, Held, held
from analyzer_emulation.launch import interpreter
from analyzer_serving.engines.changes import Words, changes
from analyzer_serving.results import EngineMemory, RankMemory

_INSIDE = Path(__file__).parent / "inside"
# Files beside a configuration that an engine opens.
_BESIDE = ("generation_config", "params", "preprocessor_config", "processor_config", "tekken", "tokenizer")
# Nothing fetched, nothing reported.
_VARIABLES = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# Where libraries keep what they compiled: a folder of this start's own, so that what a GPU compiled before is
# neither read nor changed.
_CACHES = ("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "DG_JIT_CACHE_DIR")
_LARGEST_HEADER = 100 * 2**20  # safetensors' own limit


@dataclass(frozen=True, slots=True)
class Start:
    """A start: the ranks of a job, the engine's arguments for each, and notes."""

    job: Rank
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine. name: as it calls itself; package: as it is imported and installed; release: the one
    to install; start: what a model's configuration and the engine's own arguments ask for, raising
    OptionError; words: what it calls its options; variables, caches: of its process, besides those of every
    engine."""

    name: str
    package: str
    release: str
    start: Callable[[str, Sequence[str]], Start]
    words: Words
    variables: Mapping[str, str]
    caches: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The requirement for `analyze engine install`."""
        return f"{self.package}=={self.release}"


def python_with(engine: ServingEngine, python: str | os.PathLike[str] | None = None) -> Path | None:
    """The Python of an environment that has the engine: the one given, that of `ANALYZER_PYTHON`, this one,
    or one that `analyze engine install` made. None: there is none. Raises MissingDependencyError where the
    one given has none."""
    if python is not None:
        path = interpreter(python)
        if not _has(path, engine.package):
            raise MissingDependencyError(
                f"{path} has no {engine.name}",
                f"analyze engine install {engine.requirement} makes an environment with it",
            )
        return path
    interpreters = map(interpreter, reach.places(engine.package, releases.parse(engine.release)))
    return next((path for path in interpreters if _has(path, engine.package)), None)


def _has(python: Path, package: str) -> bool:
    ask = f"import importlib.util as u; print('@' + str(u.find_spec({package!r}) is not None))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "@True" in done.stdout


def engine_memory(
    engine: ServingEngine,
    model: str,
    arguments: Sequence[str],
    device: str | int | None,
    python: str | os.PathLike[str] | None,
) -> EngineMemory:
    """Start an engine with a model and return its own memory accounting.

    model: a configuration (config.json, its folder, hf:ORG/NAME); arguments: the engine's own, as its command
    takes them; python: the Python that has it. An engine that ends in an error of its own gives its figures
    until then. Raises AnalyzerError.
    """
    profile, note = resolve(device)
    start = engine.start(model, arguments)
    with tempfile.TemporaryDirectory(prefix="analyze-serve-") as folder:
        out = Path(folder) / "engine.json"
        place = _folder_of(model, Path(folder) / "model")
        program = EmulatedProgram(
            engine.package,
            _INSIDE / f"{engine.package}_start.py",
            (str(out), str(place), *start.arguments),
            (_INSIDE,),
        )
        ran = Held(0, ())
        caches = dict.fromkeys((*_CACHES, *engine.caches), f"{folder}/cache")
        try:
            variables = {**_VARIABLES, **engine.variables, **caches}
            ran = held(program, Options(device=device), python, variables, start.job)
        except RunError as error:
            reports = _rank_reports(out, start.job)
            if not any("error" in part for part in reports):
                raise RunError(error.message, f"see {engine.name}'s last output above") from None
        else:
            reports = _rank_reports(out, start.job)
    if not reports:
        raise RunError(f"{engine.name} ended before it started", "see its last output above")
    first = reports[0]
    # Where one rank ends the others lose their connection to it: the first error is the engine's.
    errors = sorted((part["error"] for part in reports if "error" in part), key=lambda error: error["at"])
    error_of = errors[0] if errors else None
    if error_of is not None and error_of["kind"] == "ArgumentError":
        raise OptionError(f"{engine.name}: {error_of['message']}", f"{engine.name}'s own arguments follow --")
    memory = EngineMemory(
        model,
        profile.name,
        note,
        f"{engine.name} {first.get('version', '')}".strip(),
        str(first.get("torch", "")),
        tuple(RankMemory(**rank) for part in reports for rank in part["ranks"]),
        first.get("settings", {}),
        **{key: first[key] for key in ("blocks", "block_tokens", "tokens", "length") if first.get(key)},
        concurrency=first.get("concurrency", 0.0),
        error=None if error_of is None else (error_of["kind"], error_of["message"]),
        needed=max(part.get("needed", 0) for part in reports),
        peak_reserved=ran.peak_reserved,
        notes=(*start.notes, *first.get("notes", ()), *ran.notes),
    )
    return replace(memory, changes=changes(memory, profile, engine.words))


def ranks(count: int) -> Rank:
    """Return the job of so many ranks, as `torchrun` starts them; of one, none."""
    return Rank(0, count, count, launched=True) if count > 1 else Rank()


def count_of(name: str, value: str) -> int:
    """Return how many ranks or engines an option asks for. Raises OptionError."""
    if not value.isdigit() or not int(value):
        raise OptionError(f"{name} {value}: not a number of ranks", f"{name} 2")
    return int(value)


def _rank_reports(out: Path, job: Rank) -> list[dict[str, Any]]:
    """Return the accounting that each rank wrote."""
    files = [Path(f"{out}.{rank}") for rank in range(job.world_size)] if job.launched else [out]
    return [json.loads(file.read_text("utf-8")) for file in files if file.exists()]


def _folder_of(model: str, folder: Path) -> Path:
    """A folder with the configuration under the name engines open, and what they read beside it; of the
    weights their files' headers. Raises AnalyzerError."""
    config = opened(model)
    folder.mkdir()
    shutil.copy(config.path, folder / "config.json")
    for file in config.path.parent.glob("*.json"):
        if file.name.startswith(_BESIDE):
            shutil.copy(_regular(file), folder / file.name)
    for file in config.path.parent.glob("*.safetensors"):
        (folder / file.name).write_bytes(_header_of(_regular(file)))
    return folder


def _regular(file: Path) -> Path:
    """Return a file beside the configuration. Raises TargetError for one that reading waits at."""
    if reason := irregular(file):
        raise TargetError(f"{file} is not read: {reason}", "give the folder of a model's files")
    return file


def _header_of(file: Path) -> bytes:
    """Return a safetensors file's header: its length in eight bytes, then JSON."""
    with file.open("rb") as opened_file:
        length = opened_file.read(8)
        return length + opened_file.read(min(int.from_bytes(length, "little"), _LARGEST_HEADER))
