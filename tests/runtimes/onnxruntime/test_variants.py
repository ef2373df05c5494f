"""Half-precision and quantised variants, made by ONNX Runtime's own tools, beside a real session on the CPU provider.

`python -m benchmarks onnx_variants score` compares all of them; here one network of convolutions and one of matrix products.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from analyzer.devices import load
from analyzer.runtimes.onnxruntime import predict
from benchmarks.onnx import variants

PROCESSOR = Path("/proc/cpuinfo")
PACKS_OTHERWISE = PROCESSOR.exists() and "amx_int8" in PROCESSOR.read_text().split()


@pytest.mark.parametrize(
    "name",
    [
        "squeezenet1_1_fp16",
        "squeezenet1_1_qdq",
        "squeezenet1_1_qoperator",
        "squeezenet1_1_dynamic",
        "encoder_int4",
    ],
)
def test_variants_to_the_byte(name: str) -> None:
    """Peak in use and held after three runs."""
    if name == "squeezenet1_1_qdq" and PACKS_OTHERWISE:
        pytest.skip("this processor's instructions pack integers in another layout, which is not modelled")
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    ((_, model),) = variants.variants(name)
    predicted, real = variants.compare(model, 1)
    assert (predicted.peak_in_use, predicted.held) == (real["peak_in_use"], real["held"])


def test_integers_are_said_to_follow_the_processor() -> None:
    ((_, model),) = variants.variants("squeezenet1_1_qdq")
    assert [
        note
        for note in predict(model, batch=1, options={"provider": "cpu"}, device=load("h200")).notes
        if "AMX" in note
    ]
