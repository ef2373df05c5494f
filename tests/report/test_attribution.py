"""Who holds the peak: figures worked out by hand, and every view of real estimates adding up to the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import analyzer
from analyzer.capture.onnx import _scope
from analyzer.report import attribution, folded, text
from analyzer.report import csv as csv_report
from analyzer.report.formats import View
from analyzer.results.estimate import Estimate, TensorRow
from tests.paths import MODELS
from tests.report.adding_up import adds_up
from tests.report.estimates import TRAINING


def row(
    name: str, nbytes: int, module: str = "", source: str = "", operator: str = "", scope: str = ""
) -> TensorRow:
    return TensorRow(name, nbytes, "activations", "", (), operator, module, source, "", "tensor", scope)


ROWS = (
    row("a", 5, "encoder.0.fc", "net/train.py:12", "aten::mm.default"),
    row("b", 4, "encoder.1.fc", "net/train.py:20", "aten::mm.default"),
    row("c", 2, "head", "net/head.py:3", "aten::relu.default"),
    row("d", 1),
)
ESTIMATE = replace(TRAINING, tensors=ROWS, peak_allocated=12)


@pytest.mark.parametrize(
    ("kind", "depth", "expected"),
    [
        ("module", None, [("encoder.0.fc", 5), ("encoder.1.fc", 4), ("head", 2), ("", 1)]),
        ("module", 1, [("encoder", 9), ("head", 2), ("", 1)]),
        ("module", 2, [("encoder.0", 5), ("encoder.1", 4), ("head", 2), ("", 1)]),
        ("line", 1, [("net/train.py", 9), ("net/head.py", 2), ("", 1)]),
        ("line", None, [("net/train.py:12", 5), ("net/train.py:20", 4), ("net/head.py:3", 2), ("", 1)]),
        ("operator", None, [("mm", 9), ("relu", 2), ("", 1)]),
        ("category", None, [("activations", 12)]),
        ("tensor", 1, [("a", 5), ("b", 4), ("c", 2), ("d", 1)]),
    ],
)
def test_rows_by_hand(kind: str, depth: int | None, expected: list[tuple[str, int]]) -> None:
    assert attribution.rows(ESTIMATE, kind, depth) == expected


def test_an_onnx_node_stands_under_the_scope_its_exporter_recorded() -> None:
    tensors = (row("x", 3, module="node_Conv_1", scope="layer1.0.conv1"), row("y", 2, module="node_Add_2"))
    estimate = replace(TRAINING, framework="onnx", tensors=tensors, peak_allocated=5)
    assert attribution.rows(estimate, "module") == [("layer1.0.conv1.node_Conv_1", 3), ("node_Add_2", 2)]
    assert attribution.rows(estimate, "module", 2) == [("layer1.0", 3), ("node_Add_2", 2)]


@pytest.mark.parametrize(
    ("name", "metadata", "scope"),
    [
        ("n", {"pkg.torch.onnx.name_scopes": "['', 'layer1', 'layer1.0', 'conv2d']"}, "layer1.0"),
        (
            "n",
            {"namespace": ": torchvision.ResNet/layer1: Sequential/layer1.0: Block/conv2d: aten.conv2d"},
            "layer1.0",
        ),
        ("/layer1/layer1.0/conv1/Conv", {}, "layer1.layer1.0.conv1"),
        ("n", {"pkg.torch.onnx.name_scopes": "['', 'conv2d']"}, ""),
        ("node_Conv_1", {}, ""),
    ],
)
def test_scopes_of_exporters(name: str, metadata: dict[str, str], scope: str) -> None:
    from onnx import helper

    node = helper.make_node("Conv", ["x", "w"], ["y"], name=name)
    for key, value in metadata.items():
        node.metadata_props.add(key=key, value=value)
    assert _scope(node) == scope


def test_the_table_in_the_terminal_sums_up() -> None:
    shown = text.render(ESTIMATE, View(by="module", depth=1, top=1)).partition("At the peak by module\n")[2]
    assert [line.strip() for line in shown.splitlines()[:3]] == [
        "9 B   75.0 %  encoder",
        "3 B   25.0 %  2 more (--top 0 shows all)",
        "12 B  100.0 %  sum",
    ]
    everything = text.render(ESTIMATE, View(by="line", top=0))
    assert "(no line)" in everything and "net/head.py:3" in everything


def test_folded_stacks_by_hand() -> None:
    hostile = replace(
        ESTIMATE, target="m.py", tensors=(row("a;b\nc 7", 5, "x.y", operator="aten::mm.default"), ROWS[3])
    )
    assert folded.render(hostile) == "m.py;x;y;mm;a,b c 7 5\nm.py;(outside any module);activations;d 1\n"


@pytest.mark.parametrize("name", ["cnn", "resnet50", "vit_b_16", "bert"])
def test_every_view_of_an_onnx_model_adds_up(name: str) -> None:
    estimate = analyzer.analyze(MODELS / f"{name}.onnx", batch=2, device="h200")
    adds_up(estimate)
    assert any(f"{name}.py:" in source or "modeling_bert.py:" in source for source in estimate.by_line)


@pytest.mark.parametrize(
    ("runtime", "options"),
    [
        ("pytorch", {"alloc_conf": "expandable_segments:True"}),
        ("pytorch", {"alloc_conf": "garbage_collection_threshold:0.5,max_split_size_mb:64"}),
        ("paddle", {}),
        ("tensorflow", {}),
    ],
)
def test_every_view_adds_up_under_every_allocator(runtime: str, options: dict[str, str]) -> None:
    adds_up(
        analyzer.analyze(
            MODELS / "cnn.py", batch=2, mode="train", device="h200", runtime=runtime, runtime_options=options
        )
    )


HEAD = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
x, y = torch.randn(32, 64), torch.randint(8, (32,))
"""
STEP = """
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
"""
PROGRAMS = {
    "sgd": "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(3):\n    opt.zero_grad()" + STEP + "    opt.step()\n",
    "adam_and_clipping": "opt = torch.optim.AdamW(model.parameters())\nfor _ in range(3):\n    opt.zero_grad()"
    + STEP + "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    opt.step()\n",
    "accumulation": "opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\nfor i in range(4):" + STEP
    + "    if i % 2:\n        opt.step()\n        opt.zero_grad()\n",
    "evaluation": "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(2):\n    opt.zero_grad()" + STEP
    + "    opt.step()\n    with torch.no_grad():\n        model(x.cuda())\n    torch.cuda.empty_cache()\n",
    "two_optimizers": "other = nn.Linear(8, 8).cuda()\na = torch.optim.Adam(model.parameters())\nb = torch.optim.Adam(other.parameters())\n"
    "for _ in range(2):\n    a.zero_grad()\n    b.zero_grad()\n    other(model(x.cuda())).sum().backward()\n    a.step()\n    b.step()\n",
    "streams": "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    a = torch.empty(1 << 22, device='cuda')\n"
    "model(x.cuda())\na.record_stream(torch.cuda.current_stream())\ndel a\ntorch.cuda.synchronize()\nmodel(x.cuda())\n",
    "caught_out_of_memory": "try:\n    torch.empty(1 << 40, device='cuda')\nexcept torch.OutOfMemoryError:\n    pass\nmodel(x.cuda())\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_view_of_a_whole_program_adds_up(name: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + PROGRAMS[name])
    estimate = analyzer.run(script, device="h200")
    adds_up(estimate)
    assert csv_report.render(estimate).count("\n") == len(estimate.timeline.delta) + 1
    assert any("train.py:" in source for source in estimate.by_line)


def test_an_estimate_without_allocations_has_no_rows() -> None:
    empty: Estimate = replace(TRAINING, tensors=(), peak_allocated=0)
    assert attribution.rows(empty, "module") == [] and folded.render(empty) == ""


def test_a_tensor_in_a_larger_chunk_says_its_own_bytes() -> None:
    """64 x 256 x 56 x 56 float32 are 196 MiB; the arena gave it a chunk of 279.2."""
    tensor = replace(ROWS[0], shape=(64, 256, 56, 56), dtype="float32", nbytes=292_760_832)
    chunk = replace(tensor, rule="ort-kernel-output")
    assert attribution.shape_and_type(chunk) == "64x256x56x56 float32, 196.0 MiB"
    assert attribution.shape_and_type(replace(chunk, nbytes=196 << 20)) == "64x256x56x56 float32"
    assert attribution.shape_and_type(tensor) == "64x256x56x56 float32", "PyTorch's blocks are the request's"
    assert attribution.shape_and_type(replace(chunk, shape=(), dtype="")) == "-"
    long = replace(chunk, shape=(1234, 1234, 1234, 1234), nbytes=1 << 50)
    assert len(attribution.shape_and_type(long, 34)) <= 34 and "TiB" in attribution.shape_and_type(long, 34)
