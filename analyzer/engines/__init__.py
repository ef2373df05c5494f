"""Who answers for a PyTorch program: tracing, or PyTorch's own CUDA build on the emulated runtime.

`choice.py` traces first and emulates where tracing leaves a doubt (`doubt_of`), if a CUDA build of PyTorch
is within reach (`reach.py`): one of the user's, or an environment that `store.py` made.
"""

from typing import Literal, get_args

Engine = Literal["auto", "trace", "emulate"]
ENGINES: tuple[str, ...] = get_args(Engine)
# What `emulated.start` is called by a process that asks the one outside of its sandbox for it.
START = "emulate"
