"""The workspace of cuDNN's CTC loss (connectionist temporal classification), by the older call, which is told
every target, and the newer one.

For every sample: the scores of each step and both tables over the targets with blanks between them (float32,
so 8 bytes a step and place), and a few integers for every label. The algorithm makes no difference.

Measured: 810 calls of each, every one right to the byte (`tests/data/h200/ctc.json.gz`, by
`benchmarks/cudnn/formulas.py`: H200, cuDNN 9.19), with targets of one length. Where lengths differ the
longest is taken.
"""

from __future__ import annotations

_FLOAT = 4


def workspace_bytes(steps: int, batch: int, labels: int, longest: int, *, newer: bool) -> int:
    """labels: of the alphabet, with the blank. longest: of the targets.

    >>> workspace_bytes(50, 8, 29, 20, newer=True), workspace_bytes(50, 8, 29, 20, newer=False)
    (178976, 179680)
    """
    tables = _FLOAT * steps * labels + 2 * _FLOAT * steps * (2 * longest + 1)
    integers = 8 * longest + 12 if newer else 12 * longest + 20
    return batch * (tables + integers)
