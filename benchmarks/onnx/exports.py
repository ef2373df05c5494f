"""What PyTorch's two exporters write of sixteen architectures, and what is predicted for each file beside a real ONNX Runtime
on the CPU provider.

    python -m benchmarks onnx_exports score -o tests/data/onnx_exports.json    # all of them, two processes (half an hour)
    python -m benchmarks onnx_exports score --only resnet18                    # those whose name contains it, on the terminal
    python -m benchmarks onnx_exports table                            # docs/evidence/ONNX.md from the recorded results

Each architecture is exported by `torch.onnx.export` with dynamo=True and with dynamo=False (TorchScript), for operator sets
13, 17 and 20, its batch fixed or dynamic. The architectures are small ones of their kind, with random weights. What an
exporter itself cannot write is kept with its own words and counts as no file; the newer one writes operator set 18 and
converts, and where it cannot convert it says so and writes 18: the set in the file is recorded.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import onnx

from benchmarks import ROOT
from benchmarks.harness.pages import write_part

RESULTS = ROOT / "tests" / "data" / "onnx_exports.json"
PAGE = ROOT / "docs" / "evidence" / "ONNX.md"
EXPORTERS = ("dynamo", "torchscript")
OPSETS = (13, 17, 20)
BATCHES = ("fixed", "dynamic")
EXPORTED_BATCH, RUN_BATCH = 2, 3  # a dynamic batch is run at another size than it was exported with

Made = tuple[Any, Callable[[int], tuple[Any, ...]]]


def _image(*size: int) -> Callable[[int], tuple[Any, ...]]:
    import torch

    return lambda batch: (torch.zeros(batch, *size),)


def _tokens(length: int) -> Callable[[int], tuple[Any, ...]]:
    import torch

    return lambda batch: (torch.ones(batch, length, dtype=torch.int64),)


def _torchvision(name: str) -> Callable[[], Made]:
    def make() -> Made:
        import torchvision

        return getattr(torchvision.models, name)(weights=None), _image(3, 64, 64)

    return make


def _densenet() -> Made:
    from torchvision.models import DenseNet

    return DenseNet(16, (2, 3, 3, 2), 32), _image(3, 64, 64)


def _convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, 128, 2), CNBlockConfig(128, None, 1)]
    return ConvNeXt(blocks), _image(3, 64, 64)


def _vit() -> Made:
    from torchvision.models import VisionTransformer

    return VisionTransformer(64, 16, 2, 4, 64, 128), _image(3, 64, 64)


def _swin() -> Made:
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]), _image(3, 64, 64)


def _unet() -> Made:
    from monai.networks.nets import UNet

    return UNet(2, 1, 2, (8, 16, 32), (2, 2), num_res_units=1), _image(1, 64, 64)


def _lstm() -> Made:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        """Words, two recurrent layers in both directions, a label for each."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(500, 64)
            self.layers = nn.LSTM(64, 48, 2, bidirectional=True, batch_first=True)
            self.labels = nn.Linear(96, 12)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.labels(self.layers(self.words(tokens))[0])

    return Tagger(), _tokens(20)


def _transformers(model: str, config: str, **sizes: Any) -> Callable[[], Made]:
    def make() -> Made:
        import torch
        import transformers
        from torch import nn

        class First(nn.Module):
            """The model's first result alone."""

            def __init__(self) -> None:
                super().__init__()
                made = getattr(transformers, config)(**sizes)
                self.model = getattr(transformers, model)(made)

            def forward(self, tokens: torch.Tensor) -> torch.Tensor:
                return self.model(tokens, return_dict=False, **kept)[0]

        kept = {"use_cache": False} if "CausalLM" in model or "LMHead" in model else {}
        return First(), _tokens(32)

    return make


_SMALL = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ARCHITECTURES: dict[str, Callable[[], Made]] = {
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5"),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "mnasnet0_5": _torchvision("mnasnet0_5"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "regnet_x_400mf": _torchvision("regnet_x_400mf"),
    "densenet": _densenet,
    "convnext": _convnext,
    "vit": _vit,
    "swin": _swin,
    "unet": _unet,
    "lstm": _lstm,
    "bert": _transformers("BertForMaskedLM", "BertConfig", **_SMALL, intermediate_size=128),
    "gpt2": _transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=500, n_embd=64, n_layer=2, n_head=4),
    "llama": _transformers(
        "LlamaForCausalLM", "LlamaConfig", **_SMALL, num_key_value_heads=2, intermediate_size=128
    ),
}


def export(made: Made, exporter: str, opset: int, batch: str) -> onnx.ModelProto:
    """One file. Raises whatever the exporter does."""
    import torch

    module, inputs = made
    values = inputs(EXPORTED_BATCH)
    names = [f"input_{place}" for place in range(len(values))]
    shapes: dict[str, Any] = {}
    if batch == "dynamic" and exporter == "dynamo":
        shapes["dynamic_shapes"] = tuple({0: torch.export.Dim("batch", min=1)} for _ in values)
    elif batch == "dynamic":
        shapes["dynamic_axes"] = {name: {0: "batch"} for name in names} | {"output": {0: "batch"}}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            module.eval(), values, path, dynamo=exporter == "dynamo", opset_version=opset, input_names=names,
            output_names=["output"], **({"verbose": False} | shapes),
        )  # fmt: skip
        return onnx.load(path)


def rows(
    architecture: str, exporters: Iterable[str] = EXPORTERS, opsets: Iterable[int] = OPSETS
) -> Iterator[dict[str, Any]]:
    """Every file of an architecture: predicted, run and compared."""
    from benchmarks.onnx.backend import warns
    from benchmarks.onnx.variants import compare
    from benchmarks.subjects.networks.torchvision_cpu import enable

    enable()
    made = ARCHITECTURES[architecture]()
    for exporter in exporters:
        for opset in opsets:
            for batch in BATCHES:
                row = {"architecture": architecture, "exporter": exporter, "asked": opset, "batch": batch}
                try:
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        model = export(made, exporter, opset, batch)
                except Exception as error:  # the exporter's own, of any kind
                    yield row | {
                        "exporter_failed": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
                    }
                    continue
                row["opset"] = next(entry.version for entry in model.opset_import if not entry.domain)
                try:
                    predicted, real = compare(model, EXPORTED_BATCH if batch == "fixed" else RUN_BATCH)
                except Exception as error:
                    if not type(error).__module__.startswith("onnxruntime."):
                        raise
                    yield row | {"not_run": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
                    continue
                yield row | {
                    "peak": predicted.peak_in_use, "real_peak": real["peak_in_use"], "held": predicted.held,
                    "real_held": real["held"], "warns": warns(predicted),
                }  # fmt: skip


def _all(architecture: str) -> list[dict[str, Any]]:
    """Every file of an architecture, in a process of its own."""
    import onnxruntime
    import torch

    onnxruntime.set_default_logger_severity(4)
    logging.disable()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return list(rows(architecture))


def campaign(names: list[str], processes: int) -> list[dict[str, Any]]:
    """Every file of these architectures, in their order; each is told on stderr when its architecture is done."""
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor(min(processes, len(names))) as pool:
        for future in as_completed([pool.submit(_all, name) for name in names]):
            found += future.result()
            for row in future.result():
                print(json.dumps(row), file=sys.stderr, flush=True)
    return sorted(found, key=lambda row: names.index(row["architecture"]))


def exact(row: dict[str, Any]) -> bool:
    """Whether both figures are right to the byte."""
    return "peak" in row and row["peak"] == row["real_peak"] and row["held"] == row["real_held"]


def summary(found: list[dict[str, Any]]) -> str:
    """A table: architectures down, exporters and batches across; how many operator sets are exact."""
    files = [row for row in found if "peak" in row]
    good = sum(map(exact, files))
    refused = [row for row in found if "exporter_failed" in row]
    not_run = [row for row in found if "not_run" in row]
    kept = sum(row["exporter"] == "dynamo" and row["opset"] != row["asked"] for row in files)
    lines = [
        f"{len(files) + len(not_run)} files of {len({row['architecture'] for row in files})} architectures, all of them analysed,",
        f"{len(files)} run; {len(not_run)} are no model ONNX Runtime loads.",
        "Of those that ran, "
        f"peak in use and held both exact in {good} ({100 * good / max(len(files), 1):.1f} %). {len(refused)} files an exporter",
        f"itself could not write; {kept} of dynamo's are of another operator set than was asked for, because it does not convert.",
        "", "Exact files of those written, for operator sets 13, 17 and 20 together; in brackets the furthest peak:", "",
        "| architecture | dynamo, fixed | dynamo, dynamic | TorchScript, fixed | TorchScript, dynamic |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for architecture in dict.fromkeys(row["architecture"] for row in found):
        cells = []
        for exporter in EXPORTERS:
            for batch in BATCHES:
                some = [row for row in files if (row["architecture"], row["exporter"], row["batch"])
                        == (architecture, exporter, batch)]  # fmt: skip
                off = max((100 * (row["peak"] / row["real_peak"] - 1) for row in some), key=abs, default=0.0)
                cells.append(f"{sum(map(exact, some))} of {len(some)}" + (f" ({off:+.2f} %)" if off else ""))
        lines.append(f"| {architecture} | {' | '.join(cells)} |")
    for title, field, some in (
        ("What the exporters said of those they could not write:", "exporter_failed", refused),
        ("What ONNX Runtime said of those it does not load:", "not_run", not_run),
    ):
        if some:
            lines += ["", title, ""]
            said: dict[str, list[str]] = {}
            for row in some:
                which = f"{row['architecture']} ({row['exporter']}, {row['asked']}, {row['batch']})"
                said.setdefault(row[field], []).append(which)
            lines += [f"- {', '.join(which)}: `{words}`" for words, which in said.items()]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--only", default="", help="architectures whose name contains this")
@click.option("--processes", default=2)
@click.option("-o", "--output", type=Path)
def score(only: str, processes: int, output: Path | None) -> None:
    """Export, run and predict every architecture, and print the table; write the rows."""
    found = campaign([name for name in ARCHITECTURES if only in name], processes)
    if output:
        output.write_text("[\n" + ",\n".join(" " + json.dumps(row) for row in found) + "\n]\n")
    print(summary(found))


@click.command()
def table() -> None:
    """Write the recorded results into their part of the page."""
    write_part(PAGE, "exports", summary(json.loads(RESULTS.read_text())))
