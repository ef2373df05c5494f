"""On a GPU: what cuDNN says its batch norm takes of channels-last tensors in training. `python -m benchmarks cudnn normalization ROWS.json.gz`, read
by `libraries/cudnn/normalization.py`'s test.

Rows: type, batch, channels, then the spatial sizes, bytes forward, backward, and kept between (-1: refused).
"""

import ctypes
import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from analyzer.libraries.cudnn.convolution import strides_of

_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
_PERSISTENT, _NORM_ALONE = 2, 0
_CHANNELS = (
    *range(1, 81),
    *range(88, 137, 8),
    100,
    127,
    129,
    192,
    200,
    255,
    256,
    320,
    500,
    512,
    1000,
    1024,
    2048,
)
_PLACES = (
    (1, 1, 1), (2, 1, 1), (1, 10, 10), (7, 3, 5), (1, 84, 115), (3, 84, 115), (5, 84, 115), (64, 7, 7), (32, 56, 56),
    (256, 112, 112), (1, 1, 2741), (2, 5, 9, 13), (4, 32, 32, 32),
)  # fmt: skip


def _integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


@click.command("normalization")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Ask, and write the rows."""
    library = ctypes.CDLL(str(Path(torch.__file__).parents[1] / "nvidia/cudnn/lib/libcudnn.so.9"))
    handle, x, parameters, size = (ctypes.c_void_p() for _ in range(4))
    torch.zeros(1, device="cuda")
    library.cudnnCreate(ctypes.byref(handle))
    library.cudnnCreateTensorDescriptor(ctypes.byref(x))
    library.cudnnCreateTensorDescriptor(ctypes.byref(parameters))

    def asked(name: str, *arguments: Any) -> int:
        size.value = 0
        refused = getattr(library, name)(handle, _PERSISTENT, _NORM_ALONE, *arguments, ctypes.byref(size))
        return -1 if refused else size.value or 0

    rows = []
    for (dtype, code), channels, (batch, *spatial) in itertools.product(_TYPES.items(), _CHANNELS, _PLACES):
        shape = (batch, channels, *spatial)
        library.cudnnSetTensorNdDescriptor(
            x, code, len(shape), _integers(shape), _integers(strides_of(shape, channels_last=True))
        )
        library.cudnnDeriveBNTensorDescriptor(parameters, x, _PERSISTENT)
        forward = asked(
            "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", x, None, x, parameters, None
        )
        backward = asked(
            "cudnnGetBatchNormalizationBackwardExWorkspaceSize", x, x, x, None, x, parameters, None
        )
        kept = asked("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", None, x)
        rows.append([dtype, *shape, forward, backward, kept])
    about = [torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version()]
    out.write_bytes(gzip.compress(json.dumps({"about": about, "rows": rows}).encode(), mtime=0))
