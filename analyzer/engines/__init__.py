"""Engines: tracing or simulation, or PyTorch's or ONNX Runtime's own CUDA build on the emulated runtime.

`choice.py` traces first and emulates where tracing is uncertain (`doubt_of`), if a CUDA build is available
(`reach.py`): one of the user's, or an environment that `store.py` made. "simulate" is another word for
"trace".
"""

from typing import Literal, get_args

Engine = Literal["auto", "trace", "simulate", "emulate"]
ENGINES: tuple[str, ...] = get_args(Engine)
# The name of `emulated.start` in requests to the process outside of the sandbox.
START = "emulate"
