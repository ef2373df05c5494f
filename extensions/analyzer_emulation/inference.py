"""An ONNX file run by the user's own ONNX Runtime, whose CUDA provider finds an emulated CUDA runtime.

1. The provider's loader wants CUDA's libraries and cuDNN as files: all of them are the emulated runtime, so
   that an environment with onnxruntime-gpu alone is enough.
2. The device has no end here. Which requests find no room on the user's is worked out from all of them
   (`runtimes/onnxruntime/course.py`).
3. Convolutions: one plan, with the workspace that the simulated session has for the same question
   (`libraries/cudnn/choices.py`).
"""

from __future__ import annotations

import json
import mmap
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.errors import MissingDependencyError, RunError
from analyzer.libraries.cudnn.choices import UNKNOWN
from analyzer.libraries.cudnn.convolution import Convolution, Question
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer_emulation import launch
from analyzer_emulation.cudnn import CudnnAnswers
from analyzer_emulation.questions import Question as EmulatedQuestion
from analyzer_emulation.questions import QuestionServer

# The names of NVIDIA's libraries among the strings of the provider's, which names those it needs; cuDNN is
# opened by name.
_NEEDED = re.compile(rb"\0(lib(?:cu|nv)\w*\.so[.\d]*)(?=\0)")
_CUDA_RUNTIME = "libcudart.so."
_CUDNN = ("libcudnn.so", "libcudnn.so.9")
_RELEASES = {"12": (12, 8), "13": (13, 0)}  # of CUDA, by the number in its library's name
_ENDLESS = 1 << 45
_LEAST_CHUNK = 256  # bytes of the arena's smallest chunk (bfc_arena.h, kMinAllocationSize)
_LISTED = 0  # CUDNN_HEUR_MODE_INSTANT
_NANOSECONDS = 10**6


@dataclass(frozen=True, slots=True)
class Provider:
    """An environment's ONNX Runtime with its CUDA provider: its version, the build's CUDA release, and the
    names of NVIDIA's libraries that it loads."""

    python: Path
    version: str
    cuda: tuple[int, int]
    libraries: tuple[str, ...]


def find_provider(python: str | os.PathLike[str] | None) -> Provider:
    """Find the CUDA provider of `python` (None: this one). Raises OptionError, MissingDependencyError."""
    path, folder = launch.folder_of("onnxruntime", python)
    library = Path(folder) / "capi/libonnxruntime_providers_cuda.so"
    if not folder or not library.exists():
        raise MissingDependencyError(
            f"{path} has no onnxruntime-gpu",
            "analyze engine install onnxruntime-gpu makes an environment with it; --python names another",
        )
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        needed = {name.decode() for name in _NEEDED.findall(content)}
    cuda = sorted(name.removeprefix(_CUDA_RUNTIME) for name in needed if name.startswith(_CUDA_RUNTIME))
    line = re.search(r"^__version__ = \"(.+)\"", (Path(folder) / "__init__.py").read_text("utf-8"), re.M)
    version = "" if line is None else line[1]
    release = next((_RELEASES[number] for number in reversed(cuda) if number in _RELEASES), None)
    if release is None:
        raise MissingDependencyError(
            f"onnxruntime-gpu {version} of {path} was built with another CUDA than 12 or 13",
            "take onnxruntime-gpu 1.20 or newer",
        )
    return Provider(path, version, release, tuple(sorted({*needed, *_CUDNN})))


class SessionAnswers(CudnnAnswers):
    """cuDNN for ONNX Runtime: of a convolution the plan that its provider takes. search: how sessions have it
    chosen that do not say so with their question; "": such are PyTorch's. guessed: a workspace's bytes -> by
    how many it may be more or less, where cuDNN was not asked."""

    def __init__(self, profile: DeviceProfile, python: str, search: str = "") -> None:
        super().__init__(profile, python)
        self._search = self._current = search
        self.guessed: dict[int, int] = {}

    def plans(self, question: EmulatedQuestion) -> list[int]:
        """As for PyTorch; the list of the fallback heuristics, which DEFAULT asks for, is one of its own."""
        self._current = question.get("search", self._search)
        return super().plans({**question, "mode": _LISTED} if self._current else question)

    def _convolution(self, call: Convolution, y_shape: tuple[int, ...], fused: bool) -> list[int]:
        if not self._current:
            return super()._convolution(call, y_shape, fused)
        (workspace,) = self._choices.frontend([Question(call, y_shape, self._current)])
        nbytes = workspace.nbytes
        if workspace.source == UNKNOWN:
            nbytes = max(nbytes, 1)
            off = max(workspace.high_bytes - nbytes, nbytes - workspace.low_bytes)
            while self.guessed.get(nbytes, off) != off and nbytes < _LEAST_CHUNK:
                nbytes += 1  # as large a chunk, and told apart from another guess of nothing
            self.guessed[nbytes] = max(off, self.guessed.get(nbytes, 0))
        return [nbytes, 0, _NANOSECONDS, 0]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record that `inside/session.py` wrote, and how far off guessed workspaces of cuDNN's may be."""

    record: Mapping[str, Any]
    guessed: Mapping[int, int]


def recorded(
    path: Path,
    runs: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    settings: SessionOptions,
    provider: Provider,
    profile: DeviceProfile,
) -> Recorded:
    """Make and run a file's session, once for each of `runs` and `results` (its inputs and outputs, in the
    words of `inside/session.py`). Raises RunError where the process was ended, AnalyzerError where the
    emulated runtime is not there."""
    answers = SessionAnswers(profile, str(provider.python), settings.cudnn_conv_algo_search)
    job = {
        "path": str(path),
        "runs": runs,
        "session": settings.attributes(),
        "entries": settings.entries(),
        "provider": settings.provider_options()
        | ({"enable_cuda_graph": "1"} if settings.enable_cuda_graph else {}),
        "run": settings.run_entries(),
        "binding": settings.io_binding,
        "results": results,
    }
    endless = replace(profile, capacity_bytes=_ENDLESS, listed_bytes=_ENDLESS)
    with (
        tempfile.TemporaryDirectory(prefix="analyze-session-") as folder,
        QuestionServer(answers.topics) as questions,
        launch.environment(
            provider.cuda, endless, {**questions.environment, "TZ": "UTC"}, libraries=provider.libraries
        ) as variables,
    ):
        job_file, out = Path(folder) / "job.json", Path(folder) / "record.json"
        job_file.write_text(json.dumps(job), "utf-8")
        code = launch.run([provider.python, launch.INSIDE / "session.py", job_file, out], variables)
        if not out.exists():
            raise RunError(
                f"the process of ONNX Runtime {provider.version} was ended {launch.way_it_ended(code)}",
                "see its last output above",
            )
        return Recorded(json.loads(out.read_text("utf-8")), answers.guessed)
