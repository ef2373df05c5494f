"""Kernels whose memory their histories tell: results, copies of what is not contiguous, and temporaries as
large as one of their tensors.

`sequences.json` has the steps of each by the release of torch that was asked, written by `python -m
benchmarks operators rules` from what PyTorch's own host code asked for on the emulated runtime, in three
types, with every argument strided, channels-last, and each strided alone. A step is one of

    o         the next result
    #2        the third result, before its turn
    x?        a copy of argument x, where it is not contiguous
    x         as many bytes as tensor x
    x:4       as many elements of 4 bytes
    x[0]:4    of one dimension's size
    x*y[1]    as many elements of x's type
    =512      so many bytes
    -2        the third of the temporaries is given back
    cublas    cuBLAS's workspace

where x is an argument by its name, or o0, o1 for a result. A temporary that is not given back lives until the
kernel is done.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.blas import take_workspace
from analyzer.runtimes.pytorch.scratch.layout import contiguous_copy_bytes
from analyzer.runtimes.pytorch.scratch.script import Script, rule

PATH = Path(__file__).with_suffix(".json")
# Rules that had names of their own keep them: the kernels of each.
_NAMES = {
    "contiguous-only": """
        _adaptive_avg_pool3d_backward _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward
        _upsample_nearest_exact1d _upsample_nearest_exact1d_backward adaptive_max_pool3d_backward avg_pool3d
        avg_pool3d_backward cummax cummin reflection_pad1d reflection_pad1d_backward reflection_pad2d
        reflection_pad2d_backward upsample_bicubic2d_backward upsample_linear1d_backward upsample_nearest1d
        upsample_nearest1d_backward upsample_nearest3d_backward upsample_trilinear3d_backward
    """,
    "copied-first": "kthvalue median.dim nanmedian.dim fractional_max_pool2d_backward",
    "ctc-loss": "_ctc_loss",
    "dropout": "native_dropout",
    "embedding-bag": "_embedding_bag _embedding_bag_forward_only",
    "glu-backward-jvp": "glu_backward_jvp",
    "im2col": "im2col",
    "layer-norm": "native_layer_norm _fused_rms_norm",
    "log-softmax-grad": "_log_softmax_backward_data",
    "nll-loss": "nll_loss_forward nll_loss_backward",
    "recurrent-cell": "_thnn_fused_lstm_cell _thnn_fused_gru_cell",
    "resize-volume": "upsample_nearest3d _upsample_nearest_exact3d",
    "softmax-transposed": "_softmax _log_softmax",
    "unpooling": "max_unpool2d max_unpool3d",
}


@cache
def table() -> dict[str, str]:
    """Return the steps of every kernel ("aten::mode"), of the newest recorded release."""
    sequences: dict[str, str] = {}
    for release in json.loads(PATH.read_text("utf-8")).values():
        sequences |= release
    return sequences


def _named(call: Operator, name: str) -> TensorMeta | None:
    """Return a tensor of the call by its name in a step."""
    if name[0] == "o" and name[1:].isdigit():
        return call.outputs[int(name[1:])]
    return call.tensor(name)


def _bytes(call: Operator, size: str) -> int:
    """Return the bytes of a step's size; 0 where a tensor it speaks of is not there."""
    head, _, width = size.partition(":")
    count, own = 1, 0
    for part in head.split("*"):
        name, _, dim = part.rstrip("]").partition("[")
        tensor = _named(call, name)
        if tensor is None:
            return 0
        count *= tensor.shape[int(dim)] if dim else math.prod(tensor.shape)
        own = own or dtype_bytes(tensor.dtype)
    return count * (int(width) if width else own)


def recorded_sequence(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The steps that all histories of the kernel have in common, by PyTorch's own host code without a GPU.

    Source: `analyzer/runtimes/pytorch/scratch/sequences.json`, from torch 2.11 on the emulated runtime.
    """
    tokens: list[int] = []
    left = list(range(len(operator.outputs)))
    kernels = table()
    for step in kernels.get(operator.name, kernels.get(operator.name.partition(".")[0], "")).split():
        if step == "o" or step.startswith("#"):
            result = int(step[1:]) if step != "o" else next(iter(left), -1)
            if result in left:
                left.remove(result)
                script.output(result)
        elif step == "cublas":
            take_workspace(script, device)
            tokens.append(-1)
        elif step.startswith("-"):
            script.release(tokens[int(step[1:])])
        elif step.endswith("?"):
            tokens.append(script.temporary(contiguous_copy_bytes(_named(operator, step[:-1]))))
        else:
            size = int(step[1:]) if step.startswith("=") else _bytes(operator, step)
            tokens.append(script.temporary(size))


_OF_NAMES = {name: [f"aten::{kernel}" for kernel in kernels.split()] for name, kernels in _NAMES.items()}
_OTHERS = [kernel for kernel in table() if not any(kernel in kernels for kernels in _OF_NAMES.values())]
for _name, _kernels in {**_OF_NAMES, "recorded-sequence": _OTHERS}.items():
    rule(*_kernels, name=_name)(recorded_sequence)
