"""A message's size among the requests of an estimate."""

from __future__ import annotations

from dataclasses import replace

import analyzer
from analyzer.devices import load, names
from analyzer.recordings.messages import understood
from analyzer.recordings.requests import answered
from analyzer.recordings.sizes import size
from analyzer.report.formats import render
from analyzer.results.recording import Message
from tests.paths import MODELS


def message(text: str) -> Message:
    known = understood(text)
    assert known is not None
    return known


def out_of(size: str) -> Message:
    return message(f"CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of 23.64 GiB")


def test_a_size_of_pytorch_is_that_of_the_segment() -> None:
    """32 x 8 x 222 x 222 float32 are 50,466,816 bytes, for which the allocator asks for 50 MiB."""
    estimate = analyzer.analyze(MODELS / "cnn.py", batch=32, mode="train", device="h200")
    at = replace(out_of("50.00 MiB"), place="cnn.py:22, in forward: x = self.conv(x)")
    result = answered(at, estimate)
    first, *others = result.requests
    assert first.origin.shape == (32, 8, 222, 222) and first.origin.source.endswith("cnn.py:22")
    assert first.likely and first.nbytes == 50_466_816 and not any(other.likely for other in others)
    assert any(other.origin.name.startswith("aten::avg_pool2d_backward") for other in others)
    assert not any(line.startswith("which tensor") for line in result.unknown)
    shown = render("message", "text", result)
    assert "convolution conv cnn.py:22" in str(shown) and "the first is at the line that failed" in str(shown)
    assert "32x8x222x222 float32" in str(render("message", "html", result))


def test_a_size_that_no_request_has() -> None:
    estimate = analyzer.analyze(MODELS / "cnn.py", batch=8, mode="train", device="h200")
    result = answered(out_of("50.00 MiB"), estimate)
    assert not result.requests and "its batch, sequence length or options" in result.unknown[0]
    shared = answered(out_of("20.00 MiB"), estimate)
    assert not shared.requests and "any tensor of 1 to 10 MiB" in shared.unknown[0]


def test_a_node_of_an_onnx_file() -> None:
    """64 x 256 x 56 x 56 float32, at the node of the message and at others."""
    estimate = analyzer.analyze(MODELS / "resnet50.onnx", batch=64, device="h200")
    text = (
        "[E:onnxruntime:, sequential_executor.cc:572 ExecuteKernel] Non-zero status code returned while running"
        " Add node. Name:'node_add_95' Status Message: bfc_arena.cc:376 Failed to allocate memory for requested"
        " buffer of size 205520896"
    )
    first, *others = answered(message(text), estimate).requests
    assert first.origin.module == "node_add_95" and first.likely and first.origin.shape == (64, 256, 56, 56)
    assert others and not any(other.likely for other in others)


def test_what_the_target_takes_is_said_with_a_card_that_has_so_much() -> None:
    estimate = analyzer.analyze(MODELS / "gpt2.py", mode="train", batch=32, device="24GiB")
    assert estimate.out_of_memory is not None, "the figures are those with room"
    result = answered(out_of("50.00 MiB"), estimate)
    needed, room = size(estimate.needed.device_used), estimate.needed.device_used
    assert f"gpt2.py needs {needed} of a GPU, and the message's GPU has 23.64 GiB; " in result.need
    named = result.need.rpartition(" ")[2]
    assert load(named).usable_bytes >= room
    assert not any(room <= load(name).usable_bytes < load(named).usable_bytes for name in names())
    assert result.need in " ".join(str(render("message", "text", result)).split())
    assert result.need.partition(",")[0] in str(render("message", "html", result))
    huge = replace(estimate, device_used=1 << 45, with_room=None)
    assert answered(out_of("50.00 MiB"), huge).need.endswith("no known GPU has so much")


def test_layers_are_one_row() -> None:
    """GPT-2's twelve layers ask for the same in each of three passes: 8 x 1,024 x 768 float32, 24 MiB."""
    estimate = analyzer.analyze(MODELS / "gpt2.py", batch=8, device="h200")
    requests = answered(out_of("24.00 MiB"), estimate).requests
    assert requests and all(request.nbytes == 8 * 1024 * 768 * 4 for request in requests)
    modules = [request.origin.module for request in requests]
    assert "h.*.mlp.c_proj" in " ".join(modules) and not any(".0." in module for module in modules)
    assert sum(request.count for request in requests if request.origin.module.endswith("mlp.c_proj")) == 36
