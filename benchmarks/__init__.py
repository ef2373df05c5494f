"""What the analyzer's figures are measured by; `python -m benchmarks` lists it, README.md says how it is built."""

from pathlib import Path

from analyzer import extensions

ROOT = Path(__file__).resolve().parents[1]  # the repository
extensions.importable()
SUBJECTS = ROOT / "benchmarks/subjects"  # networks and programs that are measured, as data
