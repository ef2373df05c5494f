"""The configurations of a pipeline: a folder, or `hf:ORG/NAME` of the Hugging Face hub (those files alone).

They are read, never executed: `program.py` builds components of diffusers and transformers alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from analyzer import files
from analyzer.errors import TargetError
from analyzer.recipes.hub import config_file

INDEX = "model_index.json"
PROGRAM = str(Path(__file__).with_name("program.py"))  # which builds the pipeline and runs it
_HUB = "hf:"
_LARGEST_BYTES = 1 << 20
_PART = re.compile(r"[A-Za-z_]\w*")


def pipeline_of(name: str, revision: str | None = None) -> tuple[Path, str]:
    """Return the folder of a pipeline's configurations, and its class's name. Raises TargetError."""
    if name.startswith(_HUB):
        index = config_file(name.removeprefix(_HUB), revision, INDEX)
    else:
        index = Path(name) if Path(name).name == INDEX else Path(name) / INDEX
    if not index.is_file():
        raise TargetError(
            f"{name}: there is no {INDEX}",
            "name the folder of a diffusers pipeline, as save_pretrained writes it; weights are not needed",
        )
    document: Any = files.read_json(index, _LARGEST_BYTES)
    kind = document.get("_class_name") if isinstance(document, dict) else None
    if not isinstance(kind, str):
        raise TargetError(
            f"{index}: it names no pipeline of diffusers",
            "for code of its own run a script that uses it: analyze run SCRIPT",
        )
    if name.startswith(_HUB):
        for part, (library, of) in _components(document):
            if library is not None and "Tokenizer" not in str(of):
                config_file(name.removeprefix(_HUB), revision, f"{part}/{_file(str(of))}")
    return index.parent.absolute(), kind


def _components(document: dict[str, Any]) -> list[tuple[str, tuple[Any, Any]]]:
    """Return the components that a model_index.json lists: name, and library with class."""
    pair = 2
    return [
        (part, (value[0], value[1]))
        for part, value in document.items()
        if _PART.fullmatch(part)
        and not part.startswith("_")
        and isinstance(value, list)
        and len(value) == pair
    ]


def _file(kind: str) -> str:
    if "Scheduler" in kind:
        return "scheduler_config.json"
    return "preprocessor_config.json" if kind.endswith(("Processor", "FeatureExtractor")) else "config.json"
