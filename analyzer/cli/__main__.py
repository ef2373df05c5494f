"""`python -m analyzer.cli` is `analyze`."""

import sys

from analyzer.cli import main

sys.exit(main())
