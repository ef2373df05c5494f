"""Where the repository's own files are, and where the package under test is."""

import os
from pathlib import Path

import analyzer
from analyzer import child, extensions

ROOT = Path(__file__).resolve().parents[1]
# `pytest` tests the installed package, `python -m pytest` the sources of this checkout.
PACKAGE = Path(analyzer.__file__).resolve().parents[1]
# Of a child process that imports the same package, and `tests` or `benchmarks`.
PYTHONPATH = os.pathsep.join(dict.fromkeys((*child.FOLDERS, str(ROOT))))
extensions.importable()
DATA = ROOT / "tests" / "data"
MODELS = ROOT / "models"
