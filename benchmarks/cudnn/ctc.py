"""On a GPU: what cuDNN says its CTC loss takes. `python -m benchmarks cudnn ctc ROWS.json`, read by `libraries/cudnn/ctc.py`'s test.

Rows: steps, batch, alphabet, length of the targets, algorithm, bytes by the older call and by the newer one (-1: refused).
"""

import ctypes
import itertools
import json
from pathlib import Path
from typing import Any

import click
import torch


@click.command("ctc")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Ask, and write the rows."""
    library = ctypes.CDLL(str(Path(torch.__file__).parents[1] / "nvidia/cudnn/lib/libcudnn.so.9"))
    handle, scores, loss, size = (ctypes.c_void_p() for _ in range(4))
    torch.zeros(1, device="cuda")
    library.cudnnCreate(ctypes.byref(handle))
    library.cudnnCreateTensorDescriptor(ctypes.byref(scores))
    library.cudnnCreateCTCLossDescriptor(ctypes.byref(loss))

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
        three = ctypes.c_int * 3
        library.cudnnSetTensorNdDescriptor(scores, 0, 3, three(t, n, a), three(n * a, a, 1))
        library.cudnnSetCTCLossDescriptorEx(loss, 0, 1, 1)
        targets = (ctypes.c_int * (n * length))(*[1] * (n * length))
        of = targets, (ctypes.c_int * n)(*[length] * n), (ctypes.c_int * n)(*[t] * n), algorithm, loss
        older = told(library.cudnnGetCTCLossWorkspaceSize, scores, scores, *of)
        library.cudnnSetCTCLossDescriptor_v9(loss, 0, 1, 0, length)
        newer = told(library.cudnnGetCTCLossWorkspaceSize_v8, algorithm, loss, scores, scores)
        rows.append([t, n, a, length, algorithm, older, newer])
    about = [torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version()]
    out.write_text(json.dumps({"about": about, "rows": rows}))
