"""Weights that programs would download, random, under the names their libraries look for."""

from __future__ import annotations

from pathlib import Path


def torchvision(folder: Path, models: list[str], also: list[str] | None = None) -> None:
    """FOLDER/FILE of each model's weights, as `torch.hub.load_state_dict_from_url` caches what `pretrained=True` asks for.

    also: further names of those of the first model, which older programs ask for."""
    import sys

    import torch

    if torch.version.cuda is None and "torchvision" not in sys.modules:
        from benchmarks.networks import torchvision_cpu

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
