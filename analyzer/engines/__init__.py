"""Engines for a PyTorch program: tracing, or PyTorch's own CUDA build on the emulated runtime.

`choice.py` traces first and emulates where tracing is uncertain (`doubt_of`), if a CUDA build of PyTorch is
available (`reach.py`): one of the user's, or an environment that `store.py` made.
"""

from typing import Literal, get_args

Engine = Literal["auto", "trace", "emulate"]
ENGINES: tuple[str, ...] = get_args(Engine)
# The name of `emulated.start` in requests to the process outside of the sandbox.
START = "emulate"
