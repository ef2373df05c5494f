"""Know a model's GPU memory before you have the GPU.

    import analyzer
    estimate = analyzer.analyze("model.onnx", batch=64)
    print(estimate.peak_reserved, estimate.fits("rtx4090"))

Importing this package imports neither torch nor onnx; `analyze` imports what its target needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from analyzer.errors import (
    AnalyzerError,
    CaptureError,
    InputError,
    MissingDependencyError,
    OptionError,
    RuleError,
    TargetError,
    UnknownOperatorError,
)

if TYPE_CHECKING:
    from analyzer.engines.choice import analyze
    from analyzer.planning.compare import compare
    from analyzer.planning.curve import sweep
    from analyzer.planning.fit import fit
    from analyzer.planning.what_if import what_if
    from analyzer.results.estimate import Estimate
    from analyzer.runtimes.pytorch.scratch import rule
    from analyzer.spec import TensorSpec
    from analyzer_emulation.emulated import emulate
    from analyzer_programs.run import run
    from analyzer_timing.advise import advise

__version__ = "0.2.0"
__all__ = [
    "AnalyzerError",
    "CaptureError",
    "Estimate",
    "InputError",
    "MissingDependencyError",
    "OptionError",
    "RuleError",
    "TargetError",
    "TensorSpec",
    "UnknownOperatorError",
    "__version__",
    "advise",
    "analyze",
    "compare",
    "emulate",
    "fit",
    "rule",
    "run",
    "sweep",
    "what_if",
]
_LAZY = {
    "analyze": "analyzer.engines.choice",
    "sweep": "analyzer.planning.curve",
    "fit": "analyzer.planning.fit",
    "compare": "analyzer.planning.compare",
    "what_if": "analyzer.planning.what_if",
    "Estimate": "analyzer.results.estimate",
    "TensorSpec": "analyzer.spec",
    "rule": "analyzer.runtimes.pytorch.scratch",
}
# Functions of extensions, and what they do where there is none.
_EXTENSIONS = {"advise": "analyzer.advise", "run": "analyzer.run", "emulate": "analyzer.emulate"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _EXTENSIONS:
        from analyzer import extensions

        return extensions.required("extensions", name, _EXTENSIONS[name])
    raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
