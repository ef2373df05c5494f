"""Part `recurrent`: what cuDNN says recurrent layers take, asked as PyTorch asks (`aten/src/ATen/native/cudnn/RNN.cpp`).

Rows: mode, type, algorithm, math, pattern of lengths (null: not packed), inputs, hidden, projection (0: none), layers, directions,
dropout, batch, steps, training, then status, bytes of the weights, of the workspace, of the reserve. Numbers are cuDNN's own
(`cudnn_adv.h`). A third of the questions varies one number of another's.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any

TYPES = {0: 0.4, 2: 0.35, 9: 0.15, 1: 0.1}  # float32, float16, bfloat16, float64: how often
TANH, LSTM, GRU = 1, 2, 3
STANDARD, PERSIST_STATIC, SMALL = 0, 1, 3
PATTERNS = ("equal", "linear", "one", "half", "random")
FIELDS = (
    "mode", "type", "algorithm", "math", "pattern", "inputs", "hidden", "projection", "layers", "directions", "dropout",
    "batch", "steps",
)  # fmt: skip
_DOUBLE_BIAS, _PADDED_IO, _UNPACKED, _PACKED = 2, 1, 0, 1
_LARGEST = 2**30


def lengths(pattern: str | None, batch: int, steps: int) -> list[int]:
    """Lengths of a batch's sequences, longest first."""
    match pattern:
        case "linear":
            return [max(1, steps - i * steps // batch) for i in range(batch)]
        case "one":
            return [steps] + [1] * (batch - 1)
        case "half":
            return [steps] * (batch - batch // 2) + [max(1, steps // 2)] * (batch // 2)
        case "random":
            drawn = random.Random(batch * 1009 + steps)
            return sorted((steps, *(drawn.randint(1, steps) for _ in range(batch - 1))), reverse=True)
    return [steps] * batch


def _size(drawn: random.Random, most: int) -> int:
    kind = drawn.random()
    if kind < 0.3:
        return drawn.randint(1, 64)
    if kind < 0.6:
        return drawn.randint(1, most)
    if kind < 0.85:
        return 8 * drawn.randint(1, max(1, most // 8))
    return min(most, 2 ** drawn.randint(3, 11))


def _question(drawn: random.Random) -> dict[str, Any]:
    mode = drawn.choice((0, TANH, TANH, LSTM, LSTM, LSTM, GRU, GRU, GRU))
    dtype = drawn.choices(list(TYPES), list(TYPES.values()))[0]
    packed, projected = drawn.random() < 0.2, mode == LSTM and drawn.random() < 0.25
    layers = drawn.choice((1, 1, 2, 2, 3, 4, 5))
    hidden = _size(drawn, 1100) if drawn.random() < 0.6 else drawn.randint(1, 384)
    algorithms = [STANDARD]
    if not packed and not projected:
        algorithms += [SMALL] if dtype != 1 and hidden <= 400 else []
        algorithms += [PERSIST_STATIC] if dtype == 2 and layers == 1 and drawn.random() < 0.5 else []
    question = {
        "mode": mode,
        "type": dtype,
        "algorithm": drawn.choice(algorithms),
        "math": 1 if dtype == 2 else drawn.choice((0, 0, 3)),
        "pattern": drawn.choice(PATTERNS) if packed else None,
        "inputs": _size(drawn, 1100),
        "hidden": hidden,
        "projection": drawn.randint(1, hidden - 1) if projected and hidden > 1 else 0,
        "layers": layers,
        "directions": drawn.choice((0, 1)),
        "dropout": int(layers > 1 and drawn.random() < 0.3),
        "batch": drawn.randint(1, 16) if drawn.random() < 0.6 else _size(drawn, 300),
        "steps": drawn.randint(1, 40) if drawn.random() < 0.6 else drawn.randint(1, 700),
    }
    if question["algorithm"] == PERSIST_STATIC:
        question.update(
            directions=0, dropout=0, inputs=128 * drawn.randint(1, 8), hidden=128 * drawn.randint(1, 8)
        )
        question["batch"] = 8 * drawn.randint(1, 16)
    return question


def _neighbours(drawn: random.Random, question: dict[str, Any]) -> list[dict[str, Any]]:
    name = drawn.choice(("inputs", "hidden", "layers", "batch", "steps", "steps"))
    if question["algorithm"] == PERSIST_STATIC or question["projection"]:
        name = "steps"
    base = question[name]
    values = (
        range(1, 7)
        if name == "layers"
        else (base + 1, base + 2, base + 3, base + 4, base + 8, 2 * base, 3 * base)
    )
    return [
        {**question, name: value, "dropout": question["dropout"] if name != "layers" else 0}
        for value in values
    ]


class _Cudnn:
    def __init__(self) -> None:
        import torch

        from benchmarks.libraries.measure import library

        torch.nn.LSTM(2, 2).cuda()(torch.zeros(1, 1, 2, device="cuda"))
        self._of = library("libcudnn.so.9")
        made = (
            "Create",
            "CreateRNNDescriptor",
            "CreateRNNDataDescriptor",
            "CreateDropoutDescriptor",
            "CreateDropoutDescriptor",
        )
        self._handle, self._layer, self._data, *self._dropout = (ctypes.c_void_p() for _ in made)
        for name, place in zip(made, (self._handle, self._layer, self._data, *self._dropout), strict=True):
            self._do(name, ctypes.byref(place))
        size = ctypes.c_size_t()
        self._do("DropoutGetStatesSize", self._handle, ctypes.byref(size))
        self.states_bytes = size.value
        self._states = torch.zeros(size.value, dtype=torch.uint8, device="cuda")
        self._do(
            "SetDropoutDescriptor",
            self._dropout[0],
            self._handle,
            ctypes.c_float(0),
            None,
            size,
            ctypes.c_ulonglong(0),
        )
        self._do(
            "RestoreDropoutDescriptor", self._dropout[1], self._handle, ctypes.c_float(0.5),
            ctypes.c_void_p(self._states.data_ptr()), size, ctypes.c_ulonglong(0),
        )  # fmt: skip

    def _do(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._of, f"cudnn{name}")(*arguments))

    def ask(self, q: dict[str, Any], training: int) -> list[int]:
        """Status, bytes of weights, workspace, reserve."""
        weights, workspace, reserve = (ctypes.c_size_t() for _ in range(3))
        status = self._do(
            "SetRNNDescriptor_v8", self._layer, q["algorithm"], q["mode"], _DOUBLE_BIAS, q["directions"], 0, q["type"],
            1 if q["type"] == 1 else 0, q["math"], q["inputs"], q["hidden"], q["projection"] or q["hidden"], q["layers"],
            self._dropout[q["dropout"] and training], 0 if q["pattern"] else _PADDED_IO,
        )  # fmt: skip
        of = (ctypes.c_int * q["batch"])(*lengths(q["pattern"], q["batch"], q["steps"]))
        layout = _PACKED if q["pattern"] else _UNPACKED
        status = status or self._do(
            "SetRNNDataDescriptor",
            self._data,
            q["type"],
            layout,
            q["steps"],
            q["batch"],
            q["inputs"],
            of,
            None,
        )
        status = status or self._do("GetRNNWeightSpaceSize", self._handle, self._layer, ctypes.byref(weights))
        status = status or self._do(
            "GetRNNTempSpaceSizes", self._handle, self._layer, training, self._data, ctypes.byref(workspace),
            ctypes.byref(reserve),
        )  # fmt: skip
        return [status, weights.value, workspace.value, reserve.value]


def measure(rows: Any) -> None:
    """Ask until the time is over."""
    from benchmarks.libraries.measure import about

    cudnn, drawn = _Cudnn(), random.Random(rows.share)
    rows.add([*about(), cudnn.states_bytes, *FIELDS])
    asked = 0
    while rows.left() and asked < 60_000:
        question = _question(drawn)
        for one in [question, *(_neighbours(drawn, question) if drawn.random() < 0.08 else [])]:
            if one["steps"] * one["batch"] * max(one["inputs"], one["hidden"]) > _LARGEST:
                continue
            for training in (0, 1):
                rows.add([*(one[name] for name in FIELDS), training, *cudnn.ask(one, training)])
                asked += 1
