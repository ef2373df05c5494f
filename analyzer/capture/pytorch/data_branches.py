"""Branches on data inside widely used libraries, and the way the analysis takes.

A branch on values that only a real run has is an error (`recorder.py`), because the two ways may need different
memory. These few are different: they sit in library code the user cannot change, and one way is plainly the one to
plan for. The assumption is noted in the estimate.

1. transformers warns when the padding token is among the inputs and no attention mask is given
   (`warn_if_padding_and_no_attention_mask`): the warning is not taken.
2. transformers skips an attention mask that masks nothing (`masking_utils.py`): a mask that is passed in is taken to
   mask something, which needs more memory.
3. `nn.TransformerEncoder` packs a batch whose padding is all at the end into a nested tensor: the batch is taken to
   stay padded, which needs more memory. It also asks whether a mask is the causal one, which runs other kernels: the
   mask is taken for an arbitrary one.
4. `torch.distributions` checks its arguments: a healthy run's are valid.
5. L-BFGS stops where the loss no longer changes: in a run that learns it falls.
"""

from __future__ import annotations

import sys
from types import FrameType

# (end of the file's path, function or "" for any) -> (value, what is assumed).
BRANCHES: dict[tuple[str, str], tuple[bool, str]] = {
    ("transformers/modeling_utils.py", "warn_if_padding_and_no_attention_mask"): (
        False,
        "no padding token is assumed among the inputs",
    ),
    ("transformers/masking_utils.py", ""): (
        False,
        "attention masks passed in are assumed to mask something",
    ),
    ("torch/nn/modules/transformer.py", "_detect_is_causal_mask"): (
        False,
        "attention masks passed to nn.Transformer are assumed not to be causal",
    ),
    ("torch/distributions/distribution.py", ""): (
        True,
        "the arguments of distributions are assumed to be valid",
    ),
    ("torch/nn/modules/transformer.py", ""): (
        False,
        "padded batches of nn.TransformerEncoder are assumed to stay padded",
    ),
}


def assumed(depth: int = 1) -> tuple[bool, str] | None:
    """The value assumed for a flag asked for by the code that is running, and the note; None where there is none."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        path = frame.f_code.co_filename.replace("\\", "/")
        for (ending, function), answer in BRANCHES.items():
            if path.endswith(ending) and function in ("", frame.f_code.co_name):
                return answer
        frame = frame.f_back
    return None


def falls() -> bool:
    """Whether the code that asks for a number watches it fall, and stops where it does not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith("torch/optim/lbfgs.py"):
            return True
        frame = frame.f_back
    return False
