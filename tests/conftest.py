"""Property tests draw the same examples in every run, so that one commit passes or fails everywhere alike;
`HYPOTHESIS_PROFILE=explore` draws new ones.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
