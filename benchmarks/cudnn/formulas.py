"""On a GPU: what `analyzer/libraries/cudnn/attention.py` and `ctc.py` are held to. `python -m benchmarks cudnn attention | ctc ROWS.json`.

attention: cuDNN's for a single query. Rows: batch, heads, heads of keys, keys, size of a head, whether there is a mask, what PyTorch allocated
during the call in its order, and an error. Shapes come in a random order, for ten minutes at most.

ctc: what cuDNN says its CTC loss takes. Rows: steps, batch, alphabet, length of the targets, algorithm, bytes by the older call and by the newer
one (-1: refused).
"""

import ctypes
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import click
import torch
from torch.nn import functional

from benchmarks.libraries.measure import Recorded, library


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
    handle, scores, loss, size = (ctypes.c_void_p() for _ in range(4))
    torch.zeros(1, device="cuda")
    cudnn = library("libcudnn.so.9")
    cudnn.cudnnCreate(ctypes.byref(handle))
    cudnn.cudnnCreateTensorDescriptor(ctypes.byref(scores))
    cudnn.cudnnCreateCTCLossDescriptor(ctypes.byref(loss))

    def told(ask: Any, *arguments: Any) -> int:
        size.value = 0
        refused = ask(handle, *arguments, ctypes.byref(size))
        return -1 if refused else size.value or 0

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
    about = [torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version()]
    out.write_text(json.dumps({"about": about, "rows": rows}))
