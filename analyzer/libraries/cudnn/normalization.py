"""What cuDNN's batch norm takes: the workspace of its persistent mode, the only mode that takes one.

PyTorch chooses that mode in training for channels-last input. For each block of rows it keeps 8 bytes a
channel (and in the forward pass a flag for every 16), and 1 KiB of control data; channels count in multiples
of 64. Nothing is kept for the backward pass without an activation fused in.

Measured: 46 workspaces of ResNet-50 and 16 of other shapes (H200, cuDNN 9.19), each right to the byte. In
double precision it takes none (H100, cuDNN 9.19: the programs `cnn_9002`, `cnn_9024` and `cnn_9076` of
`tests/data/h100/written_programs_4.json.gz`).
"""

from __future__ import annotations

from typing import Any

from analyzer.libraries.cudnn.convolution import up

_CHANNELS = 64
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
    channels = up(channel_count, _CHANNELS)
    flags = channels // 16
    if backward:
        return 8 * channels * -(-rows // _ROWS_BACKWARD) + flags + 1056
    block = _ROWS_FORWARD[2 if element_bytes == 2 else 4]
    return (8 * channels + flags) * -(-rows // block) + flags + 1072
