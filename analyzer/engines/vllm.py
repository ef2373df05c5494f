"""vLLM itself, started where no GPU is: its own accounting, from the weights to the blocks of its cache.

1. The engine of an environment that has vLLM is started by `inside/vllm_start.py` under the emulated runtime,
   as `vllm serve` starts it, in one process a rank. Its kernels compute nothing, its weights are random, and
   its profile run, compilation and CUDA graphs are its own.
2. What its worker finds out is read there, not computed here.
3. Engines beside one another (`--data-parallel-size`) share experts, where a model has some: their ranks are
   then started together. Those of other models have nothing in common ("Non-MoE DP ranks are completely
   independent, so treat like DP=1", `v1/engine/core.py`): one is started, and stands for all.

Source: vLLM 0.19, `v1/worker/gpu_worker.py`; beside public runs on H100s: `python -m benchmarks serving
score`; beside the same release (0.22.1) on one of ours: `python -m benchmarks serving beside`. Not modelled:
kernels that only a GPU builds or tunes (FlashInfer's, DeepGEMM's), whose choice is what the engine takes
without them.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer import releases
from analyzer.devices import resolve
from analyzer.emulation.emulate import EmulatedProgram, Held, held
from analyzer.emulation.launch import interpreter
from analyzer.engines import reach
from analyzer.engines.changes import changes
from analyzer.errors import MissingDependencyError, OptionError, RunError
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer.recipes.config import opened
from analyzer.results.serving import EngineMemory, RankMemory

RELEASE = "0.19.0"  # the one of the public runs
_START = Path(__file__).parent / "inside" / "vllm_start.py"
_PARALLEL = ("--tensor-parallel-size", "--pipeline-parallel-size")
_DATA = "--data-parallel-size"
_SHORT = {"-tp": _PARALLEL[0], "-pp": _PARALLEL[1], "-dp": _DATA}
# Settings of engines on several machines, or behind a load balancer of one's own.
_SPREAD = ("--data-parallel-", "-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe")
# What vLLM reads the number of experts from (`transformers_utils/model_arch_config_convertor.py`), and
# Mistral's own files.
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts", "moe", "block_configs")
# Files beside a configuration that the engine opens.
_BESIDE = ("generation_config", "params", "preprocessor_config", "processor_config", "tekken", "tokenizer")
# The engine in its worker's process, nothing fetched, nothing reported.
_VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_LARGEST_HEADER = 100 * 2**20  # safetensors' own limit
# Where the engine and its libraries keep what they compiled: a folder of this start's own, so that what a GPU
# compiled before is neither read nor changed.
_CACHES = (
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "FLASHINFER_WORKSPACE_BASE",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
)


def python_with_vllm(python: str | os.PathLike[str] | None = None) -> Path | None:
    """The Python of an environment that has vLLM: the one given, that of `ANALYZER_PYTHON`, this one, or one
    that `analyze engine install` made. None: there is none. Raises MissingDependencyError where the one given
    has none."""
    if python is not None:
        path = interpreter(python)
        if not _has_vllm(path):
            raise MissingDependencyError(
                f"{path} has no vLLM", f"analyze engine install vllm=={RELEASE} makes an environment with it"
            )
        return path
    found = map(interpreter, reach.places("vllm", releases.parse(RELEASE)))
    return next((path for path in found if _has_vllm(path)), None)


def _has_vllm(python: Path) -> bool:
    ask = "import importlib.util as u; print('@' + str(u.find_spec('vllm') is not None))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "@True" in done.stdout


def engine_memory(
    model: str, arguments: Sequence[str], device: str | int | None, python: str | os.PathLike[str]
) -> EngineMemory:
    """Start vLLM with a model and return its own memory accounting.

    model: a configuration (config.json, its folder, hf:ORG/NAME); arguments: vLLM's own, as `vllm serve`
    takes them; python: the Python that has vLLM. An engine that ends in an error of its own gives what it
    found until then. Raises AnalyzerError.
    """
    profile, note = resolve(device)
    engines, arguments = _engines(arguments)
    if engines > 1 and not _has_experts(model):
        alone, engines = engines, 1
    else:
        alone = 1
    job = _job(arguments, engines)
    if engines > 1:
        arguments = [*arguments, _DATA, str(engines)]
    with tempfile.TemporaryDirectory(prefix="analyze-serve-") as folder:
        out = Path(folder) / "engine.json"
        place = _folder_of(model, Path(folder) / "model")
        program = EmulatedProgram("vllm", _START, (str(out), str(place), *arguments), (_START.parent,))
        ran = Held(0, ())
        variables = {**_VARIABLES, **dict.fromkeys(_CACHES, f"{folder}/cache")}
        try:
            ran = held(program, Options(device=device), python, variables, job)
        except RunError as error:
            seen = _rank_reports(out, job)
            if not any("error" in part for part in seen):
                raise RunError(error.message, "what vLLM wrote last stands above") from None
        else:
            seen = _rank_reports(out, job)
    if not seen:
        raise RunError("vLLM ended before it started its engine", "what it wrote last stands above")
    first = seen[0]
    # Where one rank ends the others lose their connection to it: the first error is the engine's.
    errors = sorted((part["error"] for part in seen if "error" in part), key=lambda error: error["at"])
    error_of = errors[0] if errors else None
    if error_of is not None and error_of["kind"] == "ArgumentError":
        raise OptionError(f"vLLM: {error_of['message']}", "behind -- stand vLLM's own arguments")
    said = EngineMemory(
        model,
        profile.name,
        note,
        f"vLLM {first.get('version', '')}".strip(),
        str(first.get("torch", "")),
        tuple(RankMemory(**rank) for part in seen for rank in part["ranks"]),
        first.get("settings", {}),
        **{key: first[key] for key in ("blocks", "block_tokens", "tokens", "length") if first.get(key)},
        concurrency=first.get("concurrency", 0.0),
        error=None if error_of is None else (error_of["kind"], error_of["message"]),
        needed=max(part.get("needed", 0) for part in seen),
        peak_reserved=ran.peak_reserved,
        notes=(*_beside(alone, engines), *first.get("notes", ()), *ran.notes),
    )
    return replace(said, changes=changes(said, profile))


def _rank_reports(out: Path, job: Rank) -> list[dict[str, Any]]:
    """Return the accounting that each rank wrote."""
    files = [Path(f"{out}.{rank}") for rank in range(job.world_size)] if job.launched else [out]
    return [json.loads(file.read_text("utf-8")) for file in files if file.exists()]


def _beside(alone: int, engines: int) -> tuple[str, ...]:
    """Return a note on engines beside one another: so many alone, or sharing their experts."""
    if alone > 1:
        return (f"{alone} engines that share nothing: these are the figures of each, and its requests",)
    if engines > 1:
        return (f"{engines} engines that share their experts: tokens and requests are those of each",)
    return ()


def _named(word: str) -> str:
    """Return an option's long name."""
    return _SHORT.get(word, word.replace("_", "-"))


def _count(name: str, value: str) -> int:
    """Return how many ranks or engines an option asks for. Raises OptionError."""
    if not value.isdigit() or not int(value):
        raise OptionError(f"{name} {value}: not a number of ranks", f"{name} 2")
    return int(value)


def _engines(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many engines are beside one another, and the arguments without that. Raises OptionError."""
    count, kept, words = 1, list[str](), iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        name = _named(option) if word.startswith("-") else ""
        if name == _DATA:
            count = _count(name, value or next(words, ""))
        elif name.startswith(_SPREAD):
            raise OptionError(
                f"{name}: engines on several machines, or behind a balancer, are not started",
                f"give {_DATA} alone: every engine of it has the same figures",
            )
        else:
            kept.append(word)
    return count, kept


def _has_experts(model: str) -> bool:
    """Return whether the configuration says that the model has experts. Raises AnalyzerError."""
    text = opened(model).text
    return any(text.get(name) for name in _EXPERTS)


def _job(arguments: Sequence[str], engines: int = 1) -> Rank:
    """The ranks that vLLM's own arguments ask for, of so many engines together. Raises OptionError."""
    counts = dict.fromkeys(_PARALLEL, 1)
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("-") else [word])]
    for word, value in itertools.pairwise([*words, ""]):
        if (name := _named(word)) in counts:
            counts[name] = _count(name, value)
    ranks = counts[_PARALLEL[0]] * counts[_PARALLEL[1]] * engines
    return Rank(0, ranks, ranks, launched=True) if ranks > 1 else Rank()


def _folder_of(model: str, folder: Path) -> Path:
    """A folder with the configuration under the name vLLM opens, and what it reads beside it; of the weights
    their files' headers. Raises AnalyzerError."""
    config = opened(model)
    folder.mkdir()
    shutil.copy(config.path, folder / "config.json")
    for file in config.path.parent.glob("*.json"):
        if file.name.startswith(_BESIDE):
            shutil.copy(file, folder / file.name)
    for file in config.path.parent.glob("*.safetensors"):
        (folder / file.name).write_bytes(_header_of(file))
    return folder


def _header_of(file: Path) -> bytes:
    """Return a safetensors file's header: its length in eight bytes, then JSON."""
    with file.open("rb") as opened_file:
        length = opened_file.read(8)
        return length + opened_file.read(min(int.from_bytes(length, "little"), _LARGEST_HEADER))
