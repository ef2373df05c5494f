"""The shapes of the convolutions of known networks: one forward pass each on meta tensors, all else cut short.

Run: `python -m benchmarks cudnn shapes torchvision|timm|monai|diffusers|transformers|handwritten SHAPES.jsonl` with
that package installed; no weights are loaded and no GPU is needed. Each line is one network at one input size and a batch of
two: `{"name", "convolutions": [{"x", "w", "y", "stride", "padding", "dilation", "transposed", "channels_last"}], "error"?}`.
Names that the file has without an error are not traced again.

Rules: convolutions give a tensor of the right shape and are noted down; normalizations, activations and dropout give back
what they were given; linear layers and attention give the right shape. A network that needs values (its control flow
asks for them) fails and is left out, with its error in the file.

Many networks run their convolutions channels-last without asking for it: what a layer normalization over channels gives is
contiguous the other way round. So convolutions give their input's layout (`cudnn_conv_suggest_memory_format`, `ConvUtils.h`),
and layer normalizations a contiguous tensor.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import click
import torch
import torch.nn.functional as F
from torch import nn
from torch._prims_common import suggest_memory_format

from benchmarks.cudnn.networks import NETWORKS, Network

_CHANNELS_LAST = (torch.channels_last, torch.channels_last_3d)
_SAME = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "local_response_norm",
    "normalize",
    "relu",
    "relu_",
    "relu6",
    "gelu",
    "silu",
    "mish",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "prelu",
    "softplus",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "dropout",
    "dropout2d",
]
_SAME_MODULES = (
    nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.ELU, nn.PReLU, nn.LeakyReLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh,
    nn.Softmax, nn.Dropout, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)  # fmt: skip


class TooLong(Exception):
    """A network took longer than it may."""


class Recorder:
    """The convolutions called while it is in place (`patched`), each once."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def convolution(
        self, x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:  # fmt: skip
        """`F.conv1d` and so on."""
        n = w.dim() - 2
        if x.dim() == n + 1:
            return self.convolution(x.unsqueeze(0), w, bias, stride, padding, dilation, groups).squeeze(0)
        strides, dilations = _each(stride, n), _each(dilation, n)
        sizes = list(x.shape)
        if padding == "same":
            total = [step * (kernel - 1) for step, kernel in zip(dilations, w.shape[2:], strict=True)]
            pads = tuple(each // 2 for each in total)
            # What "same" needs more on one side PyTorch adds to the input first.
            sizes[2:] = [size + each % 2 for size, each in zip(sizes[2:], total, strict=True)]
        else:
            pads = _each(0 if padding == "valid" else padding, n)
        terms = zip(sizes[2:], pads, dilations, w.shape[2:], strides, strict=True)
        y = [sizes[0], w.shape[0], *((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in terms)]
        if min(y) < 0 or sizes[1] != w.shape[1] * groups:
            raise ValueError(f"no convolution of {sizes} with {tuple(w.shape)}")
        return self._note(x, sizes, w, y, strides, pads, dilations, transposed=False)

    def transposed(
        self, x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        """`F.conv_transpose1d` and so on."""
        n = w.dim() - 2
        if x.dim() == n + 1:
            one = self.transposed(x.unsqueeze(0), w, bias, stride, padding, output_padding, groups, dilation)
            return one.squeeze(0)
        strides, pads, more, dilations = (
            _each(each, n) for each in (stride, padding, output_padding, dilation)
        )
        terms = zip(x.shape[2:], pads, dilations, w.shape[2:], strides, more, strict=True)
        y = [
            x.shape[0],
            w.shape[1] * groups,
            *((s - 1) * t - 2 * p + d * (k - 1) + o + 1 for s, p, d, k, t, o in terms),
        ]
        return self._note(x, list(x.shape), w, y, strides, pads, dilations, transposed=True)

    def _note(
        self, like: Any, x: list[int], w: Any, y: list[int], stride: Any, padding: Any, dilation: Any, transposed: bool
    ) -> Any:  # fmt: skip
        row = {"x": x, "w": list(w.shape), "y": y, "stride": list(stride), "padding": list(padding)}
        last = any(suggest_memory_format(each) in _CHANNELS_LAST for each in (like, w))
        row |= {"dilation": list(dilation), "transposed": transposed, "channels_last": last}
        self.found[json.dumps(row)] = row
        layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(y)) if last else None
        return torch.empty(
            y, device="meta", dtype=like.dtype, memory_format=layout or torch.contiguous_format
        )

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Stand in for PyTorch's functions."""

        def same(x: Any, *_: Any, **__: Any) -> Any:
            return x

        def unchanged(_: nn.Module, x: Any, *__: Any, **___: Any) -> Any:
            return x

        def packed(x: Any, *_: Any, **__: Any) -> Any:
            return x.contiguous()

        def packed_by(_: nn.Module, x: Any, *__: Any, **___: Any) -> Any:
            return x.contiguous()

        def linear(x: Any, weight: Any, *_: Any, **__: Any) -> Any:
            return torch.empty((*x.shape[:-1], weight.shape[0]), device="meta", dtype=x.dtype)

        def attention(q: Any, _: Any, v: Any, *__: Any, **___: Any) -> Any:
            return torch.empty((*q.shape[:-1], v.shape[-1]), device="meta", dtype=q.dtype)

        with ExitStack() as stack:

            def put(owner: Any, name: str, value: Any) -> None:
                stack.enter_context(mock.patch.object(owner, name, value))

            for n in (1, 2, 3):
                for owner in (F, torch):
                    put(owner, f"conv{n}d", self.convolution)
                    put(owner, f"conv_transpose{n}d", self.transposed)
            for name in _SAME:
                put(F, name, same)
            for name in vars(nn.init):
                if name.endswith("_") and not name.startswith("_"):
                    put(nn.init, name, same)
            for module in _SAME_MODULES:
                put(module, "forward", unchanged)
            for name in ("layer_norm", "rms_norm"):
                put(F, name, packed)
            for module in (nn.LayerNorm, nn.RMSNorm):
                put(module, "forward", packed_by)
            put(F, "linear", linear)
            put(F, "scaled_dot_product_attention", attention)
            yield


def _each(value: Any, count: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * count


def trace(network: Network) -> dict[str, Any]:
    """One line of the file."""
    recorder = Recorder()
    row: dict[str, Any] = {"name": network.name}
    signal.alarm(network.seconds)
    try:
        with recorder.patched(), torch.no_grad(), torch.device("meta"):
            model, given = _model_on_meta(network.make), network.inputs()
            model(**given) if isinstance(given, dict) else model(*given)
    except Exception as error:  # a network of any package may fail in any way; the file says which and why
        row["error"] = repr(error)[:300]
    finally:
        signal.alarm(0)
    row["convolutions"] = list(recorder.found.values())
    return row


def _model_on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """The model on meta tensors, made on the CPU where its constructor reads values."""
    try:
        model = make()
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in repr(error):
            raise
        with torch.device("cpu"):
            model = make()
        model = model.to("meta")
    # Some networks have convolutions in training mode only.
    return model if model.__class__.__name__ in ("GoogLeNet", "Inception3") else model.eval()


def _too_long(*_: Any) -> None:
    raise TooLong


@click.command("shapes")
@click.argument("package", type=click.Choice(list(NETWORKS)))
@click.argument("output", type=Path)
@click.option("--only", default="", help="names that contain this")
def main(package: str, output: Path, only: str) -> None:
    """Trace a package's networks, and add their convolutions to the file."""
    signal.signal(signal.SIGALRM, _too_long)
    done = set[str]()
    if output.exists():
        lines = output.read_text(encoding="utf-8").splitlines()
        done = {row["name"] for row in map(json.loads, lines) if "error" not in row}
    with output.open("a", encoding="utf-8") as file:
        for network in NETWORKS[package]():
            if network.name not in done and only in network.name:
                file.write(json.dumps(trace(network)) + "\n")
