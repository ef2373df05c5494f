"""The measured programs (`cases.json`): whole steps, none of whose shapes the table of operators was made from.

Development cases were looked at operator by operator, compiled ones kernel by kernel, while rules were written; of held-out cases
only the totals were measured. docs/evidence/TIMING.md says what was decided after these had been seen. "compile" is the mode of
`torch.compile` for the model, with loss and optimizer uncompiled: "default", or "reduce-overhead" (CUDA graphs).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Case = dict[str, Any]

_CASES: dict[str, dict[str, list[Case]]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
SETS, COMPILED = _CASES["eager"], _CASES["compiled"]
# Ways to run the same few programs, compiled and not.
WAYS: list[Case] = _CASES["ways"]["alternatives"]
# What models are made of, most of all -> their names.
KINDS: dict[str, list[str]] = _CASES["kinds"]["models"]


def kind_of(case: Case) -> str:
    """ "convolutional, training"; "compiled transformer, inference"."""
    (kind,) = (kind for kind, models in KINDS.items() if case["model"] in models)
    compiled = "compiled " if "compile" in case else ""
    return f"{compiled}{kind}, {'training' if case['mode'] == 'train' else 'inference'}"


def tag(case: Case) -> str:
    """ "resnet50 48 train sgdm amp=bf16"."""
    plain = [
        case["model"],
        str(case["batch"]),
        case["mode"],
        *([case["opt"]] if case["mode"] == "train" else []),
    ]
    more = (
        f"{name}={value}"
        for name, value in case.items()
        if name not in ("zoo", "model", "batch", "mode", "opt")
    )
    return " ".join([*plain, *more])
