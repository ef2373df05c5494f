"""Weights that programs would download, random, under the names their libraries look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def torchvision(folder: Path, models: list[str], also: list[str] | None = None) -> None:
    """FOLDER/FILE of each model's weights, as `torch.hub.load_state_dict_from_url` caches what `pretrained=True` asks for.

    also: further names of those of the first model, which older programs ask for."""
    import sys

    import torch

    if torch.version.cuda is None and "torchvision" not in sys.modules:
        from benchmarks.subjects.networks import torchvision_cpu

        torchvision_cpu.enable()
    from torchvision.models import get_model, get_model_weights

    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        torch.manual_seed(0)
        state = dict(get_model(name, weights=None).state_dict())
        for weights in get_model_weights(name):
            file = folder / weights.url.rsplit("/", 1)[-1]
            if not file.exists():
                torch.save(state, file)
        for other in (also or []) if name == models[0] else []:
            torch.save(state, folder / other)


def of_script(folder: Path, script: str, name: str, file: str) -> None:
    """FOLDER/FILE: the random weights of the module that `script` (relative to the folder) makes at its top level as `name`."""
    import runpy
    import sys

    import torch

    torch.manual_seed(0)
    path = (folder / script).resolve()
    sys.path.insert(0, str(path.parent))
    try:
        torch.save(runpy.run_path(str(path))[name].state_dict(), folder / file)
    finally:
        sys.path.remove(str(path.parent))


def of_function(
    folder: Path, root: str, module: str, function: str, file: str, key: str = "", arguments: tuple[Any, ...] = ()
) -> None:  # fmt: skip
    """FOLDER/FILE: the random weights of what MODULE's FUNCTION makes (of its member KEY, if it is a dictionary), imported from
    ROOT, relative to the folder; weights it would load itself are left out."""
    import importlib
    import sys

    import torch

    torch.manual_seed(0)
    path = str((folder / root).resolve())
    sys.path.insert(0, path)
    load = torch.nn.Module.load_state_dict
    torch.nn.Module.load_state_dict = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    try:
        of = importlib.import_module(module)
        if hasattr(of, "load_state_dict_from_url"):
            of.load_state_dict_from_url = lambda *_, **__: {}
        made = getattr(of, function)
        torch.save((made[key] if key else made)(*arguments).state_dict(), folder / file)
    finally:
        torch.nn.Module.load_state_dict = load  # type: ignore[method-assign]
        sys.path.remove(path)


def teacher(folder: Path, root: str, module: str, function: str, key: str, file: str) -> None:
    """The same as RepDistiller keeps a trained teacher: beside the name of its architecture, for 100 classes."""
    import importlib
    import sys

    import torch

    torch.manual_seed(0)
    path = str((folder / root).resolve())
    sys.path.insert(0, path)
    try:
        made = getattr(importlib.import_module(module), function)[key](num_classes=100)
    finally:
        sys.path.remove(path)
    torch.save({"model": made.state_dict()}, folder / file)
