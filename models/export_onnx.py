"""Makes the .onnx files of this folder: graphs without weights, batch dimension dynamic.

    python models/export_onnx.py [cnn resnet50 vit_b_16 bert]

Needs torch, onnxscript, onnx, and for bert transformers. Weights are declared as external data in
`NAME.onnx.data`, which is not written: an analysis needs their shapes only. The exporter's notes are reduced
to the line of source each node comes from, its path relative to this repository or to the package it is in.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
OPSET = 20
# Tensors up to this size stay in the file: shapes, axes and the like.
KEEP_BYTES = 64
_TORCH = re.compile(r"(^|/)torch/")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def local(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model of `NAME.py` in this folder, and a batch of 2."""
    specification = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    inputs, _ = module.make_batch(2)
    return module.make_model(), inputs if isinstance(inputs, tuple) else (inputs,)


def bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """BERT-base with its language-model head on 128 tokens."""
    # transformers imports torchvision where there is one, and a torchvision built for CUDA expects these two
    # operators.
    if torch.version.cuda is None and not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from transformers import BertConfig, BertForMaskedLM

    class Logits(nn.Module):
        """The model without transformers' output classes."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = BertForMaskedLM(BertConfig())

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.bert(tokens).logits

    return Logits(), (torch.zeros(2, 128, dtype=torch.int64),)


def export(name: str) -> onnx.ModelProto:
    """The ONNX graph of a model, without its weights."""
    torch.manual_seed(0)
    model, inputs = bert() if name == "bert" else local(name)
    program = torch.onnx.export(
        model.eval(),
        inputs,
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=tuple({0: torch.export.Dim("batch")} for _ in inputs),
        input_names=["tokens" if inputs[0].dtype == torch.int64 else "image"],
        output_names=["logits"],
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    drop_weights(proto, f"{name}.onnx.data")
    for node in proto.graph.node:
        shorten_notes(node)
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del value.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    return proto


def drop_weights(proto: onnx.ModelProto, location: str) -> None:
    """Declare tensors above KEEP_BYTES as external data that is not there."""
    offset = 0
    for tensor in proto.graph.initializer:
        length = onnx.numpy_helper.to_array(tensor).nbytes
        if length > KEEP_BYTES:
            shape = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            shape.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
                shape.external_data.add(key=key, value=value)
            tensor.CopyFrom(shape)
            offset += length


def shorten_notes(node: onnx.NodeProto) -> None:
    """Keep the innermost line of source outside torch, as a stack trace of one frame with a relative path."""
    kept = ""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            for path, line in _FRAME.findall(entry.value):
                if not _TORCH.search(path) and Path(path).name != Path(__file__).name:
                    kept = f'File "{relative(path)}", line {line}'
    del node.metadata_props[:]
    if kept:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=kept)


def relative(path: str) -> str:
    """The path from this repository, or from the packages' folder."""
    if Path(path).is_relative_to(HERE.parent):
        return str(Path(path).relative_to(HERE.parent))
    return path.rsplit("site-packages/", 1)[-1]


def main() -> None:
    """Export what the command line names, or everything."""
    warnings.filterwarnings("ignore")
    for name in sys.argv[1:] or ["cnn", "resnet50", "vit_b_16", "bert"]:
        proto = export(name)
        path = HERE / f"{name}.onnx"
        path.write_bytes(proto.SerializeToString(deterministic=True))
        print(f"{path.relative_to(HERE.parent)}: {len(proto.graph.node)} nodes, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
