"""cuDNN's recurrent layers: formulas beside what cuDNN said on an H100."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES
from analyzer.libraries.cudnn.recurrent import ALGORITHMS, MODES, Recurrent, dropout_state_bytes
from tests.paths import DATA

TYPES = (0, 2, 9, 1)  # cuDNN's numbers of float32, float16, bfloat16, float64

SIZES = DATA / "h100" / "recurrent_sizes.json.gz"
DTYPES = dict(zip(TYPES, ("float32", "float16", "bfloat16", "float64"), strict=True))


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


def test_every_size_that_cudnn_gave_to_the_byte() -> None:
    """Weights, workspace and reserve of 4,400 layers, every combination of what tells layers apart."""
    recorded = json.loads(gzip.decompress(SIZES.read_bytes()))
    assert dropout_state_bytes(132 * 2048) == recorded["states_bytes"]
    for row in recorded["rows"]:
        of = dict(zip(recorded["fields"], row, strict=True))
        batch, steps = of["batch"], of["steps"]
        layer = Recurrent(
            MODES[of["mode"]],
            DTYPES[of["type"]],
            of["inputs"],
            of["hidden"],
            of["layers"],
            of["directions"] + 1,
            batch,
            steps,
            bool(of["dropout"] and of["training"]),
            of["projection"],
            sum(lengths(of["pattern"], batch, steps)) if of["pattern"] else None,
            ALGORITHMS[of["algorithm"]] or "standard",
        )
        assert layer.weight_count * ELEMENT_BYTES[layer.dtype] == of["weights"], of
        if of["training"]:
            assert (layer.training_workspace_bytes(), layer.reserve_bytes()) == (
                of["workspace"],
                of["reserve"],
            )
        else:
            assert (layer.inference_workspace_bytes(), 0) == (of["workspace"], of["reserve"]), of


@given(
    st.sampled_from(MODES),
    st.integers(1, 512),
    st.integers(1, 512),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 64),
    st.integers(1, 300),
)
def test_training_never_takes_less_than_inference(
    mode: str, inputs: int, hidden: int, layers: int, directions: int, batch: int, steps: int
) -> None:
    layer = Recurrent(mode, "float32", inputs, hidden, layers, directions, batch, steps)
    assert layer.training_workspace_bytes() >= layer.inference_workspace_bytes() > 0
    assert layer.reserve_bytes() % 32 == 0
    dropped = dataclasses.replace(layer, dropout=True)
    assert dropped.reserve_bytes() >= layer.reserve_bytes()
    packed = dataclasses.replace(layer, rows=steps * batch)
    assert packed.training_workspace_bytes() < layer.training_workspace_bytes()
