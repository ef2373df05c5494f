"""On a GPU: what `analyzer/libraries/cudnn/attention.py`, `ctc.py` and `normalization.py` are held to. `python -m benchmarks cudnn attention | ctc ROWS.json`,
`... normalization ROWS.json.gz`.

attention: cuDNN's for a single query. Rows: batch, heads, heads of keys, keys, size of a head, whether there is a mask, what PyTorch allocated
during the call in its order, and an error. Shapes come in a random order, for ten minutes at most.

ctc: what cuDNN says its CTC loss takes. Rows: steps, batch, alphabet, length of the targets, algorithm, bytes by the older call and by the newer
one (-1: refused).

normalization: what cuDNN says its batch norm takes of channels-last tensors in training. Rows: type, batch, channels, then the spatial sizes,
bytes forward, backward, and kept between (-1: refused).
"""

import ctypes
import gzip
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch.nn import functional

from analyzer.libraries.cudnn.backend import DTYPES
from analyzer.libraries.cudnn.convolution import strides_of

_PERSISTENT, _NORM_ALONE = 2, 0
_WIDE = (100, 127, 129, 192, 200, 255, 256, 320, 500, 512, 1000, 1024, 2048)
_CHANNELS = (*range(1, 81), *range(88, 137, 8), *_WIDE)
_PLACES = (
    (1, 1, 1), (2, 1, 1), (1, 10, 10), (7, 3, 5), (1, 84, 115), (3, 84, 115), (5, 84, 115), (64, 7, 7), (32, 56, 56),
    (256, 112, 112), (1, 1, 2741), (2, 5, 9, 13), (4, 32, 32, 32),
)  # fmt: skip


def library(name: str) -> Any:
    """The library of this name (`libcudnn.so.9`) that torch has loaded."""
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return ctypes.CDLL(next((path for path in sorted(loaded) if Path(path).name.startswith(name)), name))


class Recorded:
    """`with Recorded() as requests`: bytes taken (positive) and given back (negative) meanwhile, in order."""

    def __enter__(self) -> list[int]:
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.memory._record_memory_history(context=None)
        self._requests: list[int] = []
        return self._requests

    def __exit__(self, *_: object) -> None:
        signs = {"alloc": 1, "free_completed": -1}
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            if event["action"] in signs:
                self._requests.append(signs[event["action"]] * event["size"])


@click.command()
@click.argument("out", type=Path)
def attention(out: Path) -> None:
    """Run attention for a single query, and write what is allocated."""
    rows = []
    end = time.time() + 400
    heads = ((8, 8), (32, 8), (16, 16), (32, 32), (12, 12), (32, 1))
    keys = (64, 127, 128, 129, 256, 300, 512, 1000, 1024, 2048, 4096, 8192, 32768)
    grid = list(itertools.product((1, 2, 4, 8, 32), heads, keys, (64, 128, 80, 256), (0, 1)))
    random.Random(0).shuffle(grid)
    for b, (h, g), t, d, masked in grid:
        if time.time() > end:
            break
        if b * g * t * d > 2**30:
            continue
        q = torch.randn(b, h, 1, d, device="cuda", dtype=torch.bfloat16)
        k = v = torch.empty(b, g, t, d, device="cuda", dtype=torch.bfloat16)
        mask = torch.zeros(b, 1, 1, t, device="cuda", dtype=torch.bfloat16) if masked else None
        cudnn, error = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION), ""
        with torch.no_grad(), cudnn, Recorded() as requests:
            try:
                functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=g != h)
            except RuntimeError as refused:
                error = str(refused)[:60]
        rows.append([b, h, g, t, d, masked, [size for size in requests if size > 0], error])
        del q, k, v, mask
    out.write_text(json.dumps(rows))


@click.command()
@click.argument("out", type=Path)
def ctc(out: Path) -> None:
    """Ask what the CTC loss takes, and write the answers."""
    cudnn, told, scores, _ = _asked()
    loss = ctypes.c_void_p()
    cudnn.cudnnCreateCTCLossDescriptor(ctypes.byref(loss))
    rows = []
    steps, batches, alphabets = (1, 2, 7, 16, 50, 100, 300), (1, 2, 3, 8, 33, 64), (2, 5, 29, 128, 1000)
    lengths = (1, 2, 5, 20, 50, 100, 255)
    for t, n, a, length, algorithm in itertools.product(steps, batches, alphabets, lengths, (0, 1)):
        if length > t:
            continue
        three, many = ctypes.c_int * 3, ctypes.c_int * n
        cudnn.cudnnSetTensorNdDescriptor(scores, 0, 3, three(t, n, a), three(n * a, a, 1))
        cudnn.cudnnSetCTCLossDescriptorEx(loss, 0, 1, 1)
        targets = (ctypes.c_int * (n * length))(*[1] * (n * length))
        of = targets, many(*[length] * n), many(*[t] * n), algorithm, loss
        older = told(cudnn.cudnnGetCTCLossWorkspaceSize, scores, scores, *of)
        cudnn.cudnnSetCTCLossDescriptor_v9(loss, 0, 1, 0, length)
        newer = told(cudnn.cudnnGetCTCLossWorkspaceSize_v8, algorithm, loss, scores, scores)
        rows.append([t, n, a, length, algorithm, older, newer])
    out.write_text(_record(rows))


@click.command()
@click.argument("out", type=Path)
def normalization(out: Path) -> None:
    """Ask what batch norm takes, and write the answers."""
    cudnn, told, x, parameters = _asked()
    rows = []
    for (dtype, code), channels, (batch, *spatial) in itertools.product(DTYPES.items(), _CHANNELS, _PLACES):
        shape = (batch, channels, *spatial)
        each = ctypes.c_int * len(shape)
        cudnn.cudnnSetTensorNdDescriptor(x, code, len(shape), each(*shape), each(*strides_of(shape, True)))
        cudnn.cudnnDeriveBNTensorDescriptor(parameters, x, _PERSISTENT)
        of = _PERSISTENT, _NORM_ALONE
        forward = told(
            cudnn.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, *of, x, None, x, parameters, None
        )
        backward = told(
            cudnn.cudnnGetBatchNormalizationBackwardExWorkspaceSize, *of, x, x, x, None, x, parameters, None
        )
        kept = told(cudnn.cudnnGetBatchNormalizationTrainingExReserveSpaceSize, *of, None, x)
        rows.append([dtype, *shape, forward, backward, kept])
    out.write_bytes(gzip.compress(_record(rows).encode(), mtime=0))


def _asked() -> tuple[Any, Callable[..., int], ctypes.c_void_p, ctypes.c_void_p]:
    """The library, what asks a handle of it for a size (-1: refused), and two descriptors of tensors."""
    handle, first, second, size = (ctypes.c_void_p() for _ in range(4))
    torch.zeros(1, device="cuda")
    cudnn = library("libcudnn.so.9")
    cudnn.cudnnCreate(ctypes.byref(handle))
    for descriptor in (first, second):
        cudnn.cudnnCreateTensorDescriptor(ctypes.byref(descriptor))

    def told(ask: Any, *arguments: Any) -> int:
        size.value = 0
        refused = ask(handle, *arguments, ctypes.byref(size))
        return -1 if refused else size.value or 0

    return cudnn, told, first, second


def _record(rows: list[Any]) -> str:
    about = [torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version()]
    return json.dumps({"about": about, "rows": rows})
