"""On a GPU: what cuDNN says its CTC loss takes. `python -m benchmarks cudnn ctc ROWS.json`, read by `libraries/cudnn/ctc.py`'s test.

Rows: steps, batch, alphabet, length of the targets, algorithm, bytes by the older call and by the newer one (-1: refused).
"""

import ctypes
import itertools
import json
from pathlib import Path

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
    rows = []
    grid = (
        (1, 2, 7, 16, 50, 100, 300),
        (1, 2, 3, 8, 33, 64),
        (2, 5, 29, 128, 1000),
        (1, 2, 5, 20, 50, 100, 255),
        (0, 1),
    )
    for t, n, a, length, algorithm in itertools.product(*grid):
        if length > t:
            continue
        library.cudnnSetTensorNdDescriptor(
            scores, 0, 3, (ctypes.c_int * 3)(t, n, a), (ctypes.c_int * 3)(n * a, a, 1)
        )
        library.cudnnSetCTCLossDescriptorEx(loss, 0, 1, 1)
        targets = (ctypes.c_int * (n * length))(*[1] * (n * length))
        of = targets, (ctypes.c_int * n)(*[length] * n), (ctypes.c_int * n)(*[t] * n), algorithm, loss
        told = []
        size.value = 0
        bad = library.cudnnGetCTCLossWorkspaceSize(handle, scores, scores, *of, ctypes.byref(size))
        told.append(-1 if bad else size.value or 0)
        library.cudnnSetCTCLossDescriptor_v9(loss, 0, 1, 0, length)
        size.value = 0
        bad = library.cudnnGetCTCLossWorkspaceSize_v8(
            handle, algorithm, loss, scores, scores, ctypes.byref(size)
        )
        told.append(-1 if bad else size.value or 0)
        rows.append([t, n, a, length, algorithm, *told])
    about = [torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version()]
    out.write_text(json.dumps({"about": about, "rows": rows}))
