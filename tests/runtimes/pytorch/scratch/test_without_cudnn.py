"""Convolutions with cuDNN switched off, call by call as PyTorch's own host code asks (`python -m benchmarks operators without_cudnn`
of commit cf817472)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.graph import Operator, TensorMeta
from analyzer.libraries.cudnn.convolution import strides_of
from analyzer.runtimes.pytorch.scratch import Give, Output, Take, kernel_allocations
from analyzer.runtimes.pytorch.scratch.layout import bytes_of
from tests.paths import DATA
from tests.schemas import called

ROWS = json.loads((DATA / "emulation/without_cudnn.json").read_text())
H100 = load("h100")


def tensor(shape: tuple[int, ...], dtype: str, *, channels_last: bool = False) -> TensorMeta:
    return TensorMeta(0, shape, strides_of(shape, channels_last), dtype)


def results(row: dict[str, Any]) -> tuple[TensorMeta, TensorMeta, TensorMeta, TensorMeta, dict[str, Any]]:
    """Input, weight, bias and result, and how the windows move."""
    dtype, rank, groups = row.get("dtype", "float32"), len(row["x"]) - 2, row.get("groups", 1)
    x = tensor(tuple(row["x"]), dtype, channels_last=row.get("channels_last", False))
    weight = tensor(tuple(row["w"]), dtype)
    moves = {
        name: (row.get(name, first),) * rank
        for name, first in (("stride", 1), ("padding", 0), ("dilation", 1))
    }
    channels, spatial = weight.shape[0], []
    for size, kernel, stride, pad, dilation in zip(
        x.shape[2:], weight.shape[2:], *moves.values(), strict=True
    ):
        window = dilation * (kernel - 1) + 1
        spatial.append(
            (size - 1) * stride - 2 * pad + window
            if row.get("transposed")
            else (size + 2 * pad - window) // stride + 1
        )
    if row.get("transposed"):
        channels = weight.shape[1] * groups
    return x, weight, tensor((channels,), dtype), tensor((x.shape[0], channels, *spatial), dtype), moves


def sizes(operator: Operator) -> list[int]:
    """Requests and returns; workspaces that a thread keeps are left out."""
    found, taken = [], {}
    for step in kernel_allocations(replace(operator, settings=frozenset({"no_cudnn"})), H100).steps:
        if isinstance(step, Output) and (result := operator.outputs[step.index]) is not None:
            found.append(bytes_of(result))
        elif isinstance(step, Take) and not step.workspace:
            taken[step.token] = step.nbytes
            found.append(step.nbytes)
        elif isinstance(step, Give):
            found.append(-taken[step.token])
    return found


@pytest.mark.parametrize(
    "row",
    ROWS,
    ids=lambda row: " ".join(f"{k}={v}" for k, v in row.items() if k not in ("forward", "backward")),
)
def test_a_call_asks_for_what_the_binary_asks_for(row: dict[str, Any]) -> None:
    x, weight, bias, y, moves = results(row)
    options = (
        *moves.values(),
        row.get("transposed", False),
        (0,) * len(moves["stride"]),
        row.get("groups", 1),
    )
    grad = replace(y, stride=(0, *y.stride[1:])) if row.get("expanded") else y
    wanted = tuple(name in row["wanted"] for name in "xwb")
    forward = called(0, "aten::convolution", (x, weight, bias if wanted[2] else None, *options), (y,))
    gradients = tuple(
        part if want else None
        for part, want in zip((tensor(x.shape, x.dtype), weight, bias), wanted, strict=True)
    )
    backward = called(
        0, "aten::convolution_backward", (grad, x, weight, bias.shape, *options, wanted), gradients
    )
    kept = H100.cublas_workspace_bytes
    for call, seen in ((forward, row["forward"]), (backward, row["backward"])):
        assert sizes(call) == [nbytes for nbytes in seen if nbytes != kept], call.name


PLANE, VOLUME = tensor((2, 12, 36, 25), "float32"), tensor((2, 12, 9, 10, 11), "float32")
TURNED = replace(tensor((2, 12, 25, 36), "float32"), stride=(12 * 900, 900, 1, 25))
BIAS = tensor((8,), "float32")


def square(*shape: int) -> TensorMeta:
    return tensor(shape, "float32")


@pytest.mark.parametrize(
    ("name", "source", "weight", "result", "moves", "expected"),
    [
        ("_slow_conv2d_forward", PLANE, square(8, 12, 3, 3), square(2, 8, 34, 23), ((1, 1), (0, 0)), [50048, 337824, -337824]),
        ("_slow_conv2d_forward", PLANE, square(8, 12, 1, 1), square(2, 8, 36, 25), ((1, 1), (0, 0)), [57600]),
        ("_slow_conv2d_forward", TURNED, square(8, 12, 3, 3), square(2, 8, 13, 18), ((2, 2), (1, 1)), [86400, 14976, 101088, -101088, -86400]),
        ("slow_conv_dilated2d", PLANE, square(8, 12, 3, 3), square(2, 8, 32, 21), ((1, 1), (0, 0), (2, 2)), [43008, 290304, -290304]),
        ("slow_conv_dilated3d", VOLUME, square(8, 12, 3, 3, 3), square(2, 8, 5, 6, 7), ((1,) * 3, (0,) * 3, (2,) * 3), [13440, 272160, -272160]),
        ("slow_conv_transpose2d", PLANE, square(12, 8, 3, 3), square(2, 8, 73, 51), ((2, 2), (0, 0), (0, 0), (1, 1)), [238272, 259200, 14892, -14892, -259200]),
        ("slow_conv_transpose3d", VOLUME, square(12, 8, 3, 3, 3), square(2, 8, 11, 12, 13), ((1,) * 3, (0,) * 3, (0,) * 3, (1,) * 3), [95040, 109824, -95040, 855360, 6864, -6864, -855360]),
    ],
)  # fmt: skip
def test_called_by_their_own_names(
    name: str,
    source: TensorMeta,
    weight: TensorMeta,
    result: TensorMeta,
    moves: tuple[tuple[int, ...], ...],
    expected: list[int],
) -> None:
    """As torch 2.11's own host code asks, emulated as an H100."""
    call = (source, weight, weight.shape[2:], BIAS, *moves)
    found = sizes(called(0, f"aten::{name}", call, (result,)))
    assert [size for size in found if size] == expected
