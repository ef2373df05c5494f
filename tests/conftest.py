"""Helper modules beside the tests (`model_files`, `estimates`) are importable by name, package or not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
