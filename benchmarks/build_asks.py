"""What a build of PyTorch says of itself, on stdout as JSON: run by the Python whose build is asked, or followed (`cuda_functions.py`).

Asked is what needs no arguments and no GPU: constants, and functions whose name asks a question. Written down is what is plain.
"""

import contextlib
import importlib
import io
import json
import pkgutil
import re
import sys
import types
import warnings
from pathlib import Path

import torch
import torch.backends

_ASKS = re.compile(r"_?(cuda_|nccl_)?(tunableop_|record_untuned_)?(is|has|get|version|show)(?![a-z])")
_ROOMS = ("version", "cuda", "cuda.nccl", "distributed", "_C", "__config__")


def plain(value):
    """Whether JSON has a word for it."""
    if isinstance(value, (tuple, list)):
        return all(map(plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def told():
    """Name below torch, with () where it is a function -> what it is, or says."""
    found = {"__version__": str(torch.__version__)}
    for room in (
        *_ROOMS,
        *(f"backends.{entry.name}" for entry in pkgutil.iter_modules(torch.backends.__path__)),
    ):
        module = importlib.import_module(f"torch.{room}")
        # A module whose settings are properties keeps what it defines in another one.
        for name in {*dir(module), *dir(getattr(module, "m", module))}:
            value = getattr(module, name, None)
            if (name.startswith("__") and name != "__version__") or isinstance(
                value, (type, types.ModuleType)
            ):
                continue
            if not callable(value):
                found[f"{room}.{name}"] = value
            elif _ASKS.match(name):
                with contextlib.suppress(Exception):
                    found[f"{room}.{name}()"] = value()
    return {name: value for name, value in sorted(found.items()) if plain(value)}


if __name__ == "__main__":
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        answers = json.dumps(told())
    Path(sys.argv[1] if len(sys.argv) > 1 else "/dev/stdout").write_text(answers)
