"""llama.cpp itself with a GGUF file, where no GPU is: its own log's buffers, and what the device has in
use after each phase.

1. Its shared libraries are those of a public package (`analyze engine install llama.cpp`), started by
   their C interface as llama-server starts them (`inside/llama_start.py`). Its CUDA kernels compute
   nothing, nor do those of its host.
2. The file's weights are a hole (`gguf_file.hollow`).
3. A larger or smaller context, or other layers, are never computed here: it is started again with them.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import MissingDependencyError, OptionError, RunError, TargetError
from analyzer_emulation import launch, library, symbols
from analyzer_serving.engines import gguf_file
from analyzer_serving.engines.llama_arguments import settings_of
from analyzer_serving.llama_results import Buffer, LlamaMemory, Phase, Point

_START = Path(__file__).parent / "inside" / "llama_start.py"
_BUFFER = re.compile(r"\S+: +(\S+) +(model|KV|RS|output|compute) buffer size = +([\d.]+) MiB")
_LAYERS = re.compile(r"load_tensors: offloaded (\d+)/(\d+) layers to GPU")
_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_NO_ROOM = re.compile(r"out of memory|failed to allocate|unable to allocate")
_MIB = 2**20
_CONTEXT_STEP = 256  # llama.cpp pads a context to so many tokens (src/llama-context.cpp)
# Of llama.cpp's process, by `cudaMemGetInfo` on an H200 (driver 580, its libraries of node-llama-cpp 3.22.1
# with PTX alone; 10 models of 8 architectures, alike in all: tests/data/h200/llama_cpp.json): 2 MiB with the
# first memset, 64 with the first kernel of its own, and 2 more once a prompt was read, which are not there
# beside cuBLAS's. A context's bytes before PyTorch's first kernel, and cuBLAS's, are the device's own.
_MEMSET_BYTES = 2 * _MIB
_KERNELS_BYTES = 66 * _MIB
# The driver that figures are measured under is 580, of CUDA 13.0, whose PTX is of version 9.0 (PTX ISA,
# "Release Notes"; cuModuleLoadData answers 222 to 9.1 there).
_DRIVER_PTX = (9, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """llama.cpp's shared libraries. release: as its package says; code: of the device in them."""

    folder: Path
    release: str
    nvidia: tuple[str, ...]
    cuda: tuple[int, int]


def package_of(folder: Path) -> Package:
    """Read llama.cpp's libraries of a folder. Raises MissingDependencyError for what lacks a function
    here, TargetError."""
    binaries = symbols.closure(sorted(folder.glob("*.so*")))
    if not any(one.path.name.startswith("libllama") for one in binaries):
        raise MissingDependencyError(f"{folder} has no libllama", "analyze engine install llama.cpp")
    check_answered(folder.name, binaries)
    names = symbols.nvidia_names(binaries)
    about = folder / "_nlcBuildMetadata.json"
    release = ""
    if about.is_file():
        options = json.loads(about.read_text("utf-8")).get("buildOptions", {})
        release = str(options.get("llamaCpp", {}).get("release", ""))
    return Package(folder, release, names, cuda_of(names))


def check_answered(name: str, binaries: Sequence[symbols.Binary]) -> None:
    """Raise MissingDependencyError where the emulated runtime lacks functions that the binaries want."""
    if lacking := symbols.missing(binaries):
        raise MissingDependencyError(
            f"{name} wants {len(lacking)} functions of CUDA that are not emulated: {', '.join(lacking[:8])}"
            + (" ..." if len(lacking) > 8 else ""),
            "another release of it may not",
        )


def cuda_of(names: Sequence[str]) -> tuple[int, int]:
    """Return the CUDA release whose runtime these names are of."""
    majors = (re.fullmatch(r"libcudart\.so\.(\d+)(\.\d+)*", name) for name in names)
    return next((int(match[1]) for match in majors if match), 13), 0


def device_of(profile: DeviceProfile) -> DeviceProfile:
    """Return the device as llama.cpp's process has it: its own code beside its memory."""
    return replace(
        profile,
        context_bytes=profile.context_bytes - profile.first_kernel_bytes + _KERNELS_BYTES,
        first_kernel_bytes=_KERNELS_BYTES,
        modules_bytes={**profile.modules_bytes, "memset": _MEMSET_BYTES},
    )


def llama_memory(
    name: str,
    arguments: Sequence[str],
    device: str | int | None,
    folder: Path,
    *,
    count: int = 1,
    contexts: Sequence[int] = (),
) -> LlamaMemory:
    """Start llama.cpp with a GGUF file and return its own account.

    name: the file; arguments: llama-server's; folder: of its libraries; count: of devices; contexts: draws
    a curve. Raises AnalyzerError.
    """
    profile, note = resolve(device)
    header = gguf_file.read(Path(name))
    if header.parts > 1:
        raise TargetError(
            f"{name} is one of {header.parts} files of a model", "join them: llama-gguf-split --merge"
        )
    settings = settings_of(arguments)
    package = package_of(folder)
    with tempfile.TemporaryDirectory(prefix="analyze-llama-") as place:
        settings["path"] = f"{place}/model.gguf"
        gguf_file.hollow(header, Path(settings["path"]))
        starter = _Starter(package, profile, Path(place), count)
        memory = starter.run(settings)
        memory = replace(
            memory, name=name, device_note=note, notes=(*memory.notes, *_code_notes(package, profile))
        )
        points = tuple(starter.point(_with(settings, n_ctx=context)) for context in contexts)
        changes = () if contexts else _changes(starter, settings, memory)
    return replace(memory, curve=points, changes=changes)


def _code_notes(package: Package, profile: DeviceProfile) -> list[str]:
    """Sentences on code for the device that its driver has to compile."""
    file = package.folder / "libggml-cuda.so"
    code = symbols.device_code(file, profile.compute_capability) if file.is_file() else None
    major, minor = profile.compute_capability
    if code is None:
        return [f"{file.name} has no code for compute capability {major}.{minor}: on a GPU it does not start"]
    if code.compiled:
        return []
    answers = (
        f"a part of its code for compute capability {major}.{minor} is PTX {code.ptx[0]}.{code.ptx[1]}, which"
        " the driver compiles when it starts"
    )
    if code.ptx > _DRIVER_PTX:
        answers += ": driver 580 (CUDA 13.0) ends it with cudaErrorUnsupportedPtxVersion; newer ones do not"
    return [answers]


def _with(settings: Mapping[str, Any], **context: int) -> dict[str, Any]:
    """Settings with other values for its context."""
    changed = deepcopy(dict(settings))
    changed["context"].update(context)
    return changed


class _Starter:
    """Starts llama.cpp under the emulated runtime."""

    def __init__(self, package: Package, profile: DeviceProfile, place: Path, count: int) -> None:
        self._package, self._profile, self._place, self._count = package, device_of(profile), place, count
        self._known: dict[str, LlamaMemory] = {}

    def run(self, settings: Mapping[str, Any]) -> LlamaMemory:
        """Start it with these settings. Raises RunError where it ends without a word."""
        key = json.dumps(settings, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._started(settings)
        return self._known[key]

    def _started(self, settings: Mapping[str, Any]) -> LlamaMemory:
        job, answer = self._place / "job.json", self._place / "answer.jsonl"
        job.write_text(json.dumps({"libraries": str(self._package.folder), "settings": settings}), "utf-8")
        answer.write_text("", "utf-8")
        with launch.environment(
            self._package.cuda, self._profile, {}, self._count, self._package.nvidia
        ) as variables:
            command: list[str | Path] = [sys.executable, "-I", _START, job, answer]
            (code,) = launch.run_together([launch.LaunchedProcess(command, variables, silent=True)])
        answers = [json.loads(line) for line in answer.read_text("utf-8").splitlines()]
        return self._memory(settings, answers, code or 0)

    def _memory(
        self, settings: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], code: int
    ) -> LlamaMemory:
        facts: dict[str, Any] = {}
        for one in answers:
            facts |= one
        if "error" in facts:
            raise RunError(f"llama.cpp does not start: {facts['error']}", "analyze engine install llama.cpp")
        lines = [one for one in answers if "line" in one]
        phases = tuple(
            Phase(one["phase"], tuple(one["used"]))
            for one in answers
            if one.get("phase") and not one["status"]
        )
        layers = next((match for one in lines if (match := _LAYERS.match(one["line"]))), None)
        is_whole = bool(facts.get("done")) and not code and phases[-1].name == "full"
        return LlamaMemory(
            settings["path"],
            self._profile.name,
            "",
            f"llama.cpp {self._package.release}".strip(),
            self._profile.capacity_bytes,
            buffers_of([one["line"] for one in lines]),
            phases,
            (int(layers[1]), int(layers[2])) if layers else (0, facts.get("layers", 0)),
            facts.get("n_ctx", 0) if "n_ctx_seq" in facts else 0,
            facts.get("n_ctx_seq", 0),
            settings["context"]["n_seq_max"],
            facts.get("trained", 0),
            None if is_whole else _words(lines, code),
            settings,
        )

    def point(self, settings: Mapping[str, Any]) -> Point:
        """Start it for a curve."""
        memory = self.run(settings)
        used = max(memory.most) if memory.fits else None
        kv = memory.mib("KV") + memory.mib("RS")
        return Point(settings["context"]["n_ctx"], kv, memory.mib("compute"), used)


def _words(lines: Sequence[Mapping[str, Any]], code: int) -> str:
    """llama.cpp's own words on what it ended in: the first that speaks of memory, else its last error."""
    errors = [str(one["line"]) for one in lines if one["level"] >= _ERROR and one["line"].strip()]
    of_memory = next((line for line in errors if _NO_ROOM.search(line)), None)
    if of_memory is not None:
        return of_memory.strip()
    return errors[-1].strip() if errors else f"it ended {launch.way_it_ended(code)}"


def buffers_of(lines: Sequence[str]) -> tuple[Buffer, ...]:
    """Return the buffers that a log names: of compute buffers, which are reserved again, the last; of
    others the sum."""
    answers: dict[tuple[str, str], float] = {}
    for line in lines:
        if match := _BUFFER.match(line):
            key, mib = (match[1], match[2]), float(match[3])
            answers[key] = mib if match[2] == "compute" else round(answers.get(key, 0.0) + mib, 2)
    return tuple(Buffer(place, kind, mib) for (place, kind), mib in answers.items())


def _changes(starter: _Starter, settings: Mapping[str, Any], memory: LlamaMemory) -> tuple[str, ...]:
    """Return what starting it again found: the largest context, and the most layers."""
    answers = []
    most = memory.trained or settings["context"]["n_ctx"]
    if memory.fits:
        low, high = memory.context, most * memory.sequences if settings["context"].get("kv_unified") else most
        if low < high:
            answers.append(_context_sentence(starter, settings, low, high))
        return tuple(answers)
    if not _NO_ROOM.search(memory.error or ""):
        return ()
    wanted_context = settings["context"]["n_ctx"] or most
    smallest = starter.run(_with(settings, n_ctx=_CONTEXT_STEP))
    if smallest.fits:
        answers.append(_context_sentence(starter, settings, _CONTEXT_STEP, wanted_context))
    layers = memory.layers[1] or smallest.layers[1]
    if layers:
        low, high = -1, layers
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if starter.run(_on_gpu(settings, middle)).fits else (low, middle)
        if low >= 0:
            answers.append(
                f"-ngl {low}: {low} of its {layers} layers on the GPU fit with this context, {low + 1} do not"
            )
        else:
            answers.append("with this context it does not fit with no layer on the GPU either")
    return tuple(answers)


def _on_gpu(settings: Mapping[str, Any], layers: int) -> dict[str, Any]:
    changed = deepcopy(dict(settings))
    changed["model"]["n_gpu_layers"] = layers
    return changed


def _context_sentence(starter: _Starter, settings: Mapping[str, Any], low: int, high: int) -> str:
    """Say which context between one that fits and one that is asked for, or the most there is, fits."""
    if starter.run(_with(settings, n_ctx=high)).fits:
        return f"-c {high}: the model's whole context fits"
    step = max((high - low) // 16 // _CONTEXT_STEP, 1) * _CONTEXT_STEP
    while high - low > step:
        middle = (low + high) // 2 // _CONTEXT_STEP * _CONTEXT_STEP
        if middle <= low:
            break
        low, high = (middle, high) if starter.run(_with(settings, n_ctx=middle)).fits else (low, middle)
    return f"-c {low}: a context of {low:,} tokens fits, one of {high:,} does not"


def sizes_of(text: str) -> tuple[int, ...]:
    """Return the contexts of a list such as 4k,32k,131072. Raises OptionError."""
    answers = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d{1,8})([kK]?)", part.strip())
        if match is None or not int(match[1]):
            raise OptionError(f"--context {text}: {part!r} is no number of tokens", "--context 4k,32k,131072")
        answers.append(int(match[1]) * (1024 if match[2] else 1))
    return tuple(answers)


def folder_with(given: Path | None) -> Path:
    """Return the folder of llama.cpp's libraries: the one given, or of `analyze engine install llama.cpp`.
    Raises MissingDependencyError."""
    from analyzer_emulation import store

    if given is not None:
        return given if given.is_dir() else given.parent
    for engine in store.every():
        if engine.complete and engine.name.startswith("llama.cpp-"):
            return next(engine.folder.rglob("libggml-cuda.so")).parent
    library.path()  # where nothing can be emulated, that is what to say
    raise MissingDependencyError(
        "no llama.cpp is available", "analyze engine install llama.cpp; --binary names one of your own"
    )
