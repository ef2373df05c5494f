"""Helper modules beside the tests (`model_files`, `estimates`) are importable by name, package or not.

Property tests draw the same examples in every run, so that one commit passes or fails everywhere alike;
`HYPOTHESIS_PROFILE=explore` draws new ones.
"""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
