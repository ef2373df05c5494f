"""Half-precision and quantised variants, made by ONNX Runtime's own tools, beside a real session on the CPU provider.

`python benchmarks/onnx_variants.py` compares all of them; here one network of convolutions and one of matrix products.
"""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")

from benchmarks import onnx_variants as variants


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
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    ((_, model),) = variants.variants(name)
    predicted, real = variants.compare(model, 1)
    assert (predicted.peak_in_use, predicted.held) == (real["peak_in_use"], real["held"])
