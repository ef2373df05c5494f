"""Places of a model's configuration: a `config.json`, its folder, or `hf:ORG/NAME` of the Hugging Face hub
(`hub.py`).

A configuration is data: it is read, never executed. Contents other than shapes (code of its own, `auto_map`)
are refused, because using them would run code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer import files
from analyzer.errors import OptionError, TargetError, file_like, hub_name
from analyzer.recipes.hub import config_file

HUB = "hf:"
_DTYPES = ("float32", "bfloat16", "float16")
_LARGEST_BYTES = 16 * 2**20
# Counts and sizes, which are not negative; and those that no model is without.
# Counts of what is built one by one, and how many are: the largest public model has 126 layers, and 512
# experts in one.
_BUILT = re.compile(r"(\w+_)?(layers?|blocks|depth|experts?)(_num)?")
MOST_BUILT = 4096
_COUNTS = re.compile(
    r"(num|n)_\w+|\w*(hidden|vocab|intermediate|embedding)_size|d_(model|ff|kv)|(head|hidden)_dim"
)
_NEEDED = frozenset(
    {
        "num_hidden_layers",
        "num_layers",
        "n_layer",
        "hidden_size",
        "n_embd",
        "d_model",
        "vocab_size",
        "num_attention_heads",
        "n_head",
    }
)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """name: as it was given. path: of the file. document: what it says."""

    name: str
    path: Path
    document: Mapping[str, Any]

    @property
    def text(self) -> Mapping[str, Any]:
        """The part about language: the whole, or `text_config` of a model that also sees or hears."""
        part = self.document.get("text_config")
        return part if isinstance(part, Mapping) else self.document

    @property
    def dtype(self) -> str:
        """The weights' type as `from_pretrained` takes it from a configuration (its dtype="auto", the
        default); float32 where it says nothing. `torch_dtype` is what files called it before transformers
        4.56."""
        for part in (self.document, self.text):
            written = part.get("dtype") or part.get("torch_dtype")
            if isinstance(written, str) and written != "auto":
                if (name := written.removeprefix("torch.")) not in _DTYPES:
                    raise TargetError(
                        f"{self.path}: {written!r} is no dtype of weights", "say --dtype bfloat16"
                    )
                return name
        return "float32"

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number, `default` if absent. Raises TargetError for other values."""
        part = self.text if name in self.text else self.document
        value = part.get(name, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise TargetError(f"{self.path}: {name} is {value!r}", "it must be a whole number of at least 1")
        return value


def opened(text: str, revision: str | None = None) -> ModelConfig:
    """Open the configuration `text` names. revision: of `hf:ORG/NAME`, which may also be written
    `hf:ORG/NAME@REVISION`. Raises TargetError, OptionError, MissingDependencyError."""
    if text.startswith(HUB):
        name, _, at = text.removeprefix(HUB).partition("@")
        path = config_file(name, revision or at or None)
    elif revision is not None:
        raise OptionError("--revision is of hf:ORG/NAME", "leave it out for a file")
    else:
        path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    if not path.exists():
        raise TargetError(
            f"{path}: no such file",
            f"{hub_name(text)}{file_like(path)}give config.json, its folder, or hf:ORG/NAME",
        )
    try:
        document = files.read_json(path, _LARGEST_BYTES)
    except files.UnreadableError as error:
        raise TargetError(f"{path} is no configuration: {error}", "give the model's config.json") from error
    if not isinstance(document, dict) or not isinstance(document.get("model_type"), str):
        raise TargetError(
            f"{path} does not say which model it is of: it has no model_type",
            "give the config.json that transformers' save_pretrained writes",
        )
    architectures = document.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise TargetError(f"{path}: architectures is no list of names", "give the model's config.json")
    _check_counts(path, document)
    return ModelConfig(text, path, document)


def _check_counts(path: Path, part: Mapping[str, Any]) -> None:
    """Raise TargetError for an impossible count."""
    for name, value in part.items():
        least = int(name in _NEEDED)
        if isinstance(value, Mapping):
            _check_counts(path, value)
        elif (least or _COUNTS.fullmatch(name)) and isinstance(value, int | float) and value < least:
            raise TargetError(
                f"{path}: {name} is {value!r}", f"it must be a whole number of at least {least}"
            )
        elif _BUILT.fullmatch(name) and isinstance(value, int) and value > MOST_BUILT:
            raise TargetError(
                f"{path}: {name} is {value:,}: more than {MOST_BUILT:,} are not built",
                "correct it, or give a smaller one",
            )
