"""Starts a program of the user's under the emulated runtime, in a process of its own, with the Python that
has its torch.

1. The library is loaded before every other one (LD_PRELOAD), so that PyTorch's calls reach it by the loader's
   own rules; programs that open the driver or NVML by name find it in a folder of links (LD_LIBRARY_PATH).
   Both variables are as before for whatever the program starts itself: `inside` puts them back before it
   runs.
2. A GPU that is there is not touched: its driver is never opened.
3. Each process is in a group of its own; whatever ends this one (Ctrl-C, SIGTERM, a terminal that is closed)
   ends those groups. Where nothing can be done any more (SIGKILL), the kernel ends the processes
   (`inside/__main__.py`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from analyzer import child
from analyzer.devices import DeviceProfile
from analyzer.errors import MissingDependencyError, OptionError
from analyzer.signals import ends_on_request, uninterrupted
from analyzer_emulation import library
from analyzer_emulation.device import described

INSIDE = Path(__file__).parent / "inside"
# Variables that inside/__main__.py restores.
CHANGED = ("LD_PRELOAD", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Torch:
    """An environment's PyTorch: its version and CUDA release."""

    python: Path
    version: str
    cuda: tuple[int, int]


def interpreter(python: str | os.PathLike[str]) -> Path:
    """Return the Python of a path: itself, or that of an environment's folder."""
    path = Path(python)
    return path / "bin" / "python" if path.is_dir() else path


def folder_of(package: str, python: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """Return the Python (None: this one) and where it has the package, "" where it has not. Raises
    OptionError."""
    path = interpreter(sys.executable if python is None else python)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise OptionError(
            f"--python {path} is not a Python", "give the path of one: --python venv/bin/python"
        )
    if path == Path(sys.executable):
        spec = find_spec(package)
        return path, next(iter(spec.submodule_search_locations or ()), "") if spec is not None else ""
    ask = (
        f"import importlib.util as u; s = u.find_spec('{package}'); print('@' +"
        " (s.submodule_search_locations[0] if s else ''))"
    )
    try:
        printed = subprocess.run(
            [path, "-c", ask], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OptionError(f"--python {path} does not run: {error}") from None
    return path, next((line[1:] for line in printed.splitlines() if line.startswith("@")), "")


def find_torch(python: str | os.PathLike[str] | None) -> Torch:
    """Find the PyTorch of `python` (None: this one). Raises OptionError, MissingDependencyError."""
    path, folder = folder_of("torch", python)
    if not folder:
        raise MissingDependencyError(
            f"{path} has no PyTorch",
            "give the Python of an environment with a CUDA build: --python venv/bin/python",
        )
    facts = dict(
        re.findall(
            r"^(__version__|cuda)\b[^=\n]*= *['\"]([^'\"]+)['\"]",
            (Path(folder) / "version.py").read_text("utf-8"),
            re.M,
        )
    )
    cuda = re.match(r"(\d+)\.(\d+)", facts.get("cuda", ""))
    version = facts.get("__version__", "")
    if cuda is None:
        raise MissingDependencyError(
            f"torch {version} of {path} is not a CUDA build",
            f"make an environment with one: analyze engine install torch=={version.partition('+')[0]};"
            " --python names another",
        )
    if int(cuda[1]) not in (12, 13):
        raise MissingDependencyError(
            f"torch {version} of {path} was built with CUDA {cuda[0]}; emulated are 12 and 13",
            "take torch 2.6 or newer",
        )
    return Torch(path, version, (int(cuda[1]), int(cuda[2])))


@contextmanager
def environment(
    cuda: tuple[int, int],
    profile: DeviceProfile,
    besides: Mapping[str, str],
    count: int = 1,
    libraries: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """Yield the variables of a process under the emulated runtime; its links live as long. cuda: the release
    it was built with. libraries: names of further files that the emulated runtime is to be found as. Raises
    AnalyzerError."""
    native = library.path()
    with tempfile.TemporaryDirectory(prefix="analyze-emulate-") as folder:
        for name in {*library.OPENED_AS, *libraries}:
            (Path(folder) / name).symlink_to(native)
        own = {**os.environ, **besides}
        changed = {
            "LD_PRELOAD": " ".join(filter(None, (str(native), own.get("LD_PRELOAD")))),
            "LD_LIBRARY_PATH": ":".join(filter(None, (folder, own.get("LD_LIBRARY_PATH")))),
        }
        if "CUDA_VISIBLE_DEVICES" in own:  # numbers this machine's, of which there may be none
            changed["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(count)))
        kept = {f"ANALYZER_EMULATED_{name}": own[name] for name in CHANGED if name in own}
        yield {
            **own,
            **kept,
            **changed,
            "ANALYZER_EMULATED_DEVICE": described(profile, cuda, count),
            "ANALYZER_EMULATED_LIBRARIES": folder,
            "TRITON_LIBCUDA_PATH": folder,
            # Inductor compiles in this process: its workers, processes of their own, would find no GPU.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }


@dataclass(frozen=True, slots=True)
class LaunchedProcess:
    """A command and its environment variables. silent: what it prints is dropped."""

    command: Sequence[str | os.PathLike[str]]
    variables: Mapping[str, str]
    silent: bool = False


def way_it_ended(code: int) -> str:
    """Say how a process ended that did not end well, by its exit code."""
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def run(command: Sequence[str | os.PathLike[str]], variables: Mapping[str, str]) -> int:
    """Run a command, printing to stderr; return its exit code, negative for a signal."""
    (code,) = run_together([LaunchedProcess(command, variables)])
    assert code is not None  # it decides, so it ended by itself
    return code


def run_together(
    processes: Sequence[LaunchedProcess], decides: int = 0, stops: Callable[[int, int], bool] | None = None
) -> list[int | None]:
    """Run processes until the deciding one ends or one stops all; then end the others.

    stops: told the number and the exit code of each other one that ended. Returns exit codes as `run` does;
    None: it was ended here.
    """
    with ends_on_request():
        return _together(processes, decides, stops)


def _together(
    processes: Sequence[LaunchedProcess], decides: int, stops: Callable[[int, int], bool] | None
) -> list[int | None]:
    """Run the processes side by side; return their exit codes, None for those that were ended."""
    started: list[subprocess.Popen[bytes]] = []
    codes: list[int | None] = [None] * len(processes)
    try:
        with uninterrupted() as check:
            for process in processes:
                started.append(
                    subprocess.Popen(
                        process.command,
                        env=dict(process.variables),
                        stdout=subprocess.DEVNULL if process.silent else child.error_stream(),
                        stderr=subprocess.DEVNULL if process.silent else None,
                        start_new_session=True,
                    )
                )
        check()
        if len(started) == 1:
            codes[0] = started[0].wait()
            return codes
        while True:
            for number, one in enumerate(started):
                if codes[number] is None and (code := one.poll()) is not None:
                    codes[number] = code
                    if number == decides or (stops is not None and stops(number, code)):
                        return codes
            time.sleep(0.02)
    except BaseException:
        for one in started:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGINT)  # as Ctrl-C would: the program may clean up
        for one in started:
            with suppress(subprocess.TimeoutExpired):
                one.wait(10)
        raise
    finally:
        for one in started:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
        for one in started:
            one.wait()
