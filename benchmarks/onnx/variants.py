"""Half-precision and quantised variants of the graphs in `tests/data/ort/graphs.tar.gz`, as ONNX Runtime's own tools make
them, and what is predicted for each beside a real session on the CPU provider.

    python -m benchmarks onnx_variants score                     # all of them, on the terminal
    python -m benchmarks onnx_variants score --only resnet18     # those whose name contains it
    python -m benchmarks onnx_variants score --save FOLDER       # write the models, without weights, for a machine with a GPU

Variants: "fp16" (`onnxruntime.transformers.float16`), "qdq" and "qoperator" (static, random calibration data), "dynamic",
"int4" (MatMulNBits). Weights are random: sizes are all that is compared.
"""

from __future__ import annotations

import io
import logging
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

from benchmarks import ROOT

GRAPHS = ROOT / "tests" / "data" / "ort" / "graphs.tar.gz"
ARCHITECTURES = (
    "resnet18", "mobilenet_v2", "mobilenet_v3_large", "squeezenet1_1", "shufflenet_v2_x1_0", "densenet121", "unet",
    "convnext_tiny", "encoder", "efficientnet_b0", "distilbert", "vit_b_32", "regnet_y_400mf",
)  # fmt: skip
BATCH = 2


def graph(name: str) -> onnx.ModelProto:
    """A recorded graph with random weights."""
    with tarfile.open(GRAPHS) as archive:
        member = archive.extractfile(f"{name}.onnx")
        assert member is not None
        model = onnx.ModelProto.FromString(member.read())
    del model.graph.value_info[:]
    random = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(_weights(random, tuple(tensor.dims)).astype(kind), tensor.name)
            )
    return model


def _weights(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Values that keep activations in range: matrices and filters scaled by what they sum over, vectors (variances among
    them) positive."""
    if len(shape) < 2:
        return random.uniform(0.5, 1.0, shape)
    summed = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return random.standard_normal(shape) / np.sqrt(max(summed, 1))


def feeds(model: onnx.ModelProto, batch: int = BATCH) -> dict[str, Any]:
    """Random inputs; symbolic dimensions are the batch."""
    random = np.random.default_rng(0)
    given = {item.name for item in model.graph.initializer}
    found = {}
    for item in model.graph.input:
        if item.name not in given:
            shape = [d.dim_value or batch for d in item.type.tensor_type.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            found[item.name] = (random.random(shape) * 2).astype(kind)
    return found


class _Calibration:
    """One batch of random data."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.left = [data]

    def get_next(self) -> dict[str, Any] | None:
        """The next batch."""
        return self.left.pop() if self.left else None

    def set_range(self, start_index: int, end_index: int) -> None:
        """There is one batch."""


def fp16(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:  # noqa: ARG001
    """Everything in half precision, inputs and results too."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(model, keep_io_types=False, disable_shape_infer=True)


def _static(model: onnx.ModelProto, folder: Path, form: str) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantFormat, quantize_static

    source, target = folder / "source.onnx", folder / "target.onnx"
    onnx.save(model, source)
    calibration: Any = _Calibration(feeds(model))
    quantize_static(source, target, calibration, quant_format=QuantFormat[form])
    return onnx.load(target)


def qdq(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """QuantizeLinear and DequantizeLinear around float operators."""
    return _static(model, folder, "QDQ")


def qoperator(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Operators that compute with integers."""
    return _static(model, folder, "QOperator")


def dynamic(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Weights in 8 bits, activations quantised while it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, target = folder / "source.onnx", folder / "target.onnx"
    onnx.save(model, source)
    quantize_dynamic(source, target, weight_type=QuantType.QUInt8)
    return onnx.load(target)


def int4(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:  # noqa: ARG001
    """Matrix products with weights in 4 bits (MatMulNBits)."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True)
    quantizer.process()
    return quantizer.model.model


VARIANTS: dict[str, Callable[[onnx.ModelProto, Path], onnx.ModelProto]] = {
    "fp16": fp16, "qdq": qdq, "qoperator": qoperator, "dynamic": dynamic, "int4": int4,
}  # fmt: skip


def variants(only: str = "") -> Iterator[tuple[str, onnx.ModelProto]]:
    """Every architecture in every form it has: (name, model with weights)."""
    for architecture in ARCHITECTURES:
        for form, make in VARIANTS.items():
            name = f"{architecture}_{form}"
            if only in name:
                base = graph(architecture)
                if form == "int4" and not any(node.op_type == "MatMul" for node in base.graph.node):
                    continue
                with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
                    made = make(base, Path(folder))
                yield name, made


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its larger tensors left to external data that is nowhere."""
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 1024:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="absent")
    return model


def compare(model: onnx.ModelProto, batch: int = BATCH) -> tuple[Any, dict[str, int]]:
    """The prediction for the CPU provider, and the last run's figures of a real session."""
    from analyzer.devices import resolve
    from analyzer.runtimes.onnxruntime import predict
    from analyzer_verify.runs import session

    predicted = predict(
        model.SerializeToString(),
        batch=batch,
        # The level at which a session is measured (`extensions/analyzer_verify/runs/session.py`).
        options={"provider": "cpu", "graph_optimization_level": 2},
        device=resolve("h200")[0],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        measured = session.measure(path, asdict(predicted.settings), feeds(model, batch), Path(folder))
    return predicted, measured["runs"][-1]


@click.command()
@click.option("--only", default="", help="variants whose name contains this")
@click.option("--save", type=Path)
def score(only: str, save: Path | None) -> None:
    """Run and predict every variant, a line each; or save the models."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    logging.disable()  # the tools' advice on preparing a model
    for name, model in variants(only):
        if save:
            (save / f"{name}.onnx").write_bytes(without_weights(model).SerializeToString())
            continue
        predicted, real = compare(model)
        off = 100 * (predicted.peak_in_use / real["peak_in_use"] - 1)
        held = 100 * (predicted.held / real["held"] - 1)
        print(
            f"{name:28} peak {predicted.peak_in_use:>12,} {real['peak_in_use']:>12,} {off:+7.2f} %   held {held:+7.2f} %",
            flush=True,
        )
