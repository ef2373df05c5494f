"""The workspace of cuDNN's batch norm: that of its persistent mode, the only mode that takes one.

PyTorch chooses that mode in training for channels-last input. A thread block covers a tile of channels and a
number of rows, and keeps 8 bytes a channel (in the forward pass 4 bytes of flags besides); each tile has 4
bytes of flags, and all 1 KiB of control data. A tile is 64 channels wide where channels are a multiple of 4,
else 16; of fewer than 4 channels it is 4 wide and four times as high. In double precision nothing is taken,
and nothing is kept for the backward pass without an activation fused in.

Measured: what a handle says of 5,200 calls, both passes, each right to the byte
(`tests/data/h200/batch_norm.json.gz`, `python -m benchmarks cudnn normalization`, H200, cuDNN 9.19, 28
November 2026).
"""

from __future__ import annotations

from typing import Any

# Rows a thread block covers: forward by the width of an element in bytes, backward.
_ROWS_FORWARD = {4: 64, 2: 160}
_ROWS_BACKWARD = 96


def workspace_bytes(rows: Any, channel_count: Any, element_bytes: int, *, backward: bool) -> Any:
    """Return the workspace bytes of the persistent mode. rows: elements of a channel.

    >>> workspace_bytes(32 * 56 * 56, 64, 4, backward=False)
    810164
    """
    if element_bytes == 8:
        return 0
    width, height = (64, 1) if channel_count % 4 == 0 else (16, 1) if channel_count > 4 else (4, 4)
    tiles = -(-channel_count // width)
    block = height * (_ROWS_BACKWARD if backward else _ROWS_FORWARD[2 if element_bytes == 2 else 4])
    partial = tiles * (8 * width + (0 if backward else 4))
    return partial * -(-rows // block) + 4 * tiles + (1056 if backward else 1072)
