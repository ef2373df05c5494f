"""Where the repository's own files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
MODELS = ROOT / "models"
