"""A user's mistakes as exceptions that name the problem, its place and the way to fix it.

Every error the command line turns into exit code 2 derives from `AnalyzerError`; anything else is a bug here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from analyzer.keywords import in_python


class AnalyzerError(Exception):
    """A problem the user can fix: `message` says what and where, `hint` says what to do.

    Both are written with the options of the command line; `str` has Python's keywords in their place.
    is_own: whether the user's program ended in it by itself, as it would on any machine.
    """

    is_own = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return in_python(f"{self.message}\n  hint: {self.hint}" if self.hint else self.message)


class TargetError(AnalyzerError):
    """The target cannot be opened, or is not a model."""


class NotExtrapolated(Exception):
    """Raised, with the reason, where repetitions cannot be extrapolated and have to be run."""


class InputError(AnalyzerError):
    """An input, batch or shape is missing, impossible, or does not suit the model."""


class OptionError(AnalyzerError):
    """An option has a value this project does not know."""


class CaptureError(AnalyzerError):
    """The model cannot be followed without its data, or does not run on the given shapes."""


class UnknownOperatorError(AnalyzerError):
    """`--strict`: an operator whose own memory use is not known."""


class RuleError(AnalyzerError):
    """A user's rule (`analyzer.rule`) that cannot be registered, or fails on an operator."""


class MissingDependencyError(AnalyzerError):
    """A package or a GPU this command needs is not here."""


class MissingPackageError(MissingDependencyError):
    """A package that the model needs is not here, and no build of PyTorch brings it."""

    is_own = True


class DoesNotFit(AnalyzerError):
    """The estimate says a run would end without memory, so it was not tried."""


class RunError(AnalyzerError):
    """A real run failed for another reason than memory."""


# How a model is called on the Hugging Face hub, and what ends as a file does.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FILES = (".onnx", ".py", ".pt2", ".json", ".yaml", ".yml", ".pickle", ".gguf", ".txt", ".safetensors")

# This project's name on a package index, where `analyzer` is another project; as in pyproject.toml.
DISTRIBUTION = "gpu-memory-analyzer"


def install(extra: str) -> str:
    """Return the command that installs what an extra of this project brings ("torch", "plot", ...)."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def did_you_mean(name: str, names: Iterable[str], count: int = 1) -> str:
    """Return the beginning of a hint, "did you mean 'adam'? ", naming at most `count`; "" if nothing is
    close."""
    close = difflib.get_close_matches(name, list(names), n=count, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}? " if close else ""


def file_like(path: Path, count: int = 1) -> str:
    """Return the beginning of a hint for a file that is not there: names like it in its folder; "" if none
    is."""
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    return "" if path.exists() else did_you_mean(path.name, beside, count)


def hub_name(text: str) -> str:
    """Return the beginning of a hint where a file that is not there looks like a model's name on the Hugging
    Face hub, "ORG/NAME"; else ""."""
    is_name = _HUB_NAME.fullmatch(text) and not text.endswith(_FILES) and not Path(text).parent.exists()
    return f"did you mean 'hf:{text}'? " if is_name else ""


def report_to() -> str:
    """Return where to report a fault of this tool: the package's issue address, or a sentence without one."""
    from importlib import metadata  # which takes longer to import than all that begins without a fault

    try:
        addresses = metadata.metadata("gpu-memory-analyzer").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        addresses = []
    named: dict[str, str] = dict(entry.split(", ", 1) for entry in addresses)
    return named.get("Issues", "whoever you have analyzer from")
