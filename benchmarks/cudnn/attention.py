"""On a GPU: what cuDNN's attention takes for a single query. `python -m benchmarks cudnn attention ROWS.json`.

Rows: batch, heads, heads of keys, keys, size of a head, whether there is a mask, what PyTorch allocated during the call in its
order, and an error; `libraries/cudnn/attention.py` is held to them. Shapes come in a random order, for ten minutes at most.
"""

import itertools
import json
import random
import time
from pathlib import Path

import click
import torch
from torch.nn import functional


@click.command("attention")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Ask, and write the rows."""
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
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.memory._record_memory_history(context=None)
        error = ""
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            try:
                functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=g != h)
            except RuntimeError as refused:
                error = str(refused)[:60]
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        rows.append(
            [b, h, g, t, d, masked, [event["size"] for event in trace if event["action"] == "alloc"], error]
        )
        del q, k, v, mask
    out.write_text(json.dumps(rows))
