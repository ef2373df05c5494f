"""llama-server's arguments that say how much memory it takes, as what its C interface is given
(common/arg.cpp, common/common.cpp, tools/server/server.cpp of llama.cpp v0.5.0). An argument that is not
known here is refused: it might take memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from analyzer.errors import OptionError, did_you_mean

_AUTO, _ALL = -1, -2  # of layers
_UNBOUNDED = 2**32 - 1
# enum ggml_type, of those that a cache may have
_CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
_SPLITS = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_SWITCHES = {"on": 1, "off": 0, "auto": -1}
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE = r"\.ffn_(up|down|gate)\."
# Arguments that change no memory of a GPU: they are taken and dropped, with so many values.
_WITHOUT_EFFECT = {
    "-t": 1,
    "--threads": 1,
    "-tb": 1,
    "--threads-batch": 1,
    "--host": 1,
    "--port": 1,
    "-a": 1,
    "--alias": 1,
    "--api-key": 1,
    "--jinja": 0,
    "--no-webui": 0,
    "--temp": 1,
    "--top-k": 1,
    "--top-p": 1,
    "--min-p": 1,
    "-n": 1,
    "--predict": 1,
    "-s": 1,
    "--seed": 1,
    "--metrics": 0,
    "--no-mmap": 0,
    "--mmap": 0,
    "--mlock": 0,
    "-v": 0,
    "--verbose": 0,
    "--chat-template": 1,
    "--timeout": 1,
}


def _number(text: str) -> int:
    if not 0 <= int(text) < 2**31:
        raise ValueError(f"{text} is no number of that")
    return int(text)


def _layers(text: str) -> int:
    return {"auto": _AUTO, "all": _ALL}.get(text) or int(text)


def _one_of(values: dict[str, int]) -> Callable[[str], int]:
    def number_in(text: str) -> int:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return values[text]

    return number_in


# Name -> the structure's member, and how its value is read; several names share a row.
_VALUES: dict[str, tuple[str, str, Callable[[str], Any]]] = {}
for _names, _where, _member, _reads in (
    ("-c --ctx-size", "context", "n_ctx", _number),
    ("-b --batch-size", "context", "n_batch", _number),
    ("-ub --ubatch-size", "context", "n_ubatch", _number),
    ("-np --parallel", "context", "n_seq_max", int),
    ("-fa --flash-attn", "context", "flash_attn_type", _one_of(_SWITCHES)),
    ("-ctk --cache-type-k", "context", "type_k", _one_of(_CACHE_TYPES)),
    ("-ctv --cache-type-v", "context", "type_v", _one_of(_CACHE_TYPES)),
    ("-ngl --gpu-layers --n-gpu-layers", "model", "n_gpu_layers", _layers),
    ("-sm --split-mode", "model", "split_mode", _one_of(_SPLITS)),
    ("-mg --main-gpu", "model", "main_gpu", _number),
):
    _VALUES.update(dict.fromkeys(_names.split(), (_where, _member, _reads)))
_FLAGS = {
    "-nkvo": ("context", "offload_kqv", False),
    "--no-kv-offload": ("context", "offload_kqv", False),
    "--swa-full": ("context", "swa_full", True),
    "-kvu": ("context", "kv_unified", True),
    "--kv-unified": ("context", "kv_unified", True),
    "-no-kvu": ("context", "kv_unified", False),
    "--no-kv-unified": ("context", "kv_unified", False),
    "--no-op-offload": ("context", "op_offload", False),
    "--no-host": ("model", "no_host", True),
    "--embedding": ("context", "embeddings", True),
    "--embeddings": ("context", "embeddings", True),
    "--no-warmup": ("", "warmup", False),
}
_OTHERS = [
    "-ts",
    "--tensor-split",
    "-fit",
    "--fit",
    "-fitt",
    "--fit-target",
    "-fitc",
    "--fit-ctx",
    "-ot",
    "--override-tensor",
    "-cmoe",
    "--cpu-moe",
    "-ncmoe",
    "--n-cpu-moe",
    "-ncffn",
    "--n-cpu-ffn",
]
_ELSEWHERE = {
    "-m": "the file stands before --",
    "--model": "the file stands before --",
    "-dev": "--device names the GPU",
    "--device": "--device names the GPU, before --",
}


def settings_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Return what llama_start.py takes (`settings` of its job), without the model's path. Raises
    OptionError."""
    settings: dict[str, Any] = {
        "model": {},
        # As the server has them where nothing is given: 4 slots that share the cache (server.cpp), no cache
        # of full size for layers with a window (common.h), no more outputs than slots (server-context.cpp).
        "context": {"n_ctx": 0, "swa_full": False},
        "tensor_split": [],
        "on_cpu": [],
        "fit": True,
        "fit_target": 1024,
        "fit_context": 4096,
        "warmup": True,
    }
    words = iter(arguments)
    for name in words:
        try:
            _take(name, words, settings)
        except StopIteration:
            raise OptionError(f"{name} needs a value", f"such as: -- {name} VALUE") from None
        except ValueError as error:
            hint = "llama.cpp's own arguments follow --"
            raise OptionError(f"{name}: not a value of it: {error}", hint) from None
    context = settings["context"]
    if context.setdefault("n_seq_max", -1) < 0:
        context["n_seq_max"] = 4
        context["kv_unified"] = True
    batch = min(context.setdefault("n_batch", 2048), 2**20)
    context["n_outputs_max"] = batch if context.get("embeddings") else min(batch, context["n_seq_max"])
    return settings


def _take(name: str, words: Iterator[str], settings: dict[str, Any]) -> None:
    """Read one argument and its value into the settings. Raises ValueError, StopIteration, OptionError."""
    if name in _VALUES:
        where, member, reads = _VALUES[name]
        settings[where][member] = reads(next(words))
        if member == "n_ctx" and settings["context"]["n_ctx"] == 0:
            settings["fit_context"] = _UNBOUNDED
    elif name in _FLAGS:
        where, member, value = _FLAGS[name]
        (settings[where] if where else settings)[member] = value
    elif name in ("-ts", "--tensor-split"):
        settings["tensor_split"] = [float(part) for part in next(words).replace("/", ",").split(",")]
    elif name in ("-fit", "--fit"):
        settings["fit"] = _one_of(_SWITCHES)(next(words)) == 1
    elif name in ("-fitt", "--fit-target"):
        settings["fit_target"] = int(next(words))
    elif name in ("-fitc", "--fit-ctx"):
        settings["fit_context"] = int(next(words))
    elif name in ("-ot", "--override-tensor"):
        for rule in next(words).split(","):
            pattern, equals, place = rule.rpartition("=")
            if not equals or place != "CPU":
                raise ValueError("PATTERN=CPU is answered here")
            settings["on_cpu"].append(pattern)
    elif name in ("-cmoe", "--cpu-moe"):
        settings["on_cpu"].append(_EXPERTS)
    elif name in ("-ncmoe", "--n-cpu-moe", "-ncffn", "--n-cpu-ffn"):
        tensors = _EXPERTS if "moe" in name else _DENSE
        settings["on_cpu"] += [rf"blk\.{layer}{tensors}" for layer in range(int(next(words)))]
    elif name in _WITHOUT_EFFECT:
        for _ in range(_WITHOUT_EFFECT[name]):
            next(words)
    else:
        known = [*_VALUES, *_FLAGS, *_OTHERS]
        hint = _ELSEWHERE.get(name) or did_you_mean(name, known) or f"answered are {' '.join(known)}"
        raise OptionError(f"{name} of llama.cpp is not answered here", hint)
