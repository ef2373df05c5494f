"""Branches on data inside widely used libraries, and the branch that the analysis takes.

A branch on values that only a real run has is an error (`answers.py`), because the two ways may need
different memory. These few are different: they sit in library code the user cannot change, and one way is
plainly the one to plan for. The assumption is noted in the estimate.

1. transformers warns when the padding token is among the inputs and no attention mask is given
   (`warn_if_padding_and_no_attention_mask`): the warning is not taken; nor does `generate` make a mask of
   them (`_prepare_attention_mask_for_generation`).
2. transformers skips an attention mask that masks nothing (`masking_utils.py`): a mask that is passed in is
   taken to mask something, which needs more memory.
3. `nn.TransformerEncoder` packs a batch whose padding is all at the end into a nested tensor: the batch is
   taken to stay padded, which needs more memory. It also asks whether a mask is the causal one, which runs
   other kernels: the mask is taken for an arbitrary one.
4. `torch.distributions` checks its arguments: a healthy run's are valid.
5. L-BFGS stops where the loss no longer changes: in a run that learns it falls. It remembers a step along
   which the gradient grew (`ys > 1e-10`): every step of such a run is one, until its history is full. Its
   line search takes the first step it tries.
6. torchdiffeq's adaptive solvers accept or reject a step, and go on until they are there: every step is taken
   to be accepted, one for each point in time. Their number in a real run depends on data.
7. A program's assertions on its values hold in a healthy run, and so do its checks with `if` before it
   raises an error. `torch.testing.assert_close` is such a check; `torch.jit.trace` compares with it what it
   traced, and calls the module once more where both are close (`torch/jit/_trace.py`, `_check_trace`).
8. `SyncBatchNorm` leaves out ranks whose input is empty: the other ranks are taken to be as this one, whose
   is not.
9. transformers' beam search ends where no open beam can become better, and cuts its result to the longest one
   written: it is taken to go on to the longest length it may, which needs the most memory.
10. Whisper cuts its tokens where two timestamps follow each other: none are taken to be among them, so every
    window of the sound is one segment, and none is processed twice. Where the generation's configuration has
    no `no_timestamps_token_id` that is a fact: timestamps begin behind the vocabulary
    (`transformers/models/whisper/generation_whisper.py`, `_set_return_timestamps`).
11. Assisted decoding keeps the drafted tokens that the model itself would have chosen (`_assisted_decoding`,
    `n_matches`): none are, so the model is called once a token, and every length a sequence can have occurs
    with all the candidates it can have there. Whichever are accepted, a run has some of these lengths: its
    peak is no larger. It may be where a schedule drafts more after a success
    (`num_assistant_tokens_schedule="heuristic"`), or fewer after a failure.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch

from . import checks
from .own import OWN

_Answer = TypeVar("_Answer")
# Folders whose code only passes a question on to whoever asked.
_PASSED_ON = (f"{Path(torch.__file__).parent}/", *OWN)
_ASSERTED = "what the program asserts of its values is assumed to hold"
# (end of the file's path, function or "" for any) -> (value, what is assumed).
BRANCHES: dict[tuple[str, str], tuple[bool, str]] = {
    ("transformers/modeling_utils.py", "warn_if_padding_and_no_attention_mask"): (
        False,
        "no padding token is assumed among the inputs",
    ),
    ("transformers/masking_utils.py", ""): (False, "attention masks passed in are assumed to mask something"),
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
    ("torch/testing/_comparison.py", "_compare_regular_values_close"): (True, _ASSERTED),
}

# Whether any element is true, which is not asked but computed with: (end of the file's path, function) -> the
# same.
FLAGS: dict[tuple[str, str], tuple[bool, str]] = {
    ("transformers/generation/utils.py", "_prepare_attention_mask_for_generation"): (
        False,
        "no padding token is assumed among the inputs",
    )
}

# How many elements are not zero: (end of the file's path, function) -> (count, what is assumed).
COUNTS: dict[tuple[str, str], tuple[int, str]] = {
    ("transformers/models/whisper/generation_whisper.py", "_retrieve_segment"): (
        0,
        "no timestamps are assumed among Whisper's tokens, as without return_timestamps: every window of"
        " the sound is one segment",
    )
}

_STEPS = (
    "adaptive ODE solvers are assumed to accept every step, and to need one for each point in time that is"
    " asked for"
)
_REJECTED = (
    "assisted decoding: none of the drafted tokens are assumed to be accepted, and as many to be drafted as"
    " may be; every length of the sequence is met with all its candidates, so a run that accepts some has no"
    " more allocated at its peak (unless its schedule drafts more after a success); what the allocator holds"
    " may differ either way"
)
_GENERATION = "transformers/generation/utils.py"
_looping: set[int] = set()  # calls that have been told to go on

# Where one function takes several: (end of the file's path, part of the line that asks) -> the same.
# A value of None: yes the first time one call of the function asks, no the second: a loop that runs once.
LINES: dict[tuple[str, str], tuple[bool | None, str]] = {
    ("torchdiffeq/_impl/rk_common.py", "if accept_step"): (True, _STEPS),
    ("torchdiffeq/_impl/rk_common.py", "while next_t > self.rk_state.t1"): (None, _STEPS),
    ("torch/optim/lbfgs.py", "ys > 1e-10"): (
        True,
        "L-BFGS is assumed to remember every step, until its history is full",
    ),
    ("torch/optim/lbfgs.py", "abs(gtd_new) <= -c2 * gtd"): (
        True,
        "L-BFGS's line search is assumed to take the first step it tries",
    ),
}


def assumed() -> tuple[bool, str] | None:
    """Return the value assumed for a flag asked for by the code that is running, and the note; None where
    there is none."""
    asserted = checks.passes(reading(_PASSED_ON))
    if asserted is not None:
        return asserted, _ASSERTED
    for frame in _outwards():
        path, name = _place(frame)
        for (ending, function), answer in BRANCHES.items():
            if path.endswith(ending) and function in ("", name):
                return answer
        for (ending, asks), (value, note) in LINES.items():
            if path.endswith(ending) and asks in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
                # Only steps whose gradient is wanted take memory one after the other.
                return (torch.is_grad_enabled() and _once(id(frame)) if value is None else value), note
    asserted = checks.passes(reading(OWN))  # a check of PyTorch's own
    return None if asserted is None else (asserted, _ASSERTED)


def counted() -> tuple[int, str] | None:
    """Return how many elements are not zero for the code that asks for their places, and the note; None where
    nothing is assumed."""
    return _for_whoever_asks(COUNTS)


def divides_product() -> bool:
    """Return whether the gradient of a product asks which of its unknown factors are zero (`prod_backward`,
    `FunctionsManual.cpp`): none is taken to be, as by the tracer, and it divides by each."""
    node: Any = torch._C._current_autograd_node()
    return node is not None and node.name() == "ProdBackward0"


def any_true() -> tuple[bool, str] | None:
    """Return whether any element is true for the code that computes with it, and the note; None where nothing
    is assumed."""
    return _for_whoever_asks(FLAGS)


def _for_whoever_asks(answers: Mapping[tuple[str, str], _Answer]) -> _Answer | None:
    """Return the table's answer for the file and function of the code that asks; None if it has none."""
    path, function = _place(_asking())
    return next(
        (answer for (ending, name), answer in answers.items() if path.endswith(ending) and name == function),
        None,
    )


def reading(folders: str | tuple[str, ...]) -> str:
    """Return the line that reads a value now, "path:12": the innermost one outside these folders."""
    frame = _asking(folders)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _outwards() -> Iterator[FrameType]:
    """Yield the frames that are running, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _asking(folders: str | tuple[str, ...] = _PASSED_ON) -> FrameType | None:
    """Return the first frame from here outwards that is neither PyTorch's code nor this project's: whoever
    asks. A subclass of tensors passes every question on to PyTorch by its own `__torch_function__`."""
    return next(
        (
            frame
            for frame in _outwards()
            if frame.f_code.co_name != "__torch_function__"
            and not frame.f_code.co_filename.startswith(folders)
        ),
        None,
    )


def _place(frame: FrameType | None) -> tuple[str, str]:
    """Return a frame's file, with slashes, and its function; empty where there is none."""
    return ("", "") if frame is None else (frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name)


def _once(call: int) -> bool:
    """Return whether this call asks for the first time; it is forgotten when it has asked again."""
    first = call not in _looping
    (_looping.add if first else _looping.discard)(call)
    return first


def falls() -> bool:
    """Return whether the code that asks for a number watches it fall, and stops where it does not."""
    return any(_place(frame)[0].endswith("torch/optim/lbfgs.py") for frame in _outwards())


def generates() -> bool:
    """Return whether the program is in a call of a `generate`."""
    return any(frame.f_code.co_name == "generate" for frame in _outwards())


def everybody() -> bool:
    """Return whether it is `SyncBatchNorm`'s forward pass that asks how many ranks have an input: all of
    them, as this one."""
    passing = takewhile(lambda frame: frame.f_code.co_filename.startswith(_PASSED_ON), _outwards())
    return any(_place(frame)[0].endswith("torch/nn/modules/_functions.py") for frame in passing)


def keeps_boxes() -> bool:
    """Return whether torchvision's `nms` asks, whose own kernel wrote to the mask unseen."""
    path, function = _place(_asking())
    return path.endswith("torchvision/ops/boxes.py") and function == "nms"


def rejected() -> str | None:
    """Return the note, where it is assisted decoding that counts how many drafted tokens are accepted: none;
    None elsewhere."""
    frame = _asking()
    path, function = _place(frame)
    counts = (
        frame is not None
        and path.endswith(_GENERATION)
        and function in ("_assisted_decoding", "_speculative_sampling")
        and "n_matches = " in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    )
    return _REJECTED if counts else None


def longest() -> int | None:
    """Return the most tokens that may stand in a sequence of the beam search whose own code asks for a value;
    None elsewhere."""
    frame = _asking()
    path, function = _place(frame)
    if frame is None or not path.endswith(_GENERATION) or function != "_beam_search":
        return None
    return int(frame.f_locals["max_length"])
