"""Part `layers`: recurrent layers run forward and backward, and what PyTorch allocated for them.

Rows: the layer's description (of `cases`), then the requests of the forward pass, of the backward pass, or an error. Each is run
twice; the second is recorded, where cuBLAS's workspace and dropout's state are there.
"""

from __future__ import annotations

import random
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "float64")


def cases() -> list[dict[str, Any]]:
    """Descriptions of layers: a fixed draw."""
    drawn, found = random.Random(1), []
    for _ in range(3000):
        kind = drawn.choice(("LSTM", "LSTM", "GRU", "RNN"))
        hidden = drawn.choice(
            (
                drawn.randint(1, 64),
                drawn.randint(1, 300),
                16 * drawn.randint(1, 40),
                128 * drawn.randint(1, 8),
            )
        )
        projected = kind == "LSTM" and hidden > 1 and drawn.random() < 0.25
        found.append(
            {
                "kind": kind,
                "dtype": drawn.choices(DTYPES, (5, 3, 1, 1))[0],
                "inputs": drawn.choice(
                    (drawn.randint(1, 64), drawn.randint(1, 300), 16 * drawn.randint(1, 40))
                ),
                "hidden": hidden,
                "layers": drawn.choice((1, 1, 2, 3)),
                "bidirectional": drawn.random() < 0.4,
                "bias": drawn.random() < 0.7,
                "batch_first": drawn.random() < 0.5,
                "projection": drawn.randint(1, hidden - 1) if projected else 0,
                "dropout": drawn.choice((0.0, 0.0, 0.25)),
                "batch": drawn.randint(1, 40),
                "steps": drawn.randint(1, 60),
                "packed": drawn.random() < 0.25,
                "train": drawn.random() < 0.8,
                "flat": drawn.random() < 0.9,
            }
        )
    return found


def run(case: dict[str, Any]) -> list[Any]:
    """Requests of the forward and of the backward pass."""
    import torch
    from torch import nn

    from benchmarks.libraries.measure import Recorded

    kind = getattr(nn, case["kind"])
    options = {"proj_size": case["projection"]} if case["projection"] else {}
    dtype = getattr(torch, case["dtype"])
    layer = kind(
        case["inputs"], case["hidden"], case["layers"], bias=case["bias"], batch_first=case["batch_first"],
        dropout=case["dropout"], bidirectional=case["bidirectional"], device="cuda", dtype=dtype, **options,
    )  # fmt: skip
    layer.train(case["train"])
    if not case["flat"]:
        for parameter in layer.parameters():
            parameter.data = parameter.data.clone()
    shape = (case["batch"], case["steps"]) if case["batch_first"] else (case["steps"], case["batch"])
    x = torch.zeros(*shape, case["inputs"], device="cuda", dtype=dtype, requires_grad=case["train"])
    given: Any = x
    if case["packed"]:
        drawn = random.Random(case["batch"])
        lengths = [drawn.randint(1, case["steps"]) for _ in range(case["batch"] - 1)] + [case["steps"]]
        given = nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(lengths), case["batch_first"], enforce_sorted=False
        )
    found = []
    with torch.set_grad_enabled(case["train"]):
        with Recorded() as forward:
            out, _state = layer(given)
        found.append(forward)
        if case["train"]:
            data = out.data if case["packed"] else out
            gradient = torch.zeros_like(data)
            with Recorded() as backward:
                data.backward(gradient, retain_graph=False)
            found.append(backward)
    return found


def measure(rows: Any) -> None:
    """Run until the time is over."""
    from benchmarks.libraries.measure import about

    rows.add(about())
    for case in cases():
        if not rows.left():
            return
        try:
            run(case)
            rows.add([case, *run(case)])
        except RuntimeError as refused:
            rows.add([case, str(refused)[:120]])
